"""`dovetail uninstall --drain`: has the running provisioner drain and terminate every node of its own."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.leases import SeenLease
from provisioner.apis.reports import LEASE_NAME
from provisioner.cli.why.gathering import WhyObjects, from_cluster
from provisioner.cli.why.world import local
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config_maps import change_config_map
from provisioner.kube.errors import Conflict, NotFound
from provisioner.leaving.draining import next_to_delete, why_waiting, with_launches_paused, without_room
from provisioner.options import Options
from provisioner.state.pause import PAUSED
from provisioner.support.clock import Clock
from provisioner.values.errors import RefusedError
from provisioner.values.printable import listed

_LOOK_SECONDS: Final = 2.0
_TELL_SECONDS: Final = 30.0
_STALLED_SECONDS: Final = 900.0
_MOST_NAMED: Final = 10
_KINDS: Final[tuple[resources.Resource[Any], ...]] = (resources.NODEPOOLS, resources.NODES, resources.NODECLAIMS)


class Drainage:
    """Drains one cluster. Arguments as of `leaving.departure.Departure`; so are errors."""

    def __init__(
        self, client: Client, clock: Clock, namespace: str, say: Callable[[str], object], *, dry_run: bool
    ) -> None:
        self._client, self._clock, self._namespace = client, clock, namespace
        self._say, self._dry_run = say, dry_run

    def check(self, *, leave_pending: bool) -> None:
        """Whether it may begin; nothing is written.

        Raises:
            RefusedError: no provisioner leads, or pods find no room on other nodes and may not be left pending.
        """
        if not self._leads():
            raise RefusedError(
                f"no provisioner renews Lease {self._namespace}/{LEASE_NAME}, and --drain needs a running one. Start it, or keep the nodes "
                "with --keep-nodes"
            )
        found = local(from_cluster(self._client, self._namespace), Options(), self._clock.now())
        pending = without_room(found.snapshot, found.prepared)
        if not pending:
            return
        named = listed((pod.key for pod in pending), _MOST_NAMED)
        if not leave_pending:
            raise RefusedError(
                f"{len(pending)} pods do not fit on nodes that Dovetail does not manage: {named}. Add such nodes, or leave these pods "
                "pending with --leave-pending"
            )
        self._say(f"{len(pending)} pods will be pending: {named}")

    def run(self) -> None:
        """Pause launches and cordon the nodes, and delete NodeClaims as budgets allow, until none is left. A dry run tells all of it once.

        Launches are paused again where somebody releases them, and nodes that join meanwhile are cordoned.

        Raises:
            RefusedError: nothing has changed for a quarter of an hour.
        """
        if self._dry_run:
            self._tell_all()
            return
        seen: object = None
        changed = told = self._clock.monotonic()
        while claims := self._after_pause():
            self._cordon(claims)
            self._delete_next()
            now, state = self._clock.monotonic(), [(one.name, one.status.conditions) for one in claims]
            if state != seen:
                seen, changed = state, now
            if now - changed > _STALLED_SECONDS:
                raise RefusedError(
                    f"{len(claims)} nodes remain, and nothing has changed for 15 minutes: {_waiting(claims)}"
                )
            if now - told >= _TELL_SECONDS:
                told = now
                self._say(f"{len(claims)} nodes remain: {_waiting(claims)}")
            self._clock.sleep(_LOOK_SECONDS)

    def _after_pause(self) -> list[NodeClaim]:
        """The NodeClaims, read once launches are paused: until somebody releases them, there come no more."""
        self._pause_launches()
        return self._client.list(resources.NODECLAIMS)

    def _tell_all(self) -> None:
        claims = self._after_pause()
        self._cordon(claims)
        for one in claims:
            if one.metadata.deletion_timestamp is None:
                self._say(f"nodeclaim/{one.name} deleted (dry run)")

    def _leads(self) -> bool:
        seen = self._look(SeenLease())
        while seen.is_doubtful(self._clock.monotonic()):
            self._clock.sleep(1.0)
            seen = self._look(seen)
        return seen.is_renewed(self._clock.monotonic())

    def _look(self, seen: SeenLease) -> SeenLease:
        return seen.after(self._client.find(resources.LEASES, LEASE_NAME, self._namespace), self._clock.monotonic())

    def _pause_launches(self) -> None:
        name, dry_run = names.SETTINGS_CONFIGMAP, self._dry_run

        def paused(data: Mapping[str, str]) -> Mapping[str, str]:
            return {PAUSED: with_launches_paused(data.get(PAUSED, ""))}

        if written := change_config_map(self._client, name, self._namespace, paused, dry_run=dry_run):
            self._say(f"configmap/{name} {PAUSED}={written[PAUSED]}{' (dry run)' if dry_run else ''}")

    def _cordon(self, claims: list[NodeClaim]) -> None:
        """Keep pods from moving to nodes that are drained next."""
        mine = {one.status.node_name for one in claims}
        for node in self._client.list(resources.NODES):
            name = node.metadata.name
            if name not in mine or node.spec.unschedulable:
                continue
            if not self._dry_run:
                with contextlib.suppress(NotFound):
                    self._client.patch(resources.NODES, name, {"spec": {"unschedulable": True}})
            self._say(f"node/{name} cordoned{' (dry run)' if self._dry_run else ''}")

    def _delete_next(self) -> None:
        objects = WhyObjects()
        for kind in _KINDS:
            objects.add(kind, self._client.list(kind))
        for claim in next_to_delete(local(objects, Options(), self._clock.now()).snapshot):
            try:
                self._client.delete(resources.NODECLAIMS, claim.name, uid=claim.metadata.uid)
            except (NotFound, Conflict):
                continue
            self._say(f"nodeclaim/{claim.name} deleted")


def _waiting(claims: list[NodeClaim]) -> str:
    return listed(why_waiting(claims), _MOST_NAMED, "; ")
