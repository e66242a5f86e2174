"""What pods and pools are told, and how often."""

from typing import Any

import pytest
from msgspec.structs import replace

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.apis.pods import Pod
from provisioner.kube.events import MAX_MESSAGE
from provisioner.provisioning import failed_scheduling
from provisioner.provisioning.failed_scheduling import (
    Complaint,
    ToldPods,
    pools_without_types,
    unready,
)
from provisioner.scheduling.reasons import (
    BinsRefuse,
    Incompatible,
    NoInstanceTypes,
    NoPools,
    PodInvalid,
    PoolRefuses,
    PoolsRefuse,
    Reason,
    TooLarge,
    Untolerated,
)
from provisioner.support.workers import WorkerPool
from provisioner.values.requirement import RequirementConflict
from provisioner.values.taints import Taint
from tests.support.batches import Batches
from tests.support.clock import NOON
from tests.support.cluster import pod, pool

ONE, TWO = pod("one"), pod("two")


def sentence(*of: Any, **more: Any) -> str:
    """What a pod with these reasons is told; the arguments are as of `parts_of`."""
    return failed_scheduling.sentence(failed_scheduling.parts_of(*of, **more))


def gist(*of: Any) -> object:
    """What it comes down to."""
    return failed_scheduling.gist(failed_scheduling.parts_of(*of))


def due(told: ToldPods, now: float, *some: tuple[Pod, str]) -> list[tuple[Pod, str]]:
    """Who is told what, where texts are their own gist."""
    return [(one.pod, one.text) for one in told.due((Complaint(pod, text) for pod, text in some), now)]


def test_a_sentence_is_said_once_in_five_minutes_and_a_new_one_at_once() -> None:
    told = ToldPods()
    assert due(told, 0.0, (ONE, "a"), (TWO, "a")) == [(ONE, "a"), (TWO, "a")]
    assert due(told, 10.0, (ONE, "a"), (TWO, "b")) == [(TWO, "b")]
    assert due(told, 299.0, (ONE, "a"), (TWO, "b")) == []
    assert due(told, 300.0, (ONE, "a"), (TWO, "b")) == [(ONE, "a")]


def test_another_text_of_the_same_gist_is_said_when_the_first_would_be_again() -> None:
    told = ToldPods()
    texts = [one.text for at in (0.0, 10.0, 299.0, 300.0) for one in told.due([Complaint(ONE, f"{at}", "gist")], at)]
    assert texts == ["0.0", "300.0"]
    assert told.due([Complaint(ONE, "c", "another")], 301.0)


def test_a_pod_that_had_a_place_in_between_is_told_again() -> None:
    told = ToldPods()
    due(told, 0.0, (ONE, "a"))
    due(told, 1.0)
    assert due(told, 2.0, (ONE, "a")) == [(ONE, "a")]


def test_of_many_pods_each_run_tells_some_until_all_were_told() -> None:
    told, many = ToldPods(), [(pod(f"p{number}"), "a") for number in range(2 * ToldPods.AT_ONCE + 1)]
    runs = [due(told, float(second), *many) for second in range(4)]
    assert [len(run) for run in runs] == [ToldPods.AT_ONCE, ToldPods.AT_ONCE, 1, 0]
    assert [found for run in runs for found in run] == many


def test_nodes_that_come_and_go_and_amounts_are_nothing_new_to_a_pod() -> None:
    taint = Taint(key="team", effect="NoSchedule")
    before = (BinsRefuse(5, untolerated=((taint, 2),), leaving=1), PoolRefuses("a", TooLarge("cpu", 2000, 1000)))
    later = (BinsRefuse(6, short=(("cpu", 6),)), PoolRefuses("a", TooLarge("cpu", 2000, 900)))
    assert sentence(before) != sentence(later)
    assert gist(before) == gist(later) == gist(later[1:])


@pytest.mark.parametrize(
    ("reasons", "pools"),
    [
        ((PoolRefuses("b", TooLarge("cpu", 2000, 1000)),), ()),
        ((PoolRefuses("a", TooLarge("memory", 2000, 1000)),), ()),
        ((PoolRefuses("a", NoInstanceTypes(0)),), ()),
        ((PoolRefuses("a", TooLarge("cpu", 2000, 1000)), PoolRefuses("b", NoInstanceTypes(0))), ()),
        ((PoolRefuses("a", Untolerated(Taint(key="x", effect="NoSchedule"))),), ()),
        ((PoolRefuses("a", Untolerated(Taint(key="y", effect="NoSchedule"))),), ()),
        ((NoPools(),), ()),
        ((NoPools(),), (pool("a", replicas=1),)),
        ((PodInvalid("broken"),), ()),
    ],
    ids=str,
)
def test_what_binds_in_a_pool_is_new_to_a_pod(reasons: tuple[Reason, ...], pools: tuple[NodePool, ...]) -> None:
    others = [
        gist(*one)
        for one in (
            ((PoolRefuses("a", TooLarge("cpu", 2000, 1000)),), ()),
            ((PoolRefuses("a", Untolerated(Taint(key="z", effect="NoSchedule"))),), ()),
            ((NoPools(),), (pool("a", replicas=1), pool("b", status={}))),
        )
    ]
    assert gist(reasons, pools) not in others


def test_a_pool_without_any_instance_type_is_told_itself() -> None:
    cpu = PoolRefuses("small", TooLarge("cpu", 2000, 1000))
    assert pools_without_types([NoPools(), cpu, PoolRefuses("empty", NoInstanceTypes(0))]) == {
        "empty": (
            "Warning",
            "NoCompatibleInstanceTypes",
            (
                "NodePool requirements filtered out all compatible available instance types: "
                "the provider offers no instance types"
            ),
        )
    }


def test_a_pool_of_which_no_instance_type_is_known_is_told_why_and_not_that_its_requirements_rule_them_out() -> None:
    denied = PoolRefuses("general", NoInstanceTypes(0, problem="ec2:DescribeInstanceTypes: denied"))
    text = "its instance types are not known: ec2:DescribeInstanceTypes: denied"
    assert pools_without_types([denied]) == {"general": ("Warning", "NoCompatibleInstanceTypes", text)}
    assert sentence((denied,)) == f'Failed to schedule pod, NodePool "general": {text}'


def test_a_pod_is_told_every_reason() -> None:
    reasons = (PoolRefuses("a", TooLarge("cpu", 2000, 1000)), PoolRefuses("b", NoInstanceTypes(0)))
    assert sentence(reasons) == f"Failed to schedule pod, {reasons[0]}; {reasons[1]}"


def test_a_label_is_told_of_all_pools_only_where_no_other_pool_sets_it() -> None:
    """Not even a static one, which takes no part."""
    unset = Incompatible(RequirementConflict("disktype", None, None, undefined=True))
    refusals = (PoolRefuses("a", unset), PoolsRefuse(("b", "c"), unset))
    assert sentence(refusals, [pool("a")]) == 'Failed to schedule pod, no NodePool sets the label "disktype"'
    sets = pool("static", replicas=1, requirements=({"key": "disktype", "operator": "Exists"},))
    assert sentence(refusals, [pool("a"), sets]).startswith(
        'Failed to schedule pod, NodePool "a": the NodePool does not set the label "disktype"; 2 NodePools ("b", "c"): the'
    )


def test_of_too_many_pools_those_that_came_nearest_are_named_and_the_others_counted() -> None:
    foreign = [PoolRefuses(f"foreign-{n}", Untolerated(Taint(key="team", effect="NoSchedule"))) for n in range(50)]
    near = PoolRefuses("near", TooLarge("cpu", 2000, 1000))
    text = sentence((*foreign, near))
    assert text.startswith(f"Failed to schedule pod, {near}; {foreign[0]}; ")
    assert len(text) <= MAX_MESSAGE
    named = sum(str(one) in text for one in foreign)
    assert text.endswith(f"; and {len(foreign) - named} more")
    assert MAX_MESSAGE - len(text) < len(str(foreign[-1])) + len("; ")


def test_of_many_taints_of_nodes_those_of_most_nodes_are_named_and_the_others_counted() -> None:
    taints = tuple((Taint(key=f"team-{n}", effect="NoSchedule"), n) for n in range(1, 6))
    assert str(BinsRefuse(15, untolerated=taints)) == (
        "0/15 existing nodes: 5 had untolerated taint team-5:NoSchedule, 4 had untolerated taint team-4:NoSchedule, "
        "3 had untolerated taint team-3:NoSchedule, 3 had other untolerated taints"
    )


def test_one_long_reason_is_told_for_the_recorder_to_cut() -> None:
    assert sentence((PodInvalid("x" * 2000), NoPools())) == f"Failed to schedule pod, {'x' * 2000}; and 1 more"


READY = {"lastTransitionTime": NOON.isoformat()}


def not_ready(name: str, message: str, **spec: Any) -> NodePool:
    """A pool whose NodeClass is not ready."""
    conditions = [
        {**READY, "type": "ValidationSucceeded", "status": "True"},
        {**READY, "type": "NodeClassReady", "status": "False", "message": message},
        {**READY, "type": "Ready", "status": "False", "message": f"NodeClassReady=False: {message}"},
    ]
    return pool(name, status={"conditions": conditions}, **spec)


def leaving(name: str) -> NodePool:
    """A pool that is being deleted."""
    one = pool(name)
    return replace(one, metadata=replace(one.metadata, deletion_timestamp=NOON))


REFUSES = PoolRefuses("good", TooLarge("cpu", 2000, 1000))
TOLD = {
    "no pool exists": ((), "no NodePool exists"),
    "a pool that is not Ready says why": (
        (not_ready("bad", "EC2NodeClass x: no subnet"),),
        "no NodePool is Ready: bad: EC2NodeClass x: no subnet",
    ),
    "the heavier pool comes first, and one without conditions says so": (
        (pool("a-new", status={}), not_ready("heavy", "no subnet", weight=9)),
        "no NodePool is Ready: heavy: no subnet; a-new: its conditions are not set yet",
    ),
    "static and deleted pools are none that might be Ready": (
        (pool("fixed", replicas=1), leaving("old"), not_ready("bad", "no subnet")),
        "no NodePool is Ready: bad: no subnet",
    ),
    "static pools only": ((pool("a", replicas=1), pool("b", replicas=2)), "all NodePools are static"),
    "static and deleted": ((pool("a", replicas=1), leaving("b")), "all NodePools are static or being deleted"),
    "a pool that is Ready, and cannot be read": ((pool("good"),), "no NodePool can launch nodes"),
    "the fourth is counted": (
        tuple(not_ready(name, "why") for name in "abcd"),
        "no NodePool is Ready: a: why; b: why; c: why; and 1 more",
    ),
}


@pytest.mark.parametrize(("pools", "want"), TOLD.values(), ids=TOLD)
def test_a_pod_without_a_pool_is_told_which_of_the_causes_it_is(pools: tuple[NodePool, ...], want: str) -> None:
    assert sentence((NoPools(),), pools) == f"Failed to schedule pod, {want}"


def test_pools_of_other_providers_are_told_apart_from_none() -> None:
    text = sentence((NoPools(),), (pool("theirs"),), lambda _: False)
    assert text == "Failed to schedule pod, no NodePool refers to a NodeClass that this provisioner serves"


def test_a_pool_that_is_not_ready_is_named_beside_those_that_refuse_the_pod() -> None:
    others = (pool("good"), pool("new", status={}), pool("fixed", replicas=1, status={}), leaving("old"))
    pools = (*others, not_ready("bad", "KWOKNodeClass x does not exist; create it"))
    assert unready(pools) == [
        'NodePool "bad": not Ready: KWOKNodeClass x does not exist; create it',
        'NodePool "new": not Ready: its conditions are not set yet',
    ]
    paused = pool("paused")
    paused.metadata.annotations[names.PAUSED] = "launch"
    why = 'Launching nodes is paused by the annotation "dovetail.dev/paused" of NodePool "paused"'
    assert unready([paused]) == [f'NodePool "paused": {why}']
    assert sentence((NoPools(),), [paused]) == f"Failed to schedule pod, no NodePool may launch nodes: paused: {why}"
    assert sentence((REFUSES,), pools) == f"Failed to schedule pod, {REFUSES}; {'; '.join(unready(pools))}"
    assert sentence((PodInvalid("broken"),), pools) == "Failed to schedule pod, broken"


def test_a_cause_is_told_however_long_the_other_reasons_are() -> None:
    short = tuple((f"example.com/resource-{n}", 1) for n in range(100))
    text = sentence((BinsRefuse(100, short=short), NoPools()), (not_ready("bad", "no subnet"),))
    assert text == "Failed to schedule pod, no NodePool is Ready: bad: no subnet; and 1 more"


def test_the_pool_that_the_pod_is_meant_for_is_told_first_and_others_beside_it_not_at_all() -> None:
    pools = tuple(not_ready(name, f"cause of {name}") for name in "abcde")
    only = "e".__eq__
    text = sentence((NoPools(),), pools, meant=lambda one: only(one.name))
    assert text.startswith("Failed to schedule pod, no NodePool is Ready: e: cause of e; a: ")
    assert sentence((REFUSES,), pools, meant=lambda one: only(one.name)) == (
        f'Failed to schedule pod, {REFUSES}; NodePool "e": not Ready: cause of e'
    )


def test_a_pod_that_nothing_takes_is_not_told_of_each_node_that_comes() -> None:
    stage, workers = Batches(pod("p", cpu="5000")), WorkerPool(1)
    one = stage.provisioner(workers)
    for number in range(3):
        stage.world.existing_node(f"n{number}")
        one.run()
    (text,) = stage.told.said("FailedScheduling")
    assert "0/1 existing nodes" in text
    stage.world.clock.advance(ToldPods.TTL_SECONDS)
    one.run()
    workers.close()
    assert "0/3 existing nodes" in stage.told.said("FailedScheduling")[1]
