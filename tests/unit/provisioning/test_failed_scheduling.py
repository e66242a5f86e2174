"""What pods and pools are told, and how often."""

from msgspec.structs import replace

from provisioner.apis import names
from provisioner.kube.events import MAX_MESSAGE
from provisioner.provisioning.failed_scheduling import ToldPods, pools_without_types, sentence, unready
from provisioner.scheduling.reasons import NoInstanceTypes, NoPools, PodInvalid, PoolRefuses, TooLarge, Untolerated
from provisioner.values.taints import Taint
from tests.support.clock import NOON
from tests.support.cluster import pod, pool

ONE, TWO = pod("one"), pod("two")


def test_a_sentence_is_said_once_in_five_minutes_and_a_new_one_at_once() -> None:
    told = ToldPods()
    assert told.due([(ONE, "a"), (TWO, "a")], 0.0) == [(ONE, "a"), (TWO, "a")]
    assert told.due([(ONE, "a"), (TWO, "b")], 10.0) == [(TWO, "b")]
    assert told.due([(ONE, "a"), (TWO, "b")], 299.0) == []
    assert told.due([(ONE, "a"), (TWO, "b")], 300.0) == [(ONE, "a")]


def test_a_pod_that_had_a_place_in_between_is_told_again() -> None:
    told = ToldPods()
    told.due([(ONE, "a")], 0.0)
    told.due([], 1.0)
    assert told.due([(ONE, "a")], 2.0) == [(ONE, "a")]


def test_of_many_pods_each_run_tells_some_until_all_were_told() -> None:
    told, many = ToldPods(), [(pod(f"p{number}"), "a") for number in range(2 * ToldPods.AT_ONCE + 1)]
    runs = [told.due(many, float(second)) for second in range(4)]
    assert [len(run) for run in runs] == [ToldPods.AT_ONCE, ToldPods.AT_ONCE, 1, 0]
    assert [found for run in runs for found in run] == many


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


def test_a_pod_is_told_every_reason() -> None:
    reasons = (PoolRefuses("a", TooLarge("cpu", 2000, 1000)), PoolRefuses("b", NoInstanceTypes(0)))
    assert sentence(reasons) == f"Failed to schedule pod, {reasons[0]}; {reasons[1]}"


def test_of_too_many_pools_those_that_came_nearest_are_named_and_the_others_counted() -> None:
    foreign = [PoolRefuses(f"foreign-{n}", Untolerated(Taint(key="team", effect="NoSchedule"))) for n in range(50)]
    near = PoolRefuses("near", TooLarge("cpu", 2000, 1000))
    text = sentence((*foreign, near))
    assert text.startswith(f"Failed to schedule pod, {near}; {foreign[0]}; ")
    assert len(text) <= MAX_MESSAGE
    named = sum(str(one) in text for one in foreign)
    assert text.endswith(f"; and {len(foreign) - named} more")
    assert MAX_MESSAGE - len(text) < len(str(foreign[-1])) + len("; ")


def test_one_long_reason_is_told_for_the_recorder_to_cut() -> None:
    assert sentence((PodInvalid("x" * 2000), NoPools())) == f"Failed to schedule pod, {'x' * 2000}; and 1 more"


READY = {"lastTransitionTime": NOON.isoformat()}


def test_a_pool_that_is_not_ready_is_named_with_the_cause() -> None:
    conditions = [
        {**READY, "type": "ValidationSucceeded", "status": "True"},
        {**READY, "type": "NodeClassReady", "status": "False", "message": "KWOKNodeClass x does not exist; create it"},
        {**READY, "type": "Ready", "status": "False", "message": "NodeClassReady=False"},
    ]
    leaving = pool("leaving", status={})
    pools = [
        pool("new", status={}),
        pool("good"),
        pool("bad", status={"conditions": conditions}),
        replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp=NOON)),
        pool("static", replicas=1, status={}),
    ]
    paused = pool("paused")
    paused.metadata.annotations[names.PAUSED] = "launch"
    assert unready([paused]) == (
        'NodePool "paused": Launching nodes is paused by the annotation "dovetail.dev/paused" of NodePool "paused"',
    )
    assert unready(pools) == (
        'NodePool "bad": not Ready (NodeClassReady=False: KWOKNodeClass x does not exist; create it)',
        'NodePool "new": not Ready',
    )
    assert sentence((NoPools(),), unready(pools[:1])) == (
        'Failed to schedule pod, no dynamic nodepools found; NodePool "new": not Ready'
    )
    assert sentence((PodInvalid("broken"),), unready(pools)) == "Failed to schedule pod, broken"
