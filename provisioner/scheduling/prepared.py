"""The judge of what may run where: a world that can be asked many times, `prepare(world)`, then `Prepared.solve(pods)` as often as one likes.

Equal pods are one class; classes get places by priority, then size: existing nodes first, then open claims, then new ones. A claim stays every
type on which its pods still fit, and is settled on the cheapest at the end. What fails once is not tried again: room only shrinks, claims only
narrow. So the cost is that of classes times nodes touched, not of pods. Source: core spec 3.4-3.11, planner spec 2. Differs from Karpenter:
priorities count; equal pods are placed together, on the claim opened first rather than the one with fewest pods; limits are charged by the
planned type, not the largest; hostname spread sees the true emptiest node.

A `Prepared` never changes and may be shared by threads. What it remembers besides the world (what a pool can make, where
pods that look alike run) follows from the world alone, is filled as it is asked for, and is bounded: two threads that fill it at
once put in the same. `updated` gives the next instant and shares with it all that stayed.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter, is_
from typing import Final, NamedTuple, TypeAlias, TypeVar, cast

from provisioner.apis.attachments import Attachment, attachments_of
from provisioner.apis.gangs import group_of
from provisioner.apis.names import HOSTNAME_LABEL, WELL_KNOWN_LABELS, ZONE_LABEL
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.attempts.attempt import Attempt, affordable, scope_of, skews_of, whole
from provisioner.scheduling.attempts.setting import Setting, Terms, Work
from provisioner.scheduling.attempts.solution import EFFORT, Solution
from provisioner.scheduling.capacity.attach_limits import AttachLimits
from provisioner.scheduling.capacity.catalogue import Catalogue
from provisioner.scheduling.capacity.nodes import VACANT, Bins, Ground, Rooms
from provisioner.scheduling.capacity.offers import PreparedPool, pin
from provisioner.scheduling.capacity.prepared_types import Daemon, PreparedTypes
from provisioner.scheduling.constraints.bitsets import mask_of, members
from provisioner.scheduling.constraints.classes import NOTHING_AVOIDED, LeftOut, PodClass, ahead, classify
from provisioner.scheduling.constraints.demands import Count, Demand, Relations, ShapeFacts, facts_of
from provisioner.scheduling.constraints.filters import FilterError, FilterTerm, NodeFilter, label_value
from provisioner.scheduling.constraints.ports import Port
from provisioner.scheduling.constraints.vectors import Dimensions, Need
from provisioner.scheduling.constraints.volumes import (
    NO_VOLUMES,
    NOTHING_SETTLED,
    claim_keys,
)
from provisioner.scheduling.constraints.workload_limits import Crowding, owners_of
from provisioner.scheduling.gangs import (
    NO_GROUPS,
    GroupAnswers,
    GroupsAsked,
    all_or_nothing,
    cut_groups,
    groups_asked,
    spread_groups,
    together,
)
from provisioner.scheduling.group_domains import DomainChoice, designed_domain, domain_on, domains
from provisioner.scheduling.judging import Design, LegalityVerdict, design_of, judge, settle
from provisioner.scheduling.problem import Bin, Changes, SchedulingPool, World
from provisioner.scheduling.reasons import NOT_TRIED, OnlyWhileLeaving
from provisioner.scheduling.result import PlannedClaim, Result, Unplaced
from provisioner.scheduling.topology.census import NOBODY, Census, Namespaces, Spots, Tally, tally_of, tally_of_bin
from provisioner.scheduling.topology.company import concerned, is_there, with_daemons
from provisioner.scheduling.topology.counters import ALL
from provisioner.state.daemons import DAEMON_SET
from provisioner.values.requirement import Requirements
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint

_SPARE_CATALOGUES: Final = 4
"""Kept beside those of the pools at hand, for worlds that have other pools in turn."""
_MOST_STATES: Final = 20_000
"""What is remembered of a pool's claims before it starts afresh."""
_MOST_TERMS: Final = 5_000
"""Different node selectors and affinities, likewise; of pods that name a node or a run of a pipeline, each has its own. 1 kB each."""
_MOST_TABLES: Final = 8
"""Different sets of resources that pods ask for, of which the room of nodes is remembered."""
_TRIAL_STEPS: Final = 20_000
"""That may be done to find out in which order groups are asked about; a second, where every pod is of another class."""
_REMEMBERED: Final = 64
"""Most pods of a question whose setting is kept for those that ask about the same pods next: partitions, mending, balancing."""


_uid: Final = attrgetter("uid")
_UNASKED: Final = ()
_MOST_LEGAL: Final = 16_384
"""Different spreads with different numbers of pods whose legal domains are remembered: about 15 MB, where there are a few zones."""
_MOST_DOMAINS: Final = 32
"""Of pods that are spread over more of them nothing is remembered: a tenant may name a label that is another on each node."""
_MOST_PROOFS: Final = 16_384
"""Different filters and sizes, and spreads, of one world of which nodes and numbers of pods are remembered."""
K = TypeVar("K")
V = TypeVar("V")
_Domain: TypeAlias = tuple[str, int, bool]
"""(value of a label, pods that a count means there, whether a node stays there)"""
_Spreading: TypeAlias = tuple[
    Relations | tuple[tuple[str, int, bool], ...],
    NodeFilter,
    Need,
    tuple[tuple[str | None, bool], ...],
    tuple[tuple[_Domain, ...], ...],
]
"""(what ties the pod, its filter, its size, its own domains, all domains of each count).

Pods that only their own spread ties are alike, whatever they are called: (label, maxSkew, whether it counts itself). Of its own domains: whether another
node stays there.
"""
_Legal: TypeAlias = tuple[tuple[str, frozenset[str]], ...] | None
"""By label, the values that a pod may move to; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Sets of nodes.

    Attributes:
        leaving: are going away.
        closed: take no pod now.
        naming: have pods whose anti-affinity looks at labels that differ between brothers.
    """

    leaving: int = 0
    closed: int = 0
    naming: int = 0

    @classmethod
    def of(cls, bins: Iterable[tuple[int, Bin]], tallies: Sequence[Tally]) -> "Marks":
        """Of these nodes."""
        listed = list(bins)
        return cls(
            mask_of(i for i, one in listed if one.leaving),
            mask_of(i for i, one in listed if one.closed),
            mask_of(i for i, _ in listed if tallies[i].named),
        )

    def changed(self, bins: Mapping[int, Bin], tallies: Sequence[Tally]) -> "Marks":
        """With other nodes for some numbers."""
        others, new = ~mask_of(bins), Marks.of(bins.items(), tallies)
        return Marks(
            self.leaving & others | new.leaving,
            self.closed & others | new.closed,
            self.naming & others | new.naming,
        )


class _How(NamedTuple):
    """How a question is asked, as of `Prepared.solve`."""

    leaving: Collection[str]
    gone: Collection[str]
    afterwards: bool
    avoided: Mapping[str, frozenset[str]]
    first: Collection[str]
    explain: bool


class Stock:
    """What pools can make, remembered from one world to the next: it follows from instance types, daemons and labels alone."""

    def __init__(self) -> None:
        self._derived: Final[dict[str, tuple[tuple[object, ...], tuple[Requirements, ...], object]]] = {}
        self._legal: Final[dict[tuple[str, ...], tuple[tuple[PreparedTypes, ...], dict[_Spreading, _Legal]]]] = {}
        self._near_daemons: tuple[tuple[Daemon, ...], Namespaces, dict[Relations, bool]] = (), {}, {}
        self._catalogues: Final[dict[int, tuple[tuple[InstanceType, ...], Catalogue]]] = {}
        self._offers: Final[dict[tuple[object, ...], tuple[object, PreparedPool]]] = {}

    def derived(self, pools: Sequence[SchedulingPool], word: str, make: Callable[[Sequence[SchedulingPool]], V]) -> V:
        """What follows from the instance types and requirements of NodePools, made once while they are the same; whoever makes it says under which word."""
        types = tuple([one.instance_types for one in pools])
        requirements = tuple([one.requirements for one in pools])
        known = self._derived.get(word)
        if (
            known is None
            or len(known[0]) != len(types)
            or not all(map(is_, known[0], types))
            or known[1] != requirements
        ):
            known = self._derived[word] = types, requirements, make(pools)  # two threads may each make one
        return cast("V", known[2])

    def legal(self, dimensions: Dimensions, types: tuple[PreparedTypes, ...]) -> dict["_Spreading", "_Legal"]:
        """To which domains pods may move, as far as somebody asked; it is forgotten with what pools can make."""
        known = self._legal.get(dimensions.names)
        if known is None or known[0] != types:
            _drop_oldest(self._legal, _MOST_TABLES - 1)
            known = self._legal[dimensions.names] = types, {}
        return known[1]

    def near_daemons(self, daemons: tuple[Daemon, ...], namespaces: Namespaces) -> dict[Relations, bool]:
        """Which relations have to do with these daemons, as far as somebody asked."""
        known = self._near_daemons
        if known[0] != daemons or (known[1] is not namespaces and known[1] != namespaces):
            known = self._near_daemons = daemons, namespaces, {}
        return known[2]

    def catalogue(self, instance_types: tuple[InstanceType, ...], keep: int) -> Catalogue:
        """The index of these types; of the others, the `keep` used last are kept."""
        key = id(instance_types)  # the tuple is held, so that its identity stays its own
        entry = self._catalogues.get(key)
        if entry is None:
            _drop_oldest(self._catalogues, keep)
            entry = self._catalogues.setdefault(key, (instance_types, Catalogue(instance_types)))
        return entry[1]

    def offer(
        self,
        pool: SchedulingPool,
        catalogue: Catalogue,
        daemons: Sequence[Daemon],
        dimensions: Dimensions,
        well_known: frozenset[str],
        limits: AttachLimits,
        shared: tuple[object, ...],
        keep: int,
    ) -> PreparedPool:
        """What a pool can make; `shared` is the part of the key that all pools of the world have in common."""
        limited = None if pool.remaining is None else tuple(pool.remaining)
        key = (pool.name, id(catalogue), pool.requirements, pool.taints, limited, *shared)
        entry = self._offers.get(key)
        if entry is None or entry[0] is not catalogue or entry[1].states > _MOST_STATES or entry[1].terms > _MOST_TERMS:
            _drop_oldest(self._offers, 2 * keep)
            types = PreparedTypes(pool, catalogue, daemons, dimensions, well_known, limits)
            entry = (catalogue, PreparedPool(pool, types))
            self._offers[key] = entry
        return entry[1].with_pool(pool)


def _drop_oldest(kept: dict[K, V], most: int) -> None:
    if len(kept) > most:
        for oldest in list(kept)[: len(kept) - most]:
            kept.pop(oldest, None)  # another thread may have taken it


def _keep(kept: dict[K, V], key: K, value: V, most: int) -> V:
    """The value, remembered; of too many the older half is forgotten."""
    if len(kept) >= most:
        _drop_oldest(kept, most // 2)
    kept[key] = value
    return value


@dataclass(eq=False)
class Prepared:
    """A world, ready for questions; made by `prepare` and `updated` alone.

    Attributes:
        world: of which it speaks.
    """

    world: World
    _bins: Sequence[Bin]
    _numbers: Mapping[str, int]
    _nodes: Mapping[str, int]
    _ground: Ground
    _tallies: Sequence[Tally]
    _census: Census
    _marks: Marks
    _tables: dict[tuple[str, ...], Rooms]
    _stock: Stock
    _daemons: tuple[Daemon, ...]

    def __post_init__(self) -> None:
        self._due: dict[Daemon, int] = {}
        self._roomy: dict[tuple[NodeFilter, tuple[str, ...], Need], int] = {}
        self._types: dict[tuple[str, ...], tuple[PreparedTypes, ...]] = {}
        self._amounts: dict[Count, tuple[_Domain, ...]] = {}
        self._guarding = tuple(one for one in self._daemons if one.relations.guards)
        self._last: tuple[frozenset[int], frozenset[str], Setting] | None = None
        self._members: Mapping[str, Mapping[str, int]] | None = None
        self._crowded: tuple[Mapping[int, int], Mapping[str, Mapping[int, int]]] | None = None
        well_known = WELL_KNOWN_LABELS | self.world.well_known
        if self.world.reservation_label:
            well_known |= {self.world.reservation_label}
        self._well_known = well_known
        self._pools = _in_order(self.world.pools)

    # ------------------------------------------------------------------ questions

    def solve(
        self,
        pods: Iterable[Pod],
        *,
        leaving: Collection[str] = (),
        gone: Collection[str] = (),
        afterwards: bool = True,
        avoided: Mapping[str, frozenset[str]] = NOTHING_AVOIDED,
        first: Collection[str] = (),
        last: Sequence[str] = (),
        max_new: int | None = None,
        stop_at_first_unplaced: bool = False,
        effort: int = EFFORT,
        explain: bool = True,
        budget: int | None = None,
        expired: Callable[[], bool] | None = None,
    ) -> Result:
        """Give every pod a place, or the reasons why it has none.

        A pod of the world with the UID of one of `pods` counts nowhere: it moves. Give it as it runs, its node's name tells where.

        Args:
            pods: what needs a place; any order.
            leaving: names of nodes that go away: they take no pod, and are domains until they are gone; what stays on them goes
                with them, also where the world says that they leave. The answer is legal before and after.
            gone: names of nodes that are no more, and nothing that was on them.
            afterwards: without it the answer need not be legal once the leaving nodes are gone: it is one step of a drain, and what stays on them
                now is moved by other steps.
            avoided: by UID of a pod, names of the nodes that it keeps off though kube-scheduler would let it; they count as they do.
            first: UIDs of pods that get their places before others of the same priority: where limits leave too little for all, it is theirs.
            last: keys of groups that are asked about after the others, in this order: they failed before.
            max_new: most new claims.
            stop_at_first_unplaced: a pod without a place is answer enough; others may then be left that could be placed.
            effort: how many lots may be drawn where a pod that has to do with others is left; with 0 none is, and no other order is
                tried, so the answer may be a false no, never a false yes. An attempt is repeated then only where it foresaw more nodes
                than there are.
            explain: say why pods are left, in the result; else `Unplaced.reasons` are found when they are asked for.
            budget: steps that may be done (see `attempts.setting.Work`), and at most as many again to order groups; the same budget gives the same answer.
            expired: says that time is up; what was not tried then is told apart from what has no place.

        Returns:
            The best legal answer that was found. It depends on values only: not on the order of pods, pools, daemons and types.

        Cost: O(pods) to group, then O(classes x claims touched); nodes that no pod looks at cost nothing.
        """
        asked = tuple(pods)
        terms = Terms(Work(budget, expired), effort, max_new, stop_at_first_unplaced)
        how = _How(leaving, gone, afterwards, avoided, first, explain)
        groups = self._grouped(asked)
        if not groups.needed:
            return self._answer(asked, terms, how)
        moving = frozenset(map(_uid, asked)) if groups.labels else frozenset()
        trial = replace(terms, work=Work(_TRIAL_STEPS if budget is None else min(budget, _TRIAL_STEPS), expired))
        answers = GroupAnswers(
            whole=lambda some, pinned: self._answer(some, terms, how, pinned),
            trial=lambda some, pinned: self._answer(some, trial, how, pinned),
            domains=lambda key, some: self._domains(key, some, terms, how, groups, moving),
            homes=lambda key: self._homes(key, groups.labels[key], moving, how.gone),
            never=lambda some: self._never(some, terms, how),
            over=terms.work.look,
            avoided=avoided,
        )
        return all_or_nothing(asked, groups, answers, last, stop=stop_at_first_unplaced)

    def _answer(self, asked: Sequence[Pod], terms: Terms, how: "_How", groups: GroupsAsked = NO_GROUPS) -> Result:
        """The answer in which groups may be cut."""
        leaving, gone, afterwards, avoided, first, explain = how
        setting, left_out = self._setting(asked, leaving, gone, terms, avoided, first, groups=groups)
        result = Solution(setting, left_out).result(explain=explain)
        if len(asked) <= _REMEMBERED and not (left_out or gone or avoided or first or terms.work.over or groups.needed):
            self._last = frozenset(map(id, asked)), frozenset(leaving), setting
        if not afterwards or not setting.lingering or not self._followed(setting):
            return result
        after = {*leaving, *gone}
        if self._judged(design_of(result), (), after).legal:
            return result
        setting, left_out = self._setting(asked, (), after, terms, avoided, first, groups=groups)
        result = Solution(setting, left_out).result(explain=explain)
        if self._judged(design_of(result), leaving, gone).legal:
            return result
        return Result((), {}, tuple([Unplaced(pod, (OnlyWhileLeaving(),)) for pod in asked]))

    def groups(self, pods: Sequence[Pod], at_least: int = 2) -> GroupsAsked:
        """The groups of a question about these pods, of which so many are needed at once.

        Cost: O(pods), and one look at every node the first time; nothing in a world without groups.
        """
        return (
            groups_asked(pods, self.world.groups, self._placed_members(), at_least) if self.world.groups else NO_GROUPS
        )

    def _grouped(self, pods: Sequence[Pod]) -> GroupsAsked:
        """The groups that could be cut, and those that could be spread over two domains."""
        if not self.world.topology:
            return self.groups(pods)
        return groups_asked(pods, self.world.groups, self._placed_members(), topology=self.world.topology)

    def _placed_members(self) -> Mapping[str, Mapping[str, int]]:
        """By key of a group, the UIDs of its pods that have places in the world, each with the number of its node."""
        if self._members is None:  # two threads that make it at once make the same
            found: dict[str, dict[str, int]] = {}
            for number, one in enumerate(self._bins):
                for key, uid in _members_of_bin(one):
                    found.setdefault(key, {})[uid] = number
            self._members = found
        return self._members

    def _homes(
        self, key: str, label: str, moving: Collection[str], gone: Collection[str] = ()
    ) -> frozenset[str | None]:
        """The values of a label on the nodes of those pods of a group that stay; None for a node without it."""
        mine = self._placed_members().get(key, {})
        nodes = [self._bins[number] for uid, number in mine.items() if uid not in moving]
        return frozenset([domain_on(one, label) for one in nodes if one.name not in gone])

    def _domains(
        self,
        key: str,
        pods: Sequence[Pod],
        terms: Terms,
        how: "_How",
        groups: GroupsAsked,
        moving: Collection[str],
    ) -> DomainChoice:
        """The domains in which a group could have places."""
        setting, _ = self._setting(pods, how.leaving, how.gone, terms, how.avoided)
        label = groups.labels[key]
        return domains(setting, label, groups.needed[key], self._homes(key, label, moving, how.gone))

    def _never(self, pods: Sequence[Pod], terms: Terms, how: "_How") -> set[str]:
        """The UIDs of those that no node takes that there is or could be, whatever becomes of other pods."""
        setting, left_out = self._setting(pods, how.leaving, how.gone, terms, how.avoided)
        classes = [one.pods for one in setting.classes if not setting.takes(one)]
        unread = [one.pods for one in left_out if one.reason is not NOT_TRIED]
        return {pod.uid for some in (*classes, *unread) for pod in some}

    def _followed(self, setting: Setting) -> bool:
        """Whether pods that stay on a leaving node, and are gone with it, count for any pod of the question."""
        scope = setting.scope
        return any(
            setting.lingering & level for count in scope.index.numbers for level in scope.spots(count).at_least[1:2]
        )

    def judge(
        self, design: Design, *, leaving: Collection[str] = (), gone: Collection[str] = (), afterwards: bool = True
    ) -> LegalityVerdict:
        """What is wrong with nodes that somebody else designed: each by itself, and all together once every pod is bound.

        `leaving`, `gone` and `afterwards` as of `solve`: it is legal before and after.

        Lists of instance types, and so minValues, are not judged: a designed node has one type.
        """
        verdict = self._judged(design, leaving, gone, afterwards=afterwards)
        return self._whole(design, verdict, gone)

    def _judged(
        self, design: Design, leaving: Collection[str], gone: Collection[str], *, afterwards: bool = False
    ) -> LegalityVerdict:
        setting, left_out = self._setting(design.pods, leaving, gone, Terms(Work(), 0))
        setting = replace(setting, offers=[offer.without_min_values() for offer in setting.offers])
        verdict = judge(setting, left_out, design, self._numbers)
        if afterwards and verdict.legal and setting.lingering and self._followed(setting):
            return self._judged(design, (), {*leaving, *gone})
        return verdict

    def settle(self, design: Design, asked: Setting | None = None) -> tuple[LegalityVerdict, tuple[PlannedClaim, ...]]:
        """Judge a design as a whole, minValues included, and make claims of its nodes, in their order.

        A claim names every type on which its pods fit, as one of `solve` does, and is planned on the cheapest; a node
        without zone or capacity type leaves them open where its pods do. No claims where the design is not legal. `asked`: a setting
        of its pods, if there is one already; all of them can be judged.
        """
        left_out: Sequence[LeftOut] = ()
        if asked is None:
            asked, left_out = self._setting(design.pods, (), (), Terms(Work(), 0))
        verdict, claims = settle(asked, left_out, design, self._numbers)
        verdict = self._whole(design, verdict, claims=claims)
        return verdict, claims if verdict.legal else ()

    def _whole(
        self,
        design: Design,
        verdict: LegalityVerdict,
        gone: Collection[str] = (),
        claims: Sequence[PlannedClaim] = (),
    ) -> LegalityVerdict:
        """The verdict, with the groups of which a design has too few pods, or that it spreads over two domains.

        `claims`: made of its nodes that have pods, in their order; each of their types counts then, not the designed one alone.
        """
        if not (self.world.groups or self.world.topology):
            return verdict
        groups = self._grouped(design.pods)
        faults = cut_groups(design, groups)
        if groups.labels:
            moving = frozenset(groups.of)
            numbers = [number for number, one in enumerate(design.nodes) if one.pods]
            types = {number: one.instance_types for number, one in zip(numbers, claims, strict=False)}
            faults += spread_groups(
                design,
                groups,
                lambda spot, label: self._designed_domain(design, types, spot, label),
                lambda key: self._homes(key, groups.labels[key], moving, gone),
            )
        return LegalityVerdict((*verdict.faults, *faults)) if faults else verdict

    def _designed_domain(
        self, design: Design, types: Mapping[int, Sequence[str]], spot: int | str, label: str
    ) -> str | None:
        """The value of a label on an existing node, by its name, or on a node of a design, by its number; None where it has none, or several are left."""
        if isinstance(spot, str):
            number = self._numbers.get(spot)
            return None if number is None else domain_on(self._bins[number], label)
        if label == HOSTNAME_LABEL:
            return f"{spot}/"  # no hostname has a slash
        node = design.nodes[spot]
        offers = (one for one in self._offers(Dimensions.of((), ()), ()) if one.pool.name == node.pool)
        return next((designed_domain(one, node, label, types.get(spot, (node.instance_type,))) for one in offers), None)

    def setting(
        self, pods: Sequence[Pod], leaving: Collection[str] = (), only: Collection[str] | None = None
    ) -> Setting:
        """What an answer about these pods starts from: their classes, what pools can make, existing nodes.

        `leaving` as of `solve`; `only`: names of the nodes that take pods, any unless told. Where few pods were just asked about, it is at hand.
        """
        last = self._last  # it keeps its pods alive, so that their ids are theirs
        if last is not None and only is None and last[:2] == (frozenset(map(id, pods)), frozenset(leaving)):
            return replace(last[2], terms=Terms(Work(), 0))
        return self._setting(pods, leaving, (), Terms(Work(), 0), only=only)[0]

    def _setting(
        self,
        pods: Sequence[Pod],
        leaving: Collection[str],
        gone: Collection[str],
        terms: Terms,
        avoided: Mapping[str, frozenset[str]] = NOTHING_AVOIDED,
        first: Collection[str] = (),
        only: Collection[str] | None = None,
        groups: GroupsAsked = NO_GROUPS,
    ) -> tuple[Setting, Sequence[LeftOut]]:
        world = self.world
        named = frozenset(itertools.chain.from_iterable(self._tallies[i].named for i in members(self._marks.naming)))
        gone_now = mask_of(self._numbers[name] for name in gone if name in self._numbers)
        taints: dict[tuple[Taint, ...], None] = dict.fromkeys(pool.taints for pool in world.pools)
        taints.update(dict.fromkeys(some for some, places in self._ground.by_taints.items() if places & ~gone_now))
        settled, over = self._settled(pods, gone_now), terms.work.look
        classes, left_out = classify(world, tuple(taints), pods, named, settled, avoided, over)
        if groups.needed:
            classes = together(classes, groups)
        if first:
            classes = ahead(classes, first)
        classes, ladders = affordable(classes)
        with_volumes = [one for one in classes if one.volumes is not NO_VOLUMES]
        drivers = {driver for one in with_volumes for driver, _ in one.volumes.attachments}
        # equal ones are mostly one object, which is quicker to tell
        distinct = {id(requests): requests for requests in [one.facts.requests for one in classes]}
        wanted = {*distinct.values(), *(one.requests for one in self._daemons)}
        dimensions = Dimensions.of(wanted, drivers)
        leaving_now = mask_of(self._numbers[name] for name in leaving if name in self._numbers)
        marks = self._marks
        lingering = leaving_now & ~gone_now
        shut = 0 if only is None else ~mask_of(self._numbers[name] for name in only) & (1 << len(self._bins)) - 1
        bins = Bins(
            self._bins,
            self._ground,
            self._table(dimensions),
            leaving=marks.leaving | leaving_now,
            closed=marks.closed | shut,
            gone=gone_now,
        )
        moving, moved = self._moved(pods, gone_now)
        company = self._company(classes, ladders)
        if company:
            moved = self._accompanied([one for one in company if not one.near], moved, bins)
        census = self._census.changed(moved, passing=True) if moved else self._census
        offers = self._offers(dimensions, drivers)
        need_of = _needs(distinct, dimensions)
        count, load = whole(classes, need_of, len(dimensions.names))
        after = {number: tally for number, _, tally in moved}
        setting = Setting(
            world=world,
            classes=classes,
            needs={one: need_of[id(one.facts.requests)] for one in classes},
            pods=count,
            load=load,
            sizes=len(set(map(id, need_of.values()))),
            offers=offers,
            bins=bins,
            scope=scope_of(world.namespaces, classes, ladders, offers, bins, census, terms.work, lingering, company),
            skews=skews_of(ladders),
            ports=self._ports(bins, census),
            in_use=self._in_use(with_volumes, census, moving, after),
            attached_to=self._attached_to(moving) if drivers else None,
            terms=terms,
            lingering=lingering,
            crowding=self._crowding(moving, after) if world.most_of_one else None,
            company=company,
            due={one: self._due_on(one, bins) for one in company if one.near},
        )
        return setting, left_out

    def _company(self, classes: Sequence[PodClass], ladders: Sequence[Sequence[Demand]]) -> tuple[Daemon, ...]:
        """The daemons that have to do with pods of the question."""
        if not self._daemons:
            return ()
        counts = {count: None for ladder in ladders for demand in ladder for count in demand.relations.counts}
        if not counts and not self._guarding:
            return ()
        daemons = self._daemons if counts else self._guarding
        pods = {id(one.facts.pod): one.facts.pod for one in classes} if self._guarding else {}
        return concerned(daemons, counts, pods.values(), self.world.namespaces)

    def _accompanied(
        self, company: Sequence[Daemon], moved: Sequence[tuple[int, Tally, Tally]], bins: Bins
    ) -> list[tuple[int, Tally, Tally]]:
        """What nodes have less, and the pods of DaemonSets that are still due on them more."""
        due: dict[int, list[Daemon]] = {}
        for one in company:
            for number in members(self._due_on(one, bins)):
                due.setdefault(number, []).append(one)
        changes = {number: (before, after) for number, before, after in moved}
        for number, daemons in due.items():
            before, after = changes.get(number, (self._tallies[number], self._tallies[number]))
            changes[number] = before, with_daemons(after, daemons)
        return [(number, before, after) for number, (before, after) in sorted(changes.items())]

    def _due_on(self, one: Daemon, bins: Bins) -> int:
        """The nodes on which no pod of a DaemonSet is that they admit."""
        places = self._due.get(one)
        if places is None:  # two threads that make it at once make the same
            admitting = bins.everything & bins.ground.matching(one.filter.terms)
            admitting &= bins.ground.tolerating(one.filter.tolerations, one.filter.effects)
            places = self._due[one] = mask_of(i for i in members(admitting) if not is_there(one, self._tallies[i]))
        return places & bins.everything

    def _crowding(self, moving: Collection[str], after: Iterable[int]) -> Crowding:
        """How many pods of one owner nodes take, and have once those of the question are taken off."""
        if self._crowded is None:  # two threads that make it at once make the same
            by_place: dict[int, int] = {}
            owners: dict[str, dict[int, int]] = {}
            for number, one in enumerate(self._bins):
                most = self.world.most_of_one.get(one.pool)
                if most is not None:
                    by_place[number] = most
                    for owner, pods in _owners_of_bin(one).items():
                        owners.setdefault(owner, {})[number] = pods
            self._crowded = by_place, owners
        by_place_now, spots = self._crowded
        anew = {
            number: owners_of([pod for pod in self._bins[number].pods if pod.uid not in moving])
            for number in after
            if number in by_place_now
        }
        return Crowding(self.world.most_of_one, by_place_now, spots, anew)

    def _moved(self, pods: Iterable[Pod], gone: int) -> tuple[frozenset[str], list[tuple[int, Tally, Tally]]]:
        """The UIDs of the pods, and what nodes have less by them, or because they are gone."""
        if not self._numbers:
            return frozenset(), []
        moving = frozenset([pod.uid for pod in pods])
        found: dict[int, None] = {}
        numbers, tallies, strays = self._nodes, self._tallies, self._census.strays
        for pod in pods:
            number = numbers.get(pod.node_name) if pod.node_name else None
            if number is None or pod.uid not in tallies[number].uids:
                number = strays.get(pod.uid)
            if number is not None:
                found[number] = None
        changes = []
        for number in sorted({*found, *members(gone)}):
            before = tallies[number]
            if before is not NOBODY:
                after = NOBODY
                if not gone >> number & 1:
                    one = self._bins[number]
                    stay = [pod for pod in one.pods if pod.uid not in moving]
                    after = tally_of(stay, one.node_name, exact=self._census.exact) if stay else NOBODY
                changes.append((number, before, after))
        return moving, changes

    def _table(self, dimensions: Dimensions) -> Rooms:
        """What room nodes have in these resources."""
        found = self._tables.get(dimensions.names)
        if found is None:
            found = Rooms.of(self._bins, dimensions, self._attach_limits())
            _drop_oldest(self._tables, _MOST_TABLES - 1)
            self._tables[dimensions.names] = found
        return found

    def _offers(self, dimensions: Dimensions, drivers: Collection[str]) -> list[PreparedPool]:
        limits = self._attach_limits()
        learnt = limits.learnt if drivers else {}
        frozen = tuple(sorted((name, tuple(sorted(some.items()))) for name, some in learnt.items()))
        shared = (self._daemons, dimensions.names, self._well_known, frozen)
        keep = len(self._pools) + _SPARE_CATALOGUES
        return [
            self._stock.offer(
                pool,
                limits.catalogues[pool.name],
                self._daemons,
                dimensions,
                self._well_known,
                limits,
                shared,
                keep,
            )
            for pool in self._pools
        ]

    def _attach_limits(self) -> AttachLimits:
        keep = len(self._pools) + _SPARE_CATALOGUES
        catalogues = {one.name: self._stock.catalogue(one.instance_types, keep) for one in self._pools}
        return AttachLimits(self.world.storage.attach_limits, catalogues)

    def _ports(self, bins: Bins, census: Census) -> Mapping[Port, int]:
        """Ports of nodes, and where they are taken, or will be by daemons that are due."""
        taken: dict[Port, int] | None = None
        for daemon in self._daemons:
            if daemon.ports:
                places = bins.admitting(daemon.filter)
                taken = dict(census.ports) if taken is None else taken
                for port in daemon.ports:
                    taken[port] = taken.get(port, 0) | places
        return census.ports if taken is None else taken

    def _in_use(
        self, classes: Iterable[PodClass], census: Census, moving: Collection[str], after: Mapping[int, Tally]
    ) -> frozenset[str]:
        """Claims that only one pod may use at a time, and that a pod on an existing node does use."""
        exclusive = {claim for one in classes if one.volumes.exclusive for claim in one.volumes.exclusive}
        if not exclusive:
            return frozenset()
        return frozenset(
            claim
            for number in members(census.with_claims)
            for claim, uid in after.get(number, self._tallies[number]).claims
            if claim in exclusive and uid not in moving
        )

    def _settled(self, pods: Iterable[Pod], gone: int) -> Mapping[str, FilterTerm]:
        """By volume claim of these pods, the zone of a pod that uses it already: an unbound one will be bound there."""
        if not self._census.with_claims:
            return NOTHING_SETTLED
        wanted = {claim for pod in pods if pod.shape.volumes for claim in claim_keys(pod)}
        if not wanted:
            return NOTHING_SETTLED
        moving = frozenset([pod.uid for pod in pods])
        found: dict[str, FilterTerm] = {}
        for number in members(self._census.with_claims & ~gone):
            zone = label_value(self._bins[number].labels, ZONE_LABEL)
            for claim, uid in self._tallies[number].claims if zone else ():
                if zone and claim in wanted and uid not in moving:
                    found.setdefault(claim, pin(ZONE_LABEL, zone))
        return found

    def _attached_to(self, moving: Collection[str]) -> Callable[[int], set[Attachment]]:
        bins, storage = self._bins, self.world.storage

        def attached(number: int) -> set[Attachment]:
            return attachments_of((pod for pod in bins[number].pods if pod.uid not in moving), storage)

        return attached

    # ------------------------------------------------------------------ the next instant

    def updated(self, changes: Changes) -> "Prepared":
        """The world after some changes; what they do not touch is shared. Nodes that came are the last in preference.

        Cost: what changed. Where labels, taints, names or features of nodes changed, or nodes went, one look at every node besides;
        where some came, when a question needs it.
        """
        if changes == _NOTHING:
            return self
        world = self.world
        daemons = self._daemons if changes.daemons is None else _daemons(changes.daemons)
        census = self._census if changes.namespaces is None else self._census.afresh()
        settled = replace(
            world,
            pools=world.pools if changes.pools is None else changes.pools,
            daemons=world.daemons if changes.daemons is None else changes.daemons,
            namespaces=world.namespaces if changes.namespaces is None else changes.namespaces,
            storage=world.storage if changes.storage is None else changes.storage,
            spread_defaults=world.spread_defaults if changes.spread_defaults is None else changes.spread_defaults,
            groups=world.groups if changes.groups is None else changes.groups,
            topology=world.topology if changes.topology is None else changes.topology,
        )
        tables = self._tables
        if _kinds(world) != _kinds(settled):
            tables = {key: table for key, table in list(tables.items()) if not table.dimensions.drivers}
        if not changes.bins and not changes.gone:
            return replace(self, world=settled, _census=census, _daemons=daemons, _tables=tables)
        bins, tallies = list(self._bins), list(self._tallies)
        numbers, new = self._numbers, [name for name in changes.bins if name not in self._numbers]
        changed: dict[int, Bin] = {numbers[name]: VACANT for name in changes.gone if name in numbers}
        if new:
            numbers = dict(numbers) | {name: len(bins) + place for place, name in enumerate(new)}
            bins += [VACANT] * len(new)
            tallies += [NOBODY] * len(new)
        changed |= {numbers[name]: one for name, one in changes.bins.items()}
        exact = census.exact
        moved = []
        alike, known = True, len(self._bins)
        for number, one in sorted(changed.items()):
            before, bins[number] = bins[number], one
            alike = alike and (
                number >= known
                or (before.labels, before.taints, before.node_name, before.features)
                == (one.labels, one.taints, one.node_name, one.features)
            )
            tally = tally_of_bin(one, exact=exact)
            if tally is not tallies[number]:
                moved.append((number, tallies[number], tally))
                tallies[number] = tally
        marks = self._marks.changed(changed, tallies)
        vacated = any(one is VACANT for one in changed.values())
        whole_so_far = len(world.bins) == len(self._bins)
        staying = tuple(bins if whole_so_far and not vacated else [one for one in bins if one is not VACANT])
        settled = replace(settled, bins=staying)
        if bool(marks.naming) != exact or len(bins) - len(staying) > max(_MOST_VACANT, len(staying) // 4):
            return _fresh(settled, self._stock)
        if vacated:
            numbers = {name: number for name, number in numbers.items() if bins[number] is not VACANT}
        nodes = self._nodes
        if new or not alike:
            nodes = {**nodes, **_nodes(bins[known:], known)} if alike else _nodes(bins)
        return replace(
            self,
            world=settled,
            _bins=bins,
            _numbers=numbers,
            _nodes=nodes,
            _ground=_ground(bins, self._ground, known) if alike else Ground(bins),
            _tallies=tallies,
            _census=census.changed(moved) if moved else census,
            _marks=marks,
            _tables={key: table.changed(changed) for key, table in list(tables.items())},
            _daemons=daemons,
        )


def derived(prepared: Prepared, word: str, make: Callable[[Sequence[SchedulingPool]], V]) -> V:
    """What follows from what the NodePools of a world can make, as of `Stock.derived`."""
    return prepared._stock.derived(prepared.world.pools, word, make)  # noqa: SLF001 - of the same module


def without_place(prepared: Prepared, pods: Sequence[Pod], leaving: Collection[str] = ()) -> list[Pod]:
    """Those of the pods that no existing node takes while these nodes leave, wherever others come to: each needs a new node, or has no place.

    A proof: filters, taints, room, anti-affinity over hosts and spread over domains are looked at, each pod by itself; of the others nothing is said.

    Args:
        prepared: the world.
        pods: of a question; they run on nodes that leave.
        leaving: names of the nodes.

    Cost: a look-up a pod, and two sets of nodes for each different filter and size in a world; for those that are spread, the domains, and a setting
    where nobody has asked with these numbers of pods.
    """
    return _PlaceProof(prepared).found(pods, leaving)


class _PlaceProof:
    """What `without_place` looks at in a world; what it finds is kept there."""

    def __init__(self, prepared: Prepared) -> None:
        self._world: Final = prepared.world
        # of the same module, from here on
        self._bins: Final = prepared._bins  # noqa: SLF001
        self._numbers: Final = prepared._numbers  # noqa: SLF001
        self._nodes: Final = prepared._nodes  # noqa: SLF001
        self._ground: Final = prepared._ground  # noqa: SLF001
        self._census: Final = prepared._census  # noqa: SLF001
        self._marks: Final = prepared._marks  # noqa: SLF001
        self._stock: Final = prepared._stock  # noqa: SLF001
        self._daemons: Final = prepared._daemons  # noqa: SLF001
        self._roomy: Final = prepared._roomy  # noqa: SLF001
        self._types: Final = prepared._types  # noqa: SLF001
        self._amounts: Final = prepared._amounts  # noqa: SLF001
        self._table: Final = prepared._table  # noqa: SLF001
        self._offers: Final = prepared._offers  # noqa: SLF001
        self._setting: Final = prepared._setting  # noqa: SLF001

    def found(self, pods: Sequence[Pod], leaving: Collection[str]) -> list[Pod]:
        """As of `without_place`."""
        gone = mask_of(self._numbers[name] for name in leaving if name in self._numbers)
        wanted = {id(pod.shape.requests): pod.shape.requests for pod in pods}
        dimensions = Dimensions.of({*wanted.values(), *(one.requests for one in self._daemons)}, ())
        needs = _needs(wanted, dimensions)
        homes = {number for pod in pods if (number := self._home_of(pod)) is not None}
        lacking = []
        for pod in pods:
            try:
                facts = facts_of(pod.shape)
            except FilterError:
                continue
            key = facts.filter, dimensions.names, needs[id(pod.shape.requests)]
            places = self._roomy.get(key)
            if places is None:  # two threads that make it at once make the same
                places = _keep(self._roomy, key, self._room_for(facts.filter, dimensions, key[2]), _MOST_PROOFS)
            places &= ~gone
            relations = facts.required.relations
            if places and relations.apart and not self._census.exact:
                places &= ~self._shunned(relations)
            if places and relations.spreads:
                places &= self._domains_left(pod, key[2], homes, dimensions)
            if not places:
                lacking.append(pod)
        return lacking

    def _room_for(self, node_filter: NodeFilter, dimensions: Dimensions, need: Need) -> int:
        """The nodes that admit a pod and have room for it."""
        marks = self._marks
        bins = Bins(self._bins, self._ground, self._table(dimensions), leaving=marks.leaving, closed=marks.closed)
        return bins.admitting(node_filter) & bins.roomy(need)

    def _shunned(self, relations: Relations) -> int:
        """The nodes with pods from which anti-affinity over hosts keeps such a pod away."""
        some = [self._census.spots(one, self._world.namespaces).at_least for one in relations.apart if one.on_hosts]
        return functools.reduce(operator.or_, (level for each in some for level in each[1:2]), 0)

    def _domains_left(self, pod: Pod, need: Need, homes: Collection[int], dimensions: Dimensions) -> int:
        """The nodes in those domains to which the spread of a pod lets it move, whatever becomes of the other pods on `homes`; all where that is not known.

        Known of a pod that is counted with none of these, where nothing but the pods of each of a few domains has a say.

        Cost: the domains; a setting where nobody has asked with these numbers of pods.
        """
        home, facts = self._home_of(pod), facts_of(pod.shape)
        relations = facts.required.relations
        counts = [one.count for one in relations.spreads if not one.count.on_hosts]
        if home is None or not counts or self._census.exact or pod.shape.volumes:
            return ALL
        amounts = []
        for spread in relations.spreads:
            if spread.count.on_hosts:
                continue
            if len(self._ground.by_label(spread.count.key)) > _MOST_DOMAINS:
                return ALL
            spots = self._census.spots(spread.count, self._world.namespaces)
            alone = sum([spots.counts.get(number, 0) for number in homes]) == spread.own == spots.counts.get(home, 0)
            if not alone or spread.count.eligibility is not None or spread.min_domains > 1:
                return ALL
            amounts.append(self._by_domain(spread.count, spots))
        where = [label_value(self._bins[home].labels, count.key) for count in counts]
        others = ~(self._marks.leaving | 1 << home)
        kept = [
            (one, bool(self._ground.by_label(count.key).get(one, 0) & others))
            for one, count in zip(where, counts, strict=True)
        ]
        key = self._ties(facts), facts.filter, need, tuple(kept), tuple(amounts)
        known = self._stock.legal(dimensions, self._made_of(dimensions))
        legal = known.get(key, _UNASKED)
        if legal is _UNASKED:
            legal = _keep(known, key, self._legal_domains(pod, relations, counts, home), _MOST_LEGAL)
        if legal is None:
            return ALL
        places = ALL
        for label, values in legal:
            places &= sum([self._ground.by_label(label).get(value, 0) for value in values])
        return places

    def _ties(self, facts: ShapeFacts) -> Relations | tuple[tuple[str, int, bool], ...]:
        """What the legal domains of such a pod follow from besides numbers: how it is spread, where nothing else has a say."""
        relations, namespaces = facts.required.relations, self._world.namespaces
        others = *relations.together, *relations.apart, *self._census.guarded(relations.pod, namespaces)
        wishes, on_hosts = len(facts.ties.ladder) > 1, all(one.on_hosts for one in others)
        if wishes or not on_hosts or self._is_near_daemons(relations):
            return relations
        return tuple([(one.count.key, one.max_skew, one.own) for one in relations.spreads])

    def _is_near_daemons(self, relations: Relations) -> bool:
        """Whether DaemonSets have a say in where such a pod may go."""
        if not self._daemons:
            return False
        known = self._stock.near_daemons(self._daemons, self._world.namespaces)
        found = known.get(relations)
        if found is None:
            some = concerned(self._daemons, relations.counts, (relations.pod,), self._world.namespaces)
            found = _keep(known, relations, bool(some), _MOST_PROOFS)
        return found

    def _home_of(self, pod: Pod) -> int | None:
        """The node that counts a pod: the one that it is promised to, else its own."""
        promised = self._census.strays.get(pod.uid)
        return self._nodes.get(pod.node_name) if promised is None else promised

    def _made_of(self, dimensions: Dimensions) -> tuple[PreparedTypes, ...]:
        """What pools can make, as objects that are the same while it is."""
        found = self._types.get(dimensions.names)
        if found is None:  # two threads that make it at once make the same
            found = tuple([one.types for one in self._offers(dimensions, ())])
            _keep(self._types, dimensions.names, found, _MOST_TABLES)
        return found

    def _by_domain(self, count: Count, spots: Spots) -> tuple[_Domain, ...]:
        """The domains of a count that have nodes."""
        known = self._amounts.get(count)
        if known is None:  # two threads that make it at once make the same
            staying = ~self._marks.leaving
            places = [one for one in self._ground.by_label(count.key).items() if one[0] is not None]
            found = [(value or "", spots.pods_on(some), bool(some & staying)) for value, some in places]
            known = _keep(self._amounts, count, tuple(sorted(found)), _MOST_PROOFS)
        return known

    def _legal_domains(self, pod: Pod, relations: Relations, counts: Sequence[Count], home: int) -> _Legal:
        """By label, the domains that take a pod if it leaves its node; None where more than its spread has a say."""
        setting, left_out = self._setting([pod], (self._bins[home].name,), (), Terms(Work(), 0))
        if left_out or setting.company or setting.classes[0].ladder[-1].relations != relations:
            return None
        run, legal = Attempt(setting, (), setting.classes).legal_domains(setting.classes[0])
        if any(ap.blocked or ap.apart or ap.together for ap in run.plan.axes):
            return None
        keys = {count.key for count in counts}
        return tuple([(label, values) for label, values in legal if label in keys])


def _kinds(world: World) -> tuple[object, ...]:
    """What the attach limits of nodes follow from besides themselves, to be compared by identity."""
    return id(world.storage.attach_limits), *[(one.name, id(one.instance_types)) for one in world.pools]


_MOST_VACANT: Final = 256
_NOTHING: Final = Changes()
_policies: Final = attrgetter(
    "well_known", "preferences", "min_values", "devices", "reservation_label", "hostname_domains", "most_of_one"
)
"""Of a world, what `Changes` cannot say."""


def prepare(world: World, before: Prepared | None = None) -> Prepared:
    """Make a world ready for questions.

    Args:
        world: of which all is meant: names of nodes unique, the order of nodes that of preference.
        before: of an earlier instant; what follows from objects that are still the same is taken from it.

    Cost: with `before`, one comparison of identity a node, and what changed; without, O(nodes + running pods), and the
    index of every catalogue.
    """
    if before is None:
        return _fresh(world, Stock())
    changes = changes_between(before.world, world)
    return _fresh(world, before._stock) if changes is None else before.updated(changes)  # noqa: SLF001 - its own class, in its own module


def changes_between(before: World, after: World) -> Changes | None:
    """What happened between two instants; None where `Changes` cannot say it. Cost: one comparison of identity a node."""
    if _policies(before) != _policies(after):
        return None
    old = {one.name: one for one in before.bins}
    new = {one.name: one for one in after.bins}
    gone = frozenset(old.keys() - new.keys())
    if [name for name in new if name in old] != [name for name in old if name in new]:
        return None
    came = False
    for name in new:
        if name not in old:
            came = True
        elif came:
            return None
    return Changes(
        bins={name: one for name, one in new.items() if old.get(name) is not one},
        gone=gone,
        pools=None if before.pools == after.pools else after.pools,
        daemons=None if before.daemons == after.daemons else after.daemons,
        namespaces=None if before.namespaces == after.namespaces else after.namespaces,
        storage=None if before.storage is after.storage else after.storage,
        spread_defaults=None if before.spread_defaults is after.spread_defaults else after.spread_defaults,
        groups=None if before.groups is after.groups or before.groups == after.groups else after.groups,
        topology=None if before.topology is after.topology or before.topology == after.topology else after.topology,
    )


def _fresh(world: World, stock: Stock) -> Prepared:
    bins = list(world.bins)
    tallies = [tally_of_bin(one, exact=False) for one in bins]
    exact = any(tally.named for tally in tallies)
    if exact:
        tallies = [tally_of_bin(one, exact=True) for one in bins]
    return Prepared(
        world if type(world) is World else _world_of(world),
        bins,
        {one.name: number for number, one in enumerate(bins)},
        _nodes(bins),
        Ground(bins),
        tallies,
        Census.of(tallies, exact=exact),
        Marks.of(enumerate(bins), tallies),
        {},
        stock,
        _daemons(world.daemons),
    )


def _world_of(more: World) -> World:
    return World(**{one.name: getattr(more, one.name) for one in fields(World)})


def _nodes(bins: Iterable[Bin], first: int = 0) -> dict[str, int]:
    return {one.node_name: number for number, one in enumerate(bins, first) if one is not VACANT}


def _owners_of_bin(one: Bin) -> Mapping[str, int]:
    """Pods on a node by owner, kept on it; two threads that make it at once make the same."""
    kept = one.__dict__
    found: Mapping[str, int] | None = kept.get("_owners")
    if found is None:
        found = kept["_owners"] = owners_of(one.pods)
    return found


def _members_of_bin(one: Bin) -> Sequence[tuple[str, str]]:
    """The pods of groups on a node, as keys and UIDs, kept on it; two threads that make it at once make the same."""
    kept = one.__dict__
    found: Sequence[tuple[str, str]] | None = kept.get("_members")
    if found is None:
        found = kept["_members"] = tuple([(key, pod.uid) for pod in one.pods if (key := group_of(pod))])
    return found


def _ground(bins: Sequence[Bin], before: Ground, known: int) -> Ground:
    return Ground(bins, before) if len(bins) > known else before


def _in_order(pools: tuple[SchedulingPool, ...]) -> list[SchedulingPool]:
    """By weight, then name, both descending. Source: core spec 3.4."""
    return sorted(sorted(pools, key=lambda pool: pool.name, reverse=True), key=lambda pool: -pool.weight)


def _daemons(shapes: Iterable[PodShape]) -> tuple[Daemon, ...]:
    """Every daemon that can be judged, in an order that does not depend on the input's.

    One that cannot be read runs nowhere as far as anybody can tell, so it takes nothing.
    """
    readable = []
    for shape in sorted(shapes, key=lambda shape: shape.key):
        if shape.error:
            continue
        try:
            facts = facts_of(shape)
        except FilterError:
            continue
        name = str(shape.derived.get(DAEMON_SET, f"of namespace {shape.namespace}"))
        relations = facts.required.relations
        near = () if all(one.include(relations.pod, {}) for one in relations.together) else relations.together
        readable.append(Daemon(facts.filter, facts.requests, facts.ports, relations, name, near))
    return tuple(readable)


def _needs(requests: Mapping[int, Resources], dimensions: Dimensions) -> dict[int, Need]:
    """What pods of such requests take; equal ones are one object."""
    known: dict[Resources, Need] = {}
    needs = {}
    for key, one in requests.items():
        need = known.get(one)
        if need is None:
            need = known[one] = dimensions.need(one)
        needs[key] = need
    return needs
