"""Values that a pod requires of labels whose values are known, and that no NodePool, instance type or node has: misspelt ones as a rule."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from provisioner.apis import names
from provisioner.apis.advice import usual_word
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.constraints.filters import FilterError, FilterTerm, node_filter
from provisioner.state.snapshot import Snapshot
from provisioner.values.message import Said
from provisioner.values.spelling import closest, meant

_OF_TYPES: Final = (names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL, names.ARCH_LABEL)
_ALIKE: Final = 0.7
KnownValues = Mapping[str, frozenset[str]]


def known_values(snapshot: Snapshot, types: Iterable[InstanceType] | None) -> KnownValues:
    """By label; of those that instance types decide none where types are not known (None). Cost: O(offerings + nodes)."""
    found: dict[str, set[str]] = {names.NODEPOOL_LABEL: {one.pool.name for one in snapshot.pools}}
    for each in types or ():
        for key in _OF_TYPES:
            found.setdefault(key, set()).update(each.requirements.requirement(key).values)
            for offering in each.offerings:
                found[key].update(offering.requirements.requirement(key).values)
    for node in snapshot.nodes:
        for key, values in found.items():
            values.update(filter(None, (node.labels.get(key, ""),)))
    return {key: frozenset(values) for key, values in found.items() if values}


def unknown_values(pod: Pod, known: KnownValues) -> tuple[str, ...]:
    """A sentence for each value that keeps the pod from every node, whatever else there is; none where one of its terms has no such value."""
    try:
        terms = node_filter(pod.shape).terms
    except FilterError:
        return ()
    said = [tuple(_of_term(one, known)) for one in terms]
    return tuple(dict.fromkeys(one for each in said for one in each)) if all(said) else ()


def _of_term(term: FilterTerm, known: KnownValues) -> Iterator[str]:
    for key, values in known.items():
        if key not in term.requirements:
            continue
        required = term.requirements[key]
        if required.values and not required.complement and not required.values & values:
            for one in sorted(required.values):
                hint = meant(usual_word([one], values) or closest(one, sorted(values), alike=_ALIKE))
                yield _sentence(key, one, hint)


def _sentence(key: str, value: str, hint: str) -> str:
    if key == names.NODEPOOL_LABEL:
        return Said(f'no NodePool is named "{value}"{hint}')
    return Said(f'no instance type has "{value}" as {key}{hint}')
