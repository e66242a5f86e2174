"""What a page shows of a cluster, and of it to whom."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.command import CandidateRecord, CommandRecord, Replacement, encode_command
from provisioner.apis.interruption import Interruption
from provisioner.apis.pods import Pod
from provisioner.cli.why.world import Local
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import NodeView
from provisioner.ui.fleet import Answers, PageMaker, asked_about, page_of
from provisioner.ui.page import MOST_BYTES, Page, PageNode, encoded
from provisioner.ui.sight import ALL, Sight, blind
from provisioner.why.pods import why_pods
from tests.support.clock import NOON
from tests.support.cluster import claim, plan_text
from tests.support.cluster import node as wire_node
from tests.support.cluster import pod as short_pod
from tests.support.dumps import dumped, existing_node, plain, wire_pod

TENANT = Sight(nodes=True, claims=False, pools=False, namespaces=frozenset({"default"}))
GOING = (NOON + timedelta(minutes=30)).isoformat()


def answers(instant: Local) -> Answers:
    asked = asked_about(instant.snapshot.pending, 50)
    return dict(zip(asked, map(blind, why_pods(instant, list(asked.values()))), strict=True))


def page(*things: Any, sight: Sight = ALL) -> Page:
    instant = dumped(*things)
    return PageMaker(sight).page_of(instant, answers(instant))


def the_node(found: Page, name: str = "n") -> PageNode:
    return next(one for one in found.nodes if name in (one.name, one.claim))


def spy(name: str, **changes: Any) -> dict[str, Any]:
    return wire_pod(name, metadata__namespace="theirs", **changes)


def daemon(name: str, on: str) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "agent", "controller": True}
    return wire_pod(name, "100m", on=on, metadata__ownerReferences=[owner])


def test_a_node_is_shown_with_what_it_has_and_what_runs_there() -> None:
    found = page(*existing_node("n"), wire_pod("web-1", on="n"), wire_pod("web-2", on="n"), daemon("agent-1", "n"))
    node = the_node(found)
    assert (node.pool, node.type, node.zone, node.capacity_type) == (
        "general",
        "c-4x-amd64-linux",
        "test-zone-a",
        "on-demand",
    )
    assert (node.state, node.claim, node.cpu, node.system[0]) == ("ready", "n-claim", 4000, 100)
    assert node.pods == ((0, 2, "1", "2"),)
    assert (found.classes[0].name, found.classes[0].prefix, found.classes[0].cpu) == ("web", "web-", 1000)
    assert (node.daemons.pods, node.daemons.cpu) == (1, 100)
    assert found.sums is not None
    assert (found.sums.nodes, found.sums.pods, found.sums.used_cpu, found.sums.unpriced) == (1, 3, 2100, 0)
    assert found.sums.usd == pytest.approx(node.usd, abs=1e-4)
    assert found.pools[0].usd == found.sums.usd


def disrupted(**changes: Any) -> list[dict[str, Any]]:
    record = CommandRecord(
        id="c1",
        reason="Underutilized",
        method="single",
        candidates=(CandidateRecord("n-claim", "uid-n-claim"),),
        replacements=(Replacement("r"),),
    )
    return existing_node("n", annotations={names.COMMAND_ANNOTATION: encode_command(record), **changes})


def unready(body: dict[str, Any]) -> dict[str, Any]:
    body["status"]["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": NOON.isoformat()}]
    return body


STATES: dict[str, tuple[list[Any], str, str]] = {
    "ready": (existing_node("n"), "ready", ""),
    "not ready": ([existing_node("n")[0], unready(existing_node("n")[1])], "not-ready", "its Node is not Ready"),
    "draining": (existing_node("n", deletionTimestamp=GOING), "draining", ""),
    "not ours": ([plain(wire_node("n"))], "unmanaged", ""),
    "on its way": ([plain(claim("n", true=(names.LAUNCHED,)))], "launching", ""),
    "disrupted": (disrupted(), "disrupted", "Underutilized"),
}


@pytest.mark.parametrize(("things", "state", "text"), STATES.values(), ids=STATES)
def test_the_state_of_a_node(things: list[Any], state: str, text: str) -> None:
    node = the_node(page(*things))
    assert (node.state, node.text) == (state, text)


def test_what_replaces_a_node_is_named_and_its_command_shown() -> None:
    found = page(*disrupted())
    assert the_node(found).by == ("r",)
    (command,) = found.commands
    assert (command.reason, command.nodes, command.by) == ("Underutilized", ("n",), ("r",))
    (command,) = page(*disrupted(), sight=TENANT).commands
    assert (command.nodes, command.by) == (("n",), ())


def test_interrupted_nodes_are_counted_by_zone_and_type() -> None:
    mark = {names.INTERRUPTION_ANNOTATION: str(Interruption("spot_interrupted"))}
    found = page(*existing_node("n", annotations=mark), *existing_node("m", annotations=mark), *existing_node("o"))
    (row,) = found.interruptions
    assert (row.zone, row.type, row.reason, row.nodes) == ("test-zone-a", "c-4x-amd64-linux", "spot_interrupted", 2)


def test_planned_pods_are_apart_from_those_that_run() -> None:
    pod = wire_pod("web-2")
    planned = plain(claim("c", true=(names.LAUNCHED,), annotations={names.PLAN_ANNOTATION: "x"}))
    made = short_pod("web-2", owner="web")
    decoded = dumped(pod).pod("default", "web-2")
    assert decoded is not None
    planned["metadata"]["annotations"][names.PLAN_ANNOTATION] = plan_text(
        (msgspec.structs.replace(made, shape=decoded.shape),)
    )
    found = page(planned, pod)
    node = the_node(found, "c")
    assert (node.pods, node.planned) == ((), ((0, 1, "2"),))
    assert found.waiting == ()
    assert found.sums is not None
    assert (found.sums.planned, found.sums.planned_cpu) == (1, 1000)


def test_pods_that_wait_are_told_why_once_for_each_class() -> None:
    found = page(wire_pod("big-1", "400"), wire_pod("big-2", "400"), wire_pod("small"))
    first, second = found.waiting
    assert (first.pods, first.names, first.state) == (2, ("big-1", "big-2"), "Unschedulable")
    assert "No node can take pod default/big-1" in first.text
    assert (second.pods, second.state) == (1, "FitsNewNode")


def test_pods_that_were_not_asked_about_are_shown_all_the_same() -> None:
    instant = dumped(wire_pod("big", "400"))
    (row,) = page_of(instant, {}).waiting
    assert (row.state, row.text) == ("", "Not looked at for this page; ask with: dovetail why pod default/big")


# --- what a tenant sees ----------------------------------------------------------------------------------------------


def crowded() -> list[Any]:
    """Everything that is hidden has a planted word in its name."""
    labels = {"app": "planted"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "planted-rs", "uid": "p", "controller": True}
    more = {"metadata__ownerReferences": [owner], "metadata__labels": labels}
    return [
        *disrupted(),
        *existing_node("m"),
        wire_pod("web-1", on="n"),
        spy("planted-1", on="n", **more),
        spy("planted-2", on="m", **more),
        spy("planted-3", cpu="400", **more),
        wire_pod("mine", "400"),
    ]


def test_pods_of_other_namespaces_are_counted_and_nothing_of_them_is_named() -> None:
    found = page(*crowded(), sight=TENANT)
    text = encoded(found, MOST_BYTES).decode()
    assert "planted" not in text
    assert "theirs" not in text
    assert "n-claim" not in text
    assert (the_node(found).pods, the_node(found).hidden.pods, the_node(found).hidden.cpu) == (
        ((0, 1, "1"),),
        1,
        1000,
    )
    assert found.hidden_waiting == 1
    assert [one.names for one in found.waiting] == [("mine",)]
    assert found.pools == ()
    assert "planted" in encoded(page(*crowded()), MOST_BYTES).decode()


def test_who_may_not_list_nodes_sees_no_node_and_no_sum() -> None:
    found = page(*crowded(), sight=Sight(False, False, False, frozenset({"default"})))
    assert (found.nodes, found.sums, found.commands, found.pools, found.interruptions) == ((), None, (), (), ())
    assert [one.names for one in found.waiting] == [("mine",)]
    text = encoded(found, MOST_BYTES).decode()
    assert "planted" not in text
    assert "theirs" not in text
    assert len(found.missing) == 4


@pytest.mark.parametrize("namespaces", [None, frozenset[str](), frozenset({"default"}), frozenset({"theirs"})])
@pytest.mark.parametrize("may", range(8))
def test_every_sight_is_kept(namespaces: frozenset[str] | None, may: int) -> None:
    sight = Sight(bool(may & 1), bool(may & 2), bool(may & 4), namespaces)
    found = page(*crowded(), sight=sight)
    text = encoded(found, MOST_BYTES).decode()
    assert sight.sees("theirs") or "planted" not in text
    assert sight.sees("default") or ("web-1" not in text and "mine" not in text)
    assert sight.claims or "n-claim" not in text
    assert sight.nodes or not found.nodes
    assert (found.sums is not None) is sight.nodes
    seen = sum(row[1] for one in found.nodes for row in one.pods if isinstance(row[1], int))
    counted = sum(one.hidden.pods for one in found.nodes)
    assert not sight.nodes or seen + counted == 3


# --- how much of it --------------------------------------------------------------------------------------------------


def grown(view: NodeView, number: int) -> NodeView:
    name = f"ip-10-{number >> 8}-{number & 255}-17.eu-central-1.compute.internal"
    pods = tuple(
        msgspec.structs.replace(
            pod, name=f"{pod.owner.name if pod.owner else ''}-{number:04x}{at}", uid=f"{number}/{at}"
        )
        for at, pod in enumerate(view.pods)
    )
    return replace(view, key=NodeKey(f"general-{number:05}"), name=name, pods=pods)


def large(nodes: int) -> Local:
    """Nodes with ten pods each, of 1,500 workloads."""
    things = []
    for one in range(150):
        things += existing_node(f"n{one}")
        for at in range(10):
            number = one * 10 + at
            name = f"service-{number}-7d9f8b{number:04x}"
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
            things.append(
                wire_pod(
                    f"{name}-{at}",
                    "300m",
                    on=f"n{one}",
                    metadata__uid=f"{number}",
                    metadata__ownerReferences=[owner],
                    metadata__namespace=f"team-{number % 60}",
                )
            )
    small = dumped(*things)
    views = small.snapshot.nodes
    return replace(
        small,
        snapshot=replace(
            small.snapshot, nodes=tuple(grown(views[number % len(views)], number) for number in range(nodes))
        ),
    )


def test_a_page_of_5000_nodes_and_50000_pods_is_whole_and_below_its_bound() -> None:
    found = page_of(large(5000), {})
    data = encoded(found, MOST_BYTES)
    assert (len(found.nodes), sum(len(one.pods) for one in found.nodes)) == (5000, 50_000)
    assert 1_000_000 < len(data) < MOST_BYTES
    assert found.missing == ()
    assert msgspec.json.decode(data, type=Page) == found


def resolved(page: Page) -> dict[str, Any]:
    """The same with classes instead of their numbers, whatever their order is, and without those that nothing has."""
    body: dict[str, Any] = json.loads(msgspec.json.encode(page))
    classes = body.pop("classes", [])
    for node in body.get("nodes", []):
        for rows in ("pods", "planned"):
            node[rows] = sorted(([classes[row[0]]["name"], *row[1:]] for row in node.get(rows, [])), key=str)
    return body


def test_nodes_that_did_not_change_are_not_made_again_and_the_page_is_the_same() -> None:
    instant = large(300)
    maker = PageMaker()
    before = maker.page_of(instant, {})
    assert before == page_of(instant, {})
    views = list(instant.snapshot.nodes)
    views[7] = grown(views[151], 7)  # other pods, of classes that are there
    views[8] = replace(views[8], pods=views[8].pods[:3], deleting=True)
    stranger = msgspec.structs.replace(views[9].pods[0], name="stranger", uid="stranger", owner=None)
    views[9] = replace(views[9], pods=(*views[9].pods, stranger))  # and of one that is new
    del views[10]
    after = replace(instant, snapshot=replace(instant.snapshot, nodes=tuple(views)))
    page = maker.page_of(after, {})
    assert resolved(page) == resolved(page_of(after, {}))
    known = {id(one) for one in before.nodes}
    assert sum(id(one) not in known for one in page.nodes) == 3
    assert "stranger" in str(the_node(page, views[9].name).pods)


def test_a_node_whose_command_or_object_changes_is_made_again() -> None:
    instant = dumped(*disrupted(), *existing_node("m"))
    maker = PageMaker()
    first = maker.page_of(instant, {})
    assert maker.page_of(instant, {}).nodes[0] is first.nodes[0]
    other = dumped(*disrupted(), *existing_node("m"))
    called_off = replace(instant, snapshot=replace(instant.snapshot, commands=()))
    assert the_node(maker.page_of(called_off, {})).text == ""
    first = maker.page_of(instant, {})
    assert maker.page_of(replace(instant, objects=other.objects), {}).nodes[0] is not first.nodes[0]
    again = maker.page_of(other, {})
    assert all(one is not two for one, two in zip(again.nodes, first.nodes, strict=True))


HOSTILE = {
    "script": "</script><script>alert(1)</script>",
    "right to left": "\u202egnp.exe",
    "long": "x" * 10_000,
    "control": "\x1b[2J\x00",
}


@pytest.mark.parametrize("word", HOSTILE.values(), ids=HOSTILE)
def test_hostile_words_stay_words_and_short(word: str) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": word, "uid": "u", "controller": True}
    found = page(*existing_node("n"), wire_pod("a", on="n", metadata__ownerReferences=[owner]))
    data = encoded(found, MOST_BYTES)
    assert len(data) < 5000
    assert json.loads(data)["classes"][0]["name"] == word[:317]


def test_the_oldest_pod_of_each_class_is_asked_about() -> None:
    def waits(name: str, minutes: int, owner: str) -> Pod:
        return short_pod(name, owner=owner, created=NOON + timedelta(minutes=minutes))

    pods = [waits("b", 2, "x"), waits("a", 1, "x"), waits("c", 0, "y"), waits("d", 3, "z")]
    assert [one.name for one in asked_about(pods, 2).values()] == ["c", "a"]
