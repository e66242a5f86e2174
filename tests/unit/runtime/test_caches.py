"""What the provisioner waits for before it begins, on a connection that answers from a script."""

import threading
from collections.abc import Iterator
from typing import cast

import msgspec
import pytest

from provisioner.apis.gangs import GroupSource
from provisioner.kube.config import ApiConnection
from provisioner.kube.resources import (
    AUTOSCALERS,
    CONFIGMAPS,
    DAEMONSETS,
    KWOKNODECLASSES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PODGROUPS,
    PODS,
    STORAGECLASSES,
)
from provisioner.options import Options
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import Change, NodeChanged
from provisioner.runtime.freshness import stale
from provisioner.state.knowledge import KindKnowledge
from provisioner.state.pause import DISRUPTION, Pause, PauseValue
from provisioner.support.clock import SystemClock
from tests.support.cluster import claim, node, pool
from tests.support.eventually import eventually
from tests.support.kube import FakeAnswer, FakeApi, Sent, bookmark, ok, refusal
from tests.support.pods import wire_pod


@pytest.fixture
def ended() -> Iterator[threading.Event]:
    """Watches say nothing until it is set."""
    event = threading.Event()
    yield event
    event.set()


def test_without_the_right_to_its_settings_it_provisions_and_disrupts_nothing(ended: threading.Event) -> None:
    """An image that is newer than its Role: nodes are launched all the same."""

    def silence() -> Iterator[bytes]:
        yield bookmark(1, end=True)
        ended.wait(60)

    def respond(sent: Sent) -> FakeAnswer:
        if f"/{CONFIGMAPS.plural}" in sent.path:
            return refusal(403)
        if "watch" in sent.query:
            return FakeAnswer(pieces=silence())
        return ok({"metadata": {"resourceVersion": "1"}, "items": []})

    connection = cast(ApiConnection, FakeApi(respond=respond))
    caches = Caches(connection, Options(), SystemClock())
    late = threading.Timer(60, ended.set)
    late.daemon = True
    late.start()
    try:
        assert caches.start(ended)
        assert caches.problem() == ""
        assert "configmaps" in stale(caches.behind_disruption)
        assert caches.pause() == Pause(PauseValue(DISRUPTION), unread=True)
    finally:
        late.cancel()
        ended.set()
        caches.stop()


def test_changes_are_told_by_their_kind_after_the_state_knows_them(ended: threading.Event) -> None:
    """DaemonSets concern the state alone."""
    bodies: dict[str, object] = {
        PODS.plural: wire_pod(),
        NODES.plural: node("n"),
        NODECLAIMS.plural: claim("c"),
        NODEPOOLS.plural: pool(),
        KWOKNODECLASSES.plural: {"metadata": {"name": "default"}},
        STORAGECLASSES.plural: {"metadata": {"name": "fast"}, "provisioner": "disk"},
        DAEMONSETS.plural: {"metadata": {"name": "d", "namespace": "default", "uid": "d"}, "spec": {}},
    }

    def silence() -> Iterator[bytes]:
        ended.wait(60)
        yield from ()

    def respond(sent: Sent) -> FakeAnswer:
        if "watch" in sent.query and "sendInitialEvents" not in sent.query:
            return FakeAnswer(pieces=silence())
        if "watch" in sent.query:
            return refusal(400)  # no watch list: pages are asked for
        found = [msgspec.to_builtins(body) for kind, body in bodies.items() if sent.path.endswith(f"/{kind}")]
        return ok({"metadata": {"resourceVersion": "1"}, "items": found})

    caches = Caches(cast(ApiConnection, FakeApi(respond=respond)), Options(), SystemClock())
    told: list[str] = []

    def listen(change: Change) -> None:
        told.append(type(change).__name__)
        if isinstance(change, NodeChanged):
            assert (change.old, change.new) == (None, caches.cluster.node("n"))

    caches.listen(listen)
    try:
        assert caches.start(ended)
        assert caches.bad_objects() == ""
        assert sorted(told) == [
            "NodeChanged",
            "NodeClaimChanged",
            "NodeClassChanged",
            "NodePoolChanged",
            "PodChanged",
            "SurroundingChanged",
        ]
    finally:
        ended.set()
        caches.stop()


def test_pod_groups_are_a_watch_like_the_others_once_they_are_watched(ended: threading.Event) -> None:
    """Refused they count as behind at once, are told to who asks for the watches' health, and are probed for lag."""
    caches = Caches(cast(ApiConnection, FakeApi(respond=lambda _: refusal(403))), Options(), SystemClock())
    try:
        caches.watch(caches.pod_groups[GroupSource.POD_GROUP])
        eventually(lambda: caches.pod_groups[GroupSource.POD_GROUP].error is not None, "the watch is refused", 10)
        assert str(PODGROUPS) in stale((caches.pod_groups[GroupSource.POD_GROUP],))
        assert str(PODGROUPS) in caches.optional_problem()
        assert caches.pod_groups[GroupSource.POD_GROUP] in caches._prober._watches
    finally:
        ended.set()
        caches.stop()


@pytest.mark.parametrize("known", KindKnowledge)
def test_nothing_is_disrupted_before_it_is_known_how_large_pods_come_back(known: KindKnowledge) -> None:
    """Where that is asked for; what cannot be read is not waited for."""
    connection = cast(ApiConnection, FakeApi())
    for wanted in (True, False):
        caches = Caches(connection, Options(vpa_predictions=wanted), SystemClock())
        caches.behind_disruption = ()  # those are current
        caches.cluster.predictions_known(known)
        waits = wanted and known is KindKnowledge.NOT_YET
        assert (str(AUTOSCALERS) in caches.disruption_is_stale(), bool(caches.disruption_is_stale())) == (waits, waits)
