"""When pods that move are sized by VerticalPodAutoscalers: only where that is wanted, and while their watch is current."""

import threading
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
from provisioner.kube.errors import Forbidden
from provisioner.kube.resources import AUTOSCALERS
from provisioner.runtime.caches import Caches
from tests.support.kube import FakeAnswer, FakeApi, ok, refusal

SERVED = ok({"kind": "APIResourceList", "resources": [{"name": "verticalpodautoscalers"}]})
ABSENT = refusal(404, "NotFound")
FORBIDDEN = Forbidden(403, "Forbidden", "no")


class Watch:
    """That of VerticalPodAutoscalers.

    Attributes:
        error: what its last request was answered, None where nothing is wrong.
    """

    resource = AUTOSCALERS

    def __init__(self) -> None:
        self.synced = threading.Event()
        self.error: Exception | None = None

    def staleness(self) -> float:
        return 60.0 if self.error is not None else 0.0

    def lag(self) -> float:
        return 0.0


class Known:
    """The caches, as far as they are asked and told.

    Attributes:
        used: what the state was told.
    """

    def __init__(self) -> None:
        self.autoscalers = Watch()
        self.all: tuple[object, ...] = ()
        self.used: list[bool] = []
        self.cluster = SimpleNamespace(use_predictions=lambda *, used: self.used.append(used))

    def watch(self, late: object) -> None:
        assert late not in self.all
        self.all = (late,)


def discovery(*answers: FakeAnswer, wanted: bool = True) -> tuple[AutoscalerDiscovery, Known, FakeApi]:
    api, known = FakeApi(*answers), Known()
    return AutoscalerDiscovery(cast(Caches, known), Client(api, api.clock), wanted=wanted), known, api


def test_where_it_is_not_wanted_nothing_is_asked() -> None:
    one, known, api = discovery(wanted=False)
    assert one.poller.once() is None
    assert (api.sent, known.used, known.all) == ([], [], ())


def test_they_are_looked_for_until_they_are_served() -> None:
    one, known, api = discovery(ABSENT, ABSENT, SERVED)
    assert [one.poller.once() for _ in range(3)] == [AGAIN_SECONDS, AGAIN_SECONDS, LOOK_SECONDS]
    assert known.all == (known.autoscalers,)
    assert known.used == [False, False]
    known.autoscalers.synced.set()
    assert one.poller.once() == LOOK_SECONDS
    assert known.used == [False, False, True]
    assert len(api.sent) == 3


def test_a_watch_that_is_behind_or_refused_predicts_nothing_until_it_is_current() -> None:
    one, known, _ = discovery(SERVED)
    one.poller.once()
    one.poller.once()
    known.autoscalers.synced.set()
    for known.autoscalers.error in (None, None, FORBIDDEN, FORBIDDEN, None):
        one.poller.once()
    assert known.used == [False, True, True, False, False, True]


def test_an_api_server_that_does_not_answer_is_asked_again() -> None:
    one, known, _ = discovery(refusal(500, "InternalError"), ok({"kind": "Status"}), SERVED)
    for _ in range(2):
        assert one.poller.once() not in (None, LOOK_SECONDS)
    assert (known.used, known.all) == ([], ())
    assert one.poller.once() == LOOK_SECONDS


def test_what_changed_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    log = SimpleNamespace(
        warning=lambda text, reason: told.append(("warning", reason)), info=lambda text: told.append(("info", ""))
    )
    monkeypatch.setattr("provisioner.disruption.autoscaler_discovery._log", log)
    one, known, _ = discovery(ABSENT, ABSENT, SERVED)
    for _ in range(3):
        one.poller.once()
    known.autoscalers.synced.set()
    for known.autoscalers.error in (None, FORBIDDEN, FORBIDDEN, None):
        one.poller.once()
    assert [level for level, _ in told] == ["warning", "info", "warning", "info"]
    assert told[0][1] == NOT_SERVED
    assert str(AUTOSCALERS) in told[2][1]
