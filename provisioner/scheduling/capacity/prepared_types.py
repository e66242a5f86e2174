"""The instance types of one NodePool after its daemons: which go with its template, and what room a node of each has for pods."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis.names import HOSTNAME_LABEL, NODEPOOL_LABEL, READY_LABELS
from provisioner.scheduling.capacity.attach_limits import AttachLimits
from provisioner.scheduling.capacity.catalogue import Catalogue
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.demands import Count, Relations
from provisioner.scheduling.constraints.filters import NEW_NODE_OF, UNKNOWN_HOSTNAME, FilterTerm, NodeFilter
from provisioner.scheduling.constraints.ports import Ports, TakenPorts
from provisioner.scheduling.constraints.vectors import Dimensions, Thresholds, Vector, frontier
from provisioner.scheduling.problem import SchedulingPool
from provisioner.values.requirement import Operator, Requirement, Requirements
from provisioner.values.resources import Resources
from provisioner.values.taints import first_untolerated

_SIMULATED: Final = Requirements.from_labels({**READY_LABELS, HOSTNAME_LABEL: UNKNOWN_HOSTNAME}).merged(
    Requirements.of((Requirement.of(NEW_NODE_OF, Operator.EXISTS, ()),))
)
SIMULATED_LABELS: Final = frozenset(_SIMULATED)
"""Labels that a node has once it is ready, which pods and daemons may select, and that of planning; a NodeClaim never says them."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """What one DaemonSet takes of the nodes that it runs on, and what its pods are to others; its name is for people.

    Attributes:
        near: whom its pods must be near, and wait for; nobody where they count themselves, as the first of them waits for none.
    """

    filter: NodeFilter
    requests: Resources
    ports: Ports
    relations: Relations
    name: str
    near: tuple[Count, ...] = ()


class PreparedTypes:
    """What is the same for every claim of the pool.

    Attributes:
        template: the pool's requirements and labels, and the labels of a ready node.
        matching_rows: the types that go with the template and can be had.
        usable: the types on which daemons alone leave room.
        room: by row, what a node of that type has for pods, after its daemons; only for rows of `matching_rows`.
        overhead: by row, what its daemons take.
        everywhere: what daemons take that run on every node of the pool, whatever its type and zone.
        open_labels: those that no type knows and to which the template gives no value.
    """

    def __init__(
        self,
        pool: SchedulingPool,
        catalogue: Catalogue,
        daemons: Sequence[Daemon],
        dimensions: Dimensions,
        well_known: frozenset[str],
        attach_limits: AttachLimits,
    ) -> None:
        self.template: Final = pool.requirements.merged(_SIMULATED)
        self.catalogue: Final = catalogue
        self.dimensions: Final = dimensions
        self.well_known: Final = well_known
        self._taints: Final = pool.taints
        self._attach_limits: Final = attach_limits
        self._frontiers: Final[dict[int, tuple[Vector, ...]]] = {}
        self._ports: Final = TakenPorts({})
        self._clashing: Final[dict[Ports, int]] = {}
        self.open_labels: Final = tuple(
            key
            for key, one in self.template.items()
            if one.single_value is None and not catalogue.knows(key) and key != NEW_NODE_OF
        )
        self.everywhere: Final = Resources.total(
            one.requests
            for one in daemons
            if any(term.trivial for term in one.filter.terms)
            and first_untolerated(one.filter.tolerations, pool.taints) is None
        )
        self.matching_rows: Final = self.rows(self.template)
        self.overhead: Final = self._overheads(self.matching_rows, daemons)
        self.room: Final = self._rooms(self.matching_rows)
        usable = 0
        for row, room in self.room.items():
            if min(room, default=0) >= 0:  # daemons alone overflow the others
                usable |= 1 << row
        self.usable: Final = usable & ~catalogue.overdrawn
        none = (-1,) * len(dimensions.names)
        self._thresholds: Final = Thresholds([self.room.get(row, none) for row in range(len(catalogue.types))])

    def clashing(self, ports: Ports) -> int:
        """Types whose daemons take one of these ports."""
        answer = self._clashing.get(ports)
        if answer is None:
            answer = self._clashing[ports] = self._ports.clashing(ports)
        return answer

    def kinds(self, term: FilterTerm) -> list[tuple[float, Vector]]:
        """(USD per hour, at most so much for pods) of each type that may go with a term, at its cheapest offering.

        Daemons count only where they run on every node, and nothing else that pods may share or settle later: what is
        left is never less than a node can have.
        """
        template = self.template
        if not term.new_nodes or template.incompatibility(term.requirements, self.well_known) is not None:
            return []
        if template.conflict(term.requirements) is not None:
            return []
        asked = template.merged(term.requirements)
        rows = self.rows(asked) & ~self.catalogue.overdrawn
        taken = self.dimensions.vector(self.everywhere)
        return [
            (one.offering.price, tuple(a - b for a, b in zip(self._allocatable(one.row), taken, strict=True)))
            for one in self.catalogue.priced(asked)
            if rows >> one.row & 1
        ]

    def frontier(self, rows: int) -> tuple[Vector, ...]:
        """What the types of `rows` have for pods, without what another one of them exceeds everywhere."""
        points = self._frontiers.get(rows)
        if points is None:
            points = self._frontiers[rows] = frontier(self.room[row] for row in members(rows))
        return points

    def fitting(self, rows: int, used: Sequence[int]) -> int:
        """The types of `rows` on which `used` fits."""
        return rows & self._thresholds.exceeding(used)

    def defines(self, key: str) -> bool:
        """Whether the template itself gives its nodes the label `key`, whatever their type.

        A well-known label comes from the type or the offering; only one fixed value can be given in their place.
        """
        known = self.template.get(key)
        return known is not None and (key not in self.well_known or known.single_value is not None)

    def gives(self, key: str) -> bool:
        """Whether a claim must say the label `key`, because no type or offering does; the pool's name is never one."""
        if key == NODEPOOL_LABEL or not self.defines(key):
            return False
        return key not in self.well_known or not self.catalogue.knows(key)

    def matching(self, requirement: Requirement) -> int:
        """Types that can meet one requirement of a claim of this pool."""
        return self.catalogue.matching(requirement, defined=self.defines(requirement.key))

    def rows(self, requirements: Requirements) -> int:
        """Types that can meet these requirements with an offering that can be had."""
        rows = self.catalogue.everything
        for requirement in requirements.values():
            rows &= self.matching(requirement)
        return rows & self.catalogue.available(requirements) if rows else 0

    def said(self, requirements: Requirements) -> tuple[tuple[str, str], ...]:
        """The labels of which the template leaves the value open, and that have only one here."""
        found = []
        for key in self.open_labels:
            one = requirements.get(key)
            value = None if one is None else one.single_value
            if value is not None:
                found.append((key, value))
        return tuple(found)

    def _overheads(self, rows: int, daemons: Sequence[Daemon]) -> dict[int, Resources]:
        """What daemons take by row; rows with the same daemons share one value.

        Source: core spec 3.7. A daemon counts on a type when it tolerates the template's taints and any of its terms
        goes with the template and with the type's own requirements.
        """
        hosts = [self._hosts(one.filter, rows) for one in daemons]
        for one, host in zip(daemons, hosts, strict=True):
            self._ports.take(one.ports, host)
        shared: dict[tuple[int, ...], Resources] = {}
        overheads = {}
        for row in members(rows):
            group = tuple(number for number, host in enumerate(hosts) if host >> row & 1)
            overhead = shared.get(group)
            if overhead is None:
                overhead = shared[group] = Resources.total(daemons[number].requests for number in group)
            overheads[row] = overhead
        return overheads

    def _hosts(self, node_filter: NodeFilter, rows: int) -> int:
        """The types on which a daemon will run."""
        if first_untolerated(node_filter.tolerations, self._taints) is not None:
            return 0
        hosts = 0
        for term in node_filter.terms:
            if term.new_nodes and self.template.incompatibility(term.requirements, self.well_known) is None:
                matching = rows
                for requirement in term.requirements.values():
                    matching &= self.matching(requirement)
                hosts |= matching
        return hosts

    def _rooms(self, rows: int) -> dict[int, Vector]:
        rooms = {}
        overhead_vectors: dict[int, Vector] = {}
        for row in members(rows):
            overhead = self.overhead[row]
            taken = overhead_vectors.get(id(overhead))
            if taken is None:
                taken = overhead_vectors[id(overhead)] = self.dimensions.vector(overhead)
            have = self._allocatable(row)
            rooms[row] = tuple(a - b for a, b in zip(have, taken, strict=True))
        return rooms

    def _allocatable(self, row: int) -> Vector:
        kind = self.catalogue.types[row]
        if not self.dimensions.drivers:
            return self.dimensions.vector(kind.allocatable)
        return self.dimensions.room(kind.allocatable, self._attach_limits.of_type(kind, self.dimensions.drivers))
