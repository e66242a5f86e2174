"""Whatever is bought, nodes that take its place place the same pods legally, cost no more, and leave kube-scheduler fewer pods that need a nomination."""

import functools

from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.scheduling.improvement.acceptance import weighed
from provisioner.scheduling.improvement.balancing import balanced, spoiled
from provisioner.scheduling.judging import design_of
from provisioner.scheduling.nomination.unaided import Running
from provisioner.scheduling.prepared import prepare
from tests.support import problems
from tests.support.problems import app, node, of_app, pods, pool, problem, spread

instance_type = functools.partial(problems.instance_type, zones=("a", "b", "c"), capacity_types=("on-demand",))
TYPES = tuple(
    instance_type(f"{family}{cpus}", str(cpus), f"{cpus * gib}Gi", cpus * (0.03 + 0.005 * gib))
    for cpus in (2, 4, 8, 12, 16)
    for family, gib in (("c", 2), ("m", 4))
)
KEYS = ((), (), (names.ZONE_LABEL,), (names.HOSTNAME_LABEL,), (names.ZONE_LABEL, names.HOSTNAME_LABEL))


@st.composite
def workloads(draw: st.DrawFn, most: int = 4) -> tuple[Pod, ...]:
    """Pods of a few workloads, one of them with a hard spread at the least."""
    found: list[Pod] = []
    for number in range(draw(st.integers(1, most))):
        keys = draw(st.sampled_from(KEYS if number else KEYS[2:]))
        name = f"w{number}"
        of = of_app(
            name,
            draw(st.sampled_from(("250m", "300m", "700m", "1", "2"))),
            draw(st.sampled_from(("512Mi", "1Gi", "2Gi"))),
            topology_spread_constraints=tuple(spread(key, app(name), draw(st.integers(1, 2))) for key in keys),
        )
        found += pods(draw(st.integers(1, 20)), of, name)
    return tuple(found)


@given(batch=workloads(), running=workloads(2), limit=st.sampled_from(("", "24", "60")))
def test_what_takes_the_place_of_a_plan_is_legal_costs_no_more_and_needs_fewer_nominations(
    batch: tuple[Pod, ...], running: tuple[Pod, ...], limit: str
) -> None:
    there = tuple(
        node(f"there-{zone}", "0", "0", labels={names.ZONE_LABEL: zone}, running=running[number::3])
        for number, zone in enumerate("abc")
    )
    prepared = prepare(problem(batch, pool(types=TYPES, limits={"cpu": limit} if limit else None), bins=there))
    result = prepared.solve(batch)
    found = balanced(prepared, result)
    if found is result:
        return
    assert prepared.judge(design_of(found)).legal
    assert sorted(one.uid for one in found.placed) == sorted(one.uid for one in result.placed)
    assert weighed(prepared, found.claims) <= weighed(prepared, result.claims) + 1e-6
    assert found.usd_per_hour <= result.usd_per_hour + 1e-6
    running_now = Running((one.labels, one.pods) for one in there)
    assert spoiled(found.claims, running_now) < spoiled(result.claims, running_now)
