"""When pods that move are sized by VerticalPodAutoscalers: only where that is wanted, and while their watch is current."""

from types import SimpleNamespace
from typing import cast

import pytest

from provisioner.disruption.autoscaler_discovery import (
    AGAIN_SECONDS,
    LOOK_SECONDS,
    NOT_SERVED,
    AutoscalerDiscovery,
)
from provisioner.kube.client import Client
from provisioner.runtime.caches import Caches
from tests.support.kube import FakeAnswer, FakeApi, ok, refusal

SERVED = ok({"kind": "APIResourceList", "resources": [{"name": "verticalpodautoscalers"}]})
ABSENT = refusal(404, "NotFound")


class Known:
    """The caches, as far as they are asked and told.

    Attributes:
        stale: what is wrong with the watch.
        used: what the state was told.
    """

    def __init__(self) -> None:
        self.knows_autoscalers = False
        self.stale = ""
        self.used: list[bool] = []
        self.cluster = SimpleNamespace(use_predictions=lambda *, used: self.used.append(used))

    def watch_autoscalers(self) -> None:
        assert not self.knows_autoscalers
        self.knows_autoscalers = True

    def autoscalers_are_stale(self) -> str:
        return self.stale


def discovery(*answers: FakeAnswer, wanted: bool = True) -> tuple[AutoscalerDiscovery, Known, FakeApi]:
    api, known = FakeApi(*answers), Known()
    return AutoscalerDiscovery(cast(Caches, known), Client(api, api.clock), wanted=wanted), known, api


def test_where_it_is_not_wanted_nothing_is_asked() -> None:
    one, known, api = discovery(wanted=False)
    assert one.poller.once() is None
    assert (api.sent, known.used, known.knows_autoscalers) == ([], [], False)


def test_they_are_looked_for_until_they_are_served() -> None:
    one, known, api = discovery(ABSENT, ABSENT, SERVED)
    assert [one.poller.once() for _ in range(3)] == [AGAIN_SECONDS, AGAIN_SECONDS, LOOK_SECONDS]
    assert known.knows_autoscalers
    assert known.used == [False, False]
    assert one.poller.once() == LOOK_SECONDS
    assert known.used == [False, False, True]
    assert len(api.sent) == 3


def test_a_watch_that_is_behind_or_refused_predicts_nothing_until_it_is_current() -> None:
    one, known, _ = discovery(SERVED)
    one.poller.once()
    for known.stale in ("the cache is not synced", "", "", "the watch is forbidden", "it still is", ""):
        one.poller.once()
    assert known.used == [False, True, True, False, False, True]


def test_an_api_server_that_does_not_answer_is_asked_again() -> None:
    one, known, _ = discovery(refusal(500, "InternalError"), ok({"kind": "Status"}), SERVED)
    for _ in range(2):
        assert one.poller.once() not in (None, LOOK_SECONDS)
    assert (known.used, known.knows_autoscalers) == ([], False)
    assert one.poller.once() == LOOK_SECONDS


def test_what_changed_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    log = SimpleNamespace(
        warning=lambda text, reason: told.append(("warning", reason)), info=lambda text: told.append(("info", ""))
    )
    monkeypatch.setattr("provisioner.disruption.autoscaler_discovery._log", log)
    one, known, _ = discovery(ABSENT, ABSENT, SERVED)
    for _ in range(4):
        one.poller.once()
    for known.stale in ("a", "b", ""):
        one.poller.once()
    assert told == [("warning", NOT_SERVED), ("info", ""), ("warning", "a"), ("info", "")]
