"""How far a watch is behind: by the versions that the API server names, not by the signs of life of a stream."""

import random

import pytest

from provisioner.apis.core import ConfigMap
from provisioner.kube import lag as lags
from provisioner.kube.lag import BEHIND_SECONDS, LATE_SECONDS, MOST_PROBES, PROBE_SECONDS, Lag, Prober
from provisioner.kube.resources import CONFIGMAPS, PODS
from provisioner.kube.watch import READ_TIMEOUT_SECONDS, Reflector
from tests.support.clock import FakeClock
from tests.support.kube import FakeAnswer, FakeApi, Script, Sent, bookmark, event, ok, refusal, thing, watching

DELAY = 100.0


def listed(version: int | str, *objects: dict[str, object]) -> FakeAnswer:
    return ok({"metadata": {"resourceVersion": str(version)}, "items": list(objects)})


class World:
    """A reflector, and an API server whose store is at `version` and whose watches bring what the test says."""

    def __init__(self, field_selector: str = "", label_selector: str = "", namespace: str = "") -> None:
        self.clock = FakeClock()
        self.version = 10
        self.objects: list[dict[str, object]] = [thing("a", 1)]
        self.streams: list[Script] = []
        self.lists: list[Sent] = []
        self.api = FakeApi(respond=self._respond, clock=self.clock)
        self.watch: Reflector[ConfigMap] = Reflector(
            self.api, CONFIGMAPS, clock=self.clock, rng=random.Random(1),
            field_selector=field_selector, label_selector=label_selector, namespace=namespace,
        )  # fmt: skip
        self.brings(*(event("ADDED", obj) for obj in self.objects), bookmark(self.version, end=True))

    def _respond(self, sent: Sent) -> Script:
        if "watch" in sent.query:
            return self.streams.pop(0)
        self.lists.append(sent)
        return listed(self.version, *self.objects[: int(sent.query["limit"])])

    def brings(self, *lines: bytes) -> None:
        self.streams.append(watching(*lines))
        self.watch.step()

    def probes(self, seconds: float) -> None:
        """For so long nothing happens but probes."""
        for _ in range(round(seconds / PROBE_SECONDS)):
            Prober([self.watch], self.clock).run_once()
            self.clock.advance(PROBE_SECONDS)


def test_a_stream_that_brings_what_happened_long_ago_is_behind_however_lively() -> None:
    world = World()
    for second in range(0, int(DELAY), 10):
        world.version = 100 + second
        world.objects = [thing("a", world.version)]
        world.probes(10)
        world.brings(event("MODIFIED", thing("a", 20 + second // 10)))
        assert world.watch.staleness() == 0
    assert world.watch.lag() == DELAY
    world.brings(event("MODIFIED", thing("a", 150)))  # what was there after 50 s
    assert world.watch.lag() == 40
    world.brings(event("MODIFIED", thing("a", world.version)))
    assert world.watch.lag() == 0


def test_a_bookmark_reaches_what_nothing_has_happened_since() -> None:
    world = World()
    world.version = 70
    world.probes(60)
    assert world.watch.lag() == 60
    world.brings(bookmark(70))
    assert world.watch.lag() == 0


def test_a_list_reaches_every_probe_before_it_even_where_versions_went_back() -> None:
    world = World()
    world.version = 5000
    world.probes(60)
    world.streams.append(watching(b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'))
    world.watch.step()
    assert world.watch.lag() == 60
    world.brings(event("ADDED", thing("a", 3)), bookmark(4, end=True))  # restored from a backup
    assert world.watch.lag() == 0


UNKNOWN = {
    "an object has changed": [thing("a", 20)],
    "an object is new": [thing("a", 1), thing("b", 20)],
    "an object is gone": [],
    "an object was made anew": [thing("a", 1, uid="another")],
}


@pytest.mark.parametrize("objects", UNKNOWN.values(), ids=UNKNOWN)
def test_without_a_bookmark_the_cache_that_differs_is_behind(objects: list[dict[str, object]]) -> None:
    world = World()
    world.version, world.objects = 70, objects
    world.probes(120)
    assert world.watch.lag() == 120
    assert sum(sent.query["limit"] == "500" for sent in world.lists) == 1, "it is compared once a minute"


def test_without_a_bookmark_the_cache_that_equals_what_is_there_is_not_behind() -> None:
    world = World()
    world.version = 70
    for _ in range(30):
        world.probes(10)
        assert world.watch.lag() <= LATE_SECONDS + PROBE_SECONDS <= BEHIND_SECONDS


def test_an_object_that_cannot_be_decoded_is_known_all_the_same() -> None:
    world = World()
    world.brings(event("ADDED", thing("b", 12) | {"data": 5}))
    world.version, world.objects = 70, [thing("a", 1), thing("b", 12)]
    world.probes(80)
    assert world.watch.lag() < LATE_SECONDS


def test_what_is_too_large_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.kube.lag.MOST_COMPARED", 0)
    world = World()
    world.version = 70
    world.probes(120)
    assert world.watch.lag() == 120
    assert {sent.query["limit"] for sent in world.lists} == {"1"}


SELECTORS = {
    "a whole kind": ({}, {}),
    "one object by its name, which alone may be listed": (
        {"field_selector": "metadata.name=a", "namespace": "ns"},
        {"fieldSelector": "metadata.name=a"},
    ),
    "what takes a search": ({"field_selector": "spec.nodeName=", "label_selector": "x=y"}, {}),
}


@pytest.mark.parametrize(("options", "asks"), SELECTORS.values(), ids=SELECTORS)
def test_a_probe_asks_for_one_object(options: dict[str, str], asks: dict[str, str]) -> None:
    world = World(**options)
    world.watch.probe()
    (sent,) = world.lists
    assert sent.query == {"limit": "1", **asks}
    assert sent.path == CONFIGMAPS.path(options.get("namespace", ""))


def test_a_watch_that_is_not_synced_is_not_probed_and_one_that_fails_keeps_no_other_from_it() -> None:
    clock = FakeClock()
    new = Reflector(FakeApi(clock=clock), PODS, clock=clock)
    failing = World()
    failing.api.respond = lambda _: refusal(500)
    last = World()
    Prober([new, failing.watch, last.watch], clock).run_once()
    assert len(last.lists) == 1
    assert failing.watch.lag() == 0


def test_a_watch_that_is_added_later_is_probed_from_then_on() -> None:
    first, later = World(), World()
    prober = Prober([first.watch], first.clock)
    prober.run_once()
    prober.add(later.watch)
    prober.run_once()
    assert (len(first.lists), len(later.lists)) == (2, 1)


class Slow:
    """A watch of an API server that takes its time."""

    resource = "slow"

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def probe(self) -> None:
        self._clock.advance(self._seconds)


@pytest.mark.parametrize(("each", "pause"), [(0.0, 10.0), (0.3, 7.0), (2.0, 1.0)])
def test_probes_come_every_ten_seconds_however_long_their_answers_take(each: float, pause: float) -> None:
    clock = FakeClock()
    assert Prober([Slow(clock, each) for _ in range(10)], clock).run_once() == pytest.approx(pause)


def test_the_oldest_probe_counts_and_few_are_remembered() -> None:
    one = Lag()
    for number in range(10 * MOST_PROBES):
        one.probed(100 + number, float(number))
    assert one.seconds(reached=99, now=1000.0) == 1000.0
    assert one.seconds(reached=100 + MOST_PROBES, now=1000.0) == 0.0
    one.probed(0, 0.0)  # no number: nothing can be said
    assert one.seconds(reached=0, now=1000.0) == 0.0


def test_between_two_bookmarks_no_watch_is_opened_anew() -> None:
    longest_between_bookmarks = 62.25  # kube-apiserver: a minute, in buckets of a second, told every 1 to 1.25 s
    assert longest_between_bookmarks < LATE_SECONDS < READ_TIMEOUT_SECONDS < BEHIND_SECONDS
    assert LATE_SECONDS + lags.PROBE_SECONDS < BEHIND_SECONDS, "there is time to compare before it counts as behind"
