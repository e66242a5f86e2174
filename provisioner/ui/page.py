"""What the page shows, as values: JSON for a browser, without names for what its viewer may not see. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

VERSION: Final = 1
MOST_BYTES: Final = 3_000_000
"""Of one page as JSON."""
NAMES_OF_ROW: Final = 5
NODES_OF_ROW: Final = 20
LONGEST: Final = 2000
"""Characters of one sentence."""
_FEWEST_NODES: Final = 100
_FEWEST_DECISIONS: Final = 50

PodRow: TypeAlias = tuple[int | str, ...]
"""Pods of one class on one node: the index of the class, how many, and their names, as far as they are told: the class's prefix is left out of those
that do not begin with "/"."""


class PageValue(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Some part of a page; what is empty is left out of the JSON. Cpu is in millicores, memory in bytes."""


class PageClass(PageValue, frozen=True, kw_only=True):
    """Pods of one owner that ask for the same.

    Attributes:
        name: of what a user made: a Deployment, a Job; the pod's own where nobody owns it.
        prefix: what the names of its pods begin with.
        more: other resources that they ask for, in words.
    """

    namespace: str
    kind: str
    name: str
    prefix: str = ""
    cpu: int = 0
    memory: int = 0
    more: str = ""


class PodsApart(PageValue, frozen=True, kw_only=True):
    """Pods that are only counted."""

    pods: int = 0
    cpu: int = 0
    memory: int = 0

    def __add__(self, other: "PodsApart") -> "PodsApart":
        if self is NO_PODS or other is NO_PODS:
            return other if self is NO_PODS else self
        return PodsApart(pods=self.pods + other.pods, cpu=self.cpu + other.cpu, memory=self.memory + other.memory)


NO_PODS: Final = PodsApart()
"""The one that is left out of the JSON."""


class PageNode(PageValue, frozen=True, kw_only=True):
    """A node, or a NodeClaim without one.

    Attributes:
        name: of the Node; "" while none has joined.
        claim: name of the NodeClaim, where the viewer may see it.
        usd: per hour; None where it is not known.
        created: of the NodeClaim, or of the Node that has none.
        state: planned, launching, starting, ready, not-ready, rebooting, awaits, disrupted, draining, ending or unmanaged.
        text: what the state is due to.
        by: names of what replaces it.
        interrupted: why its cloud takes it back; "" where it does not.
        cpu, memory, slots: that it has; slots are the most pods.
        system: what of it the system keeps, as `cpu, memory`.
        daemons: pods of DaemonSets and static pods, and those that are still due; not part of the others.
        pods: that run here.
        hidden: pods of namespaces that the viewer may not see.
        rest: pods of classes that the page has no room for.
        planned, planned_hidden: pods that are planned here and not bound yet.
    """

    name: str = ""
    claim: str = ""
    pool: str = ""
    type: str = ""
    zone: str = ""
    capacity_type: str = ""
    usd: float | None = None
    created: int = 0
    state: str
    text: str = ""
    by: tuple[str, ...] = ()
    interrupted: str = ""
    cpu: int = 0
    memory: int = 0
    slots: int = 0
    system: tuple[int, int] = (0, 0)
    daemons: PodsApart = NO_PODS
    pods: tuple[PodRow, ...] = ()
    hidden: PodsApart = NO_PODS
    rest: PodsApart = NO_PODS
    planned: tuple[PodRow, ...] = ()
    planned_hidden: PodsApart = NO_PODS


class PageWaiting(PageValue, frozen=True, kw_only=True):
    """Pods of one class without a node, for one reason.

    Attributes:
        pods: how many.
        names: of the first of them.
        since: when the oldest was created.
        state, text: as `dovetail why` has them; of what has not been looked at yet no state, and the command that asks.
    """

    of: int
    pods: int
    names: tuple[str, ...] = ()
    since: int = 0
    state: str = ""
    text: str = ""


class PagePool(PageValue, frozen=True, kw_only=True):
    """A NodePool.

    Attributes:
        usd: what its nodes cost per hour, as far as prices are known; None where the viewer may not list nodes.
        limits: by resource, what is used and what may be, in words.
        ready: whether nodes may be launched for it,
        text: and why not.
        replicas: of a static one.
    """

    name: str
    nodes: int = 0
    usd: float | None = None
    weight: int = 0
    limits: tuple[tuple[str, str, str, float], ...] = ()
    ready: bool = True
    text: str = ""
    replicas: int | None = None


class PageCommand(PageValue, frozen=True, kw_only=True):
    """A disruption command under way: nodes that go, and what replaces them."""

    reason: str
    phase: str
    nodes: tuple[str, ...]
    by: tuple[str, ...] = ()


class PageShortage(PageValue, frozen=True, kw_only=True):
    """Instance types that cannot be launched now in one zone, as one capacity type.

    Attributes:
        of: how many there are.
        types: the first of those that cannot be launched; `count` is all of them.
    """

    zone: str
    capacity_type: str
    count: int
    of: int
    types: tuple[str, ...] = ()


class PageInterruption(PageValue, frozen=True, kw_only=True):
    """Nodes that their cloud takes back, of one type in one zone."""

    zone: str
    type: str
    reason: str
    nodes: int


class PageSums(PageValue, frozen=True, kw_only=True):
    """The fleet as a whole.

    Attributes:
        usd: per hour, of all nodes whose price is known; `unpriced` are the others.
        cpu, memory: what nodes have for pods; `used_` what pods and DaemonSets ask for, `planned_` what is planned.
    """

    nodes: int = 0
    pods: int = 0
    planned: int = 0
    usd: float = 0.0
    unpriced: int = 0
    cpu: int = 0
    memory: int = 0
    used_cpu: int = 0
    used_memory: int = 0
    planned_cpu: int = 0
    planned_memory: int = 0


class PageMoment(PageValue, frozen=True, kw_only=True):
    """One point of the past. `greedy` and `bound` are prices of the same pods by the greedy rule, and the least that any fleet for them costs."""

    at: int
    usd: float
    greedy: float | None = None
    bound: float | None = None


class PageDecision(PageValue, frozen=True, kw_only=True):
    """What was decided.

    Attributes:
        reason: of a command; for pods that were planned "Provisioning", for what another autoscaler said its event's.
        text: what it did, in words.
        state: of a command, what became of it.
        before, after: per hour, of the nodes that go and of those that come.
        saved: per hour; of planned pods against the greedy rule.
        blocked: what kept other nodes from being disrupted then, in words.
    """

    at: int
    reason: str
    text: str
    state: str = ""
    before: float | None = None
    after: float | None = None
    saved: float | None = None
    blocked: tuple[str, ...] = ()


class PageCause(PageValue, frozen=True, kw_only=True):
    """What keeps nodes as they are, in words: how many, and by how much the bound would fall if this alone were lifted, per hour."""

    cause: str
    nodes: int
    usd: float
    meaning: str = ""


class PageBound(PageValue, frozen=True, kw_only=True):
    """What the nodes of dynamic NodePools cost, and could cost, per hour.

    Attributes:
        at: when that was computed.
        usd: what they cost then; None where that is not known.
        greedy: new nodes for the same pods by the greedy rule.
        bound: no new nodes for them cost less.
        pods, unplaced: how many that is about, and how many not.
        kept_at: when it was computed what keeps the fleet from the bound; 0 for never, then the rest is empty.
        kept: the bound while every cause holds.
        causes: each alone,
        together: and all of them; the parts do not add up.
        rest: what none of them explains.
    """

    at: int
    usd: float | None = None
    greedy: float
    bound: float
    pods: int = 0
    unplaced: int = 0
    kept_at: int = 0
    kept: float = 0.0
    causes: tuple[PageCause, ...] = ()
    together: float = 0.0
    rest: float = 0.0


class PagePastInterruption(PageValue, frozen=True, kw_only=True):
    """Instances of one type in one zone that were interrupted for one reason: how many, and when last."""

    zone: str
    type: str
    capacity_type: str = ""
    reason: str
    count: int
    last: int


class PagePastShortage(PageValue, frozen=True, kw_only=True):
    """An offering that could not be had: how often, for how many seconds in all, and when that began or ended last."""

    zone: str
    type: str
    capacity_type: str = ""
    times: int
    seconds: int
    last: int
    lasts: bool = False


class PageHistory(PageValue, frozen=True, kw_only=True):
    """What a record of the past says.

    Attributes:
        since: when it begins.
        moments, decisions: in the order of time.
        bound: the latest; None while there is none.
        interruptions, shortages: most first.
        dropped: changes that it missed.
    """

    since: int
    moments: tuple[PageMoment, ...] = ()
    decisions: tuple[PageDecision, ...] = ()
    bound: PageBound | None = None
    interruptions: tuple[PagePastInterruption, ...] = ()
    shortages: tuple[PagePastShortage, ...] = ()
    dropped: int = 0


class Page(PageValue, frozen=True, kw_only=True):
    """One instant.

    Attributes:
        source: who made it, in words.
        currency: of all prices.
        sums: None where the viewer may not list nodes; then there are no nodes either.
        left_out: nodes for which there was no room.
        hidden_waiting: pods that wait in namespaces that the viewer may not see.
        history: None where there is no record; `no_history` says why.
        missing: what the page leaves out, in sentences.
    """

    version: int = VERSION
    at: int
    title: str = ""
    source: str = ""
    currency: str = "$"
    sums: PageSums | None = None
    classes: tuple[PageClass, ...] = ()
    nodes: tuple[PageNode, ...] = ()
    left_out: int = 0
    waiting: tuple[PageWaiting, ...] = ()
    hidden_waiting: int = 0
    pools: tuple[PagePool, ...] = ()
    commands: tuple[PageCommand, ...] = ()
    shortages: tuple[PageShortage, ...] = ()
    interruptions: tuple[PageInterruption, ...] = ()
    history: PageHistory | None = None
    no_history: str = ""
    missing: tuple[str, ...] = ()


def few(names: Sequence[str]) -> tuple[str, ...]:
    """The first of them, and how many more there are."""
    more = len(names) - NODES_OF_ROW
    return (*names[:NODES_OF_ROW], *((f"and {more} more",) if more > 0 else ()))


def seconds(at: datetime | None) -> int:
    """Of a time, since 1970; 0 for none."""
    return int(at.timestamp()) if at is not None else 0


_PAST: Final = "This page leaves out all but the latest decisions, because there is too much else"
_NAMES: Final = "This page leaves out the names of pods, because there are too many"
_CLASSES: Final = "This page leaves out which pods run on which node, because there are too many"
_NODES: Final = "This page leaves out some nodes, because there are too many; the sums are of all of them"


def encoded(page: Page, most: int) -> bytes:
    """The page as JSON: whole where that is no longer than `most` bytes.

    Else without most decisions, then without names of pods, then without pods, then with as many nodes as fit.

    Cost: O(its length), four times at most, and once more for each halving of its nodes.
    """
    data = msgspec.json.encode(page)
    for shorten, text in ((_brief, _PAST), (_nameless, _NAMES), (_classless, _CLASSES)):
        if len(data) <= most:
            return data
        if shorten is _brief and (page.history is None or len(page.history.decisions) <= _FEWEST_DECISIONS):
            continue
        page = replace(shorten(page), missing=(*page.missing, text))
        data = msgspec.json.encode(page)
    while len(data) > most and len(page.nodes) > _FEWEST_NODES:
        kept = max(_FEWEST_NODES, len(page.nodes) // 2)
        more = () if page.left_out else (_NODES,)
        left = page.left_out + len(page.nodes) - kept
        page = replace(page, nodes=page.nodes[:kept], left_out=left, missing=(*page.missing, *more))
        data = msgspec.json.encode(page)
    return data


def _brief(page: Page) -> Page:
    past = page.history
    return page if past is None else replace(page, history=replace(past, decisions=past.decisions[-_FEWEST_DECISIONS:]))


def _nameless(page: Page) -> Page:
    nodes = [
        replace(one, pods=tuple(row[:2] for row in one.pods), planned=tuple(row[:2] for row in one.planned))
        for one in page.nodes
    ]
    return replace(page, nodes=tuple(nodes), classes=tuple(replace(one, prefix="") for one in page.classes))


def _classless(page: Page) -> Page:
    """Without which pods are where; classes that wait stay."""

    def apart(rows: tuple[PodRow, ...]) -> PodsApart:
        found = NO_PODS
        for index, count, *_ in rows:
            one, times = page.classes[int(index)], int(count)
            found += PodsApart(pods=times, cpu=one.cpu * times, memory=one.memory * times)
        return found

    nodes = [
        replace(
            one,
            pods=(),
            rest=one.rest + apart(one.pods),
            planned=(),
            planned_hidden=one.planned_hidden + apart(one.planned),
        )
        for one in page.nodes
    ]
    kept = sorted({one.of for one in page.waiting})
    at = {old: new for new, old in enumerate(kept)}
    return replace(
        page,
        nodes=tuple(nodes),
        classes=tuple(page.classes[one] for one in kept),
        waiting=tuple(replace(one, of=at[one.of]) for one in page.waiting),
    )
