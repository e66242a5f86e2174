"""What becomes of a batch while the world moves on: names that are taken, nodes that go, plans that were not followed."""

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod
from provisioner.state.effects import ClaimUnneeded
from provisioner.state.keys import NodeKey
from provisioner.support.metrics import REGISTRY
from tests.support.batches import Batches
from tests.support.cluster import bound, claim, node, pod, refused
from tests.support.kube import FakeAnswer, Sent
from tests.support.problems import shape, term

UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}


def test_pods_that_do_not_count_and_pods_without_a_place_are_told_of_until_they_are_gone() -> None:
    outsider, giant = pod("outsider"), pod("giant", cpu="5k")
    outsider = msgspec.structs.replace(
        outsider, shape=shape(cpu="1", terms=[term((names.NODEPOOL_LABEL, "DoesNotExist", []))])
    )
    stage = Batches(outsider, giant, pod("small"))
    stage.run()
    assert counts() == (1, 1)
    for one in (outsider, giant):
        stage.world.cluster.pod_changed(one, None)
    stage.run()
    assert counts() == (0, 0)


def counts() -> tuple[float | None, float | None]:
    """(ignored, unschedulable) pods of the last batch."""
    return (
        REGISTRY.get_sample_value("karpenter_scheduler_ignored_pods_count"),
        REGISTRY.get_sample_value("karpenter_scheduler_unschedulable_pods_count", {"controller": "provisioner"}),
    )


def first_name() -> str:
    """The name that a batch gives its first claim."""
    stage = Batches(pod("p"))
    stage.run()
    return stage.created[0]


# --- names -----------------------------------------------------------------------------------------------------------------


def test_a_generated_name_that_is_taken_is_not_used_and_the_live_node_stays() -> None:
    name = first_name()
    stage = Batches(pod("p"))
    stage.world.existing_node(name)
    stage.world.add(*(pod(f"fills-{number}", node=name) for number in range(4)))
    stage.run()
    (other,) = stage.created
    assert other != name
    assert stage.world.view(name).initialized
    assert stage.world.assigned(other) == ["p"]


def test_a_name_that_is_taken_in_the_api_server_only_frees_the_pods() -> None:
    stage = Batches(pod("p"))
    stage.server.tell = False
    stage.server.put(claim(first_name()))
    stage.run()
    assert not stage.world.cluster.is_planned("p")
    assert stage.again == [f"failed/{first_name()}"]


def test_a_create_that_was_answered_twice_is_a_success() -> None:
    stage = Batches(pod("p"))

    def answer(sent: Sent) -> FakeAnswer | None:
        if sent.method == "POST":
            stage.server.answer(sent, None)
        return None

    stage.server.intercept = answer
    stage.run()
    assert stage.world.assigned(first_name()) == ["p"]
    assert stage.created == [first_name()]


# --- what happens while a batch is planned ------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [bound(pod("p"), "elsewhere"), None], ids=["is bound", "is gone"])
def test_no_claim_is_made_for_a_pod_that_meanwhile(now: Pod | None) -> None:
    one = pod("p")
    stage = Batches(one)
    stage.provider.meanwhile = lambda: stage.world.cluster.pod_changed(one, now)
    stage.run()
    assert stage.api.sent == []
    assert stage.world.cluster.claims() == []


def test_a_claim_whose_pods_find_nodes_while_it_is_created_goes_again() -> None:
    one = pod("p")
    stage = Batches(one)

    def bind(_: Sent) -> None:
        stage.world.cluster.pod_changed(one, bound(one, "elsewhere"))

    stage.server.intercept = bind
    stage.run()
    assert stage.effects == [ClaimUnneeded(first_name())]


def test_pods_that_were_planned_onto_a_node_that_went_meanwhile_are_planned_again() -> None:
    stage = Batches(pod("p"))
    stage.world.existing_node("old")
    gone = claim("old", deletionTimestamp="2026-11-21T12:00:00Z", provider_id="kwok://old")
    stage.provider.meanwhile = lambda: stage.world.cluster.claim_changed(None, gone)
    stage.run()
    assert stage.again == ["refused/old"]
    assert not stage.world.cluster.is_planned("p")


# --- plans that kube-scheduler did not follow -----------------------------------------------------------------------------------


SAID = "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints."


def missed_on(stage: Batches, one: Pod, name: str, text: str = SAID) -> Pod:
    """The pod, after kube-scheduler refused it on the node that it was planned on."""
    stage.world.clock.advance(2)
    said = refused(one, text)
    stage.world.cluster.pod_changed(stage.world.cluster.pod(one.uid), said)
    assert not stage.world.cluster.is_planned(one.uid), name
    return said


def test_a_pod_that_was_missed_on_a_node_is_planned_elsewhere_as_itself() -> None:
    one = pod("p")
    stage = Batches(one)
    stage.world.existing_node("old")
    stage.run()
    assert stage.world.assigned("old") == ["p"]
    said = missed_on(stage, one, "old")
    stage.run()
    (new,) = stage.created
    assert stage.world.cluster.assigned(NodeKey(new)) == (said,)
    (sent,) = [sent for sent in stage.api.sent if sent.method == "POST"]
    assert said.shape.key in sent.body["metadata"]["annotations"][names.PLAN_ANNOTATION], "its own class"
    assert "metadata.name" not in str(sent.body["spec"]), "the node that it avoids is nothing to the claim"


@pytest.mark.parametrize("there", [True, False], ids=["to its node", "to another"])
def test_a_pod_that_was_nominated_to_its_node_gets_its_turn(there: bool) -> None:
    """Others that are nominated keep their rooms too: where a zone is ahead its pods fit nowhere until those of the other zones are bound."""
    one = pod("p")
    stage = Batches(one)
    stage.world.existing_node("old")
    stage.world.existing_node("other")
    cluster = stage.world.cluster
    assert cluster.assign(NodeKey("old"), (one,)) == []
    nominated = msgspec.structs.replace(one, nominated_node_name=node("old" if there else "other").metadata.name)
    cluster.pod_changed(one, nominated)
    stage.world.clock.advance(2)
    cluster.pod_changed(nominated, refused(one, SAID))  # which clears the nomination
    assert cluster.is_planned("p") is there
    stage.world.clock.advance(4)
    cluster.expire()
    assert not cluster.is_planned("p")


def test_after_three_plans_that_failed_no_node_is_made_and_who_waits_is_told_what_kube_scheduler_said() -> None:
    one = pod("p")
    stage = Batches(one)
    for number in range(3):
        name = f"n{number}"
        stage.world.existing_node(name)
        assert stage.world.cluster.assign(NodeKey(name), (one,)) == []
        one = missed_on(stage, one, name, f"{SAID} {number}")
    assert stage.run() is None
    assert stage.api.sent == []
    assert ("Pod", "p", "Warning", "FailedScheduling") in stage.told.events
    (text,) = stage.told.messages
    assert text.startswith("Failed to schedule pod, ")
    assert f"{SAID} 2" in text
    assert "3 times in a row" in text
    assert "for 30 s" in text
    stage.world.clock.advance(31)
    batch = stage.run()
    assert batch is not None
    assert batch.claims == 1


def test_other_pods_are_planned_while_a_class_is_stopped() -> None:
    one, other = pod("p"), pod("other", cpu="2")
    stage = Batches(one, other)
    for number in range(3):
        name = f"n{number}"
        stage.world.existing_node(name)
        stage.world.cluster.assign(NodeKey(name), (one,))
        one = missed_on(stage, one, name, f"{SAID} {number}")
    batch = stage.run()
    assert batch is not None
    assert batch.pods == 1


def test_a_claim_of_the_type_of_the_state_is_what_is_announced() -> None:
    stage = Batches(pod("p"))
    stage.run()
    found = stage.world.cluster.claim(first_name())
    assert isinstance(found, NodeClaim)
    assert found.metadata.uid
    assert stage.world.cluster.node_of(found) is None
    stage.world.cluster.node_changed(None, node("x", taints=(UNREGISTERED,)))
    assert stage.world.assigned(first_name()) == ["p"]
