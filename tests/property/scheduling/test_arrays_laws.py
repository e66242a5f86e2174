"""What is sent to another process as arrays comes back equal."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from provisioner.apis.meta import OwnerReference
from provisioner.apis.pods import Pod
from provisioner.scheduling.arrays import pack_question, pack_result, unpack_question, unpack_result
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import Changes
from tests.support.agreement import EFFORT, gist
from tests.support.question import Problem
from tests.support.rich import Stock

RICH = Stock(20260502)
PROBLEMS = RICH.problems()
EXAMPLES = settings(max_examples=max(100, settings().max_examples))
NOON = datetime(2026, 5, 2, 12, tzinfo=UTC)
TIMES = st.none() | st.integers(0, 10**13).map(lambda micros: NOON + timedelta(microseconds=micros))
OWNERS = st.none() | st.sampled_from(("a", "b")).map(
    lambda name: OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=name, uid=f"uid-{name}", controller=True)
)
DETAILS = st.fixed_dictionaries(
    {
        "deleted": TIMES,
        "start_time": TIMES,
        "owner": OWNERS,
        "node_name": st.sampled_from(("", "n-1", "n-2")),
        "annotations": st.sampled_from(({}, {"karpenter.sh/do-not-disrupt": "true"})),
        "labels": st.sampled_from(({}, {"app": "x"}, {"app": "x", "index": "7"})),
        "resource_version": st.sampled_from(("", "17")),
        "grace_seconds": st.none() | st.integers(0, 600),
        "phase": st.sampled_from(("Pending", "Running")),
        "ready": st.booleans(),
        "gated": st.booleans(),
        "unschedulable": st.booleans(),
        "scheduled_message": st.text(max_size=5),
    }
)


@EXAMPLES
@given(PROBLEMS)
def test_a_result_comes_back_equal(asked: Problem) -> None:
    result = prepare(asked).solve(asked.pods, effort=EFFORT)
    templates = {pool.name: pool.template for pool in asked.pools}
    found = unpack_result(pack_result(result, asked.pods), asked.pods, templates)
    assert found == result
    assert found.usd_at_least == result.usd_at_least


@EXAMPLES
@given(PROBLEMS, st.lists(DETAILS, min_size=20, max_size=20), st.frozensets(st.sampled_from(("x", "y"))))
def test_a_question_comes_back_equal(asked: Problem, details: list[dict[str, object]], gone: frozenset[str]) -> None:
    pods: tuple[Pod, ...] = tuple(changed(pod, **detail) for pod, detail in zip(asked.pods, details, strict=False))
    changes = Changes(
        bins={one.name: replace(one, pods=(*one.pods, *pods[:1])) for one in asked.bins},
        gone=gone,
        pools=asked.pools,
        daemons=asked.daemons,
        storage=asked.storage,
    )
    assert unpack_question(pack_question(pods, changes)) == (pods, changes)
    assert unpack_question(pack_question(pods)) == (pods, Changes())


@EXAMPLES
@given(PROBLEMS)
def test_what_came_over_is_answered_like_what_was_sent(asked: Problem) -> None:
    empty = replace(asked, pods=(), bins=())
    sent = pack_question(asked.pods, Changes(bins={one.name: one for one in asked.bins}))
    pods, changes = unpack_question(sent)
    there = prepare(empty).updated(changes)
    here = prepare(empty).updated(Changes(bins={one.name: one for one in asked.bins}))
    result = there.solve(pods, effort=EFFORT)
    assert gist(result) == gist(here.solve(asked.pods, effort=EFFORT))
    home = unpack_result(pack_result(result, pods), asked.pods, {pool.name: pool.template for pool in asked.pools})
    assert gist(home) == gist(here.solve(asked.pods, effort=EFFORT))
