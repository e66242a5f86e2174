"""kill -9 of the provisioner before and after every write of a launch, of a gang's as well, a drift and a consolidation, on the real control plane.

Whoever leads next goes on with the command or takes it back: no NodeClaim without its instance, no instance without its NodeClaim, nothing marked,
no pod evicted twice for one reason, every pod runs. `make test` takes a few points; all of them are marked `bench` (`make chaos`).
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from provisioner.apis import names
from provisioner.apis.command import is_marked
from provisioner.apis.meta import condition
from provisioner.kube.client import Client
from provisioner.kube.resources import NODEPOOLS
from provisioner.lab.devcluster.cluster import DevCluster
from tests.support import dying
from tests.support.audit import changes
from tests.support.eventually import eventually
from tests.support.provisioner import OWN_PORTS, SECONDS, TEAM, Plot, runs, start_child

pytestmark = pytest.mark.plane

DYING, RELIABLE = "provisioner-dying", "provisioner-reliable"
ON_DEMAND = [{"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_ON_DEMAND]}]
EVERYTHING = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "0s",
    "budgets": [{"nodes": "100%"}],
}
GANG, MEMBERS = "gang", 3
BODY = "dovetail.example/generation"
SIZE = names.KWOK_INSTANCE_CPU_LABEL
MOST_WRITES = 60
"""More than any turn has; a turn that ends before the kill ends the row."""


@dataclass(frozen=True)
class Turn:
    """One thing that happens to the plot, over and over.

    Attributes:
        first: what its first counted write is: a NodeClaim, or the record of a command.
        begin: makes it happen; the number says how often it has.
        over: whether the plot is as it should be then.
    """

    first: str
    begin: Callable[[Plot, int], None]
    over: Callable[[Plot, int], bool]


def _grow(plot: Plot, number: int) -> None:
    plot.scale("large", 1)


def _grown(plot: Plot, number: int) -> bool:
    """The large pod has its node, and the small one has moved there."""
    return [one.metadata.labels.get(SIZE) for one in plot.claims()] == ["16"] and plot.running() == 2


def _shrink(plot: Plot, number: int) -> None:
    plot.scale("large", 0)


def _shrunk(plot: Plot, number: int) -> bool:
    """A smaller node has taken the place of the large one."""
    return [one.metadata.labels.get(SIZE) for one in plot.claims()] == ["2"] and plot.running() == 1


def _drift(plot: Plot, number: int) -> None:
    labels = {TEAM: plot.name, BODY: f"g{number}"}
    plot.client.patch(NODEPOOLS, plot.name, {"spec": {"template": {"metadata": {"labels": labels}}}})


def _drifted(plot: Plot, number: int) -> bool:
    found = [one.metadata.labels.get(BODY) for one in plot.claims()]
    return found == [f"g{number}"] and plot.running() == len(plot.pods())


def _gather(plot: Plot, number: int) -> None:
    plot.scale(GANG, MEMBERS)


def _gathered(plot: Plot, number: int) -> bool:
    """Each of the gang has a node."""
    found = [one.metadata.labels.get(SIZE) for one in plot.claims()]
    return found == ["16"] * (1 + MEMBERS) and plot.running() == 2 + MEMBERS


GROW = Turn("launch", _grow, _grown)
"""A launch, and a consolidation that removes a node."""
SHRINK = Turn("command", _shrink, _shrunk)
"""A consolidation that replaces a node by a cheaper one."""
DRIFT = Turn("command", _drift, _drifted)
GATHER = Turn("launch", _gather, _gathered)
"""A launch of nodes that a gang needs together."""


@pytest.fixture
def alone(plane: DevCluster) -> Iterator[DevCluster]:
    """The cluster, on which no provisioner of the test goes on after it, whatever becomes of it."""
    try:
        yield plane
    finally:
        for name in (DYING, RELIABLE):
            plane.stop(name)


class Deaths:
    """A plot on which provisioners die."""

    def __init__(self, cluster: DevCluster, client: Client) -> None:
        self.cluster = cluster
        self._revive()
        self.plot = Plot(client)
        self.plot.pool(cpu=(2, 16), requirements=ON_DEMAND, disruption=EVERYTHING)
        self.plot.deploy("large", 1, cpu="12")
        self.plot.await_running(1)
        self.plot.deploy("small", 1, cpu="1")
        eventually(lambda: _grown(self.plot, 0), "both pods are on one node", 2 * SECONDS, 0.1)
        self._number = 0

    def _revive(self) -> None:
        start_child(self.cluster, RELIABLE, "--disable-leader-election=true")

    def _start(self, number: int, when: str, what: str) -> None:
        command = [sys.executable, "-m", dying.__name__, str(number), when, what, "provisioner", "--kubeconfig"]
        self.cluster.log(DYING).unlink(missing_ok=True)
        self.cluster.start_program(
            DYING, [*command, str(self.cluster.kubeconfig), "--disable-leader-election=true", *OWN_PORTS]
        )

    def _died(self) -> bool:
        """Whether it has killed itself; it may not end in any other way."""
        if runs(self.cluster, DYING):
            return False
        lines = self.cluster.log(DYING).read_text(errors="replace").splitlines()
        assert any(line.startswith(dying.KILLED) for line in lines), "\n".join(["it crashed", *lines[-20:]])
        return True

    def end(self) -> None:
        """Nothing is left, also where a turn was broken off."""
        if not runs(self.cluster, RELIABLE):
            self.cluster.stop(DYING)
            self._revive()
        self.plot.clear()

    def enlist(self) -> None:
        """There is a Deployment for a gang, without pods."""
        notes = {names.GANG: GANG, names.GANG_MINIMUM: str(MEMBERS)}
        self.plot.deploy(GANG, 0, cpu="12", annotations=notes)

    def disband(self) -> None:
        """The gang has no pods, and no nodes."""
        self.plot.scale(GANG, 0)
        eventually(lambda: _grown(self.plot, 0), "the nodes of the gang are gone", 2 * SECONDS, 0.1)

    def turn(self, turn: Turn, write: int, when: str) -> bool:
        """Let it happen, and kill the provisioner at that write of it; whether it came to that."""
        self._number += 1
        number, plot = self._number, self.plot
        self.cluster.stop(RELIABLE)
        before = len(self._evictions())
        self._start(write, when, turn.first)
        turn.begin(plot, number)
        eventually(
            lambda: self._died() or turn.over(plot, number),
            f"the process is killed {when} write {write}, or done",
            2 * SECONDS,
            0.1,
        )
        died = self._died()
        self.cluster.stop(DYING)
        self._revive()
        eventually(
            lambda: turn.over(plot, number) and self._is_tidy(),
            f"all is done after a kill {when} write {write}",
            3 * SECONDS,
            0.1,
        )
        evicted = Counter(one.rpartition("/")[2].rpartition("-")[0] for one in self._evictions()[before:])
        assert set(evicted.values()) <= {1}, f"evicted twice for one reason, killed {when} write {write}: {evicted}"
        return died

    def _evictions(self) -> list[str]:
        asked = changes(self.cluster.audit_log)
        return [
            one.what for one in asked if "pods/eviction" in one.what and self.plot.name in one.what and one.status < 300
        ]

    def _is_tidy(self) -> bool:
        """As many instances as NodeClaims, each has its own, and nothing is left of any command."""
        claims, nodes = self.plot.claims(), self.plot.nodes()
        return (
            sorted(one.status.provider_id for one in claims) == sorted(one.spec.provider_id for one in nodes)
            and not any(names.DISRUPTED_TAINT in one.spec.taints for one in nodes)
            and not any(map(is_marked, claims))
            and all(condition(one.status.conditions, names.DISRUPTION_REASON) is None for one in claims)
            and all(one.metadata.deletion_timestamp is None for one in claims)
        )


@pytest.fixture
def deaths(alone: DevCluster, client: Client) -> Iterator[Deaths]:
    one = Deaths(alone, client)
    yield one
    one.end()


def test_killed_at_a_few_writes_of_a_consolidation_a_launch_and_a_drift(deaths: Deaths) -> None:
    assert deaths.turn(SHRINK, 4, "before"), "the replacement was not created"
    assert deaths.turn(GROW, 2, "after"), "nothing was launched"
    assert deaths.turn(DRIFT, 8, "after"), "nothing was replaced"
    deaths.enlist()
    assert deaths.turn(GATHER, 2, "after"), "no node was launched for the gang"


@pytest.mark.bench
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_write_of_consolidations_and_launches(deaths: Deaths, when: str) -> None:
    """The plot shrinks and grows in turns, so each pair of turns is killed at the same write of both."""
    died = Counter[str]()
    for write in range(1, MOST_WRITES):
        both = [(name, deaths.turn(turn, write, when)) for name, turn in (("shrink", SHRINK), ("grow", GROW))]
        died.update(name for name, was_killed in both if was_killed)
        if not any(was_killed for _, was_killed in both):
            break
    print(f"killed {when} writes: {dict(died)}")
    assert min(died["shrink"], died["grow"]) >= 10, f"hardly ever killed: {died}"


@pytest.mark.bench
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_write_of_a_drift(deaths: Deaths, when: str) -> None:
    died = 0
    for write in range(1, MOST_WRITES):
        if not deaths.turn(DRIFT, write, when):
            break
        died += 1
    print(f"killed {when} {died} writes of a drift")
    assert died >= 10, "hardly ever killed"


@pytest.mark.bench
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_write_of_a_launch_set_a_gang_has_all_its_nodes(deaths: Deaths, when: str) -> None:
    deaths.enlist()
    died = 0
    for write in range(1, MOST_WRITES):
        if not deaths.turn(GATHER, write, when):
            break
        died += 1
        deaths.disband()
    print(f"killed {when} {died} writes of a launch set")
    assert died >= 3 * MEMBERS, "hardly ever killed"
