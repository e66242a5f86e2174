"""The page of one instant: every node to scale with what runs on it, what waits and why, NodePools, commands, shortages and interruptions."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from provisioner.apis import names
from provisioner.apis.command import CommandRecord
from provisioner.apis.core import Node
from provisioner.apis.interruption import interruption_of
from provisioner.apis.karpenter import NodePool
from provisioner.apis.pods import Pod, is_daemon, is_mirror
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.costs import known_price
from provisioner.scheduling.capacity.hourly_price import usd_per_hour
from provisioner.scheduling.world import closed, why_closed
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import NodeView, PoolView
from provisioner.ui.classes import PageClasses, apart, system_of
from provisioner.ui.page import (
    LONGEST,
    NAMES_OF_ROW,
    NO_PODS,
    NODES_OF_ROW,
    Page,
    PageCommand,
    PageHistory,
    PageInterruption,
    PageNode,
    PagePool,
    PageShortage,
    PageSums,
    PageWaiting,
    PodsApart,
    few,
    seconds,
)
from provisioner.ui.sight import ALL, Sight
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import CPU, EMPTY, MEMORY, PODS, Resources
from provisioner.why.answers import PodAnswer
from provisioner.why.instant import Instant, namespaces_at
from provisioner.why.pods import unmet

MOST_WAITING: Final = 200
"""Rows of pods that wait."""
_TYPES_OF_ROW: Final = 12
_MOST_ROWS: Final = 500
"""Of NodePools, commands, shortages and interruptions, each."""
_LIMITS_OF_ROW: Final = 16
_MOST_SENTENCES: Final = 20
"""Of what the page leaves out."""
NO_HISTORY: Final = "No history: only the provisioner that leads keeps one, and this page is not made by it."
NOT_ASKED: Final = "Not looked at for this page; ask with: dovetail why pod {}/{}"
"""Answers have a share of the time, and are for some workloads: so much of a sentence there is always."""

_ANEW: Final = 100
"""After so many pages, classes that are used no more are forgotten."""
_NO_TYPES: Final = MappingProxyType[str, InstanceType]({})

Answers = Mapping[str, PodAnswer]
"""Why pods wait, by key of a class and a state of waiting: see `asked_about`."""


def asked_about(pods: Iterable[Pod], most: int) -> dict[str, Pod]:
    """One pod of each class that waits, oldest first; the key is that of its answer."""
    found: dict[str, Pod] = {}
    for pod in sorted(pods, key=lambda one: (one.created, one.uid)):
        key = answer_key(pod)
        if key not in found:
            if len(found) >= most:
                break
            found[key] = pod
    return found


def answer_key(pod: Pod) -> str:
    """Pods of one owner and one shape wait for the same reason, as long as their scheduler says the same."""
    owner = pod.owner.uid if pod.owner is not None else pod.uid
    return f"{owner} {pod.shape.key} {pod.unschedulable:d}"


def namespaces_of_pods(views: Iterable[NodeView], waiting: Iterable[Pod]) -> set[str]:
    """Of pods that run, are planned, or wait."""
    return {pod.namespace for view in views for pod in (*view.pods, *view.assigned)} | {
        one.namespace for one in waiting
    }


class _Row(NamedTuple):
    """A node as it was shown, and everything that it was made of."""

    view: NodeView
    node: Node | None
    record: CommandRecord | None
    types: Mapping[str, InstanceType]
    shown: PageNode


class PageMaker:
    """Makes pages for those who see as much, one after another: nodes that are the same objects as before are shown as before. Not thread-safe.

    Args:
        sight: of the viewer.
    """

    def __init__(self, sight: Sight = ALL) -> None:
        self._sight = sight
        self._classes: PageClasses | None = None
        self._rows: dict[NodeKey, _Row] = {}
        self._types: dict[str, tuple[tuple[InstanceType, ...], Mapping[str, InstanceType]]] = {}
        self._made = 0

    def page_of(
        self,
        instant: Instant,
        answers: Answers,
        *,
        source: str = "",
        title: str = "",
        history: PageHistory | None = None,
        no_history: str = NO_HISTORY,
    ) -> Page:
        """The page of an instant.

        Args:
            instant: of the cluster.
            answers: why pods wait, of those that were asked about.
            source: who made it.
            title: of the page.
            history: what the viewer may see of it,
            no_history: or why there is none.

        Cost: O(nodes), and O(pods) of those that changed, and of those that wait; of all, every `_ANEW` pages.
        """
        snapshot, sight = instant.snapshot, self._sight
        views = snapshot.nodes if sight.nodes else ()
        types = self._known_types(instant)
        classes = self._classes
        if classes is None or self._made % _ANEW == 0:
            every = (*(pod for view in views for pod in (*view.pods, *view.assigned)), *snapshot.pending)
            classes = self._classes = PageClasses(every, sight.sees)
            self._rows = {}
        self._made += 1
        records = {one.record.id: one.record for one in snapshot.commands}
        rows = {
            view.key: self._row(instant, view, records.get(view.command), types.get(view.pool, _NO_TYPES), classes)
            for view in views
        }
        self._rows = rows
        nodes = tuple([one.shown for one in rows.values()])
        usd: defaultdict[str, float] = defaultdict(float)
        for node in nodes:
            usd[node.pool] += node.usd or 0.0
        waiting, hidden = _waiting(instant, answers, classes, sight)
        return Page(
            at=seconds(snapshot.at),
            title=title,
            source=source,
            sums=_sums(views, nodes) if sight.nodes else None,
            classes=tuple(classes.all),
            nodes=nodes,
            waiting=waiting,
            hidden_waiting=hidden,
            pools=tuple(_pool(one, usd, sight) for one in snapshot.pools[:_MOST_ROWS]) if sight.pools else (),
            commands=tuple(_commands(instant, sight)),
            shortages=tuple(itertools.islice(_shortages(types.values()), _MOST_ROWS)) if sight.pools else (),
            interruptions=_interruptions(nodes),
            history=history,
            no_history="" if history is not None else no_history,
            missing=tuple(text[:LONGEST] for text in instant.missing[:_MOST_SENTENCES])
            if sight == ALL
            else _not_seen(sight),
        )

    def _known_types(self, instant: Instant) -> dict[str, Mapping[str, InstanceType]]:
        """By NodePool and name; the same object while the provider has the same."""
        known, self._types = self._types, {}
        for view in instant.snapshot.pools:
            there, name = instant.types.types_of(view.pool), view.pool.name
            before = known.get(name)
            same = before is not None and before[0] is there
            self._types[name] = before if before is not None and same else (there, {kind.name: kind for kind in there})
        return {name: by_name for name, (_, by_name) in self._types.items()}

    def _row(
        self,
        instant: Instant,
        view: NodeView,
        record: CommandRecord | None,
        types: Mapping[str, InstanceType],
        classes: PageClasses,
    ) -> _Row:
        node = instant.node(view.name) if view.name else None
        known = self._rows.get(view.key)
        if (
            known is not None
            and known.view is view
            and known.node is node
            and known.types is types
            and known.record == record
        ):
            return known
        return _Row(view, node, record, types, _node(view, node, record, types, classes, self._sight))


def page_of(instant: Instant, answers: Answers, *, source: str = "", title: str = "") -> Page:
    """One page of an instant, for whoever sees everything. Arguments as of `PageMaker.page_of`. Cost: O(nodes + pods + instance types)."""
    return PageMaker().page_of(instant, answers, source=source, title=title)


def _not_seen(sight: Sight) -> tuple[str, ...]:
    """What the viewer may not list, in sentences."""
    return tuple(
        text
        for may, text in (
            (
                sight.nodes,
                "You may not list nodes, so the page shows no node, no sum of them and no decision about them",
            ),
            (sight.pools, "You may not list nodepools.karpenter.sh, so the page shows no NodePool"),
            (sight.claims, "You may not list nodeclaims.karpenter.sh, so the page names no NodeClaim"),
            (
                sight.namespaces is None,
                "You may not list pods in all namespaces, so the pods of the others are only counted",
            ),
        )
        if not may
    )


# ------------------------------------------------------------------ nodes


def _node(
    view: NodeView,
    node: Node | None,
    record: CommandRecord | None,
    types: Mapping[str, InstanceType],
    classes: PageClasses,
    sight: Sight,
) -> PageNode:
    daemons = [pod for pod in view.pods if is_daemon(pod) or is_mirror(pod)]
    pods, hidden, rest = classes.rows(pod for pod in view.pods if not (is_daemon(pod) or is_mirror(pod)))
    planned, planned_hidden, planned_rest = classes.rows(view.assigned)
    labels, capacity = view.labels, view.capacity
    state, text, by = _state(view, node, record)
    meta = view.claim.metadata if view.claim is not None else node.metadata if node is not None else None
    mark = interruption_of(view.claim.metadata.annotations) if view.claim is not None else None
    return PageNode(
        name=view.name,
        claim=view.claim.name if view.claim is not None and sight.claims else "",
        pool=view.pool,
        type=labels.get(names.INSTANCE_TYPE_LABEL, ""),
        zone=labels.get(names.ZONE_LABEL, ""),
        capacity_type=labels.get(names.CAPACITY_TYPE_LABEL, ""),
        usd=_price(view, types),
        created=seconds(meta.creation_timestamp) if meta is not None else 0,
        state=state,
        text=text[:LONGEST],
        by=by[:NODES_OF_ROW] if sight.claims else (),
        interrupted=mark.reason[:LONGEST] if mark is not None else "",
        cpu=capacity.amount(CPU),
        memory=capacity.amount(MEMORY),
        slots=capacity.amount(PODS),
        system=system_of(capacity, view.allocatable),
        daemons=apart([pod.shape.requests for pod in daemons]) + _due(view),
        pods=pods,
        hidden=hidden,
        rest=rest,
        planned=planned,
        planned_hidden=planned_hidden + planned_rest,
    )


def _due(view: NodeView) -> PodsApart:
    """What is kept for pods of DaemonSets that are still to come."""
    due = EMPTY if view.ambiguous else view.allocatable - view.used - view.planned - view.room
    cpu, memory = max(0, due.amount(CPU)), max(0, due.amount(MEMORY))
    return PodsApart(cpu=cpu, memory=memory) if cpu or memory else NO_PODS


def _price(view: NodeView, types: Mapping[str, InstanceType]) -> float | None:
    if view.claim is not None:
        return round(usd_per_hour(view.claim, types), 5) or None
    price = known_price(view.labels, types.get(view.labels.get(names.INSTANCE_TYPE_LABEL, "")))
    return round(price, 5) if price is not None else None


def _state(view: NodeView, node: Node | None, record: CommandRecord | None) -> tuple[str, str, tuple[str, ...]]:
    """The state of a node, what it is due to, and what replaces it."""
    claim = view.claim
    by = record.replacement_names if record is not None else ()
    reason = record.reason if record is not None else ""
    going = [one.metadata for one in (claim, node) if one is not None and one.metadata.deletion_timestamp is not None]
    if view.awaits:
        return "awaits", "its deletion waits for a confirmation", by
    if view.is_ending:
        return "ending", reason or "its instance is being terminated", by
    if going:
        return "draining", reason, by
    if claim is None:
        return "unmanaged", "", ()
    if view.command:
        return "disrupted", reason, by
    if view.rebooting:
        return "rebooting", "", ()
    if view.deleting:
        return "disrupted", "", ()
    if not view.name:
        return "launching", _unmet(view), ()
    if not view.initialized:
        return "starting", _unmet(view), ()
    return ("ready", "", ()) if view.ready else ("not-ready", "its Node is not Ready", ())


def _unmet(view: NodeView) -> str:
    """What its NodeClaim waits for, without the words of others: they may name what is not to be seen."""
    waits = unmet(view.claim) if view.claim is not None else []
    return f"not {waits[0].type} yet" if waits else ""


def _sums(views: Sequence[NodeView], nodes: Sequence[PageNode]) -> PageSums:
    allocatable, used, planned = (
        Resources.total(parts)
        for parts in (
            [one.allocatable for one in views],
            [one.used for one in views],
            [one.planned for one in views],
        )
    )
    return PageSums(
        nodes=len(nodes),
        pods=sum(len(one.pods) for one in views),
        planned=sum(len(one.assigned) for one in views),
        usd=round(sum(one.usd or 0.0 for one in nodes), 4),
        unpriced=sum(one.usd is None for one in nodes),
        cpu=allocatable.amount(CPU),
        memory=allocatable.amount(MEMORY),
        used_cpu=used.amount(CPU),
        used_memory=used.amount(MEMORY),
        planned_cpu=planned.amount(CPU),
        planned_memory=planned.amount(MEMORY),
    )


# ------------------------------------------------------------------ what waits


def _waiting(
    instant: Instant, answers: Answers, classes: PageClasses, sight: Sight
) -> tuple[tuple[PageWaiting, ...], int]:
    """Pods without a plan by class and reason, most pods first; and how many are hidden, or have no room on the page."""
    every = frozenset(namespaces_at(instant.snapshot)) if sight.namespaces is not None else frozenset[str]()
    groups: defaultdict[tuple[int, str], list[Pod]] = defaultdict(list)
    hidden = 0
    for pod in instant.snapshot.pending:
        index = classes.index(pod) if sight.sees(pod.namespace) else None
        if index is None:
            hidden += 1
        else:
            groups[index, answer_key(pod)].append(pod)
    rows = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))
    hidden += sum(len(pods) for _, pods in rows[MOST_WAITING:])
    return tuple(
        _row(index, pods, answers.get(key), every, sight) for (index, key), pods in rows[:MOST_WAITING]
    ), hidden


def _row(index: int, pods: Sequence[Pod], answer: PodAnswer | None, every: frozenset[str], sight: Sight) -> PageWaiting:
    names_shown = tuple(sorted(pod.name for pod in pods)[:NAMES_OF_ROW])
    return PageWaiting(
        of=index,
        pods=len(pods),
        names=names_shown,
        since=min(seconds(pod.created) for pod in pods),
        state=answer.state if answer is not None else "",
        text=sight.sentence(pods[0], answer, every)[:LONGEST]
        if answer is not None
        else NOT_ASKED.format(pods[0].namespace, names_shown[0]),
    )


# ------------------------------------------------------------------ pools, commands, shortages, interruptions


def _pool(one: PoolView, usd: Mapping[str, float], sight: Sight) -> PagePool:
    pool, replicas = one.pool, one.pool.spec.replicas
    return PagePool(
        name=pool.name,
        nodes=one.nodes,
        usd=round(usd.get(pool.name, 0.0), 4) if sight.nodes else None,
        weight=pool.spec.weight or 0,
        limits=_limits(one),
        ready=replicas is not None or closed(pool) is None,
        text=_why_closed(pool)[:LONGEST],
        replicas=replicas,
    )


def _why_closed(pool: NodePool) -> str:
    return "it is being deleted" if pool.metadata.deletion_timestamp is not None else why_closed(pool)


def _limits(one: PoolView) -> tuple[tuple[str, str, str, float], ...]:
    """(resource, used, limit, share) of each limit."""
    try:
        left, limits = one.left, Resources.parse(one.pool.spec.limits or {})
    except QuantityError:
        return ()
    used = limits - left if left is not None else limits
    texts, tops = used.to_wire(), limits.to_wire()
    return tuple(
        (name, texts.get(name, "0"), tops[name], round(used.amount(name) / most, 3) if most > 0 else 1.0)
        for name, most in itertools.islice(limits.items(), _LIMITS_OF_ROW)
    )


def _commands(instant: Instant, sight: Sight) -> Iterable[PageCommand]:
    if not sight.nodes:
        return
    shown = {view.key.name: view.name or view.key.name for view in instant.snapshot.nodes if view.name or sight.claims}
    for one in instant.snapshot.commands[:_MOST_ROWS]:
        record = one.record
        yield PageCommand(
            reason=record.reason,
            phase=record.phase.value,
            nodes=few([shown[name] for name in record.candidate_names if name in shown]),
            by=few(record.replacement_names) if sight.claims else (),
        )


def _shortages(types: Iterable[Mapping[str, InstanceType]]) -> Iterable[PageShortage]:
    """By zone and capacity type, what cannot be launched for any NodePool."""
    can: defaultdict[tuple[str, str], dict[str, bool]] = defaultdict(dict)
    known = {id(kind): kind for each in types for kind in each.values()}
    for kind in known.values():
        for one in kind.offerings:
            found = can[one.zone, one.capacity_type]
            found[kind.name] = found.get(kind.name, False) or one.launchable
    for (zone, capacity_type), found in sorted(can.items()):
        lacking = sorted(name for name, launchable in found.items() if not launchable)
        if lacking:
            yield PageShortage(
                zone=zone,
                capacity_type=capacity_type,
                count=len(lacking),
                of=len(found),
                types=tuple(lacking[:_TYPES_OF_ROW]),
            )


def _interruptions(nodes: Iterable[PageNode]) -> tuple[PageInterruption, ...]:
    found = Counter((one.zone, one.type, one.interrupted) for one in nodes if one.interrupted)
    return tuple(
        PageInterruption(zone=zone, type=kind, reason=reason, nodes=count)
        for (zone, kind, reason), count in sorted(found.items())[:_MOST_ROWS]
    )
