"""Which volumes the claims of pods get that are not bound yet: the first pod with a place decides."""

from collections.abc import Sequence
from typing import Final

from provisioner.apis.names import ZONE_LABEL
from provisioner.scheduling.attempts.placing.place_table import PlaceTable
from provisioner.scheduling.capacity.places import Place
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.constraints.filters import TRIVIAL, FilterTerm
from provisioner.scheduling.constraints.volumes import terms_left
from provisioner.values.requirement import Operator, Requirement, Requirements

_NO_ZONE: Final = FilterTerm(Requirements.of((Requirement.of(ZONE_LABEL, Operator.DOES_NOT_EXIST),)))
"""Whoever shares a volume with a pod on a node without a zone has to be on such a node, too."""


class VolumeChoices:
    """What is decided in one attempt.

    Attributes:
        in_use: volume claims for one pod only that some pod uses.
    """

    def __init__(self, table: PlaceTable) -> None:
        self._table: Final = table
        self.in_use: Final = set(table.setting.in_use)
        self._decided: Final[dict[str, tuple[FilterTerm, ...]]] = {}
        self._taken: Final[set[str]] = set()

    def undecided(self, one: PodClass) -> bool:
        """Whether the class's next pod decides where the volume of a claim is, and that matters to others."""
        users = self._table.setting.users
        return any(
            unbound.claim not in self._decided and (unbound.volumes is not None or users[unbound.claim] > 1)
            for unbound in one.volumes.unbound
        )

    def decide(self, one: PodClass, start: int, end: int) -> None:
        """Pods `start` to `end` of a class have a place, which decides what volumes its claims get."""
        if start == end or not self.undecided(one):
            return
        for number, place in self._table.all_known():
            if any(pods is one and first <= start < last for pods, first, last in place.placed):
                self._decide_by(one, number, place)
                return

    def _decide_by(self, one: PodClass, number: int, place: Place) -> None:
        account, state = place.account, place.state
        existing = None if account is not None else self._table.setting.bins.bins[number]

        def reaches(terms: Sequence[FilterTerm]) -> bool:
            if existing is not None:
                return any(term.matches(existing.labels, existing.node_name) for term in terms)
            return (
                account is not None
                and state is not None
                and any(account.offer.narrowed(state, t) is state for t in terms)
            )

        for unbound in one.volumes.unbound:
            if unbound.claim in self._decided:
                continue
            if unbound.volumes is None:
                zone = next(
                    (zone for zone in self._table.setting.zones if reaches((zone,))),
                    TRIVIAL if existing is None else _NO_ZONE,
                )
                self._decided[unbound.claim] = (zone,)
                continue
            for name, terms in unbound.volumes:
                if name not in self._taken and reaches(terms):
                    self._taken.add(name)
                    self._decided[unbound.claim] = terms
                    break

    def missing(self, one: PodClass) -> str:
        """A claim of the class for which no volume is left, because other pods got them; "" for none."""
        left = terms_left(one.volumes, self._taken, self._decided) if one.volumes.unbound else ()
        return left if isinstance(left, str) else ""

    def reached(self, one: PodClass, zone: FilterTerm | None) -> tuple[FilterTerm, ...]:
        """Where a pod of the class reaches its volumes, in one zone where that is said; nothing where that narrows nothing."""
        unbound = one.volumes.unbound
        if not unbound or not (self._decided or zone is not None or len(unbound) > 1):
            return ()
        left = terms_left(one.volumes, self._taken, self._decided)
        reached = one.volumes.alternatives if isinstance(left, str) else left
        return reached if zone is None else tuple([term.joined(zone) for term in reached])
