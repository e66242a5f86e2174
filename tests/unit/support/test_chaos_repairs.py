"""What chaos judges repairs and reboots by can fail: each broken promise is found, and what was promised is not taken for one."""

import json
from typing import Any

from msgspec.structs import replace

from provisioner.apis import names
from provisioner.apis.meta import Condition
from tests.chaos.repairs import BLIND_SECONDS, Repairs, calls_without_an_intent, left_behind
from tests.support import cluster

ILL = [{"type": "KWOKUnhealthy", "status": "True"}]
LATER = 2 * BLIND_SECONDS


def node(name: str, *, boot: str = "one", ill: bool = False) -> dict[str, Any]:
    labels = {names.NODEPOOL_LABEL: "general"}
    status = {"nodeInfo": {"bootID": boot}, "conditions": ILL if ill else []}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "status": status}


def claim(name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-{name}", "labels": {names.NODEPOOL_LABEL: "general"}}
    told = {"conditions": [{"type": "Initialized", "status": "True"}]}
    return {"metadata": {**meta, "annotations": annotations or {}}, "status": told}


def repaired(name: str) -> dict[str, Any]:
    return claim(name, {names.COMMAND_ANNOTATION: json.dumps({"id": f"c-{name}", "reason": "Unhealthy"})})


def rebooted(name: str, attempt: int = 1) -> dict[str, Any]:
    intent = {"boot_id": "one", "attempt": attempt, "at": "2026-11-22T12:00:00Z"}
    episode = {"requested": "2026-11-22T12:00:00Z", "intent": intent}
    return claim(name, {names.REBOOT_ANNOTATION: json.dumps({"v": 1, "episode": episode})})


def fleet(count: int, ill: int = 0) -> Repairs:
    made = Repairs()
    for number in range(count):
        made.take_node("ADDED", node(f"n{number}", ill=number < ill), 0.0)
        made.take_claim("ADDED", claim(f"n{number}"), 0.0)
    return made


def test_a_repair_of_one_of_ten_is_as_promised() -> None:
    seen = fleet(10, ill=1)
    seen.take_claim("MODIFIED", repaired("n0"), 1.0)
    assert (seen.wrong, len(seen.begun)) == ([], 1)


def test_more_than_the_budget_allows_is_found() -> None:
    seen = fleet(4)
    for number in range(3):
        seen.take_claim("MODIFIED", repaired(f"n{number}"), 1.0)
    assert ["beyond the budget" in one for one in seen.wrong] == [True]
    seen.take_claim("MODIFIED", repaired("n2"), 2.0)
    assert len(seen.wrong) == 1, "it has begun once"


def test_who_is_well_again_or_gone_counts_no_more() -> None:
    seen = fleet(4)
    seen.take_claim("MODIFIED", repaired("n0"), 1.0)
    seen.take_claim("MODIFIED", repaired("n1"), 1.0)
    seen.take_claim("MODIFIED", claim("n0"), 2.0)
    seen.take_claim("DELETED", repaired("n1"), 2.0)
    seen.take_claim("MODIFIED", rebooted("n2"), 3.0)
    assert seen.wrong == []


def test_a_repair_among_too_many_broken_nodes_is_found_once_nobody_may_have_missed_them() -> None:
    seen = fleet(10)
    for number in range(3):
        seen.take_node("MODIFIED", node(f"n{number}", ill=True), 1.0)
    seen.take_claim("MODIFIED", repaired("n0"), 1.0 + BLIND_SECONDS / 2)
    assert seen.wrong == []
    seen.take_claim("MODIFIED", repaired("n1"), LATER)
    assert ["too many nodes" in one for one in seen.wrong] == [True]


def test_each_call_has_its_intent() -> None:
    seen = fleet(3)
    for one in (rebooted("n0"), rebooted("n0"), rebooted("n0", attempt=2), rebooted("n1")):
        seen.take_claim("MODIFIED", one, 1.0)
    assert seen.intents == 3
    assert calls_without_an_intent(seen, 3) == []
    assert calls_without_an_intent(seen, 4) == ["4 reboots of 3 intents"]


def test_on_kwok_boots_are_counted() -> None:
    seen = fleet(2)
    seen.take_claim("MODIFIED", rebooted("n0"), 1.0)
    seen.take_node("MODIFIED", node("n0", boot="two"), 2.0)
    assert calls_without_an_intent(seen, None) == []
    seen.take_node("MODIFIED", node("n0", boot="three"), 3.0)
    assert calls_without_an_intent(seen, None) == ["2 reboots of 1 intents"]


def test_marks_that_stay_are_found() -> None:
    tainted = cluster.node("n0", taints=({"key": "karpenter.sh/rebooting", "effect": "NoSchedule"},))
    plain = cluster.claim("n0")
    assert left_behind([cluster.node("n1")], [plain]) == []
    assert left_behind([tainted], []) == ["Node n0 is tainted"]
    told = Condition(type=names.REBOOTING, status="True", reason=names.REBOOT_ISSUED)
    marked = replace(plain, status=replace(plain.status, conditions=(told,)))
    assert left_behind([], [marked]) == ["NodeClaim n0 is Rebooting, RebootIssued"]
