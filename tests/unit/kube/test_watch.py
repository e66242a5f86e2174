import dataclasses
import itertools
import random
from collections.abc import Iterator

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.core import ConfigMap
from provisioner.apis.meta import key_of
from provisioner.kube import resources
from provisioner.kube.errors import ConnectionFailed
from provisioner.kube.resources import ObjectIdentity
from provisioner.kube.watch import Reflector, split_lines
from tests.support.clock import FakeClock
from tests.support.kube import (
    FakeAnswer,
    FakeApi,
    Script,
    bookmark,
    deep,
    event,
    page,
    refusal,
    thing,
    watching,
)

MAPS = resources.CONFIGMAPS
FLAT = dataclasses.replace(MAPS, namespaced=False)  # names in the tests below are short
INITIAL = {
    "watch": "true",
    "allowWatchBookmarks": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
}


class Recording:
    """Writes down what it is told, in words."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        def word(obj: ConfigMap | None) -> str:
            return f"{obj.metadata.name}@{obj.metadata.resource_version}" if obj else "-"

        kind = "ADDED" if old is None else "DELETED" if new is None else "MODIFIED"
        self.heard.append(f"{kind} {word(old)} {word(new)}")

    def listed(self) -> None:
        self.heard.append("sync")

    def bad(self, identity: ObjectIdentity, error: Exception) -> None:
        self.heard.append(f"bad {key_of(identity)}")

    def take(self) -> list[str]:
        heard, self.heard = self.heard, []
        return heard


class Raising(Recording):
    def changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        super().changed(old, new)
        raise RuntimeError("a fault of the handler")

    def listed(self) -> None:
        super().listed()
        raise RuntimeError("a fault of the handler")

    def bad(self, identity: ObjectIdentity, error: Exception) -> None:
        super().bad(identity, error)
        raise RuntimeError("a fault of the handler")


def reflector(
    *answers: Script, recording: Recording | None = None
) -> tuple[Reflector[ConfigMap], FakeApi, Recording, FakeClock]:
    clock = FakeClock()
    api = FakeApi(*answers, clock=clock)
    recording = recording or Recording()
    watch = Reflector(
        api,
        FLAT,
        changed=recording.changed,
        listed=recording.listed,
        unreadable=recording.bad,
        clock=clock,
        rng=random.Random(1),
    )
    return watch, api, recording, clock


def synced(*objects: dict[str, object], version: int = 10) -> Script:
    """A WatchList with these objects that ends right after."""
    return watching(*[event("ADDED", obj) for obj in objects], bookmark(version, end=True))


def test_everything_comes_in_one_stream_and_then_the_changes() -> None:
    stream = watching(
        event("ADDED", thing("a", 1)),
        event("ADDED", thing("b", 2)),
        bookmark(10, end=True),
        event("MODIFIED", thing("a", 11)),
        event("DELETED", thing("b", 12)),
        event("ADDED", thing("c", 13)),
    )
    watch, api, recording, _ = reflector(stream)
    assert watch.step() == 0
    assert recording.heard == [
        "ADDED - a@1",
        "ADDED - b@2",
        "sync",
        "MODIFIED a@1 a@11",
        "DELETED b@2 -",
        "ADDED - c@13",
    ]
    assert sorted(watch.store.keys()) == ["a", "c"]
    assert (watch.synced.is_set(), watch.relists, watch.error) == (True, 1, None)
    assert {name: value for name, value in api.sent[0].query.items() if name != "timeoutSeconds"} == INITIAL
    assert 300 <= int(api.sent[0].query["timeoutSeconds"]) <= 600


def test_a_stream_that_ends_goes_on_from_the_last_version() -> None:
    watch, api, recording, _ = reflector(
        synced(thing("a", 1)),
        watching(event("MODIFIED", thing("a", 11)), bookmark(20)),
        watching(event("DELETED", thing("a", 21))),
    )
    assert [watch.step() for _ in range(3)] == [0, 0, 0]
    assert [sent.query.get("resourceVersion") for sent in api.sent] == [None, "10", "20"]
    assert recording.heard == ["ADDED - a@1", "sync", "MODIFIED a@1 a@11", "DELETED a@11 -"]


def test_a_version_that_is_too_old_lists_again_and_tells_exactly_what_differs() -> None:
    gone = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    watch, _, recording, _ = reflector(
        synced(thing("same", 1), thing("changed", 2), thing("vanished", 3), thing("renewed", 4, uid="first")),
        watching(gone),
        synced(
            thing("new", 30), thing("same", 1), thing("changed", 31), thing("renewed", 32, uid="second"), version=40
        ),
    )
    watch.step()
    recording.take()
    assert watch.step() == 0
    assert recording.take() == []
    watch.step()
    assert recording.heard == [
        "ADDED - new@30",
        "MODIFIED changed@2 changed@31",
        "DELETED renewed@4 -",
        "ADDED - renewed@32",
        "DELETED vanished@3 -",
        "sync",
    ]
    assert sorted(watch.store.keys()) == ["changed", "new", "renewed", "same"]
    assert watch.relists == 2


def test_410_as_an_answer_means_the_same_as_in_the_stream() -> None:
    watch, api, _, _ = reflector(synced(thing("a", 1)), refusal(410, "Expired"), synced(thing("a", 1), version=50))
    for _ in range(3):
        assert watch.step() == 0
    assert [("sendInitialEvents" in sent.query) for sent in api.sent] == [True, False, True]


@pytest.mark.parametrize("status", [400, 422, 501])
def test_a_server_without_watch_list_is_read_in_pages_for_good(status: int) -> None:
    gone = event("ERROR", {"code": 410, "reason": "Expired"})
    watch, api, recording, _ = reflector(
        refusal(status),
        page(5, thing("a", 1), token="next"),
        page(5, thing("b", 2)),
        watching(gone),
        page(9, thing("b", 2)),
    )
    for _ in range(4):
        assert watch.step() == 0
    assert recording.heard == ["ADDED - a@1", "ADDED - b@2", "sync", "DELETED a@1 -", "sync"]
    assert [(sent.query.get("limit"), sent.query.get("continue")) for sent in api.sent[1:3]] == [
        ("500", None),
        ("500", "next"),
    ]
    assert api.sent[3].query["resourceVersion"] == "5"
    assert api.sent[4].query.get("limit") == "500"


def test_pages_are_as_long_as_is_wished() -> None:
    clock = FakeClock()
    api = FakeApi(refusal(400), page(5), clock=clock)
    watch = Reflector(api, FLAT, clock=clock, rng=random.Random(1), page=7)
    watch.step()
    watch.step()
    assert [sent.query.get("limit") for sent in api.sent] == [None, "7"]


def test_a_fault_inside_the_first_stream_reads_in_pages_this_once() -> None:
    fault = event("ERROR", {"code": 500, "message": "required storage feature RequestWatchProgress is disabled"})
    gone = event("ERROR", {"code": 410, "reason": "Expired"})
    watch, api, _, _ = reflector(watching(fault), page(5, thing("a", 1)), watching(gone), synced(thing("a", 1)))
    for _ in range(4):
        watch.step()
    assert "sendInitialEvents" in api.sent[3].query


def test_a_first_stream_that_breaks_off_deletes_nothing() -> None:
    gone = event("ERROR", {"code": 410, "reason": "Expired"})
    watch, _, recording, _ = reflector(
        synced(thing("a", 1), thing("b", 2)),
        watching(gone),
        watching(event("ADDED", thing("a", 1))),
        synced(thing("a", 1), version=60),
    )
    watch.step()
    watch.step()
    recording.take()
    assert watch.step() >= 1
    assert recording.take() == []
    watch.step()
    assert recording.heard == ["DELETED b@2 -", "sync"]


def test_an_object_that_cannot_be_read_is_reported_and_stays_as_it_was() -> None:
    broken = thing("a", 11)
    broken["data"] = 5
    watch, api, recording, _ = reflector(
        watching(
            event("ADDED", thing("a", 1)),
            event("ADDED", thing("x", 2) | {"data": 5}),
            bookmark(10, end=True),
            event("MODIFIED", broken),
            event("ADDED", thing("b", 12)),
        ),
        watching(event("DELETED", broken)),
    )
    watch.step()
    assert recording.take() == ["ADDED - a@1", "bad x", "sync", "bad a", "ADDED - b@12"]
    assert (watch.objects.decode_failures, sorted(watch.store.keys())) == (2, ["a", "b"])
    watch.step()
    assert recording.take() == ["DELETED a@1 -"]
    assert api.sent[1].query["resourceVersion"] == "12"


def test_an_object_that_became_unreadable_while_we_were_away_does_not_count_as_gone() -> None:
    gone = event("ERROR", {"code": 410, "reason": "Expired"})
    broken = thing("a", 30) | {"data": 5}
    watch, _, recording, _ = reflector(synced(thing("a", 1)), watching(gone), synced(broken))
    for _ in range(3):
        watch.step()
    assert recording.heard == ["ADDED - a@1", "sync", "bad a", "sync"]


def test_a_handler_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    watch, _, recording, _ = reflector(
        watching(event("ADDED", thing("a", 1)), event("ADDED", thing("x", 2) | {"data": 5}), bookmark(10, end=True)),
        recording=Raising(),
    )
    watch.step()
    assert recording.heard == ["ADDED - a@1", "bad x", "sync"]
    assert watch.synced.is_set()
    fields = [getattr(record, "fields", {}) for record in caplog.records if record.message == "Event handler failed"]
    assert [field["object"] for field in fields] == ["a"]


PAUSES = {
    "a refused connection": (ConnectionFailed("refused"), 1, 3),
    "a server that starts": (refusal(503), 1, 3),
    "a missing rule": (refusal(403), 1, 3),
    "a kind that is not installed": (refusal(404), 1, 3),
    "an overloaded server that names a time": (refusal(429, retry_after=7), 7, 7 * 1.25),
    "an overloaded server that names no time": (refusal(429), 1, 3),
    "an overloaded server that asks for a day": (refusal(429, retry_after=86400), 60, 75),
}


@pytest.mark.parametrize(("failure", "low", "high"), PAUSES.values(), ids=PAUSES)
def test_how_long_it_waits_after(failure: Script, low: float, high: float) -> None:
    watch, _, _, _ = reflector(failure)
    assert low <= watch.step() <= high
    assert watch.error is not None


def test_while_the_server_is_away_the_waits_grow_to_a_bound_and_success_resets_them() -> None:
    watch, _, _, _ = reflector(*[ConnectionFailed("refused")] * 30, synced(thing("a", 1)), ConnectionFailed("refused"))
    waits = [watch.step() for _ in range(30)]
    assert min(waits) >= 1
    assert max(waits) <= 15
    assert sum(waits[15:]) > 2 * sum(waits[:3])
    assert watch.step() == 0
    assert watch.error is None
    assert watch.step() <= 3


def test_fresh_credentials_are_fetched_after_401() -> None:
    watch, api, _, _ = reflector(refusal(401))
    watch.step()
    assert api.refreshed == 1


def test_a_garbled_line_breaks_the_stream_off_and_loses_nothing() -> None:
    watch, api, recording, _ = reflector(
        synced(thing("a", 1)),
        watching(event("ADDED", thing("b", 11)), b'{"type":"ADDED","obj\n'),
        watching(event("ADDED", thing("c", 12))),
    )
    watch.step()
    assert watch.step() >= 1
    watch.step()
    assert recording.heard[2:] == ["ADDED - b@11", "ADDED - c@12"]
    assert api.sent[2].query["resourceVersion"] == "11"


def test_a_line_that_stays_garbled_is_passed_by_and_everything_is_listed_when_its_stream_ends() -> None:
    garbled = b'{"type":"ADDED","obj\n'
    watch, api, recording, clock = reflector(
        synced(thing("a", 1)),
        watching(garbled),
        watching(garbled, event("ADDED", thing("c", 12))),
        synced(thing("a", 1), thing("b", 11), thing("c", 12), version=13),
    )
    watch.step()
    assert watch.step() >= 1
    clock.advance(300)
    assert [watch.step(), watch.step()] == [0, 0]
    assert recording.heard[2:] == ["ADDED - c@12", "ADDED - b@11", "sync"]
    assert watch.objects.decode_failures == 1
    assert "sendInitialEvents" in api.sent[3].query


DEEP = {"nested 1,000 levels": 1000, "nested 10,000 levels, the most that an API server takes": 10_000}


@pytest.mark.parametrize("levels", DEEP.values(), ids=DEEP)
def test_an_object_with_fields_nested_too_deeply_is_read_without_them_and_what_follows_too(levels: int) -> None:
    watch, api, recording, _ = reflector(
        watching(
            event("ADDED", thing("a", 1)),
            deep(event("ADDED", thing("evil", 2)), levels),
            event("ADDED", thing("b", 3)),
            bookmark(10, end=True),
            deep(event("MODIFIED", thing("evil", 11)), levels),
        ),
        watching(deep(event("DELETED", thing("evil", 12)), levels)),
        watching(),
    )
    assert watch.step() == 0
    assert recording.take() == ["ADDED - a@1", "ADDED - evil@2", "ADDED - b@3", "sync", "MODIFIED evil@2 evil@11"]
    assert list(watch.bad) == ["evil"]
    watch.step()
    watch.step()
    assert recording.take() == ["DELETED evil@11 -"]
    assert (api.sent[2].query["resourceVersion"], watch.relists, watch.bad) == ("12", 1, {})


def test_a_page_with_an_object_nested_too_deeply_is_read() -> None:
    answer = page(5, thing("a", 1), thing("evil", 2), thing("b", 3))
    answer.data = deep(answer.data)
    watch, _, recording, _ = reflector(refusal(400), answer)
    watch.step()
    watch.step()
    assert recording.heard == ["ADDED - a@1", "ADDED - evil@2", "ADDED - b@3", "sync"]


def test_one_item_of_a_page_that_is_no_json_is_left_out_and_not_the_page() -> None:
    answer = page(5, thing("a", 1), thing("x", 2), thing("b", 3))
    answer.data = answer.data.replace(b'"2"', b'"2",,')
    watch, _, recording, _ = reflector(refusal(400), answer)
    watch.step()
    assert watch.step() == 0
    assert recording.heard == ["ADDED - a@1", "bad x", "ADDED - b@3", "sync"]


def test_the_identity_of_what_the_decoder_refuses_is_read_from_the_bytes_and_not_from_an_annotation() -> None:
    fake = '{"metadata":{"name":"a","namespace":"","uid":"uid-a","resourceVersion":"1"}}'
    broken = event("MODIFIED", thing("x", 11, annotations={"a": fake, 'metadata":{"name': "a"}))
    watch, api, recording, _ = reflector(
        synced(thing("a", 1), thing("x", 2)), watching(broken.replace(b'"kind"', b'"kind",')), watching()
    )
    for _ in range(3):
        watch.step()
    assert recording.heard[3:] == ["bad x"]
    assert (api.sent[2].query["resourceVersion"], sorted(watch.store.keys())) == ("11", ["a", "x"])


def test_an_item_without_a_readable_identity_suspends_every_deletion_that_a_list_implies() -> None:
    gone = event("ERROR", {"code": 410, "reason": "Expired"})
    nameless = thing("x", 30) | {"metadata": {"name": 5, "resourceVersion": "30", "uid": "u"}}
    watch, api, recording, clock = reflector(
        synced(thing("a", 1), thing("b", 2)),
        watching(gone),
        synced(thing("b", 2), nameless, version=40),
        watching(),
        synced(thing("b", 2), version=50),
    )
    for _ in range(3):
        watch.step()
    assert recording.heard[3:] == ["bad ", "sync"]
    assert sorted(watch.store.keys()) == ["a", "b"], "the nameless one may be a"
    assert watch.objects.decode_failures == 1
    clock.advance(300)
    watch.step()
    watch.step()
    assert recording.heard[5:] == ["DELETED a@1 -", "sync"], "it is asked again when the stream has ended"
    assert [("sendInitialEvents" in sent.query) for sent in api.sent] == [True, False, True, False, True]


def test_a_known_object_whose_successor_of_the_same_name_cannot_be_read_is_gone() -> None:
    successor = thing("a", 11, uid="second") | {"data": 5}
    watch, _, recording, _ = reflector(synced(thing("a", 1, uid="first")), watching(event("ADDED", successor)))
    watch.step()
    watch.step()
    assert recording.heard[2:] == ["DELETED a@1 -", "bad a"]
    assert list(watch.bad) == ["a"]


def test_a_bad_object_is_named_until_it_can_be_read_or_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    def broken(version: int) -> bytes:
        return event("MODIFIED", thing("a", version) | {"data": 5})

    watch, _, _, _ = reflector(
        synced(thing("a", 1)),
        watching(broken(11), broken(12), broken(13)),
        watching(event("MODIFIED", thing("a", 14))),
        watching(broken(15)),
        watching(event("DELETED", thing("a", 16))),
    )
    seen = []
    for _ in range(5):
        watch.step()
        seen.append(dict(watch.bad))
    assert [list(bad) for bad in seen] == [[], ["a"], [], ["a"], []]
    assert seen[1]["a"].problem.startswith("Expected `object`")
    assert seen[1]["a"].left_out
    told = [record for record in caplog.records if "object" in getattr(record, "fields", {})]
    assert len(told) == 2, "once each time that it turns bad, not with every event"


def test_a_handler_that_fails_makes_the_object_a_bad_one_until_it_succeeds() -> None:
    class Moody(Recording):
        def changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
            if new is not None and new.metadata.resource_version == "2":
                raise OverflowError("too big")

    watch, _, _, _ = reflector(synced(thing("a", 2)), watching(event("MODIFIED", thing("a", 11))), recording=Moody())
    watch.step()
    assert [(bad.problem, bad.left_out) for bad in watch.bad.values()] == [("OverflowError: too big", False)]
    watch.step()
    assert watch.bad == {}


def test_staleness_counts_what_was_applied_and_not_what_was_sent() -> None:
    class Looping(FakeApi):
        """Answers every watch at once, with a line that cannot be read."""

        def stream(self, path: str, *, read_timeout: float) -> FakeAnswer:
            return super().stream(path, read_timeout=read_timeout) if self.answers else watching(b"{]\n")

    clock = FakeClock()
    watch = Reflector(Looping(synced(thing("a", 1)), clock=clock), MAPS, clock=clock, rng=random.Random(1))
    for _ in range(150):
        watch.step()
        clock.advance(1)
    assert watch.staleness() == 150


def test_a_kind_in_which_nothing_happens_is_fresh_while_its_stream_stands() -> None:
    def quiet(clock: FakeClock) -> Iterator[bytes | Exception]:
        clock.advance(60)
        yield silence()

    clock = FakeClock()
    answers = [synced(thing("a", 1)), *[FakeAnswer(pieces=quiet(clock)) for _ in range(10)]]
    watch = Reflector(FakeApi(*answers, clock=clock), MAPS, clock=clock, rng=random.Random(1))
    for _ in range(11):
        watch.step()
        assert watch.staleness() <= 60


def test_a_connection_that_is_cut_goes_on_from_the_last_version() -> None:
    cut = urllib3.exceptions.ProtocolError("cut")
    watch, api, _recording, _ = reflector(
        synced(thing("a", 1)), watching(event("MODIFIED", thing("a", 11)), cut), watching()
    )
    watch.step()
    assert watch.step() >= 1
    watch.step()
    assert api.sent[2].query["resourceVersion"] == "11"
    assert watch.relists == 1


def silence() -> Exception:
    return urllib3.exceptions.ReadTimeoutError(urllib3.HTTPConnectionPool("fake"), "/", "Read timed out.")


def test_a_kind_in_which_nothing_happens_is_asked_about_and_nothing_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    watch, api, _, clock = reflector(synced(thing("a", 1)), watching(silence()), watching(silence()))
    for _ in range(3):
        assert watch.step() == 0
        clock.advance(60)
    assert watch.error is None
    assert [sent.query.get("resourceVersion") for sent in api.sent] == [None, "10", "10"]
    assert [record.message for record in caplog.records] == []


def test_a_first_stream_that_never_ends_is_given_up_for_pages_after_three_tries() -> None:
    unfinished = [watching(event("ADDED", thing("a", 1)), silence()) for _ in range(3)]
    watch, api, recording, _ = reflector(*unfinished, page(5, thing("a", 1)))
    assert [watch.step() > 0 for _ in range(4)] == [True, True, False, False]
    assert recording.heard == ["ADDED - a@1", "sync"]
    assert api.sent[3].query.get("limit") == "500"


def test_staleness_counts_from_the_last_sign_of_life() -> None:
    def pieces(clock: FakeClock) -> Iterator[bytes]:
        yield bookmark(10, end=True)
        clock.advance(40)
        yield bookmark(11)

    clock = FakeClock()
    answer = watching()
    answer.pieces = pieces(clock)
    watch = Reflector(FakeApi(answer, clock=clock), MAPS, clock=clock)
    assert watch.staleness() == float("inf")
    watch.step()
    assert watch.staleness() == 0
    clock.advance(30)
    assert watch.staleness() == 30


def test_selectors_and_namespace_are_part_of_every_request() -> None:
    api = FakeApi(refusal(400), page(5), watching())
    watch = Reflector(
        api, MAPS, field_selector="spec.nodeName=", label_selector="a=b", namespace="ns", clock=FakeClock()
    )
    for _ in range(3):
        watch.step()
    for sent in api.sent:
        assert sent.path == "/api/v1/namespaces/ns/configmaps"
        assert (sent.query["fieldSelector"], sent.query["labelSelector"]) == ("spec.nodeName=", "a=b")


def test_its_words_for_people() -> None:
    watch, _, _, _ = reflector(synced(thing("a", 1)), ConnectionFailed("refused", "GET /x"))
    assert repr(watch) == "<Reflector configmaps: 0 objects, not synced, at none>"
    watch.step()
    assert repr(watch) == "<Reflector configmaps: 1 objects, synced, at 10>"
    watch.step()
    assert repr(watch) == "<Reflector configmaps: 1 objects, synced, at 10, GET /x: refused>"


@given(
    lines=st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line and line.strip() != b"")),
    cuts=st.lists(st.integers(0, 200)),
)
def test_lines_do_not_depend_on_where_the_chunks_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut <= len(data))})
    chunks = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert list(split_lines(chunks)) == lines


def test_an_unfinished_last_line_is_dropped() -> None:
    assert list(split_lines([b"a\nb", b"c"])) == [b"a"]


def random_history(draw: random.Random) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    def world(base: int) -> list[dict[str, object]]:
        return [
            thing(name, base + draw.randint(0, 1), uid=draw.choice("xy")) for name in "abcdef" if draw.random() < 0.6
        ]

    return world(1), world(1)


@pytest.mark.parametrize("seed", range(50))
def test_the_events_of_a_relist_lead_from_the_old_world_to_the_new(seed: int) -> None:
    before, after = random_history(random.Random(seed))
    gone = event("ERROR", {"code": 410, "reason": "Expired"})
    mirror: dict[str, ConfigMap] = {}

    class Mirror(Recording):
        def changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
            obj = new or old
            assert obj is not None
            assert mirror.get(obj.metadata.name) == old, "the old state is the one that was told before"
            assert new is None or new != old, "nothing is told twice"
            if new is None:
                del mirror[obj.metadata.name]
            else:
                mirror[obj.metadata.name] = new

    watch, _, _, _ = reflector(synced(*before), watching(gone), synced(*after), recording=Mirror())
    for _ in range(3):
        watch.step()
    wanted = {str(item["metadata"]["name"]): item["metadata"]["resourceVersion"] for item in after}  # type: ignore[index]
    assert {name: obj.metadata.resource_version for name, obj in mirror.items()} == wanted
    assert {obj.metadata.name: obj for obj in watch.store.list()} == mirror


def test_a_bad_object_at_the_end_of_a_stream_is_not_asked_for_again() -> None:
    watch, api, _, _ = reflector(synced(), watching(event("ADDED", thing("x", 17) | {"data": 5})), watching())
    for _ in range(3):
        watch.step()
    assert api.sent[2].query["resourceVersion"] == "17"


def test_the_end_of_an_object_that_was_never_told_of_is_not_told() -> None:
    bad = event("ADDED", thing("x", 2) | {"data": 5})
    watch, _, recording, _ = reflector(watching(bad, bookmark(10, end=True), event("DELETED", thing("x", 11))))
    watch.step()
    assert recording.heard == ["bad x", "sync"]
