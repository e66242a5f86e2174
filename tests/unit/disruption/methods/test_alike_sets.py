"""Sets of nodes that are alike: as far as sizes tell, those of several zones or NodePools promise as much as those of one, but their pods share no node."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.disruption.candidates import Candidate
from provisioner.disruption.methods import consolidation
from provisioner.disruption.methods.moves import Consolidation, Move
from tests.support.economy import Economy
from tests.support.fleets import ABC, Fleet, pool, running
from tests.support.problems import app, instance_type, of_app, spread

SMALL = instance_type("small", "2", "4Gi", 0.068, zones=ABC, capacity_types=("on-demand",))
LARGE = instance_type("large", "5", "8Gi", 0.136, zones=ABC, capacity_types=("on-demand",))


def spread_over_zones(each: int, when: str = "DoNotSchedule") -> Fleet:
    """So many nodes in each zone, with a pod on each."""
    spreads = (spread(names.ZONE_LABEL, app("web"), when_unsatisfiable=when),)
    web = of_app("web", cpu="1100m", memory="512Mi", topology_spread_constraints=spreads)
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "100%"}]})], types=(SMALL, LARGE))
    for zone, number in product(ABC, range(each)):
        fleet.node(f"{zone}{number}", [running(f"{zone}{number}", web)], kind=SMALL, zone=zone)
    return fleet


@pytest.mark.parametrize("when", ["DoNotSchedule", "ScheduleAnyway"])
def test_nodes_go_zone_by_zone(when: str) -> None:
    left = Economy(spread_over_zones(4, when))
    while found := consolidation.propose(left.view()).proposals:
        for one in found:
            left.carry_out(one)
    assert left.usd_per_hour == pytest.approx(3 * LARGE.offerings[0].price)


def test_nodes_go_pool_by_pool_where_their_pods_may_run_on_nodes_of_no_other() -> None:
    """By size, small pods of several NodePools fill a new node as well as those of one."""
    cpus = {"a": "1300m", "b": "1100m", "c": "550m", "d": "550m"}
    pools = [pool(name=name, disruption={"budgets": [{"nodes": "100%"}]}) for name in cpus]
    fleet = Fleet(pools, types=(SMALL, LARGE))
    for number, of in enumerate("dbdcadbadcbc"):
        own = of_app(of, cpu=cpus[of], memory="512Mi", selector={names.NODEPOOL_LABEL: of})
        fleet.node(f"{of}{number}", [running(f"{of}{number}", own)], kind=SMALL, of=of)
    left = Economy(fleet)
    while found := consolidation.propose(left.view()).proposals:
        for one in found:
            left.carry_out(one)
    assert Counter(node.pool for node in left.fleet.nodes) == {"a": 2, "b": 1, "c": 1, "d": 2}


def test_no_set_is_asked_about_twice_in_one_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its nodes leads to the same set again."""
    fleet = spread_over_zones(2)
    asked: list[frozenset[str]] = []
    judge = Consolidation.judge

    def counted(self: Consolidation, some: Sequence[Candidate], **how: Any) -> Move | str:
        if len(some) > 1:
            asked.append(frozenset(one.key for one in some))
        return judge(self, some, **how)

    monkeypatch.setattr(Consolidation, "judge", counted)
    nothing: Mapping[str, Move] = {}
    consolidation._replaced(Consolidation(fleet.view(), fleet.prepared()), nothing)
    assert len(set(asked)) == len(asked) > 0
