"""When PodGroups are watched: only where the API server serves them."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from provisioner.kube.client import Client
from provisioner.kube.errors import error_from
from provisioner.kube.resources import PODGROUPS
from provisioner.provisioning.pod_groups import AGAIN_SECONDS, FIRST_SECONDS, LOOK_SECONDS, PodGroupDiscovery
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import PodChanged
from provisioner.state.groups import GroupKnowledge
from tests.support.clock import FakeClock
from tests.support.cluster import pod
from tests.support.kube import FakeAnswer, FakeApi, ok, refusal

GROUPS = {"kind": "APIResourceList", "resources": [{"name": "workloads"}, {"name": "podgroups"}]}
PRIORITIES = {"kind": "APIResourceList", "resources": [{"name": "workloads"}]}


def client(*answers: FakeAnswer) -> tuple[Client, FakeApi]:
    api = FakeApi(*answers)
    return Client(api, api.clock), api


class Known:
    """The caches, as far as they are told."""

    def __init__(self) -> None:
        self.all: tuple[object, ...] = ()
        self.told: list[GroupKnowledge] = []
        self.cluster = SimpleNamespace(pod_groups_known=self.told.append)
        self.pod_groups = SimpleNamespace(
            resource=PODGROUPS, synced=threading.Event(), error=None, staleness=lambda: 60.0, lag=lambda: 0.0
        )

    def watch(self, late: object) -> None:
        assert late not in self.all
        self.all = (late,)


def discovery(clock: FakeClock, *answers: FakeAnswer) -> tuple[PodGroupDiscovery, Known, FakeApi]:
    asking, api = client(*answers)
    known = Known()
    return PodGroupDiscovery(cast(Caches, known), asking, clock), known, api


def woken(one: PodGroupDiscovery, **changes: Any) -> bool:
    """Whether a change of a pod begins another round."""
    (watch,) = one.controller().watches.values()
    one.poller._wake.clear()
    watch(PodChanged(None, pod("a", **changes)))
    return one.poller._wake.is_set()


def test_where_they_are_served_they_are_watched_and_known_with_the_first_answer_of_the_watch() -> None:
    one, known, api = discovery(FakeClock(), ok(GROUPS))
    assert (one.poller.once(), one.poller.once()) == (FIRST_SECONDS, FIRST_SECONDS)
    assert (known.told, known.all == (known.pod_groups,), len(api.sent)) == ([], True, 1)
    known.pod_groups.synced.set()
    assert (one.poller.once(), one.poller.once()) == (LOOK_SECONDS, LOOK_SECONDS)
    assert (known.told, len(api.sent)) == ([GroupKnowledge.READ], 1)
    assert not woken(one, group="train")


def test_where_they_are_not_a_pod_of_a_group_has_it_asked_again_but_not_more_than_once_a_minute() -> None:
    clock = FakeClock()
    one, known, api = discovery(clock, refusal(404, "NotFound"), ok(GROUPS))
    assert one.poller.once() is None
    assert (known.told, woken(one), woken(one, group="train")) == ([GroupKnowledge.NOT_SERVED], False, True)
    clock.advance(AGAIN_SECONDS - 20)
    assert one.poller.once() == 20.0
    clock.advance(20.0)
    assert one.poller.once() == FIRST_SECONDS
    assert (known.all == (known.pod_groups,), len(api.sent)) == (True, 2)


def test_who_may_not_ask_is_told_so_once_and_asks_again_every_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    one, known, api = discovery(clock, *[refusal(403, "Forbidden")] * 3, refusal(404, "NotFound"))
    for asked in (1, 2, 3):
        assert (one.poller.once(), len(api.sent)) == (AGAIN_SECONDS, asked)
        assert (one.poller.once(), len(api.sent)) == (AGAIN_SECONDS, asked)  # a pod of a group woke it
        clock.advance(AGAIN_SECONDS)
    assert known.told == [GroupKnowledge.UNREADABLE]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert one.poller.once() is None
    assert known.told == [GroupKnowledge.UNREADABLE, GroupKnowledge.NOT_SERVED]


def test_while_nobody_answers_it_is_asked_again_soon() -> None:
    one, known, api = discovery(FakeClock(), refusal(500), ok([]), refusal(404, "NotFound"))
    assert (one.poller.once(), one.poller.once()) == (10.0, 10.0)
    assert known.told == [GroupKnowledge.UNREADABLE]
    assert one.poller.once() is None
    assert (known.told[1:], len(api.sent)) == ([GroupKnowledge.NOT_SERVED], 3)


@pytest.mark.parametrize("synced", [False, True], ids=["before the first answer", "later"])
def test_while_their_watch_fails_they_are_not_known(synced: bool, caplog: pytest.LogCaptureFixture) -> None:
    one, known, api = discovery(FakeClock(), ok(GROUPS))
    one.poller.once()
    if synced:
        known.pod_groups.synced.set()
        one.poller.once()
    known.pod_groups.error = error_from(403, b"")
    assert (one.poller.once(), one.poller.once()) == (LOOK_SECONDS, LOOK_SECONDS)
    assert known.told == [*[GroupKnowledge.READ] * synced, GroupKnowledge.UNREADABLE]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    known.pod_groups.error = None
    known.pod_groups.synced.set()
    one.poller.once()
    assert (known.told[-1], len(api.sent)) == (GroupKnowledge.READ, 1)


def test_where_they_are_served_no_more_pods_are_single() -> None:
    clock = FakeClock()
    one, known, api = discovery(clock, ok(GROUPS), refusal(404, "NotFound"), ok(GROUPS))
    known.pod_groups.synced.set()
    one.poller.once()
    clock.advance(AGAIN_SECONDS)
    known.pod_groups.error = error_from(404, b"")
    assert one.poller.once() == AGAIN_SECONDS
    assert (one.poller.once(), known.told) == (LOOK_SECONDS, [GroupKnowledge.READ, GroupKnowledge.NOT_SERVED])
    known.pod_groups.error = None  # the watch has tried again
    one.poller.once()
    assert (known.told[-1], len(api.sent)) == (GroupKnowledge.READ, 2)
