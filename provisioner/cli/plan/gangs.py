"""What a plan comes to for each group of pods: its nodes, their price, and the money at risk while they are launched. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from provisioner.apis.gangs import group_of, told
from provisioner.apis.names import normalized_label
from provisioner.apis.pods import Pod
from provisioner.lifecycle.gang_decisions import purchase
from provisioner.scheduling.constraints.filters import label_value
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import PlannedClaim, Result


@dataclass(frozen=True, slots=True)
class PlannedGang:
    """One group.

    Attributes:
        name: for people.
        pods: that are asked about.
        needed: so many of them need places at the same time.
        placed: so many have them.
        nodes: new nodes that some of its pods are planned on, also beside others.
        existing: nodes that are there, likewise.
        usd_per_hour: of these new nodes.
        usd_at_risk: what is paid at most if one of them cannot be launched.
        key: the node label that all its nodes must share; "" for none.
        domains: the values of this label on its nodes; one, or none where its new node has none yet.
        reasons: why it has no places.
    """

    name: str
    pods: int
    needed: int
    placed: int
    nodes: int
    existing: int
    usd_per_hour: float
    usd_at_risk: float
    key: str = ""
    domains: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


def gangs_of(prepared: Prepared, pods: Sequence[Pod], result: Result) -> tuple[PlannedGang, ...]:
    """The groups of a question, by key; those that need one pod and no domain are single pods. Cost: O(pods + nodes)."""
    world = prepared.world
    keys = world.groups.keys() | world.topology.keys()
    if not keys:
        return ()
    needed = prepared.groups(pods, at_least=1).needed
    asked = Counter([key for pod in pods if (key := group_of(pod)) in keys])
    new: dict[str, list[PlannedClaim]] = {}
    placed: Counter[str] = Counter()
    for claim in result.claims:
        for key, count in _counts(claim.pods).items():
            new.setdefault(key, []).append(claim)
            placed[key] += count
    there: dict[str, list[str]] = {}
    for name, some in result.existing.items():
        for key, count in _counts(some).items():
            there.setdefault(key, []).append(name)
            placed[key] += count
    why: dict[str, tuple[str, ...]] = {}
    for one in result.unplaced:
        if (key := group_of(one.pod)) in asked and key not in why and not placed[key]:
            why[key] = tuple(map(str, one.reasons))
    labels = {one.name: one.labels for one in world.bins} if world.topology else {}
    found = []
    for key, count in sorted(asked.items()):
        claims, names = new.get(key, []), there.get(key, [])
        label = world.topology.get(key, "")
        bought = purchase(key, claims)
        found.append(
            PlannedGang(
                told(key),
                count,
                needed.get(key, 0 if key in world.groups else 1),
                placed[key],
                bought.nodes,
                len(names),
                bought.usd_per_hour,
                bought.usd_at_risk,
                label,
                _domains(normalized_label(label), claims, [labels.get(one, {}) for one in names]) if label else (),
                why.get(key, ()),
            )
        )
    return tuple(found)


def _counts(pods: Iterable[Pod]) -> Counter[str]:
    found = Counter(map(group_of, pods))
    del found[""]
    return found


def _domains(label: str, claims: Iterable[PlannedClaim], nodes: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    values = {value for labels in nodes if (value := label_value(labels, label))}
    for claim in claims:
        wanted = claim.requirements.requirement(label)
        values |= set() if wanted.complement else set(wanted.values)
    return tuple(sorted(values))
