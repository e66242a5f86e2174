"""Carries out what is decided about gangs whose nodes do not all come (`gang_decisions`).

Everything follows from the NodeClaims and the pods, but since when: whoever leads next waits as long once more.
"""

import threading
from collections.abc import Callable, Collection
from math import inf
from typing import Final

from provisioner.apis.gangs import told
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launches import is_launched
from provisioner.kube.errors import ApiError
from provisioner.kube.events import Recorder
from provisioner.lifecycle.gang_decisions import SET_PATIENCE, GangTurn, decide, given_up
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.runtime import metrics
from provisioner.runtime.live_reads import DECIDED_SECONDS, Postponed, never
from provisioner.runtime.object_reference import tell_gang
from provisioner.state.cluster import Cluster
from provisioner.state.gang_places import ComingGang
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.values.message import EventMessage

POLL_SECONDS: Final = 1.0
_log = logs.get_logger(__name__)


class GangKeeper:
    """Looks at every gang that nodes come for, once a second, in one thread. `short` and `launched` may be called in any.

    Args:
        elsewhere: whether the pods of these NodeClaims would find places now that cost little more than those, which are of these.
        beside: that another Karpenter leads, as a sentence: nothing is given up then; "" where none does.
    """

    def __init__(
        self,
        cluster: Cluster,
        writer: ClaimWriter,
        recorder: Recorder,
        clock: Clock,
        *,
        elsewhere: Callable[[Collection[str], Collection[str]], bool],
        beside: Callable[[], str] = lambda: "",
        postponed: Postponed = never,
    ) -> None:
        self._cluster, self._writer, self._recorder, self._clock = cluster, writer, recorder, clock
        self._elsewhere, self._beside, self._postponed = elsewhere, beside, postponed
        self._lock = threading.Lock()
        self._short: dict[str, float] = {}  # claim -> since when nothing can be had for it
        self._held: dict[str, float] = {}  # group -> since when something that was launched for it waits
        self._replaced: set[str] = set()

    def short(self, claim: str, *, ever: bool) -> bool:
        """Nothing that a NodeClaim allows can be had now, or (not `ever`) at any time; whether it is decided here what becomes of it."""
        if not self._cluster.groups_awaiting(claim):
            return False
        with self._lock:
            since = self._short.setdefault(claim, self._clock.monotonic())
            self._short[claim] = since if ever else -inf
        return True

    def launched(self, claim: str) -> None:
        """A NodeClaim has its instance."""
        with self._lock:
            self._short.pop(claim, None)
        for key, nodes in self._cluster.gang_launched_with(claim).items():
            tell_gang(
                self._recorder,
                self._cluster,
                key,
                EventMessage(
                    "Normal",
                    "GangLaunched",
                    f"Launched all nodes for {told(key)} ({nodes}); its pods can run there when all of them are ready",
                ),
            )

    def poll(self) -> float:
        """Look once; seconds until the next look."""
        gangs, now = self._cluster.gangs_coming(), self._clock.monotonic()
        awaited = {one.claim.name for gang in gangs for one in gang.nodes}
        with self._lock:
            self._short = {name: since for name, since in self._short.items() if name in awaited}
            short = {name for name, since in self._short.items() if now - since >= SET_PATIENCE}
        holding = {gang.group for gang in gangs if any(one.launched for one in gang.nodes)}
        resting = {gang.group for gang in gangs if gang.rests}  # what is left of them waits for nothing
        self._held = {group: now if group in resting else self._held.get(group, now) for group in holding}
        self._replaced &= holding
        if not self._beside():
            for gang in gangs:
                self._look(gang, short, now)
        return POLL_SECONDS

    def _look(self, gang: ComingGang, short: Collection[str], now: float) -> None:
        held = now - self._held.get(gang.group, now)
        turn, claims = decide(gang, short, held, replaced=gang.group in self._replaced)
        match turn:
            case GangTurn.WAIT:
                return
            case GangTurn.DROP:
                self._delete(gang, claims, "insufficient_capacity")
            case GangTurn.ASK if self._elsewhere(claims, [one.claim.name for one in gang.nodes]):
                self._delete(gang, claims, "insufficient_capacity")
            case GangTurn.ASK:
                self._give_up(gang, {*given_up(gang), *claims}, "insufficient_capacity")
            case GangTurn.REPLACE:
                self._replaced.add(gang.group)
                self._held[gang.group] = now
                self._delete(gang, claims, "registration_timeout")
            case GangTurn.GIVE_UP:
                self._give_up(gang, claims, "hold_expired")

    def _give_up(self, gang: ComingGang, claims: Collection[str], reason: str) -> None:
        if not gang.rests:
            metrics.GANGS_GIVEN_UP.labels(reason).inc()
            self._let_rest(gang, claims)
        self._delete(gang, claims, "launch_set_given_up")

    def _let_rest(self, gang: ComingGang, claims: Collection[str]) -> None:
        seconds = self._cluster.group_rests(gang.group)  # first: what is free from now on is not for it
        _log.warning(
            "Gave up the nodes of a group because not all of them could be launched in time",
            group=gang.group,
            nodeclaims=len(claims),
            seconds=seconds,
        )
        tell_gang(
            self._recorder,
            self._cluster,
            gang.group,
            EventMessage(
                "Warning",
                "GangGivenUp",
                f"Not all nodes for {told(gang.group)} could be launched: {len(claims)} NodeClaims are deleted, and the group is planned again "
                f"in {seconds:.0f} s",
            ),
        )

    def _delete(self, gang: ComingGang, claims: Collection[str], reason: str) -> None:
        for claim in [one.claim for one in gang.nodes if one.claim.name in claims]:
            try:
                self._end(claim, reason)
            except ApiError as error:  # the next look sees what is left
                _log.warning("Failed to delete a NodeClaim; retrying", nodeclaim=claim.name, error=str(error))

    def _end(self, claim: NodeClaim, reason: str) -> None:
        if is_launched(claim) and self._postponed(claim, self._cluster.node_of(claim), patience=DECIDED_SECONDS):
            return
        self._writer.delete(claim, version=claim.metadata.resource_version)
        _log.warning("Deleting NodeClaim", nodeclaim=claim.name, reason=reason)
        metrics.claim_disrupted(claim, reason)
