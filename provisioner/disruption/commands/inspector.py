"""Looks at disruption commands: `CommandInspector` gathers what `progress` and `validation` decide from, in the caches and at the API server."""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import msgspec

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.command import CandidateRecord, CommandRecord, TerminateFirst
from provisioner.apis.core import Node, PodDisruptionBudget
from provisioner.apis.interruption import INSTANCE_TERMINATED, interruption_of
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition, is_true
from provisioner.apis.plan import PlanError, decode_plan
from provisioner.apis.pods import Pod, is_evictable
from provisioner.apis.reboot import reboots_of
from provisioner.disruption.commands.book import CommandMemory
from provisioner.disruption.commands.progress import CandidateFacts, CommandFacts, CommandVerdict, ReplacementState
from provisioner.disruption.commands.validation import Sighted, verdict
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.kube.survey import survey
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.runtime.live_reads import Postponed
from provisioner.scheduling.node_claims import NewClaim
from provisioner.state.cluster import Cluster
from provisioner.state.keys import NodeKey
from provisioner.support.clock import Clock
from provisioner.termination.disrupted_taint import DisruptedTaints, is_disrupted
from provisioner.termination.terminator import InstanceSight, Terminator
from provisioner.values.message import Said


class CommandInspector:
    """Writes nothing, but closes again what somebody opened. Its arguments are those of `CommandQueue`."""

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        writer: ClaimWriter,
        taints: DisruptedTaints,
        terminator: Terminator,
        clock: Clock,
        timeout: timedelta,
        postponed: Postponed,
        is_broken: Callable[[Node], bool],
    ) -> None:
        self._cluster, self._client, self._writer, self._clock = cluster, client, writer, clock
        self._taints, self._terminator = taints, terminator
        self.timeout, self._postponed, self._is_broken = timeout, postponed, is_broken

    def own(self, one: CandidateRecord) -> NodeClaim:
        """The NodeClaim of a candidate; raises NotFound where it is gone, or going."""
        claim = self._cluster.claim(one.name)
        if claim is None or claim.metadata.uid != one.uid or claim.metadata.deletion_timestamp is not None:
            raise NotFound(404, "NotFound", Said(f"NodeClaim {one.name} is being deleted or no longer exists"))
        return claim

    def pools(self, record: CommandRecord) -> list[str]:
        claims = (self._cluster.claim(name) for name in record.candidate_names)
        return sorted({claim.pool for claim in claims if claim is not None})

    def policy(self, record: CommandRecord, claim: NodeClaim) -> str:
        """The consolidationPolicy that a disruption followed; "" for drift and repair, or where the NodePool is gone."""
        if record.reason in (names.REASON_DRIFTED, names.REASON_UNHEALTHY):
            return ""
        pools = (view.pool for view in self._cluster.snapshot().pools if view.pool.metadata.name == claim.pool)
        return next((pool.spec.disruption.consolidation_policy for pool in pools), "")

    def remembered(self, record: CommandRecord, name: str) -> NewClaim | None:
        """A replacement as the record has it, which anybody may have written who may write NodeClaims; None for no such thing."""
        body = next((one.body for one in record.replacements if one.name == name), None) or {}
        try:
            claim = msgspec.convert(body, NodeClaim, strict=False)
        except msgspec.ValidationError:
            return None
        annotations = claim.metadata.annotations
        if claim.metadata.name != name or claim.metadata.uid or annotations.get(names.REPLACES_ANNOTATION) != record.id:
            return None
        try:
            plan = decode_plan(claim.metadata.annotations.get(names.PLAN_ANNOTATION, "") or "{}")
        except PlanError:
            return NewClaim(dict(body), claim)
        pods = (self._cluster.pod(uid) for entry in plan.pods for uid in entry.uids)
        return NewClaim(dict(body), claim, tuple(pod for pod in pods if pod is not None))

    def facts(
        self, record: CommandRecord, memory: CommandMemory, found: CommandVerdict | None, *, drained: bool = False
    ) -> CommandFacts:
        """One instant of a command; what is seen of its replacements is kept in its memory. `found` and `drained` as of `CommandFacts`."""
        candidates = tuple(self._candidate(record, one) for one in record.candidates)
        replacements = tuple((name, self.replacement(record, name, memory)) for name in record.replacement_names)
        bodies = {one.name for one in record.replacements if one.body is not None}
        return CommandFacts(
            candidates=candidates,
            replacements=replacements,
            creatable=frozenset(bodies | memory.new.keys()),
            stalled=self._stalled(record, memory, (record.phase, candidates, replacements)),
            verdict=found,
            drained=drained,
            overdue=self._overdue(record.first),
        )

    def _overdue(self, first: TerminateFirst | None) -> str:
        if first is None or first.until is None or self._clock.now() < first.until:
            return ""
        return Said(f"its pods did not leave within {first.bound_seconds} s, and nothing forces them")

    def _candidate(self, record: CommandRecord, one: CandidateRecord) -> CandidateFacts:
        claim = self._cluster.claim(one.name)
        if claim is None or claim.metadata.uid != one.uid:
            return CandidateFacts(one.name, there=False)
        node = self._cluster.node_of(claim)
        reason = condition(claim.status.conditions, names.DISRUPTION_REASON)
        return CandidateFacts(
            one.name,
            deleting=claim.metadata.deletion_timestamp is not None,
            joined=node is not None and self._cluster.rivals(claim) is None,
            marked=node is not None and is_disrupted(node) and reason is not None and reason.reason == record.reason,
            interrupted=self.is_interrupted(claim),
        )

    def replacement(self, record: CommandRecord, name: str, memory: CommandMemory) -> ReplacementState:
        claim = self._cluster.claim(name)
        if name in memory.failed:
            return ReplacementState.FAILED
        if claim is None or not claim.metadata.uid:
            return ReplacementState.FAILED if name in memory.seen else ReplacementState.ABSENT
        memory.seen.add(name)
        if is_true(claim.status.conditions, names.LAUNCHED):
            memory.launched.add(name)
        if claim.metadata.annotations.get(names.REPLACES_ANNOTATION) != record.id:
            return ReplacementState.FAILED  # somebody else's has the name
        if claim.metadata.deletion_timestamp is not None or self.is_interrupted(claim):
            return ReplacementState.FAILED
        is_ready = is_true(claim.status.conditions, names.INITIALIZED) and self._cluster.node_of(claim) is not None
        return ReplacementState.INITIALIZED if is_ready else ReplacementState.COMING

    def is_interrupted(self, claim: NodeClaim) -> bool:
        mark = interruption_of(claim.metadata.annotations)
        return mark is not None and mark.has_begun(self._clock.now())

    def is_at_fault(self, replacement: str, memory: CommandMemory) -> bool:
        """Whether a replacement that failed had an instance that did not become a node, or is refused by the API server.

        One that its cloud takes back is no fault of the pool; one that ended before its Node registered is.
        """
        claim = self._cluster.claim(replacement)
        if claim is not None and self.is_interrupted(claim) and not self._ended_early(claim):
            return False
        return replacement in memory.launched or replacement in memory.failed

    @staticmethod
    def _ended_early(claim: NodeClaim) -> bool:
        mark = interruption_of(claim.metadata.annotations)
        ended = mark is not None and mark.reason == INSTANCE_TERMINATED
        return ended and not is_true(claim.status.conditions, names.REGISTERED)

    def _stalled(self, record: CommandRecord, memory: CommandMemory, looks: object) -> str:
        now = self._clock.monotonic()
        claims = [self._cluster.claim(name) for name in record.replacement_names]
        steps = [[(one.type, one.status) for one in claim.status.conditions] for claim in claims if claim is not None]
        if memory.looks is None or memory.looks[0] != (looks, steps):
            memory.looks = ((looks, steps), now)
        seconds = now - memory.looks[1]
        return Said(f"no progress for {seconds:.0f} s") if seconds >= self.timeout.total_seconds() else ""

    def why_postponed(self, those: Iterable[str]) -> str:
        """Why the caches may not show one of these candidates as it is; "" where they do."""
        claims = (claim for name in those if (claim := self._cluster.claim(name)) is not None)
        return next(filter(None, (self._postponed(claim, self._cluster.node_of(claim)) for claim in claims)), "")

    def validated(self, record: CommandRecord) -> CommandVerdict | None:
        """Whether the candidates may go, asked of the API server after they were closed; None where the command is another one now.

        Raises:
            ApiError: it is not known.
        """
        snapshot = self._cluster.snapshot()
        if record.replacements:  # a budget that allows nothing yet shows in the caches; only the last look is a list
            cached = [self._sighted_in_caches(record, name) for name in record.candidate_names]
            early = verdict(
                record.reason, cached, snapshot.pod_budgets, snapshot, replaced=True, first=record.first is not None
            )
            if early.waits:
                return early
        if why := self.why_postponed(record.candidate_names):
            return CommandVerdict(why, waits=True)
        if not self._is_current(record):
            return None
        sighted = [self._sighted(record, one) for one in record.candidates]
        budgets, bad = self._budgets(pod for one in sighted for pod in one.pods)
        replaced, first = bool(record.replacements), record.first is not None
        found = verdict(record.reason, sighted, budgets, snapshot, replaced=replaced, first=first)
        return CommandVerdict(bad) if bad and not found.objection else found

    def _is_current(self, record: CommandRecord) -> bool:
        """Read the NodeClaims of a command, for a watch may be behind; whether it still counts as it did."""
        claims = [self.own(one) for one in record.candidates]
        claims += (claim for name in record.replacement_names if (claim := self._cluster.claim(name)) is not None)
        for claim in claims:
            self._writer.read(claim)
        command = self._cluster.command_held_by(record.holder)
        return command is not None and command.record == record

    def _sighted(self, record: CommandRecord, one: CandidateRecord) -> Sighted:
        claim = self.own(one)
        sight = self._terminator.look(claim)
        if not all(map(is_disrupted, sight.nodes)):  # somebody opened it: pods that came are listed once it is closed
            for node in sight.nodes:
                self._taints.close(node)
            sight = self._terminator.look(claim)
        known = self._cluster.node_of(claim)
        both = (*sight.nodes, *((known,) if known is not None else ()))
        veto = names.DO_NOT_REPAIR if record.reason == names.REASON_UNHEALTHY else names.DO_NOT_DISRUPT
        return Sighted(
            one.name,
            sight.pods,
            unknown=_unknown(sight),
            protected=veto if _protected(veto, claim, *both) else "",
            forceful=_is_forceful(record, claim),
            awaited=bool(self._cluster.assigned(NodeKey(one.name))),
            stands=self._stands(record, claim, sight.nodes),
        )

    def _sighted_in_caches(self, record: CommandRecord, name: str) -> Sighted:
        claim = self._cluster.claim(name)
        if claim is None:
            return Sighted(name, stands=False)
        node = self._cluster.node_of(claim)
        stands = self._stands(record, claim, (node,) if node is not None else ())
        return Sighted(name, self._cluster.pods_of(claim), forceful=_is_forceful(record, claim), stands=stands)

    def _stands(self, record: CommandRecord, claim: NodeClaim, nodes: Sequence[Node]) -> bool:
        """Whether the reason of a command still holds for a candidate. One without a Node is another question."""
        if record.reason == names.REASON_DRIFTED:
            return is_true(claim.status.conditions, names.DRIFTED)
        unhealthy = record.reason == names.REASON_UNHEALTHY and not reboots_of(claim).failed
        return not unhealthy or not nodes or any(map(self._is_broken, nodes))

    def _budgets(self, pods: Iterable[Pod]) -> tuple[PodBudgets, str]:
        """Those of the namespaces of the pods as the API server has them now, and the first that cannot be decoded."""
        found: dict[str, tuple[PodDisruptionBudget, ...]] = {}
        bad = ""
        for name in sorted({pod.namespace for pod in pods if is_evictable(pod, self._clock.now())}):
            answer = survey(self._client, resources.PDBS, decode=resources.PDBS.decode, namespace=name)
            found[name] = tuple(answer.objects)
            bad = bad or next((Said(f"PodDisruptionBudget {one} cannot be decoded") for one in answer.unreadable), "")
        return PodBudgets(found), bad


def _unknown(sight: InstanceSight) -> str:
    if len(sight.nodes) > 1:
        return Said(
            f"Nodes {sight.nodes[0].metadata.name} and {sight.nodes[1].metadata.name} have the same provider ID"
        )
    return next(iter((*sight.unreadable, *sight.strangers)), "")


def _protected(veto: str, claim: NodeClaim, *nodes: Node) -> bool:
    annotations = [claim.metadata.annotations, *(node.metadata.annotations for node in nodes)]
    return any(found.get(veto) == "true" for found in annotations)


def _is_forceful(record: CommandRecord, claim: NodeClaim) -> bool:
    """Whether no pod holds a candidate for ever."""
    bounded = record.repair is not None and record.repair.grace_seconds is not None
    return bounded or bool(claim.spec.termination_grace_period)
