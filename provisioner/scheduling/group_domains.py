"""In which domain of its topology key a group could have places, the best first, and which groups a design spreads over two. Pure.

A domain is a value of a node label, and all pods of such a group run in one. Candidates are the values on existing nodes and those that NodePools
can make; trying one is to pin all pods of the group to it. The hostname of a node to come is not known, so one new node is a domain by itself, and
groups that take each other's room on new nodes have some for themselves (`Domain.term`).

Source: kube-scheduler 1.37 plugins/topologyaware: a member that is scheduled fixes the domain; members in two domains, or on a node without the
label, are an error, and no other is tried.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from provisioner.apis.names import CAPACITY_TYPE_LABEL, HOSTNAME_LABEL, ZONE_LABEL
from provisioner.apis.pods import Pod
from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.capacity.offers import PreparedPool, pin
from provisioner.scheduling.constraints.bitsets import mask_of, members
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.constraints.filters import (
    NAME_FIELD,
    NEW_NODE_OF,
    TRIVIAL,
    UNKNOWN_HOSTNAME,
    FilterTerm,
    label_value,
    value_on,
)
from provisioner.scheduling.constraints.vectors import most
from provisioner.scheduling.judging import DesignedNode
from provisioner.scheduling.problem import Bin
from provisioner.values.requirement import Operator, Requirement, Requirements

ONE_NEW_NODE: Final = pin(HOSTNAME_LABEL, UNKNOWN_HOSTNAME).joined(
    FilterTerm(
        names=Requirement.of(NAME_FIELD, Operator.NOT_IN, ("",))
    )  # a node without Node has no name, and another domain
)
"""Any new node. Whoever pins pods to it sees to it that they get one."""


_MANY: Final = 4


class Domain(NamedTuple):
    """Where all pods of a group may be.

    Attributes:
        label: the topology key.
        value: of the label; "" for a new node.
    """

    label: str
    value: str

    @property
    def is_new_node(self) -> bool:
        """Whether it is a new node, and not a value of a label."""
        return not self.value and self.label == HOSTNAME_LABEL

    def term(self, seat: str = "") -> FilterTerm:
        """What pins a pod to it; of new nodes, to that which groups have for themselves under this name."""
        if not self.is_new_node:
            return pin(self.label, self.value)
        return ONE_NEW_NODE.joined(pin(NEW_NODE_OF, seat)) if seat else ONE_NEW_NODE


def others_of(pins: Iterable[FilterTerm]) -> FilterTerm:
    """What keeps all other pods off the new nodes that groups have for themselves."""
    asked = (one.requirements.get(NEW_NODE_OF) for one in pins)
    seats = {value for one in asked if one is not None for value in one.values}
    return FilterTerm(Requirements.of((Requirement.of(NEW_NODE_OF, Operator.NOT_IN, seats),))) if seats else TRIVIAL


class DomainChoice(NamedTuple):
    """The domains in which a group could have places.

    Attributes:
        label: its topology key.
        steps: what it took to find them: domains that were looked at, for each class of its pods and once more.
        best: the most promising first: those whose existing nodes may have room for all that are needed, then those that have room for some and that
            NodePools can make, then new ones; each the cheapest first.
        made: whether some NodePool can make nodes with the label.
    """

    label: str
    best: Sequence[Domain]
    made: bool
    steps: int = 0


def domains(setting: Setting, label: str, needed: int, homes: Iterable[str | None]) -> DomainChoice:
    """The domains in which as many pods of a question as are needed could have places, each class of them taken by itself.

    Args:
        setting: of the pods of one group.
        label: its topology key, by its stable name.
        needed: how many must have places.
        homes: domains of its pods that run and stay; None for a node without the label.

    Cost: O(classes x domains + pods x domains), until time is up; then some domains may be missing.
    """
    room, news, price = _room(setting, label), Counter[str](), dict[str, float]()
    for one in setting.classes:
        if setting.terms.work.look():
            break
        for value, usd in _made(setting, one, label).items():
            news[value] += len(one.pods)
            price[value] = max(price.get(value, 0.0), usd)
    fixed = set(homes)
    found: list[tuple[int, float, str]] = []
    for value in room.keys() | news.keys():
        if room[value] + news[value] >= needed and (not fixed or fixed == {value}):
            whole = room[value] >= needed
            found.append((0 if whole else 1 if room[value] else 2, 0.0 if whole else price[value], value))
    every = any(offer.domains(offer.base, label) for offer in setting.offers)
    steps = (1 + len(setting.classes)) * (len(setting.bins.by_label(label)) + len(news))
    return DomainChoice(label, [_domain(label, value) for *_, value in sorted(found)], every, steps)


def _domain(label: str, value: str) -> Domain:
    return Domain(label, "" if label == HOSTNAME_LABEL and value == UNKNOWN_HOSTNAME else value)


def _room(setting: Setting, label: str) -> Counter[str]:
    """By domain, the most pods that its existing nodes may hold."""
    bins, found = setting.bins, Counter[str]()
    places = [(value, holders) for value, holders in bins.by_label(label).items() if value is not None]
    values: Sequence[str | None] = ()
    if label == HOSTNAME_LABEL or _MANY * len(places) > len(
        bins.bins
    ):  # it takes less to look at nodes than at domains
        values = [
            label_value(one.labels, label) for one in bins.bins
        ]  # without: others go by their name, and no pin says that
    for one in setting.classes:
        if setting.terms.work.look():
            break
        need, count = setting.needs[one], len(one.pods)
        fitting = bins.admitting(one.filter) & bins.roomy(need)
        some: Iterable[tuple[str | None, Iterable[int]]]
        if values:
            some = [(values[i], (i,)) for i in members(fitting)]
        else:
            some = [(value, members(holders & fitting)) for value, holders in places] if fitting else ()
        rooms: dict[str, int] = {}
        for value, numbers in some:
            if value is None:
                continue
            room = rooms.get(value, 0)
            for i in numbers:
                if room >= count:
                    break
                room += most(bins.rooms[i], need, count)
            if room:
                rooms[value] = room
        found.update({value: min(count, room) for value, room in rooms.items()})
    return found


def _made(setting: Setting, one: PodClass, label: str) -> dict[str, float]:
    """By domain in which a pod fits on a new node, the least price of one."""
    need, found = setting.needs[one], dict[str, float]()
    for offer in setting.offers:
        if not offer.tolerated(one.filter):
            continue
        used = [0] * len(offer.dimensions.names)
        for d, amount in need:
            used[d] = amount
        for state in offer.starts(one.filter):
            for value in offer.domains(state, label):
                narrower = offer.narrowed(state, pin(label, value))
                usd = float("inf") if narrower is None else offer.price(narrower, used)
                if usd < found.get(value, float("inf")):
                    found[value] = usd
    return found


def domain_on(one: Bin, label: str) -> str | None:
    """The value of a label on a node; that of a hostname which is not known yet is the node's own name, with a slash, which no hostname has."""
    value = value_on(one.labels, label, one.node_name)
    return f"{one.name}/" if value == UNKNOWN_HOSTNAME else value


def designed_domain(offer: PreparedPool, node: DesignedNode, label: str, types: Iterable[str]) -> str | None:
    """The value that a designed node will have for a label, other than its hostname; None where it is not settled, or there is none.

    `types`: the instance types that it may come to have.
    """
    state, rows = offer.base, [offer.catalogue.row_of(one) for one in types]
    for key, value in ((ZONE_LABEL, node.zone), (CAPACITY_TYPE_LABEL, node.capacity_type), *node.labels):
        if value:
            narrower = offer.narrowed(state, pin(key, value))
            if key == label or narrower is None:
                return value if key == label else None
            state = narrower
    values = offer.catalogue.values(label, mask_of([row for row in rows if row is not None]), state.requirements)
    if values:
        return values[0] if len(values) == 1 else None
    asked = state.requirements.get(label)
    return None if asked is None else asked.single_value


def spanning(
    spots: Iterable[tuple[int | str, Sequence[Pod]]],
    labels: Mapping[str, str],
    of: Mapping[str, str],
    value_on: Callable[[int | str, str], str | None],
    homes: Callable[[str], Iterable[str | None]],
) -> dict[str, tuple[int | str, Pod]]:
    """The groups whose pods would not all run in one domain, each with a pod that is outside, and where it is.

    Args:
        spots: what a design puts where.
        labels: by key of a group, its topology key.
        of: by UID of a pod, the key of its group.
        value_on: the value of a label at a spot.
        homes: of a group, as of `domains`.

    Cost: O(pods); `value_on` once for each spot and label, `homes` once for each group.
    """
    first: dict[str, str | None] = {}
    staying: dict[str, set[str | None]] = {}
    found: dict[str, tuple[int | str, Pod]] = {}
    for spot, pods in spots:
        values: dict[str, str | None] = {}  # by label: it is asked for once, not for each pod
        for pod in pods:
            key = of.get(pod.uid, "")
            if key in labels and key not in found:
                label = labels[key]
                if label not in values:
                    values[label] = value_on(spot, label)
                if key not in staying:
                    staying[key] = {*homes(key)}
                value = values[label]
                if value is None or first.setdefault(key, value) != value or staying[key] - {value}:
                    found[key] = spot, pod
    return found
