"""When PodGroups are watched: only where the API server serves them."""

from types import SimpleNamespace
from typing import Any, cast

from provisioner.kube.client import Client
from provisioner.provisioning.pod_groups import AGAIN_SECONDS, PodGroupDiscovery
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import PodChanged
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
        self.pod_groups = object()
        self.all: tuple[object, ...] = ()
        self.told: list[bool] = []
        self.cluster = SimpleNamespace(serve_pod_groups=lambda *, served: self.told.append(served))

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


def test_where_they_are_served_they_are_watched_and_nothing_more_is_asked() -> None:
    one, known, api = discovery(FakeClock(), ok(GROUPS))
    assert (one.poller.once(), one.poller.once()) == (None, None)
    assert (known.told, known.all == (known.pod_groups,), len(api.sent)) == ([True], True, 1)
    assert not woken(one, group="train")


def test_where_they_are_not_a_pod_of_a_group_has_it_asked_again_but_not_more_than_once_a_minute() -> None:
    clock = FakeClock()
    one, known, api = discovery(clock, refusal(404, "NotFound"), ok(GROUPS))
    assert one.poller.once() is None
    assert (known.told, woken(one), woken(one, group="train")) == ([False], False, True)
    clock.advance(AGAIN_SECONDS - 20)
    assert one.poller.once() == 20.0
    clock.advance(20.0)
    assert one.poller.once() is None
    assert (known.told, known.all == (known.pod_groups,), len(api.sent)) == ([False, True], True, 2)


def test_while_nobody_knows_it_is_asked_again_soon_and_pods_of_groups_wait() -> None:
    one, known, api = discovery(FakeClock(), refusal(403, "Forbidden"), ok([]), refusal(404, "NotFound"))
    assert (one.poller.once(), known.told) == (10.0, [])
    assert (one.poller.once(), known.told) == (10.0, [])
    assert (one.poller.once(), known.told) == (None, [False])
    assert len(api.sent) == 3
