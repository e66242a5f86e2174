"""Holds deletions that look like an accident until somebody confirms them; see `state/confirmation.py`.

What waits is written on the NodeClaim (on the Node where that was deleted by itself), so that the next leader, the state and `dovetail why` see the
same, and the pods of its node get no other place.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.command import is_marked
from provisioner.apis.core import ConfigMap, Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import ObjectMeta
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.kube.events import Recorder
from provisioner.kube.resources import Bare, Resource
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.runtime.object_reference import node_reference, reference_of
from provisioner.state.cluster import Cluster
from provisioner.state.confirmation import (
    WINDOW,
    DeletionGuard,
    Installation,
    guard_due,
    guard_of,
    is_cascade,
    is_confirmed,
    is_older,
    mass_deleted,
    node_guard_due,
    unexplained,
    why_waits,
)
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.metrics import GaugeSeries, gauge
from provisioner.termination.deletion_marks import DeletionMarks, has_marks
from provisioner.values.message import Said

POLL_SECONDS: Final = 0.5
ABOVE_SECONDS: Final = 5.0
_DEFINITION: Final = f"{resources.NODECLAIMS.plural}.{resources.NODECLAIMS.group}"
_POOLS: Final = Resource(
    "karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False, decode=msgspec.json.Decoder(Bare).decode
)
_MANAGER: Final = "dovetail"
_CLAIM: Final = "NodeClaim"
_FOREGROUND: Final = "foregroundDeletion"
"""Of an object whose dependents are deleted with it: a Node then goes for its NodeClaim."""
_EVENTS_AT_ONCE: Final = 50
_EVENT_SECONDS: Final = 900.0
"""After which an event is published again: the API server forgets them after an hour."""
_log = logs.get_logger(__name__)
_AWAITING = gauge(
    "dovetail_nodeclaims_awaiting_confirmation",
    "NodeClaims that are being deleted and wait for the annotation dovetail.dev/confirm-deletion, by the guard that holds them: installation, mass-deletion.",
    ("guard",),
)


@dataclass(frozen=True, slots=True)
class _Above:
    """What is above NodeClaims, past every cache: metadata of NodePools by name, and whether the definition of NodeClaims is being deleted.

    Attributes:
        at: when it was read, in monotonic seconds.
    """

    at: float = float("-inf")
    pools: Mapping[str, ObjectMeta] = field(default_factory=dict)
    definition_ends: bool = False


@dataclass(frozen=True, slots=True)
class _Held:
    """What waits.

    Attributes:
        about: the NodeClaim, or the Node that was deleted by itself.
        guard: that holds it.
        marks_left: whether what should be written on it was refused.
        confirmed: whether its user has confirmed it, which could not be written yet.
    """

    about: NodeClaim | Node
    guard: DeletionGuard
    marks_left: bool
    confirmed: bool

    @property
    def uid(self) -> str:
        return self.about.metadata.uid

    @property
    def name(self) -> str:
        return self.about.metadata.name

    @property
    def kind(self) -> str:
        return self.about.kind


class DeletionGuards:
    """Of its methods `poll` decides and writes, and `why` is asked before anything is drained or ended. Any thread may ask.

    Args:
        installed: the ConfigMap as it is known; `read` is whether it is known at all.
        namespace: of that ConfigMap.
        share: `--mass-deletion-guard`; 0 is off.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        writer: ClaimWriter,
        recorder: Recorder,
        clock: Clock,
        *,
        installed: Callable[[], ConfigMap | None],
        read: Callable[[], bool],
        namespace: str,
        share: float,
    ) -> None:
        self._cluster, self._client, self._writer, self._recorder = cluster, client, writer, recorder
        self._clock, self._installed, self._read, self._namespace = clock, installed, read, namespace
        self._share = share
        self._created: ConfigMap | None = None  # by us, and the watch has not told of it yet
        self._before = frozenset[str]()
        self._marks = DeletionMarks(client, writer)
        self._unwritten: dict[str, DeletionGuard] = {}  # UID of what waits, and does not say so: it was refused
        self._confirming = frozenset[str]()  # UIDs of what the ConfigMap confirmed, which was refused
        self._told = (0, 0)  # NodeClaims and Nodes of the last log
        self._again: dict[str, float] = {}  # UID of what waits -> when the next event is due
        self._since: dict[str, float] = {}  # UID of a NodeClaim -> when its deletion was first seen here
        self._above, self._looked = _Above(), float("-inf")
        self._series = GaugeSeries(_AWAITING)

    # ------------------------------------------------------------------ asked

    def why(self, claim: NodeClaim | None, node: Node | None = None) -> str:
        """What holds the end of a NodeClaim, or of a Node that is being deleted, in words; "" where nothing does."""
        installation = self._installation()
        metas = [one.metadata for one in (claim, node) if one is not None]
        if any(map(is_confirmed, metas)):
            return ""
        if node is not None and is_older(node.metadata, installation):
            alone = node_guard_due(node, claim, installation) is not None
            return why_waits(DeletionGuard.INSTALLATION, "Node" if alone else _CLAIM)
        with_claim = claim is not None and _FOREGROUND in claim.metadata.finalizers
        if node is not None and not with_claim:  # it was deleted by itself and goes, whatever its NodeClaim waits for
            return ""
        if claim is None or claim.metadata.deletion_timestamp is None:
            return ""
        guard = guard_of(claim) or self._unwritten.get(claim.metadata.uid) or guard_due(claim, installation)
        if guard is not None:
            return why_waits(guard)
        if not self._share or self._is_ours(claim):
            return ""
        if not self._is_judged(claim):
            return Said("it is not known yet whether it was deleted by a cascade (--mass-deletion-guard)")
        if self._is_cascade(claim) and self._is_undecided(claim):
            return Said(
                "it was deleted by a cascade, and more deletions may follow within a minute (--mass-deletion-guard)"
            )
        return ""

    def _installation(self) -> Installation:
        known = self._installed() or self._created
        if not self._read() or known is None:
            return Installation(before=self._before)
        return Installation(known.metadata.creation_timestamp, confirmed=is_confirmed(known.metadata))

    @staticmethod
    def _is_ours(claim: NodeClaim) -> bool:
        return is_marked(claim) or names.ENDED_FOR in claim.metadata.annotations

    def _is_judged(self, claim: NodeClaim) -> bool:
        """Whether what is above it was read after its deletion: watches tell of a NodePool that is gone later than of its NodeClaims."""
        since = self._since.get(claim.metadata.uid)
        return since is not None and since <= self._above.at

    def _is_undecided(self, claim: NodeClaim) -> bool:
        since = self._since.get(claim.metadata.uid)
        return since is None or self._clock.monotonic() - since < WINDOW.total_seconds()

    def _is_cascade(self, claim: NodeClaim) -> bool:
        return is_cascade(claim, self._above.pools, definition_ends=self._above.definition_ends)

    # ------------------------------------------------------------------ acting

    def begin(self) -> None:
        """Before anything else of a term: so that nothing is planned for pods of a node that stays."""
        claims = {one.metadata.uid for one in self._cluster.claims() if one.metadata.deletion_timestamp is not None}
        self._before = frozenset(claims | {one.metadata.uid for one in self._cluster.ending_nodes()})
        try:
            self.poll()
        except ApiError as error:
            _log.warning("Failed to look for NodeClaims that await confirmation; retrying", error=str(error))

    def poll(self) -> float:
        """Write on NodeClaims and Nodes that they wait, or no longer wait, and let those go that were confirmed; seconds until the next look.

        An object whose write is refused is held, told of and counted like the others, and tried again.

        Raises:
            ApiError: the ConfigMap could not be written, or the API server does not answer; everything else was done.
        """
        self._ensure_installation()
        installation, claims = self._installation(), self._cluster.claims()
        going = [one for one in claims if one.metadata.deletion_timestamp is not None and one.metadata.uid]
        now = self._clock.monotonic()
        self._since = {one.metadata.uid: self._since.get(one.metadata.uid, now) for one in going}
        cascade = self._mass_deleted(claims)
        self._marks.begin_round()
        held: list[_Held] = []
        for claim in self._marks.in_order(going):
            again = claim.name in cascade or self._unwritten.get(claim.metadata.uid) is DeletionGuard.CASCADE
            held += self._hold(claim, guard_due(claim, installation, cascade=again), installation)
        for node in self._marks.in_order(self._cluster.ending_nodes()):
            if names.TERMINATION_FINALIZER in node.metadata.finalizers:
                held += self._hold(node, node_guard_due(node, self._cluster.claim_of(node), installation), installation)
        self._unwritten = {one.uid: one.guard for one in held if one.marks_left}
        self._confirming = frozenset(one.uid for one in held if one.confirmed)
        self._note(held)
        if installation.confirmed:  # it is not to confirm the next accident as well
            body = {"metadata": {"annotations": {names.CONFIRM_DELETION: None}}}
            self._client.patch(resources.CONFIGMAPS, names.INSTALLATION_CONFIGMAP, body, self._namespace)
        self._marks.end_round()
        return POLL_SECONDS

    def _hold(self, one: NodeClaim | Node, guard: DeletionGuard | None, installation: Installation) -> list[_Held]:
        """What holds an object once what is due was written on it; empty where it may go."""
        before = guard_of(one)
        confirmed = guard is not None and (installation.confirmed or one.metadata.uid in self._confirming)
        if guard is None and before is None:
            return []
        marks: dict[str, str | None] = {names.AWAITS_CONFIRMATION: guard.value if guard else None}
        if confirmed:
            marks = {names.CONFIRM_DELETION: "true", names.AWAITS_CONFIRMATION: None}
        written = self._marks.write(one, marks)
        if written is None:
            return []
        left = not has_marks(written, marks)
        if guard is None and not left:
            self._tell_going(one)
        holds = guard or before
        if holds is None or not (left or (guard is not None and not confirmed)):
            return []
        return [_Held(written, holds, marks_left=left, confirmed=confirmed)]

    @staticmethod
    def _tell_going(one: NodeClaim | Node) -> None:
        if isinstance(one, Node):
            _log.info("A Node that is being deleted no longer waits for confirmation", node=one.metadata.name)
            return
        _log.info(
            "The deletion of a NodeClaim started after Dovetail was installed; it no longer waits for confirmation",
            nodeclaim=one.name,
        )

    def _note(self, held: Sequence[_Held]) -> None:
        claims = [one for one in held if one.kind == _CLAIM]
        nodes = [one for one in held if one.kind != _CLAIM]
        self._series.replace("all", Counter((str(one.guard),) for one in claims).items())
        if claims and len(claims) != self._told[0]:
            _log.warning(
                "NodeClaims that are being deleted await confirmation",
                nodeclaims=len(claims),
                first=claims[0].name,
                annotation=names.CONFIRM_DELETION,
            )
        if nodes and len(nodes) != self._told[1]:
            _log.warning(
                "Nodes that are being deleted await confirmation",
                nodes=len(nodes),
                first=nodes[0].name,
                annotation=names.CONFIRM_DELETION,
            )
        self._told = len(claims), len(nodes)
        self._publish(held)

    def _publish(self, held: Sequence[_Held]) -> None:
        """A few at a time: of more the recorder would remember none, and lose the events of others."""
        now = self._clock.monotonic()
        self._again = {one.uid: self._again[one.uid] for one in held if one.uid in self._again}
        due = (one for one in held if now >= self._again.get(one.uid, now))
        for one in itertools.islice(due, _EVENTS_AT_ONCE):
            self._again[one.uid] = now + _EVENT_SECONDS
            about = one.about
            reference = node_reference(about) if isinstance(about, Node) else reference_of(about)
            self._recorder.publish(
                reference, "Warning", "AwaitsConfirmation", f"Deletion waits: {why_waits(one.guard, one.kind)}"
            )

    def _ensure_installation(self) -> None:
        """Write the ConfigMap where there is none: whatever was deleted before waits from then on."""
        if self._installed() is not None:
            self._created = None
            return
        if not self._read():
            return
        labels = {"app.kubernetes.io/name": "dovetail", "app.kubernetes.io/component": "provisioner"}
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": names.INSTALLATION_CONFIGMAP, "namespace": self._namespace, "labels": labels},
        }
        try:  # again until the watch tells of it: somebody may have deleted it since
            self._created = self._client.apply(
                resources.CONFIGMAPS, names.INSTALLATION_CONFIGMAP, body, _MANAGER, self._namespace
            )
        except ApiError as error:
            self._created = None
            _log.warning("Could not write the ConfigMap of the installation; retrying", error=str(error))

    def _mass_deleted(self, claims: Iterable[NodeClaim]) -> frozenset[str]:
        if not self._share:
            return frozenset()
        every = tuple(claims)
        going = unexplained(every, {one.name for one in every if self._is_ours(one)})
        if going and self._clock.monotonic() - self._looked >= ABOVE_SECONDS:
            self._look_above()
        deleted = {
            one.name: one.metadata.deletion_timestamp
            for one in going
            if one.metadata.deletion_timestamp is not None and self._is_cascade(one)
        }
        return mass_deleted(deleted, share=self._share, nodes=len(every))

    def _look_above(self) -> None:
        self._looked = self._clock.monotonic()
        try:
            definition = self._client.find(resources.CRDS, _DEFINITION)
            pools = {one.metadata.name: one.metadata for one in self._client.list(_POOLS)}
        except ApiError as error:
            _log.warning("Could not read NodePools and the definition of NodeClaims; retrying", error=str(error))
            return
        ends = definition is not None and definition.metadata.deletion_timestamp is not None
        self._above = _Above(self._looked, pools, definition_ends=ends)
