"""A fleet whose commands are carried out at once, by Karpenter's rule (`simulator.karpenter`) or ours.

One command after another, each over the fleet that the last one left; without timeouts and validation, which flatters Karpenter.
"""

import functools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.core import Affinity, NodeAffinity, PreferredSchedulingTerm
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.view import DisruptionView, Improved
from provisioner.scheduling.improvement.mending import mended
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.scheduling.world import Policies, world_of
from provisioner.simulator.karpenter.disruption import consolidate
from provisioner.state.snapshot import NodeView
from provisioner.values.resources import EMPTY, Resources
from tests.support import priced_fleets
from tests.support.fleets import Fleet, pool, running
from tests.support.improving import improve
from tests.support.problems import WELL_KNOWN, app, shape, spread, term

_BUDGET = 0.10


@dataclass
class Economy:
    """A fleet of one NodePool, what became of it, and what that took.

    Attributes:
        evictions: pods that were moved.
        saved: USD per hour.
        improved: as of `DisruptionView`.
    """

    fleet: Fleet
    evictions: int = 0
    saved: float = 0.0
    improved: Improved | None = None
    _prepared: Prepared | None = None
    _made: int = 0

    @property
    def usd_per_hour(self) -> float:
        """Price of all nodes, which are on demand."""
        prices = {one.name: one.offerings[0].price for one in self.fleet.types}
        return sum(prices[_type(node)] for node in self.fleet.nodes)

    @property
    def pods(self) -> int:
        return sum(len(node.pods) for node in self.fleet.nodes)

    def view(self) -> DisruptionView:
        """What a method is asked; the world is made from the last one."""
        fleet = self.fleet
        snapshot = fleet.snapshot()
        world = world_of(snapshot, lambda _: fleet.types, WELL_KNOWN, lambda _: True, fleet.policies).world
        self._prepared = prepare(world, self._prepared)
        return DisruptionView(
            snapshot=snapshot,
            prepared=self._prepared,
            allowed=lambda *_: len(fleet.nodes),
            settings=fleet.settings,
            types_of=lambda _: fleet.types,
            improved=self.improved,
        )

    def carry_out(self, one: Proposal) -> None:
        """All of it, in an instant."""
        going = set(one.candidates)
        nodes, self.fleet.nodes = self.fleet.nodes, []
        for node in nodes:
            if node.key.name in going:
                self.evictions += len(node.pods)
            else:
                self.fleet.nodes.append(added(node, one.placements.get(str(node.key), ())))
        for claim in one.replacements:
            self._made += 1
            launch(self.fleet, f"r{self._made:05d}", claim)
        self.saved += one.saving_usd_per_hour


def _type(node: NodeView) -> str:
    return node.labels["node.kubernetes.io/instance-type"]


def added(node: NodeView, pods: tuple[Pod, ...]) -> NodeView:
    """The node with more pods on it; the same object where there are none."""
    if not pods:
        return node
    more = tuple(changed(one, node_name=node.name) for one in pods)
    used = sum_of(more)
    return replace(node, pods=node.pods + more, used=node.used + used, room=node.room - used)


def sum_of(pods: Iterable[Pod]) -> Resources:
    """What pods ask for together."""
    found = EMPTY
    for one in pods:
        found += one.shape.requests
    return found


def launch(fleet: Fleet, name: str, claim: PlannedClaim, pods: Iterable[Pod] | None = None, **more: Any) -> None:
    """The node that a claim becomes, as planned; with some of its pods only where they are named."""
    kind = next(one for one in fleet.types if one.name == claim.planned_type)
    listed = tuple(claim.pods if pods is None else pods)
    own = EMPTY
    if pods is not None:
        own = sum_of(claim.pods) - sum_of(listed)
    fleet.node(
        name,
        listed,
        kind=kind,
        zone=claim.planned_zone,
        capacity_type=claim.planned_capacity_type,
        room=claim.allocatable - claim.requests + own,
        of=claim.pool,
        **more,
    )


def scaled_down(kind: str, nodes: int, seed: int, *, wishing: bool = False) -> Economy:
    """Nodes that first fit bought for a workload whose Deployments are unevenly scaled down to about 60 % since; 3 % are not to be disrupted.

    `wishing`: a third of the Deployments prefers a zone, another third is spread softly over zones.
    """
    most, pods_a_node = (16, 42) if kind == "micro" else (32, 5)
    types: tuple[InstanceType, ...] = tuple(
        one for one in priced_fleets.ec2_types(most_cpus=most) if one.capacity.amount("cpu") >= 4_000
    )
    fleet = Fleet(
        [pool(name="default")], types=types, daemons=priced_fleets.DAEMONS, policies=Policies(hostname_domains=1)
    )
    pods = priced_fleets.workload(kind, nodes * pods_a_node, seed)
    if wishing:
        pods = tuple(changed(one, shape=_wishing(one.shape)) for one in pods)
    chance = random.Random(seed)
    shares = {one.shape.key: chance.betavariate(2.2, 2.2 * 0.4 / 0.6) for one in pods}
    claims = list(fleet.prepared().solve(pods, explain=False).claims)
    chance.shuffle(claims)
    for number, claim in enumerate(claims):
        left = [one for one in claim.pods if chance.random() < shares[one.shape.key]]
        if left:  # emptiness has the others
            launch(fleet, f"n{number:05d}", claim, left, do_not_disrupt=chance.random() < 0.03)
    return Economy(fleet)


@functools.cache
def _wishing(shape: PodShape) -> PodShape:
    """What it is, and a wish by its app's number."""
    kind = int(shape.labels["app"][1:]) % 3
    if kind == 0:
        first = PreferredSchedulingTerm(weight=1, preference=term((names.ZONE_LABEL, "In", priced_fleets.ZONES[:1])))
        return changed(
            shape, key=f"{shape.key} in a zone", affinity=Affinity(node_affinity=NodeAffinity(preferred=(first,)))
        )
    if kind == 1:
        softly = spread(names.ZONE_LABEL, app(shape.labels["app"]), when_unsatisfiable="ScheduleAnyway")
        return changed(shape, key=f"{shape.key} over zones", spread=(*shape.spread, softly))
    return shape


def karpenters(economy: Economy) -> Iterator[Economy]:
    """The fleet after each command of Karpenter's, until nothing pays.

    A node that stays is asked about again once it has other pods.
    """
    refused: dict[str, int] = {}
    while True:
        view, pods = economy.view(), {node.key.name: len(node.pods) for node in economy.fleet.nodes}
        most = max(1, round(_BUDGET * len(pods)))
        skipped = {key for key, count in refused.items() if pods.get(key) == count}
        found = consolidate(replace(view, allowed=lambda *_, most=most: most), skipped=skipped)
        refused.update((key, pods[key]) for key in found.refused)
        if found.command is None:
            return
        economy.carry_out(found.command)
        yield economy


def shrunk(cpu: str, memory: str, left: int, seed: int, *, pods: int = 100, priority: int = 0) -> Economy:
    """Nodes that the planner bought for so many equal pods, of which these are left."""
    types = priced_fleets.ec2_types(most_cpus=16)
    fleet = Fleet([pool(name="default")], types=types, policies=Policies(hostname_domains=1))
    of = shape(cpu, memory, labels={"app": "web"}, priority=priority)
    some = [running(f"web-{number}", of) for number in range(pods)]
    prepared = fleet.prepared()
    stay = {one.uid for one in random.Random(seed).sample(some, left)}
    for number, claim in enumerate(searched(prepared, prepared.solve(some)).claims):
        mine = [one for one in claim.pods if one.uid in stay]
        if mine:
            launch(fleet, f"n{number:03d}", claim, mine)
    return Economy(fleet, improved=searched)


def searched(prepared: Prepared, result: Result) -> Result:
    """A cheaper fleet, as the product looks for one."""
    return mended(prepared, improve(prepared, result.placed, result).result)
