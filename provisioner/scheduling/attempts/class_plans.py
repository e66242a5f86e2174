"""What classes ask, over the counters of one attempt."""

from collections.abc import Iterable
from typing import Final

from provisioner.scheduling.attempts.placing.place_table import PlaceTable
from provisioner.scheduling.attempts.volume_choices import VolumeChoices
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.constraints.demands import Demand, Relations
from provisioner.scheduling.constraints.filters import FilterTerm
from provisioner.scheduling.constraints.volumes import NO_VOLUMES
from provisioner.scheduling.topology.counters import Topology
from provisioner.scheduling.topology.relations import PodRun, Question, TopologyPlan, run_of


class ClassPlans:
    """The plan of each class, and the number of each question; classes that ask the same share them."""

    def __init__(self, table: PlaceTable) -> None:
        self._table: Final = table
        self.volumes: Final = VolumeChoices(table)
        self._plans: Final[dict[object, TopologyPlan]] = {}
        self._numbers: Final[dict[Question, int]] = {}

    def run_for(self, one: PodClass, demand: Demand, start: int, zone: FilterTerm | None = None) -> PodRun:
        """A class with one of its demands, in one zone only where that is said."""
        relations, table = demand.relations, self._table
        # by identity, which is quicker; equal ones that are not the same would only have equal plans
        plan = self._plans.get(id(relations)) or self._plan(one, relations)
        crowd = table.crowds.of(one.owner) if one.owner and table.crowds is not None else None
        reached = () if one.volumes is NO_VOLUMES else self.volumes.reached(one, zone)
        return run_of(one, demand, plan, table.setting.needs[one], self._numbers, start, reached, crowd)

    def plan_for(self, one: PodClass) -> TopologyPlan:
        """What a class requires."""
        relations = one.ladder[-1].relations
        return self._plans.get(id(relations)) or self._plan(one, relations)

    def _plan(self, one: PodClass, relations: Relations) -> TopologyPlan:
        setting = self._table.setting
        varies = relations.on_hosts and setting.domains_vary
        key: object = (relations, setting.hostname_domains(one.filter)) if varies else id(relations)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._new_plan(one, relations, self._table.topology)
        return plan

    def _new_plan(self, one: PodClass, relations: Relations, topology: Topology) -> TopologyPlan:
        setting = self._table.setting
        domains = setting.hostname_domains(one.filter) if relations.on_hosts else 1
        return TopologyPlan(relations, topology, setting.skews, lambda spread: setting.least(spread, domains))

    def plans_over(self, topology: Topology, classes: Iterable[PodClass]) -> dict[PodClass, TopologyPlan]:
        """What classes ask, over other counters; those that ask the same share it."""
        mine = {one: id(self.plan_for(one)) for one in classes}
        kinds = {key: one for one, key in mine.items()}
        plans = {key: self._new_plan(one, one.ladder[-1].relations, topology) for key, one in kinds.items()}
        return {one: plans[key] for one, key in mine.items()}
