"""What the scenarios are judged by: the audit log, and how many nodes were disrupted at one time."""

import json
from pathlib import Path

from provisioner.apis import names
from provisioner.support.clock import SystemClock
from tests.scenarios.watching import Log, Watching
from tests.support.cluster import node
from tests.support.kube import FakeApi

AT = "2026-11-26T08:00:00.000001Z"
COLLECTOR = "system:serviceaccount:kube-system:pod-garbage-collector"


def entry(
    verb: str, name: str, *, sub: str = "", user: str = "admin", agent: str = "kubectl", status: int = 201
) -> str:
    about = {"resource": "pods", "namespace": "row", "name": name, **({"subresource": sub} if sub else {})}
    body = {"verb": verb, "objectRef": about, "user": {"username": user}, "userAgent": agent}
    return json.dumps({**body, "requestReceivedTimestamp": AT, "responseStatus": {"code": status}}) + "\n"


def test_the_audit_log_tells_evictions_orphans_and_force(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text(
        entry("create", "a", sub="eviction")
        + entry("create", "b", sub="eviction", status=429)
        + entry("delete", "c", user=COLLECTOR)
        + entry("delete", "d", agent="dovetail-provisioner/1", status=200)
        + entry("delete", "e")
        + entry("create", "f")
        + entry("create", "g", sub="eviction")[:40]
    )
    log = Log(path)
    assert (log.evictions("row"), log.orphans("row"), log.forced("row")) == (["a"], ["c"], ["d"])
    with path.open("a") as more:
        more.write(entry("create", "g", sub="eviction")[40:])
    assert log.evictions("row") == ["a", "g"], "a half-written line is read once it is whole"
    assert log.evictions("other") == []


def test_the_most_nodes_that_were_disrupted_at_one_time_in_the_order_of_etcd() -> None:
    clock = SystemClock()
    seen = Watching(FakeApi(clock=clock), clock)
    taint = ({"key": names.DISRUPTED_TAINT.key, "effect": "NoSchedule"},)
    labels = {names.NODEPOOL_LABEL: "general"}
    for name, version in (("a", "1"), ("b", "5")):
        seen._on_node(node(name, taints=taint, labels=labels, resourceVersion=version), False)
    assert seen.most_disrupted("general") == 2
    seen._on_node(node("c", taints=taint, labels=labels, resourceVersion="3"), False)
    seen._on_node(node("c", labels=labels, resourceVersion="4"), False)
    seen._on_node(node("a", labels=labels, resourceVersion="2"), False)
    assert seen.most_disrupted("general") == 1, "what came late by its watch had happened before"
    assert seen.most_disrupted("other") == 0
