"""Which pods find no room elsewhere when all nodes of ours go, and which NodeClaims are deleted next."""

from datetime import timedelta

import pytest

from provisioner.apis import names
from provisioner.leaving.draining import next_to_delete, why_waiting, with_launches_paused, without_room
from provisioner.state.pause import Activity, value_of
from tests.support.clock import NOON
from tests.support.cluster import claim, node, pool
from tests.support.dumps import dumped, existing_node, wire_pod


def test_pods_move_to_nodes_that_are_not_ours_as_far_as_these_have_room() -> None:
    there = [*existing_node("a"), *existing_node("b"), node("theirs")]
    pods = [wire_pod(f"p{number}", "2", on="ab"[number % 2]) for number in range(2)]
    local = dumped(*there, *pods, wire_pod("large", "3", on="theirs"))
    assert [one.name for one in without_room(local.snapshot, local.prepared)] == ["p0", "p1"]
    local = dumped(*there, *pods)
    assert len(without_room(local.snapshot, local.prepared)) == 1
    local = dumped(*there, *pods[:1])
    assert without_room(local.snapshot, local.prepared) == ()


def test_budgets_let_some_go_at_a_time_and_those_with_reasons_do_not_count() -> None:
    there = [*existing_node("a"), *existing_node("b"), *existing_node("c")]
    one = pool(disruption={"budgets": [{"nodes": "1"}, {"nodes": "0", "reasons": ["Drifted"]}]})
    local = dumped(*there, one)
    assert [claim.name for claim in next_to_delete(local.snapshot)] == ["a-claim"]
    going = existing_node("a", deletionTimestamp=(NOON + timedelta(minutes=50)).isoformat())
    local = dumped(*going, *there[2:], one)
    assert next_to_delete(local.snapshot) == ()
    said = why_waiting(view.claim for view in local.snapshot.nodes if view.claim is not None)
    assert said == [
        "NodeClaim a-claim: its instance is being terminated",
        *(f"NodeClaim {name} waits for the disruption budgets of NodePool general" for name in ("b-claim", "c-claim")),
    ]


def test_a_node_whose_deletion_awaits_confirmation_is_told_as_that() -> None:
    marks = {names.AWAITS_CONFIRMATION: "installation"}
    one = claim("a", deletionTimestamp=NOON.isoformat(), annotations=marks)
    (said,) = why_waiting([one])
    assert said.startswith("NodeClaim a: it was deleted before Dovetail was installed")
    assert names.CONFIRM_DELETION in said


@pytest.mark.parametrize("value", ["", "false", "drift", "true", "launch", "true,launch", "drfit"])
def test_launches_are_paused_besides_what_is(value: str) -> None:
    found = with_launches_paused(value)
    assert value_of(found).activities == value_of(value).activities | {Activity.LAUNCH}
    assert with_launches_paused(found) == found
    assert names.PAUSED
