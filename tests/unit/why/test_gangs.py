"""What the answers about pods and nodes say of gangs."""

from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.launch_sets import LaunchSet, encode_sets
from provisioner.cli.why.text import node_text, pod_text
from provisioner.cli.why.world import Local
from provisioner.lifecycle.gang_decisions import HOLD_SECONDS
from provisioner.why.answers import WhyReason
from provisioner.why.instant import Memory
from provisioner.why.nodes import why_node
from provisioner.why.pods import why_pod
from tests.support.clock import NOON
from tests.support.cluster import claim, node, pod, pool
from tests.support.dumps import dumped, existing_node, plain, wire_pod
from tests.unit.why.test_server import remembering

KEY = "default/gang/train/web/2"
SETS = {names.LAUNCH_SET: encode_sets([LaunchSet(id="a", group=KEY, nodes=2)])}
NOTES = {names.GANG: "train", names.GANG_MINIMUM: "2"}
UNREGISTERED = {"type": "Registered", "status": "Unknown", "reason": "NodeNotFound", "message": "Node not registered"}


def member(name: str, **changes: Any) -> dict[str, Any]:
    return wire_pod(name, metadata__annotations=NOTES, **changes)


def coming(name: str, of: str, *, launched: bool) -> dict[str, Any]:
    """A NodeClaim of the gang, planned for one pod; launched at noon."""
    made = claim(
        name,
        pods=(pod(of, owner="web"),),
        true=(names.LAUNCHED,) if launched else (),
        provider_id=f"kwok://{name}" if launched else "",
    )
    body = plain(made)
    body["metadata"]["annotations"] |= SETS
    body["status"]["conditions"] = [*body["status"].get("conditions", ()), UNREGISTERED]
    return body


def launching(seconds: float = 60.0, *, ready: bool = False) -> Local:
    """One of two nodes is launched, and ready if so said."""
    first = plain(node("x", provider_id="kwok://x"))
    return dumped(
        *([first] if ready else []),
        coming("x", "a", launched=True),
        coming("y", "b", launched=False),
        member("a"),
        member("b"),
        at=NOON + timedelta(seconds=seconds),
    )


@pytest.mark.parametrize(
    ("pods", "line"),
    [
        (["a"], "gang default/train: 1 pod, 2 needed, 0 have places"),
        (["a", "b", "c"], "gang default/train: 3 pods, 2 needed, 0 have places"),
    ],
)
def test_the_first_line_about_a_pod_is_its_gang(pods: list[str], line: str) -> None:
    found = why_pod(dumped(*map(member, pods)), "default", "a")
    assert (found.gang, pod_text(found).splitlines()[0]) == (line, line)


def test_nothing_is_said_of_the_gang_of_a_pod_that_is_bound_or_of_none() -> None:
    instant = dumped(*existing_node("n"), member("a", on="n"), wire_pod("alone"))
    assert [why_pod(instant, "default", name).gang for name in ("a", "alone")] == ["", ""]


def test_how_many_nodes_of_a_gang_are_launched_and_until_when_they_wait() -> None:
    found = why_pod(launching(), "default", "a")
    assert (found.state, found.gang) == ("Planned", "gang default/train: 2 pods, 2 needed, 2 have places")
    text = "1 of 2 new nodes for gang default/train is launched; its pods can run there when all of them are ready"
    until = NOON + timedelta(seconds=HOLD_SECONDS)
    assert found.reasons == (WhyReason(type="GangLaunching", message=text, until=until),)
    assert f"{text} (until 2026-" in pod_text(found)


def took(name: str, seconds: float) -> list[dict[str, Any]]:
    """A node that was launched long ago, and took so long."""
    one, made = existing_node(name)
    began = NOON - timedelta(hours=2)
    times = {names.LAUNCHED: began, names.INITIALIZED: began + timedelta(seconds=seconds)}
    for body in (one, made):
        body["status"]["conditions"] = [
            {**each, "lastTransitionTime": times[each["type"]].isoformat()} if each["type"] in times else each
            for each in body["status"].get("conditions", ())
        ]
    return [one, made]


def test_when_the_nodes_of_a_gang_are_usually_ready() -> None:
    others = [body for name, seconds in (("o", 90.0), ("p", 80.0), ("q", 500.0)) for body in took(name, seconds)]
    both = [coming(name, of, launched=True) for name, of in (("x", "a"), ("y", "b"))]
    instant = dumped(*others, *both, member("a"), member("b"), at=NOON + timedelta(seconds=60))
    (reason,) = why_pod(instant, "default", "a").reasons
    assert reason.message.endswith(
        "Nodes of NodePool general usually take 90 s from launch until they are ready: about 30 s are left"
    )
    one_is_not = dumped(
        *others, both[0], coming("y", "b", launched=False), member("a"), member("b"), at=instant.snapshot.at
    )
    assert "usually" not in why_pod(one_is_not, "default", "a").reasons[0].message


def test_what_cannot_be_launched_for_a_gang_is_said_by_name() -> None:
    short = coming("y", "b", launched=False)
    said = {
        "type": names.LAUNCHED,
        "status": "Unknown",
        "reason": names.INSUFFICIENT_CAPACITY,
        "message": "p5 is sold out",
    }
    short["status"]["conditions"].append(said)
    instant = dumped(coming("x", "a", launched=True), short, member("a"), member("b"), at=NOON + timedelta(seconds=60))
    found = why_pod(instant, "default", "a").reasons
    assert [(one.type, one.message) for one in found[1:]] == [
        ("InsufficientCapacity", "no capacity for NodeClaim y of NodePool general: p5 is sold out")
    ]


def test_no_time_is_told_that_is_over() -> None:
    (reason,) = why_pod(launching(HOLD_SECONDS + 1), "default", "a").reasons
    assert reason.until is None


def test_a_node_says_for_how_many_others_it_waits() -> None:
    found = why_node(launching(ready=True), "x")
    assert found.state == "NotInitialized"
    assert [one.message for one in found.reasons if one.type == "WaitsForGang"] == [
        "it waits for 1 other node of gang default/train"
    ]
    assert "it waits for 1 other node of gang default/train (until 2026-" in node_text(found)
    other = why_node(launching(ready=True), "y")
    assert not [one for one in other.reasons if one.type == "WaitsForGang"]


@pytest.mark.parametrize(
    ("failed", "states"), [("train", ["Unschedulable", "FitsNewNode"]), ("walk", ["FitsNewNode", "Unschedulable"])]
)
def test_a_gang_that_had_no_places_comes_after_others_as_in_the_next_batch(failed: str, states: list[str]) -> None:
    walk = {names.GANG: "walk", names.GANG_MINIMUM: "2"}
    pods = [
        wire_pod(name, "200", metadata__annotations=notes)
        for name, notes in zip("abcd", (NOTES, NOTES, walk, walk), strict=True)
    ]
    instant = dumped(pool(limits={"cpu": "600"}), *pods)
    memory = Memory(leads=True, failed_groups=(f"default/gang/{failed}/web/2",))
    with_memory = remembering(instant, memory=memory)
    assert [why_pod(with_memory, "default", name).state for name in "ac"] == states


def test_a_node_says_with_how_many_others_it_goes() -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 3}},
            "disruptionMode": {"all": {}},
            "priority": 0,
        },
    }
    grouped: dict[str, Any] = {"spec__schedulingGroup": {"podGroupName": "train"}}
    instant = dumped(
        group, *(each for name in "xyz" for each in (*existing_node(name), wire_pod(f"on-{name}", on=name, **grouped)))
    )
    found = why_node(instant, "x")
    assert [one.message for one in found.reasons if one.type == "MovesTogether"] == [
        "pods of PodGroup default/train (disruptionMode all) run on it, so it can only be disrupted together with 2 other nodes"
    ]
