"""What is asked of the leader, by whom, and how much of it: a tenant who tries everything learns and takes nothing more."""

import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.gangs import group_of
from provisioner.cli.why.world import Local
from provisioner.disruption.candidates import BACKING_OFF, CALLED_OFF, REPLACES
from provisioner.kube.client import Client
from provisioner.kube.lease import LostLease
from provisioner.nodeclaims.growth_ledger import GrowthLedger
from provisioner.nodeclaims.growth_limits import GrowthLimits
from provisioner.scheduling.attempts import finishing
from provisioner.state.groups import GroupRest
from provisioner.state.misses import Stop
from provisioner.support.http.values import HttpRequest, Response
from provisioner.support.metrics import chunks
from provisioner.why.access import Access, AccessError, Right, User
from provisioner.why.answers import time_text
from provisioner.why.instant import Instant, Memory
from provisioner.why.nodes import why_node
from provisioner.why.pods import why_pod
from provisioner.why.server import MOST_NAMESPACES, QUESTIONS, USER_TIME, WhyRequest, WhyServer, asked
from tests.support.clock import FakeClock
from tests.support.cluster import World
from tests.support.dumps import dumped, existing_node, wire_pod
from tests.support.kube import FakeApi

PATHS = {
    "a pod": ("/why/pod/default/web-1", WhyRequest("web-1", "default")),
    "a pod with dots": ("/why/pod/default/web.1", WhyRequest("web.1", "default")),
    "a node": ("/why/node/ip-10-0-0-1.ec2.internal", WhyRequest("ip-10-0-0-1.ec2.internal")),
    "the longest name": (
        f"/why/node/{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}",
        WhyRequest(f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}"),
    ),
    "a longer one": (f"/why/node/{'a.' * 127}a", None),
    "a huge one": (f"/why/node/{'a' * 8000}", None),
    "a namespace that is too long": (f"/why/pod/{'a' * 64}/web", None),
    "a namespace with a dot": ("/why/pod/a.b/web", None),
    "no namespace": ("/why/pod/web", None),
    "an empty namespace": ("/why/pod//web", None),
    "too many parts": ("/why/pod/a/b/c", None),
    "a way up": ("/why/pod/default/../../node/n", None),
    "two dots as a name": ("/why/node/..", None),
    "two dots in a name": ("/why/node/a..b", None),
    "an encoded slash": ("/why/pod/mine%2f..%2ftheirs/web", None),
    "an encoded letter": ("/why/pod/default/we%62", None),
    "an encoded zero": ("/why/node/a%00", None),
    "a line": ("/why/node/a\n", None),
    "a query": ("/why/node/a?x=1", None),
    "capital letters": ("/why/node/A", None),
    "another alphabet": ("/why/node/\u0430", None),
    "a fragment": ("/why/node/a#b", None),
    "an absolute target": ("http://other/why/node/a", None),
    "nothing": ("/", None),
}


@pytest.mark.parametrize(("target", "found"), PATHS.values(), ids=PATHS)
def test_what_a_path_asks_about(target: str, found: WhyRequest | None) -> None:
    assert asked(target) == found


Rule = Callable[[str, Right], bool]


class Rights(Access):
    """Tokens are names of users; `rule` says who may what."""

    def __init__(self, rule: Rule, clock: FakeClock) -> None:
        super().__init__(Client(FakeApi(), clock), clock)
        self.rule = rule
        self.asked: list[Right] = []

    def user(self, authorization: str | None) -> User:
        if not authorization or not authorization.startswith("Bearer "):
            raise AccessError(401, "a bearer token of the cluster is needed")  # type: ignore[arg-type]
        return User(authorization.removeprefix("Bearer "))

    def may(self, user: User, right: Right) -> bool:
        self.asked.append(right)
        return self.rule(user.name, right)


def tenant(name: str, right: Right) -> bool:
    """`admin` may everything; others get and list pods of namespace `default`, and get node n."""
    if name == "admin":
        return True
    return (right.resource == "pods" and right.namespace == "default") or right == Right("get", "nodes", name="n")


class Served:
    """A server over a dump."""

    def __init__(self, *things: Any, rule: Rule = tenant, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.rights = Rights(rule, self.clock)
        self.instant: Local | None = dumped(*things)
        self.server = WhyServer(0, self.present, lambda: "pod-b_uuid", self.rights, self.clock)

    def present(self) -> Instant | None:
        return self.instant

    def ask(self, target: str, user: str = "jane", method: str = "GET", **more: Any) -> Response:
        headers = [(b"authorization", f"Bearer {user}".encode())] if user else []
        return self.server.handle(HttpRequest(method, target, headers, **more))

    def json(self, target: str, user: str = "jane") -> dict[str, Any]:
        answer = self.ask(target, user)
        assert answer.status == 200, answer.body
        found: dict[str, Any] = json.loads(answer.body)
        return found


def spy(**changes: Any) -> dict[str, Any]:
    return wire_pod("spy", on="n", metadata__namespace="theirs", **changes)


@pytest.fixture
def served() -> Iterator[Served]:
    one = Served(*existing_node("n"), *existing_node("other"), wire_pod("web", on="n"), wire_pod("big", "400"), spy())
    yield one
    one.server.stop()


def test_an_answer_is_the_one_that_a_dump_gives(served: Served) -> None:
    found = served.json("/why/pod/default/big")
    assert (found["state"], found["pod"]) == ("Unschedulable", "default/big")
    assert served.json("/why/node/n", "admin")["pods"] == ["default/web", "theirs/spy"]


REFUSED: dict[str, tuple[str, str, int]] = {
    "another namespace's pod": ("/why/pod/theirs/spy", "jane", 403),
    "one that is not there": ("/why/pod/theirs/none", "jane", 403),
    "another node": ("/why/node/other", "jane", 403),
    "a node that is not there": ("/why/node/none", "jane", 403),
    "the NodeClaim of a node that may be read": ("/why/node/n-claim", "jane", 403),
    "a pod of one's own that is not there": ("/why/pod/default/none", "jane", 404),
    "nobody": ("/why/pod/default/web", "", 401),
    "another path": ("/metrics", "jane", 404),
}


@pytest.mark.parametrize(("target", "user", "status"), REFUSED.values(), ids=REFUSED)
def test_who_is_refused_learns_nothing(served: Served, target: str, user: str, status: int) -> None:
    answer = served.ask(target, user)
    assert answer.status == status
    assert (b"spy" in answer.body) == ("spy" in target)
    if status == 401:
        assert ("www-authenticate", "Bearer") in answer.headers


def test_whether_something_exists_is_not_told_to_who_may_not_get_it(served: Served) -> None:
    texts = {
        json.loads(served.ask(f"/why/pod/theirs/{name}").body)["error"].replace(name, "") for name in ("spy", "none")
    }
    assert len(texts) == 1


def test_the_right_to_a_node_is_none_to_a_node_claim_of_its_name(served: Served) -> None:
    served.rights.rule = lambda _, right: right.resource == "nodes"
    assert served.ask("/why/node/n-claim").status == 404
    assert served.ask("/why/node/n").status == 200
    served.rights.rule = lambda _, right: right.resource == "nodeclaims"
    assert served.ask("/why/node/n-claim").status == 200
    assert served.ask("/why/node/n").status == 404


def test_pods_of_namespaces_that_may_not_be_listed_are_counted(served: Served) -> None:
    found = served.json("/why/node/n")
    assert (found["pods"], found["podsElsewhere"]) == (["default/web"], 1)
    assert "spy" not in json.dumps(found)
    assert Right("list", "pods", namespace="theirs") in served.rights.asked


def test_a_node_of_many_namespaces_costs_a_bounded_number_of_reviews() -> None:
    pods = [wire_pod("web", "1m", on="n", metadata__namespace=f"space-{number}") for number in range(100)]
    one = Served(*existing_node("n"), *pods, rule=lambda _, right: bool(right.namespace or right.name))
    found = one.json("/why/node/n")
    assert len(one.rights.asked) <= 3 + MOST_NAMESPACES
    assert (len(found["pods"]), found["podsElsewhere"]) == (MOST_NAMESPACES, 100 - MOST_NAMESPACES)
    one.server.stop()


def test_a_replica_that_does_not_lead_names_the_one_that_does(served: Served) -> None:
    served.instant = None
    answer = served.ask("/why/pod/default/big", "")
    assert (answer.status, json.loads(answer.body)["leader"]) == (503, "pod-b_uuid")


def test_a_term_that_ends_meanwhile_is_another_leader_s(served: Served) -> None:
    def lost(_name: str, _right: Right) -> bool:
        raise LostLease("over")

    served.rights.rule = lost
    assert served.ask("/why/pod/default/big").status == 503


@pytest.mark.parametrize("method", ["POST", "HEAD", "DELETE", "OPTIONS"])
def test_only_get_is_answered(served: Served, method: str) -> None:
    assert served.ask("/why/pod/default/big", method=method).status == 405


def test_two_tokens_are_none(served: Served) -> None:
    headers = [(b"authorization", b"Bearer jane"), (b"authorization", b"Bearer admin")]
    assert served.server.handle(HttpRequest("GET", "/why/pod/theirs/spy", headers)).status == 401


def test_who_asks_too_often_is_told_when_to_come_again_and_others_are_answered(served: Served) -> None:
    answers = [served.ask("/why/pod/theirs/spy") for _ in range(30)]
    assert [one.status for one in answers].count(403) == QUESTIONS[1]
    last = answers[-1]
    assert last.status == 429
    assert int(dict(last.headers)["retry-after"]) >= 1
    assert served.ask("/why/pod/default/big", "joe").status == 200
    served.clock.advance(60)
    assert served.ask("/why/pod/default/big").status == 200


def test_who_has_used_up_their_share_of_the_leader_s_time_waits(served: Served) -> None:
    served.server._user_time.charge("jane", USER_TIME[1] + 5)
    answer = served.ask("/why/pod/default/big")
    assert (answer.status, dict(answer.headers)["retry-after"]) == (429, "101")
    assert served.ask("/why/pod/default/big", "joe").status == 200


def test_what_goes_wrong_inside_is_not_told(served: Served) -> None:
    class Broken:
        snapshot = property(lambda _: 1 / 0)
        pod = node = property(lambda _: 1 / 0)

    served.instant = Broken()  # type: ignore[assignment]
    answer = served.ask("/why/pod/default/big")
    assert answer.status == 500
    assert json.loads(answer.body) == {"error": "the answer could not be computed; see the provisioner's log"}


def test_one_question_is_answered_at_a_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.why.server.TURN_SECONDS", 0.01)
    begun, go_on = threading.Event(), threading.Event()
    whole = served.instant
    assert whole is not None

    class Slow:
        def __getattr__(self, name: str) -> Any:
            begun.set()
            assert go_on.wait(10)
            return getattr(whole, name)

    served.instant = Slow()  # type: ignore[assignment]
    first = threading.Thread(target=served.ask, args=("/why/pod/default/big",))
    first.start()
    assert begun.wait(10)
    answer = served.ask("/why/pod/default/big", "joe")
    assert (answer.status, dict(answer.headers)["retry-after"]) == (503, "2")
    go_on.set()
    first.join(10)
    served.instant = whole
    assert served.ask("/why/pod/default/big", "joe").status == 200


def test_the_socket_is_on_loopback_and_takes_no_bodies(served: Served) -> None:
    server = served.server
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.port), 10)
    server.start()

    def status(method: str, path: str, body: bytes | None = None, **headers: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        try:
            connection.request(method, path, body, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    assert status("GET", "/why/pod/default/big", Authorization="Bearer jane") == 200
    assert status("GET", "/why/pod/default/big") == 401
    assert status("GET", "/why/pod/default/big", b"x", Authorization="Bearer jane") == 413
    assert status("GET", f"/why/node/{'a' * 20_000}", Authorization="Bearer jane") in (400, 404, 414, 431)


# ------------------------------------------------------------------ what only the leader knows


USD_LEFT = 0.06
"""Less than one node for five pods of 700 millicores costs."""


def remembering(instant: Local, **memory: Any) -> Any:
    """The dump, with a memory."""

    class With:
        def __getattr__(self, name: str) -> Any:
            return memory[name] if name in memory else getattr(instant, name)

    return With()


def told(instant: Any, node: str = "n") -> list[str]:
    return [one.type for one in why_node(instant, node).reasons]


def test_what_the_leader_remembers_of_a_node_is_told() -> None:
    instant = dumped(*existing_node("n"), wire_pod("web", on="n"))
    assert told(instant) == []
    behind = Memory(leads=True, behind="nothing is disrupted while the watch of pods is behind")
    assert told(remembering(instant, memory=behind)) == ["Behind"]
    view = instant.view("n-claim")
    for spared, kind in ((CALLED_OFF, "CalledOff"), (BACKING_OFF, "BackingOff"), (REPLACES, "Replacement")):
        seen = replace(view, spared={"n-claim": spared})
        assert told(remembering(instant, view=lambda _, seen=seen: seen)) == [kind]


def test_a_node_that_keeps_room_for_a_buffer_says_so() -> None:
    instant = dumped(*existing_node("n"))
    view = replace(instant.view("n-claim"), buffered=lambda _: True)
    methods = {one.reason: one.message for one in why_node(remembering(instant, view=lambda _: view), "n").methods}
    assert methods["Empty"] == 'Node "n" keeps room for a CapacityBuffer or a ProvisioningRequest'
    assert methods["Underutilized"] == "it is empty, so no pods have to move"


def test_pods_for_which_nothing_is_launched_for_a_while_say_so() -> None:
    instant = dumped(wire_pod("web"))
    pod = instant.pod("default", "web")
    assert pod is not None
    stopped = replace(instant.snapshot, stopped={pod.shape.key: Stop(3, 60.0, "0/1 nodes: theirs/spy")})
    found = why_pod(remembering(instant, snapshot=stopped), "default", "web")
    assert (found.state, found.reasons[0].type) == ("NotFollowed", "PlansNotFollowed")
    assert "3 times in a row" in found.summary
    assert "spy" not in found.summary


def test_pods_of_a_group_whose_nodes_were_given_up_say_so() -> None:
    notes = {names.GANG: "train", names.GANG_MINIMUM: "1"}
    instant = dumped(wire_pod("web", metadata__annotations=notes))
    pod = instant.pod("default", "web")
    assert pod is not None
    given_up = replace(instant.snapshot, resting={group_of(pod): GroupRest(60.0, 40.0)})
    found = why_pod(remembering(instant, snapshot=given_up), "default", "web")
    assert found.state == "GroupGivenUp"
    again = time_text(instant.snapshot.at + timedelta(seconds=40))
    assert found.summary.endswith(
        f"not all nodes for gang default/train could be launched; it is planned again at {again}."
    )


def test_a_pod_whose_node_may_not_be_launched_now_says_so() -> None:
    instant = remembering(
        dumped(wire_pod("web")),
        held_back=lambda prices: [f"${usd > 0} is too much" for usd in prices],
        memory=Memory(leads=True),
    )
    found = why_pod(instant, "default", "web")
    assert (found.state, found.reasons[0].type) == ("FitsNewNode", "GrowthLimited")
    assert "check whether the provisioner is running" not in found.summary


PORT = {
    "name": "c",
    "ports": [{"containerPort": 80, "hostPort": 80}],
    "resources": {"requests": {"cpu": "3500m", "memory": "1Gi"}},
}


def growing(usd: float = 0.0, claims: int = 0) -> dict[str, Any]:
    """What limits leave for new nodes: so much money, so many NodeClaims this minute; 0 limits nothing."""
    ledger = GrowthLedger(World().cluster, GrowthLimits(claims, usd), lambda _: {}, FakeClock())
    return {"held_back": ledger.problems, "usd_left": ledger.usd_left()}


@pytest.mark.parametrize("limits", [{"claims": 2}, {"usd": 0.2}], ids=["two NodeClaims", "money for two nodes"])
def test_of_pods_that_need_nodes_of_their_own_only_those_are_told_of_a_node_that_get_one(
    limits: dict[str, Any],
) -> None:
    pods = [wire_pod(f"web-{number}", spec__containers=[PORT]) for number in range(5)]
    instant = remembering(dumped(*pods), memory=Memory(leads=True), **growing(**limits))
    answers = [why_pod(instant, "default", one["metadata"]["name"]) for one in pods]
    assert {one.state for one in answers} == {"FitsNewNode"}
    assert [[each.type for each in one.reasons] for one in answers].count([]) == 2


def test_a_pod_is_told_of_the_node_that_money_is_left_for() -> None:
    """Five pods share a node that is too dear; provisioning then plans them once more."""
    pods = [wire_pod(f"web-{number}", "700m") for number in range(5)]
    instant = remembering(dumped(*pods), memory=Memory(leads=True), **growing(usd=USD_LEFT))
    answers = [why_pod(instant, "default", one["metadata"]["name"]) for one in pods]
    bought = [one.place.usd_per_hour or 0.0 for one in answers if one.place is not None and not one.reasons]
    assert 0 < max(bought, default=0.0) <= USD_LEFT
    assert {each.type for one in answers for each in one.reasons} == {"GrowthLimited"}, (
        "those that it is not enough for"
    )


def test_a_node_that_may_be_launched_is_not_said_to_be_held_back_for_what_it_is_expected_to_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Growth counts a NodeClaim by the price of its planned offering until it is launched."""
    monkeypatch.setattr(finishing, "expected_price", lambda some, _: 10 * some[0].price)
    asked_for: list[float] = []

    def held_back(prices: list[float]) -> list[str]:
        asked_for.extend(prices)
        return [""] * len(prices)

    instant = remembering(dumped(wire_pod("web")), held_back=held_back, memory=Memory(leads=True))
    found = why_pod(instant, "default", "web")
    assert found.place is not None
    assert [10 * usd for usd in asked_for] == [found.place.usd_per_hour]


def test_questions_are_counted_by_their_answer(served: Served) -> None:
    def counted() -> dict[str, float]:
        found = re.findall(
            r'^dovetail_why_requests_total\{status="(\d+)"\} (\S+)$', b"".join(chunks()).decode(), re.MULTILINE
        )
        return {status: float(count) for status, count in found}

    before = counted()
    for target, user in (("/why/pod/default/web", "jane"), ("/why/pod/theirs/spy", "jane"), ("/metrics", "jane")):
        served.ask(target, user)
    assert [counted()[each] - before.get(each, 0) for each in ("200", "403", "404")] == [1, 1, 1]


def test_a_pod_that_takes_the_room_of_a_request_is_told_to_wait_for_it() -> None:
    held = {"web": ("default/r", "1 of 2 nodes for the request are launched")}
    instant = remembering(dumped(wire_pod("web", metadata__uid="web")), memory=Memory(leads=True, held=held))
    found = why_pod(instant, "default", "web")
    assert found.state == "Requested"
    assert "ProvisioningRequest default/r" in found.summary
    assert "1 of 2 nodes" in found.summary
