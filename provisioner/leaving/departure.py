"""Leaves a cluster: looks, decides and writes, over and over, until nothing is left to do."""

import itertools
from collections.abc import Callable
from typing import Final

from provisioner.apis.core import Lease
from provisioner.apis.leases import SeenLease
from provisioner.apis.reports import LEASE_NAME
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.leaving import decisions
from provisioner.leaving.belongings import Belongings, Keep, LeavePlan
from provisioner.leaving.gathering import CloudTags, gathered, marked_pods
from provisioner.leaving.writes import carry_out
from provisioner.support.clock import Clock
from provisioner.values.errors import RefusedError
from provisioner.values.message import Said

_ROUNDS: Final = 20
_ROUND_SECONDS: Final = 0.5
_STAMPED_SECONDS: Final = 3.0
"""An API server goes on for a moment with a webhook that is gone; with an admission policy for up to a second (measured: 0.75 s)."""
_LOOK_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 90.0
"""A provisioner that is told to stop has ended after 30 s, and its Lease 15 s later."""


class Departure:
    """What leaves one cluster.

    Args:
        client: an administrator's.
        namespace: of the programs.
        say: is told each step, after it was taken.
        tags: of the cloud's instances, for `Keep.FOR_NOBODY`.
        dry_run: nothing is written; `say` is told what would be.

    Every method raises RefusedError for what the user has to do first, ApiError where the cluster does not answer, and UndeterminedError where it or the
    cloud refuses a write.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespace: str,
        say: Callable[[str], object],
        *,
        tags: CloudTags | None = None,
        dry_run: bool = False,
    ) -> None:
        self._client, self._clock, self._namespace = client, clock, namespace
        self._say, self._tags, self._dry_run = say, tags, dry_run

    def stop_stamping(self) -> tuple[str, ...]:
        """Stop stamping pods, remove our gates, and have pods made anew that wait for our scheduler; what is left to the user, in sentences."""
        found = self._gathered()
        left = self._until_done(decisions.stamping, found)
        if found.admission and not self._dry_run:
            self._clock.sleep(_STAMPED_SECONDS)
            left = self._until_done(decisions.stamping, self._gathered())
        return (*decisions.created_again(found), *left)

    def keep_nodes(self, keep: Keep) -> tuple[str, ...]:
        """Stop the provisioner, and leave its nodes to Karpenter or to nobody; what is left to the user, in sentences.

        No instance ends and no pod goes. Where it was interrupted, call it again.
        """
        found = self._gathered(keep)
        for why in (decisions.why_not_stopped(found), decisions.why_not_kept(found, keep)):
            if why:
                raise RefusedError(why)
        self._carry_out(decisions.stopping(found))
        quiet = self._await_silence()
        self._withdraw_costs()

        def decide(found: Belongings) -> LeavePlan:
            again = quiet.after(found.lease, self._clock.monotonic())
            if not self._dry_run and again.holder and again != quiet:
                raise RefusedError(
                    f"a provisioner has started again: {again.holder} holds Lease {self._namespace}/{LEASE_NAME}. "
                    "Stop it, and run this command again"
                )
            if why := decisions.why_not_kept(found, keep):
                raise RefusedError(why)
            return decisions.keeping(found, keep)

        return self._until_done(decide, self._gathered(keep), keep)

    def _withdraw_costs(self) -> None:
        """Take back deletion costs of pods; those that change meanwhile are looked at again, for so many rounds."""
        for _ in range(_ROUNDS):
            plan = decisions.withdrawing(marked_pods(self._client))
            self._carry_out(plan)
            if self._dry_run or not plan.next_stage:
                return

    def _gathered(self, keep: Keep | None = None) -> Belongings:
        return gathered(self._client, self._namespace, self._tags if keep is Keep.FOR_NOBODY else None)

    def _until_done(
        self, decide: Callable[[Belongings], LeavePlan], found: Belongings, keep: Keep | None = None
    ) -> tuple[str, ...]:
        plan = decide(found)
        for number in range(_ROUNDS):
            if not plan.next_stage:
                return plan.problems
            self._carry_out(plan)
            if self._dry_run:
                return plan.problems
            if number:
                self._clock.sleep(_ROUND_SECONDS)  # a controller may still make what was taken away
            plan = decide(self._gathered(keep))
        told = Said(
            f"something undoes the changes of this command ({_ROUNDS} times: {plan.next_stage[0]}). Find out what it is, and stop it"
        )
        if keep is None:  # any tenant may make pods that wait for us, over and over: nodes are not held up by that
            return (*plan.problems, told)
        raise RefusedError(told)

    def _carry_out(self, plan: LeavePlan) -> None:
        if not self._dry_run:
            carry_out(plan.next_stage, self._client, self._say, self._tags)
            return
        for step in itertools.chain.from_iterable(plan.stages):
            self._say(Said(f"{step} (dry run)"))

    def _await_silence(self) -> SeenLease:
        """Wait until nobody renews the provisioner's Lease; as it is then.

        Raises:
            RefusedError: somebody goes on renewing it.
        """
        seen = SeenLease().after(self._lease(), began := self._clock.monotonic())
        if not self._dry_run and seen.holder:
            self._say(Said(f"waiting until {seen.holder} no longer renews Lease {self._namespace}/{LEASE_NAME}"))
        while not self._dry_run and not seen.is_silent(now := self._clock.monotonic()):
            if now - began > _PATIENCE_SECONDS:
                raise RefusedError(
                    f"{seen.holder} still renews Lease {self._namespace}/{LEASE_NAME}. Stop this provisioner, and run this command again"
                )
            self._clock.sleep(_LOOK_SECONDS)
            seen = seen.after(self._lease(), self._clock.monotonic())
        return seen

    def _lease(self) -> Lease | None:
        return self._client.find(resources.LEASES, LEASE_NAME, self._namespace)
