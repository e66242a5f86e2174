"""What the provisioner waits for before it begins, on a connection that answers from a script."""

import threading
from collections.abc import Iterator
from typing import cast

import pytest

from provisioner.controllers.freshness import stale
from provisioner.controllers.program import Caches
from provisioner.disruption.pause import Pause
from provisioner.kube.config import Connection
from provisioner.kube.resources import CONFIGMAPS
from provisioner.options import Options
from provisioner.support.clock import SystemClock
from tests.support.kube import FakeAnswer, FakeApi, Sent, bookmark, ok, refusal


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

    connection = cast(Connection, FakeApi(respond=respond))
    caches = Caches(connection, Options(), SystemClock())
    late = threading.Timer(60, ended.set)
    late.daemon = True
    late.start()
    try:
        assert caches.start(ended)
        assert caches.problem() == ""
        assert "configmaps" in stale(caches.behind_disruption)
        assert caches.pause() == Pause(everything=True, unread=True)
    finally:
        late.cancel()
        ended.set()
        caches.stop()
