"""Days on which spot instances are taken back and offerings are short: the provisioner's own answers, in virtual time."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.types import LaunchedInstance
from provisioner.simulator.api_server import ApiServer, ServerChange
from provisioner.simulator.cloud import SimulatedStock
from provisioner.simulator.errors import SimulationError
from provisioner.simulator.interruptions import Replacing, SpotInterruptions
from provisioner.simulator.ledger import Figures, Ledger
from provisioner.simulator.market import ByOffering, Supply
from provisioner.simulator.owners import Owners
from provisioner.simulator.policies import Policy
from provisioner.simulator.simulation import simulated
from provisioner.simulator.virtual_time import Agenda, VirtualClock
from provisioner.simulator.workload import Arrival, Change, Scale, Shortage
from provisioner.simulator.workloads.chance import Chance
from tests.unit.simulator.days import market, offer, pool, setting, template

SPOT = pool(capacity_types=("spot",), consolidateAfter="Never")
BOTH = pool(capacity_types=("spot", "on-demand"), consolidateAfter="Never")
WEB = Arrival(at=5, name="web", template=template("web"), count=6)
CATALOGUE = offer().types_of(None)  # type: ignore[arg-type]


def a_day(
    *changes: Change, objects: tuple[dict[str, Any], ...] = (SPOT,), seconds: float = 900, **more: Any
) -> Figures:
    return simulated(setting(WEB, *changes, seconds=seconds, objects=objects, **more), 1)


def test_pods_of_an_interrupted_instance_run_again_before_its_notice_ends() -> None:
    found = a_day(market=market(interruptions=12.0))
    assert found.interruptions > 0
    assert found.interrupted_pods >= 6
    assert found.again_in_time == found.interrupted_pods, "nodes boot in 40 s, evictions begin 75 s before the end"
    assert found.evictions == {"Interrupted": found.interrupted_pods}
    assert found.unbound == 0
    assert found.launches > found.interruptions


def test_nodes_that_boot_for_longer_than_the_notice_are_late() -> None:
    found = a_day(market=market(interruptions=8.0), boot_seconds=(150.0,))
    assert found.interrupted_pods > 0
    assert found.again_in_time < found.interrupted_pods
    assert found.share_in_time < 1


def test_an_instance_ends_with_its_notice_whatever_holds_its_pods() -> None:
    held = template("web")
    held["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    held["spec"]["terminationGracePeriodSeconds"] = 3600
    day = setting(
        Arrival(at=5, name="web", template=held, count=6),
        seconds=3600,
        objects=(SPOT,),
        market=market(interruptions=3.0),
        boot_seconds=(150.0,),
    )
    found = simulated(day, 1)
    assert found.interruptions > 0
    assert found.most_nodes == 2, "the replacement, and no instance that stays after its end"


def test_instances_on_demand_are_not_interrupted() -> None:
    found = a_day(objects=(pool(consolidateAfter="Never"),), market=market(interruptions=60.0))
    assert (found.interruptions, found.evictions, found.launches) == (0, {}, 1)


def test_karpenters_rules_answer_a_notice_in_time_too() -> None:
    """Its own loop launches the replacements; notices, evictions and the end of instances are the same."""
    found = a_day(market=market(interruptions=12.0), policy=Policy.KARPENTER)
    assert found.interruptions > 0
    assert 6 <= found.interrupted_pods == found.again_in_time
    assert found.evictions == {"Interrupted": found.interrupted_pods}
    assert (found.unbound, found.searches) == (0, 0)
    late = a_day(market=market(interruptions=8.0), boot_seconds=(150.0,), policy=Policy.KARPENTER)
    assert late.again_in_time < late.interrupted_pods


class Instances:
    """Workloads on an instance of which the notice has just come."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.agenda = Agenda(self.clock)
        self.server, self.ledger = ApiServer(self.clock), Ledger()
        self.owners = Owners(self.server, self.clock, self.agenda)
        self.spot = SpotInterruptions(
            self.server,
            self.clock,
            self.agenda,
            self.ledger,
            market().manners,
            ByOffering(60.0),
            Chance(1),
            Replacing(self.owners.place_of, self.owners.misses),
        )

        def told(change: ServerChange) -> None:
            self.owners.heard(change)
            self.spot.heard(change)

        self.server.told = told
        self.notices = self.ends = 0
        self.owners.arrive(Arrival(at=0, name="web", template=template("web"), count=2))
        self.owners.arrive(Arrival(at=0, name="job", kind="Job", template=template("job"), lifetimes=(900.0,)))
        self.owners.arrive(Arrival(at=0, name="bare", kind="Pod", template=template("bare")))
        for name in ("web-0", "web-1", "job-0", "bare-0"):
            self.run(name, "one")
        self.interrupt("one")

    def interrupt(self, node: str) -> None:
        """The notice of an instance comes."""
        seen = self.notices
        instance = LaunchedInstance(f"simulated:///{node}", "c-2x", "a", "spot", node_name=node)
        self.spot.launched(instance, lambda: True, self._noticed, self._ended)
        while self.notices == seen:
            assert self.agenda.turn(inf)

    def _noticed(self) -> None:
        self.notices += 1

    def _ended(self) -> None:
        self.ends += 1

    def run(self, name: str, node: str) -> None:
        """A pod runs on a node."""
        self.server.change("pods", name, {"spec": {"nodeName": node}, "status": {"phase": "Running"}}, "default")

    def move(self, name: str, to: str) -> None:
        """A pod is gone, and the one that replaces it runs at once."""
        self.server.drop("pods", name, "default")
        self.settle(0.0)
        (waiting,) = [one for one in self.server.all("pods") if not one["spec"].get("nodeName")]
        self.run(waiting["metadata"]["name"], to)

    def settle(self, seconds: float) -> None:
        """Let so much time pass."""
        until = self.clock.seconds + seconds
        while self.agenda.turn(until):
            pass
        self.clock.seconds = until

    def told(self) -> tuple[int, int, int]:
        """Interruptions, pods on them, and pods that ran again in time."""
        found = self.ledger.figures(1, 3600.0, 0, 0, 0)
        return found.interruptions, found.interrupted_pods, found.again_in_time


def test_pods_that_somebody_makes_again_are_counted_when_the_notice_ends() -> None:
    cluster = Instances()
    cluster.move("web-0", "two")
    cluster.settle(119.0)
    assert (cluster.told(), cluster.ends) == ((0, 0, 0), 0)
    cluster.settle(1.0)
    assert cluster.told() == (1, 3, 1), "two of web and the job; nobody makes the bare one again"
    assert cluster.ends == 1
    assert not [one for one in cluster.server.all("pods") if one["spec"].get("nodeName") == "one"]


def test_a_pod_that_runs_again_too_late_is_lost() -> None:
    cluster = Instances()
    cluster.server.drop("pods", "web-0", "default")
    cluster.settle(120.0)
    cluster.run("web-2", "two")
    cluster.settle(60.0)
    assert cluster.told() == (1, 3, 0)


def test_pods_that_end_or_are_not_wanted_any_more_are_not_counted() -> None:
    cluster = Instances()
    cluster.owners.finished("job-0", "default", cluster.server.objects["pods"]["default/job-0"]["metadata"]["uid"])
    cluster.owners.scale(Scale(at=0, name="web", count=1))
    cluster.server.drop("pods", "web-1", "default")
    cluster.settle(120.0)
    assert cluster.told() == (1, 1, 0)


def test_who_runs_again_on_an_instance_that_is_interrupted_too_is_interrupted_twice() -> None:
    cluster = Instances()
    for name in ("web-0", "web-1", "job-0"):
        cluster.move(name, "two")
    cluster.settle(120.0)
    assert cluster.told() == (1, 3, 3)
    cluster.interrupt("two")
    cluster.settle(120.0)
    assert cluster.told() == (2, 6, 3)


def test_what_is_short_is_refused_and_another_offering_taken() -> None:
    plenty = a_day(market=market())
    (usual,) = plenty.launched
    short = a_day(Shortage(at=0, until=900, instance_types=(usual,)), market=market())
    assert (plenty.refused, short.unbound) == (0, 0)
    assert 0 < short.refused <= 8, "each of its zones at most twice, then the table keeps it closed"
    assert usual not in short.launched


def test_spot_that_is_short_everywhere_is_bought_on_demand() -> None:
    short = Shortage(at=0, until=900, capacity_types=("spot",))
    plenty, found = (a_day(*some, objects=(BOTH,), market=market()) for some in ((), (short,)))
    assert found.unbound == 0
    assert found.refused > 0
    assert found.usd == pytest.approx(plenty.usd / 0.7, rel=0.01), "kwok's spot costs 70 % of on-demand"


def test_pods_wait_until_a_shortage_of_everything_ends() -> None:
    short = Shortage(at=0, until=100)
    found = a_day(short, market=market(), seconds=400, objects=(pool(capacity_types=("spot",), sizes=("8",)),))
    assert found.unbound == 0
    assert 100 < found.wait_p50 < 100 + 120, "it is tried again within the second closure of 90 s"


def test_spot_is_bought_where_it_may_be_even_if_it_costs_more() -> None:
    cheap = tuple(
        replace(
            kind,
            offerings=tuple(
                replace(one, price=one.price / 2) if one.capacity_type == "on-demand" else one for one in kind.offerings
            ),
        )
        for kind in CATALOGUE
    )
    day = setting(WEB, seconds=120, objects=(BOTH,))
    found = simulated(replace(day, offer=replace(day.offer, types_of=lambda _: cheap)), 1)
    plain = simulated(day, 1)
    assert found.launched == plain.launched
    assert found.usd == plain.usd


def test_an_interrupted_offering_is_closed_for_a_while() -> None:
    """In one zone, the replacement must be of another type: the cheapest has just been taken back."""
    here = pool(capacity_types=("spot",), consolidateAfter="Never")
    zone = {"key": names.ZONE_LABEL, "operator": "In", "values": [CATALOGUE[0].offerings[0].zone]}
    here["spec"]["template"]["spec"]["requirements"].append(zone)
    found = a_day(objects=(here,), market=market(interruptions=12.0))
    assert found.interruptions > 0
    assert len(found.launched) > 1


def test_shortages_need_a_market() -> None:
    with pytest.raises(SimulationError, match="nothing says how the cloud answers"):
        a_day(Shortage(at=0, until=600))


def test_types_stay_the_same_objects_until_something_changes() -> None:
    clock, manners = VirtualClock(), market().manners
    supply = Supply(1, ByOffering(), (600.0,), [Shortage(at=0, until=50, instance_types=(CATALOGUE[0].name,))])
    stock = SimulatedStock(clock, supply, manners)
    assert stock.shown("general", CATALOGUE) is CATALOGUE
    kind = CATALOGUE[0]
    assert not stock.gives(kind, kind.offerings[0])
    shown = stock.shown("general", CATALOGUE)
    assert shown is stock.shown("general", CATALOGUE)
    assert [one.available for one in shown[0].offerings] == [False, *(True for _ in kind.offerings[1:])]
    assert shown[1] is CATALOGUE[1]
    clock.forward(120.0)
    assert stock.gives(kind, kind.offerings[0]), "its time is up, and it may be tried"
    assert stock.shown("general", CATALOGUE)[0].offerings[0].available
    assert replace(kind) == stock.shown("general", CATALOGUE)[0]


def test_a_refusal_is_final_once_all_that_was_asked_for_is_closed() -> None:
    kind = CATALOGUE[0]
    here, there = kind.offerings[:2]
    short = Shortage(at=0, until=50, instance_types=(kind.name,))
    stock = SimulatedStock(VirtualClock(), Supply(1, ByOffering(), (600.0,), [short]), market().manners)
    ways = [(kind.name, here), (kind.name, there)]
    assert not stock.gives(kind, here)
    assert not stock.refusal("c", ways).exhausted, "the other was not tried"
    assert not stock.gives(kind, there)
    assert stock.refusal("c", ways).exhausted, "its pods are planned elsewhere"
