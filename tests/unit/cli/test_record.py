"""`dovetail record`: what it takes, and what nodes of any autoscaler cost."""

import io
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.apis import names
from provisioner.cli.record import ClusterRecorder, command, price_of_node
from provisioner.history.entries import EventTold
from provisioner.history.keeper import HistoryBounds, HistoryKeeper, HistorySources, MemorySegments
from provisioner.values.errors import UserError
from tests.support.clock import FakeClock
from tests.support.histories import entries_of
from tests.support.kube import FakeAnswer, FakeApi, Sent, bookmark, refusal, thing, watching
from tests.support.kube import event as line

EAST = {names.REGION_LABEL: "us-east-1", names.ZONE_LABEL: "us-east-1a", names.INSTANCE_TYPE_LABEL: "m5.large"}


@pytest.mark.parametrize(
    ("labels", "annotations", "usd"),
    [
        (EAST, {}, 0.096),
        (EAST | {names.CAPACITY_TYPE_LABEL: "spot"}, {}, 0.0),
        (EAST | {"eks.amazonaws.com/capacityType": "ON_DEMAND"}, {}, 0.096),
        (EAST, {names.INSTANCE_PRICE_ANNOTATION: "0.5"}, 0.5),
        (EAST, {names.INSTANCE_PRICE_ANNOTATION: "cheap"}, 0.096),
        (EAST, {names.INSTANCE_PRICE_ANNOTATION: "nan"}, 0.0),
        ({names.INSTANCE_TYPE_LABEL: "m5.large"}, {}, 0.0),
        ({}, {}, 0.0),
    ],
    ids=(
        "on demand",
        "spot, whose price is not shipped",
        "a node group of EKS",
        "an annotation tells",
        "an annotation of somebody else",
        "an annotation that is no price",
        "no Region",
        "nothing is known",
    ),
)
def test_what_a_node_costs(labels: dict[str, str], annotations: dict[str, str], usd: float) -> None:
    assert price_of_node(labels, annotations) == usd


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{}", "--key-file", "{}/key"], "--key-file is only used with --anonymous"),
        (["{}", "--max-age", "5m"], "must be a duration of 10m or more"),
        (["{}", "--max-mebibytes", "1"], "Invalid value for '--max-mebibytes'"),
        ([], "Missing argument 'TARGET'"),
    ],
    ids=("a key for nothing", "too short an age", "too small a size", "no target"),
)
def test_what_makes_no_sense_is_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(command, [one.format(tmp_path) for one in arguments])
    assert found.exit_code == 2
    assert said in " ".join(found.output.split())


def test_a_key_is_made_once_and_a_short_one_is_refused(tmp_path: Path) -> None:
    key, missing = tmp_path / "key", str(tmp_path / "no" / "kubeconfig")
    arguments = [str(tmp_path / "files"), "--anonymous", "--key-file", str(key), "--kubeconfig", missing]
    for _ in range(2):
        assert CliRunner().invoke(command, arguments).exit_code != 0  # there is no cluster
    made = key.read_text()
    assert len(made) == 64
    assert key.stat().st_mode & 0o777 == 0o600
    key.write_text("short")
    found = CliRunner().invoke(command, arguments)
    assert isinstance(found.exception, UserError)
    assert "a key needs 16 or more" in str(found.exception)


def said(name: str, version: int, count: int = 1) -> dict[str, object]:
    about = {"involvedObject": {"kind": "Node", "name": name}, "reason": "ScaleDown", "message": "removed"}
    return {**thing(name, version, namespace="default"), **about, "count": count}


def test_events_from_before_the_record_are_not_told_and_a_list_tells_none_again() -> None:
    clock, bounds = FakeClock(), HistoryBounds(3600.0, 1 << 20)
    streams = [
        watching(line("ADDED", said("old", 5)), line("ADDED", said("again", 6)), bookmark(10, end=True)),
        watching(line("ADDED", said("new", 11)), line("MODIFIED", said("again", 12, count=2))),
        watching(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})),
        watching(line("ADDED", said("old", 5)), line("ADDED", said("new", 11)), line("ADDED", said("missed", 21)), bookmark(30, end=True)),
    ]  # fmt: skip

    def answer(sent: Sent) -> FakeAnswer:
        return streams.pop(0) if "/events" in sent.path else refusal(404, "NotFound", "no such kind")

    def made(sources: HistorySources) -> HistoryKeeper:
        keeper = HistoryKeeper(sources, MemorySegments(bounds), bounds, clock, source="record", changed=None)
        keepers.append(keeper)
        return keeper

    keepers = list[HistoryKeeper]()
    recorder = ClusterRecorder(FakeApi(respond=answer, clock=clock), made, price_of_node)
    while streams:
        recorder.events.step()
    for _ in range(2):
        keepers[0].flush()
    told = [one.name for _, one in entries_of([keepers[0].open_segment()]) if isinstance(one, EventTold)]
    assert told == ["new", "again", "missed"]


@pytest.mark.parametrize("readable", [True, False], ids=["readable", "forbidden"])
def test_a_record_waits_for_events_and_begins_without_them(readable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens right after it says that it records is told."""
    monkeypatch.setattr("provisioner.cli.record._EVENTS_SECONDS", 30.0 if readable else 0.1)
    stopping, asked = threading.Event(), threading.Event()

    def answer(sent: Sent) -> FakeAnswer:
        if "/events" not in sent.path:
            return (
                refusal(404, "NotFound", "no such kind")
                if "karpenter" in sent.path
                else watching(bookmark(10, end=True))
            )
        asked.set()
        return watching(bookmark(10, end=True)) if readable else refusal(403, "Forbidden", "events are forbidden")

    class Sight(io.StringIO):
        def write(self, text: str) -> int:
            if text.startswith("Recording"):
                seen.append(recorder.events.synced.is_set())
            return super().write(text)

    bounds, clock, seen = HistoryBounds(3600.0, 1 << 20), FakeClock(), list[bool]()
    recorder = ClusterRecorder(
        FakeApi(respond=answer, clock=clock),
        lambda sources: HistoryKeeper(sources, MemorySegments(bounds), bounds, clock, source="record", changed=None),
        price_of_node,
    )
    monkeypatch.setattr("sys.stderr", told := Sight())
    stopping.set()
    recorder.run(stopping)
    assert asked.is_set()
    assert seen == [readable]
    assert ("Events could not be read: " in told.getvalue()) is not readable
    assert readable or "events are forbidden" in told.getvalue()
