"""Which instance types of a NodePool would not do for a pod alone, and for what: every type once, under the first cause that refuses it."""

from dataclasses import dataclass
from typing import Final

from provisioner.apis.pods import Pod
from provisioner.scheduling.capacity.offers import PreparedPool
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.constraints.filters import FilterTerm, NodeFilter
from provisioner.scheduling.constraints.vectors import Need
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.reasons import Untolerated, limit_text
from provisioner.values.resources import Resources
from provisioner.values.taints import first_untolerated

NOT_OF_THE_POOL: Final = "not-in-nodepool"
UNTOLERATED: Final = "taint"
INCOMPATIBLE: Final = "incompatible"
NO_OFFERING: Final = "no-offering"
DAEMONS: Final = "daemons"
TOO_SMALL: Final = "too-small"
LIMIT: Final = "limit"


@dataclass(frozen=True, slots=True)
class RefusedTypes:
    """Instance types that one cause refuses.

    Attributes:
        cause: one of the constants of this module.
        message: the cause in words, about the types.
        instance_types: their names, sorted.
    """

    cause: str
    message: str
    instance_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoolTypes:
    """What a NodePool could launch for one pod alone.

    Attributes:
        fitting: instance types that would take the pod, sorted; ties to other pods (spread, affinity) and to volumes left aside.
        refused: the others.
    """

    pool: str
    fitting: tuple[str, ...]
    refused: tuple[RefusedTypes, ...]


def refused_types(prepared: Prepared, pod: Pod) -> tuple[PoolTypes, ...]:
    """For every NodePool that may launch nodes, in the world's order; () for a pod that cannot be judged, or is gated.

    Of several terms of the pod's node affinity the one that leaves most types counts.

    Cost: O(pools x (instance types + labels asked for)).
    """
    setting = prepared.setting((pod,))
    if not setting.classes:
        return ()
    one: PodClass = setting.classes[0]
    need = setting.needs[one]
    return tuple(_of_pool(offer, one.filter, need) for offer in setting.offers)


def _of_pool(offer: PreparedPool, node_filter: NodeFilter, need: Need) -> PoolTypes:
    catalogue = offer.catalogue
    found: list[tuple[str, str, int]] = []
    rows = catalogue.everything
    taint = first_untolerated(node_filter.tolerations, offer.pool.taints, node_filter.effects)
    if taint is not None:
        found.append((UNTOLERATED, str(Untolerated(taint)), rows))
        rows = 0
    for key, requirement in offer.template.items():
        rows = _strike(
            found,
            NOT_OF_THE_POOL,
            f"not {requirement}, as the NodePool requires",
            rows,
            offer.types.matching(offer.template[key]),
        )
    rows = _strike(
        found,
        NO_OFFERING,
        "no available offering under the NodePool's requirements",
        rows,
        catalogue.available(offer.template),
    )
    rows = _strike(
        found, DAEMONS, "no room left after the reservations for the system and the DaemonSets", rows, offer.base.rows
    )
    best = max(
        (_of_term(offer, term, rows) for term in node_filter.terms), key=lambda each: each[0].bit_count(), default=None
    )
    if best is None:
        rows = _strike(found, INCOMPATIBLE, "the pod's node affinity has no term that can match a node", rows, 0)
    else:
        rows, of_term = best
        found += of_term
    wanted = dict(need)
    for d, amount in wanted.items():
        name = offer.dimensions.names[d]
        fits = sum(1 << row for row in members(rows) if offer.room[row][d] >= amount)
        text = Resources.of({name: amount}).to_wire()[name]
        text = f"less than {_shown(name, text)} allocatable"
        large = sum(1 << row for row in members(rows) if catalogue.types[row].allocatable.amount(name) >= amount)
        rows = _strike(found, TOO_SMALL, text, rows, large | fits)
        rows = _strike(found, TOO_SMALL, f"{text} after the requests of DaemonSets", rows, fits)
    for name, left in sorted((offer.pool.remaining or {}).items()):
        within = sum(1 << row for row in members(rows) if catalogue.amount(row, name) <= left)
        shown = limit_text(name, max(0, left))
        rows = _strike(found, LIMIT, f"more than the remaining {shown} {name} of the NodePool's limits", rows, within)
    return PoolTypes(
        offer.pool.name,
        _names(offer, rows),
        tuple(RefusedTypes(cause, message, _names(offer, those)) for cause, message, those in found),
    )


def _shown(resource: str, amount: str) -> str:
    match resource:
        case "cpu":
            return f"{amount} CPU{'' if amount == '1' or amount.endswith('m') else 's'}"
        case "memory" | "ephemeral-storage":
            return f"{amount} of {resource.replace('-', ' ')}"
        case _:
            return f"{amount} {resource}"


def _of_term(offer: PreparedPool, term: FilterTerm, rows: int) -> tuple[int, list[tuple[str, str, int]]]:
    found: list[tuple[str, str, int]] = []
    conflict = offer.template.incompatibility(term.requirements, offer.well_known)
    if not term.new_nodes:
        return _strike(found, INCOMPATIBLE, "the pod's node affinity names nodes", rows, 0), found
    if conflict is not None:
        return _strike(found, INCOMPATIBLE, str(conflict), rows, 0), found
    merged = offer.template.merged(term.requirements)
    for key in term.requirements:
        rows = _strike(
            found, INCOMPATIBLE, f"not {merged[key]}, as the pod requires", rows, offer.types.matching(merged[key])
        )
    text = "no available offering in the zones and capacity types that the pod allows"
    return _strike(found, NO_OFFERING, text, rows, offer.catalogue.available(merged)), found


def _strike(found: list[tuple[str, str, int]], cause: str, message: str, rows: int, left: int) -> int:
    """The rows that are left; those that are not are noted."""
    struck = rows & ~left
    if struck:
        found.append((cause, message, struck))
    return rows & left


def _names(offer: PreparedPool, rows: int) -> tuple[str, ...]:
    return tuple(sorted(offer.catalogue.types[row].name for row in members(rows)))
