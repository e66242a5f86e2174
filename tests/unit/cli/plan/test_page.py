"""The page of a plan has every planned node and pod, and says why others have no place."""

from provisioner.cli.plan.fleet_summary import fleet_of
from provisioner.cli.plan.page import page_of_plan
from provisioner.scheduling.prepared import prepare
from tests.support.clock import NOON
from tests.support.problems import instance_type, pods, pool, problem, shape

TYPES = (instance_type("lean", "4", "8Gi", 0.5), instance_type("wide", "8", "64Gi", 4.0))


def test_every_pod_of_a_plan_is_on_its_page_once() -> None:
    asked = problem(
        pods(10, shape("1", "1Gi"), "web") + pods(2, shape("500m", "4Gi"), "db") + pods(3, shape("64", "1Gi"), "big"),
        pool(types=TYPES),
    )
    result = prepare(asked).solve(asked.pods)
    page = page_of_plan("a plan", result, fleet_of(result), NOON, "$")
    planned = [row for node in page.nodes for row in node.planned]
    assert sum(int(row[1]) for row in planned) == len(asked.pods) - 3
    assert sum(one.pods for one in page.waiting) == 3
    assert all(one.text for one in page.waiting)
    assert page.sums is not None
    assert page.sums.usd == round(result.usd_per_hour, 4)
    assert [(one.type, one.usd, one.state) for one in page.nodes] == [
        (claim.planned_type, claim.usd_per_hour, "planned") for claim in result.claims
    ]
    for node, claim in zip(page.nodes, result.claims, strict=True):
        cpu = sum(page.classes[int(index)].cpu * int(count) for index, count, *_ in node.planned)
        assert cpu + node.daemons.cpu == claim.requests.amount("cpu")
        assert cpu + node.daemons.cpu + node.system[0] <= node.cpu
