"""Karpenter's rules on the fleet of `make bench-cluster CASE=consolidation`, beside what Karpenter 1.14.1 itself came to there (`lab.bench_disruption`).

Replayed are nodes and cost. Karpenter ended with 110 nodes for about 52.8 $/h; its pods were bound, and bound again, by kube-scheduler, which spreads
them and follows no plan, so more nodes stayed than its rules alone leave: cost within 2 %, nodes within 10 %. The seconds of the other rows (drift) are
those of its loop and of the machine, about which its rules say nothing.
"""

import random

import pytest

from provisioner.cloudprovider.kwok import catalogue
from provisioner.scheduling.world import Policies
from provisioner.simulator.karpenter.disruption import disrupt
from provisioner.simulator.karpenter.provisioning import provision
from tests.support.economy import Economy, launch
from tests.support.fleets import Fleet, pool, several
from tests.support.problems import shape

NODES, USD = 110, 52.8
REQUIREMENTS = tuple(
    {"key": key, "operator": operator, "values": [value]}
    for key, operator, value in (
        ("karpenter.kwok.sh/instance-cpu", "Lt", "17"),
        ("kubernetes.io/os", "In", "linux"),
        ("kubernetes.io/arch", "In", "amd64"),
        ("karpenter.sh/capacity-type", "In", "on-demand"),
    )
)


def scaled_down(seed: int) -> Economy:
    """1,000 pods, half small and half large, of which 700 are left, as chance will have it."""
    fleet = Fleet(
        [pool(requirements=REQUIREMENTS)], types=catalogue.generated().types, policies=Policies(hostname_domains=0)
    )
    small, large = (
        several(500, name, shape(cpu, memory, labels={"app": name}))
        for name, cpu, memory in (("small", "900m", "3100Mi"), ("large", "3500m", "28Gi"))
    )
    chance = random.Random(seed)
    stay = {one.uid for some in (small, large) for one in chance.sample(some, 350)}
    bought = provision(fleet.prepared(), [*small, *large])
    assert len(bought.placed) == 1_000
    for number, claim in enumerate(bought.claims):
        launch(fleet, f"n{number:03d}", claim, [one for one in claim.pods if one.uid in stay])
    return Economy(fleet)


@pytest.mark.parametrize("seed", [1, 2])
def test_consolidation_ends_where_karpenter_ended(seed: int) -> None:
    economy = scaled_down(seed)
    before = economy.usd_per_hour
    while (command := disrupt(economy.view(), skipped=()).command) is not None:
        economy.carry_out(command)
    assert before > 1.3 * USD
    assert economy.pods == 700
    assert economy.usd_per_hour == pytest.approx(USD, rel=0.02)
    assert len(economy.fleet.nodes) == pytest.approx(NODES, rel=0.1)
