"""The page of a record: of Karpenter's clusters and Cluster Autoscaler's too, with the pods that are there at its end, and what it does not know."""

import contextlib
import math
import zlib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given

from provisioner.apis import names
from provisioner.cli.ui.command import command
from provisioner.cli.ui.upstream import page_of_record
from provisioner.history.anonymous import Anonymizer
from provisioner.history.entries import (
    ClassSeen,
    FleetBound,
    FleetCost,
    HistoryEntry,
    HistoryPodClass,
    KindSeen,
    NodeKind,
    NodeSeen,
    PodsStanding,
)
from provisioner.history.keeper import HistoryBounds
from provisioner.history.segments import MARK, SegmentHead, SegmentWriter, read_segment
from provisioner.history.stores import DirectoryFolder, RecordBounds, StoredSegments
from provisioner.ui.page import MOST_BYTES, Page, encoded
from provisioner.ui.recorded import NO_WHY, recorded_page
from provisioner.values.errors import UserError
from tests.support.cluster import claim, node, pod, pool
from tests.support.histories import STEPS, RecordedCluster, Step
from tests.support.problems import shape

KARPENTERS = {
    names.NODEPOOL_LABEL: "general",
    names.CAPACITY_TYPE_LABEL: "on-demand",
    names.INSTANCE_TYPE_LABEL: "m5.large",
    names.ZONE_LABEL: "us-east-1a",
    "price": "0.096",
}
GROUPS = {
    "eks.amazonaws.com/nodegroup": "blue",
    "eks.amazonaws.com/capacityType": "SPOT",
    names.INSTANCE_TYPE_LABEL: "c5.large",
    names.ZONE_LABEL: "us-east-1b",
}
BOUNDS = HistoryBounds(86400.0, 1 << 20, 600.0)


def recorded(cluster: RecordedCluster | None = None) -> RecordedCluster:
    """A node of Karpenter's and one of Cluster Autoscaler's, pods on both, and one that waits."""
    found = cluster or RecordedCluster(BOUNDS, source="record")
    found.keeper.flush()
    found.put_pod(pod("waits", shape=shape(cpu="9", labels={"app": "planted-app"}, namespace="planted-space")))
    found.put_node(node("planted-k", labels=KARPENTERS))
    found.put_node(node("planted-g", labels=GROUPS))
    bound = claim("planted-claim", true=("Launched", "Registered", "Initialized"), provider_id="kwok://planted-k")
    status = msgspec.structs.replace(bound.status, node_name="planted-k")
    found.put_claim(msgspec.structs.replace(bound, status=status))
    found.put_claim(claim("coming", true=()))
    found.put_pool(pool("general", weight=7))
    web = shape(cpu="250m", labels={"app": "planted-web"})
    for number in range(4):
        found.put_pod(pod(f"web-{number}", shape=web, node="planted-k" if number else "planted-g"))
    found.put_pod(pod("agent", shape=shape(cpu="100m"), node="planted-g", kind="DaemonSet"))
    found.keeper.said("ConfigMap", "cluster-autoscaler-status", "ScaledUpGroup", "group blue size set to 3")
    found.keeper.flush()
    found.clock.advance(60)
    found.keeper.flush()
    return found


def page_of(cluster: RecordedCluster) -> Page:
    return recorded_page([read_segment(one) for one in cluster.segments()], title="a record")


def test_nodes_of_either_autoscaler_are_shown_with_their_pods() -> None:
    found = page_of(recorded())
    groups, karpenters, coming = found.nodes
    assert (groups.name, groups.pool, groups.type, groups.zone, groups.capacity_type, groups.usd) == (
        "planted-g", "blue", "c5.large", "us-east-1b", "spot", None,
    )  # fmt: skip
    assert (karpenters.pool, karpenters.capacity_type, karpenters.usd, karpenters.state) == ("general", "on-demand", 0.096, "ready")  # fmt: skip
    assert (coming.claim, coming.state) == ("coming", "launching")
    web = next(number for number, one in enumerate(found.classes) if one.name == "planted-web")
    assert (groups.pods, karpenters.pods) == (((web, 1),), ((web, 3),))
    assert (groups.daemons.pods, groups.daemons.cpu, karpenters.cpu) == (1, 100, 3900)
    (waits,) = found.waiting
    assert (found.classes[waits.of].namespace, found.classes[waits.of].name, waits.pods, waits.text) == ("planted-space", "planted-app", 1, NO_WHY)  # fmt: skip
    assert [(one.name, one.nodes, one.weight) for one in found.pools] == [("general", 2, 7)]
    assert found.sums is not None
    assert (found.sums.nodes, found.sums.pods, found.sums.used_cpu, found.sums.unpriced) == (3, 5, 1100, 1)
    assert found.source == "a record"
    assert found.history is not None
    (decision,) = found.history.decisions
    assert (decision.reason, decision.text) == ("ScaledUpGroup", "ConfigMap cluster-autoscaler-status: group blue size set to 3")  # fmt: skip
    assert found.history.moments[-1].usd == 0.096


def test_a_record_without_names_has_none_on_its_page() -> None:
    found = page_of(recorded(RecordedCluster(BOUNDS, source="record", changed=Anonymizer(b"key"))))
    text = encoded(found, MOST_BYTES).decode()
    assert "planted" not in text
    assert (len(found.nodes), found.source) == (3, "a record, without names")


@given(STEPS)
def test_the_pods_of_its_end_are_those_that_were_there(steps: list[Step]) -> None:
    cluster = RecordedCluster(HistoryBounds(960.0, 1 << 20))
    cluster.keeper.flush()
    for step in steps:
        cluster.step(*step)
    cluster.keeper.flush()
    found = page_of(cluster)
    there = {one.name for one in found.nodes if one.name}
    standing = cluster.standing()
    shown = sum(int(row[1]) for one in found.nodes for row in one.pods)
    assert shown == sum(count for (_, place), count in standing.items() if place in there)
    assert sum(one.pods for one in found.waiting) == sum(count for (_, place), count in standing.items() if not place)


def test_gaps_are_told() -> None:
    first, second = recorded(), recorded()
    segments = [read_segment(one) for one in (*first.segments(), *second.segments())]
    assert "The record has 1 gap, when nothing was recorded" in recorded_page(segments).missing


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "record"
    store = StoredSegments(DirectoryFolder(path), BOUNDS)
    cluster = recorded()
    for number in range(3):
        cluster.put_pod(pod(f"more-{number}", shape=shape(cpu="1"), node="planted-k"))
        cluster.clock.advance(600)
        cluster.keeper.flush()
    for one in cluster.segments()[:-1]:
        head = read_segment(one).head
        store.keep(one, head.began, head.ended)
    return path


def test_the_command_writes_the_page_of_a_record_without_a_cluster(directory: Path, tmp_path: Path) -> None:
    (directory / "0000000000000-0000000000001-0000000000000000.history").write_bytes(b"nonsense")
    target = tmp_path / "page.html"
    result = CliRunner().invoke(command, ["--record", str(directory), "--export", str(target)])
    assert result.exit_code == 0, result.output
    text = target.read_text(encoding="utf-8")
    assert "planted-k" in text
    assert "is left out" in text


def test_a_long_record_is_read_from_its_end(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = msgspec.json.decode(page_of_record(directory, ""), type=Page)
    monkeypatch.setattr("provisioner.cli.ui.upstream.RECORD", RecordBounds(file_bytes=1))
    latest = msgspec.json.decode(page_of_record(directory, ""), type=Page)
    assert whole.history is not None
    assert latest.history is not None
    assert latest.history.since > whole.history.since
    assert any("left out, the oldest" in one for one in latest.missing)
    assert replace_history(latest) == replace_history(whole), "the last segment alone tells how things stand"


def replace_history(page: Page) -> Page:
    return msgspec.structs.replace(page, history=None, missing=())


KIND = KindSeen(1, NodeKind("t", "z", "spot", "g", {}, (), {"cpu": 4000}))
NO_RECORDS: dict[str, tuple[HistoryEntry, ...]] = {
    "a node of no kind": (NodeSeen(1, "n", 9, 1),),
    "a bound of no time": (FleetBound(1.0, 1.0, math.nan, 1, 0, 0.1), FleetCost(1.0, 1, 0, 1, 0)),
    "a bound at the end of time": (FleetBound(1.0, 1.0, math.inf, 1, 0, 0.1),),
    "names that no object has": (KIND, *[NodeSeen(number, f"{number}{'x' * 100_000}", 1, 1) for number in range(1, 60)]),
}  # fmt: skip


@pytest.mark.parametrize("entries", NO_RECORDS.values(), ids=NO_RECORDS)
def test_what_no_recorder_wrote_is_refused_by_its_path(entries: tuple[HistoryEntry, ...], tmp_path: Path) -> None:
    writer = SegmentWriter(SegmentHead("a", "record", 1000.0, 1000.0, 0), ())
    writer.add(1001.0, entries)
    file = tmp_path / "forged.history"
    file.write_bytes(writer.to_bytes())
    with pytest.raises(UserError, match=r"forged\.history is not as `dovetail record` writes it"):
        page_of_record(file, "")


def test_a_cluster_larger_than_any_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(SegmentHead("a", "record", 1000.0, 1000.0, 0), (KIND,))
    writer.add(1001.0, [NodeSeen(number, f"n-{number}", 1, 1) for number in range(20)])
    (tmp_path / "a.history").write_bytes(writer.to_bytes())
    page_of_record(tmp_path, "")
    monkeypatch.setattr("provisioner.ui.recorded.MOST_STANDING", 9)
    with pytest.raises(UserError, match=r"is not as `dovetail record` writes it.*too many nodes"):
        page_of_record(tmp_path, "")


@pytest.mark.parametrize("levels", [2, 100, 300, 900, 5000])
def test_names_that_are_nested_objects_are_no_names(levels: int, tmp_path: Path) -> None:
    packed = b"\x81\xa1a" * levels + b"\x80"
    seen = ClassSeen(1, HistoryPodClass("key", "space", "", 0, {}, {"labels": {"app": "MARK"}}))
    frame = msgspec.msgpack.encode((0, (seen, PodsStanding(1, 0, 1)))).replace(b"\xa4MARK", packed)
    body = zlib.compress(len(frame).to_bytes(4, "little") + frame)
    whole = b"".join(
        len(one).to_bytes(4, "little") + one
        for one in (msgspec.msgpack.encode(SegmentHead("a", "record", 1000.0, 1000.0, 2)), body)
    )
    data = MARK + whole
    (tmp_path / "a.history").write_bytes(data + zlib.crc32(data).to_bytes(4, "little"))
    with contextlib.suppress(UserError):  # of very many levels
        page = msgspec.json.decode(page_of_record(tmp_path, ""), type=Page)
        assert page.classes[0].name == "class key"


def test_a_directory_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no file of `dovetail record`"):
        page_of_record(tmp_path, "")
    result = CliRunner().invoke(command, ["--record", str(tmp_path), "--through", "own"])
    assert result.exit_code == 2
    for wrong, said in (
        ("s3://bucket/prefix", "s3://bucket/prefix is in a bucket: copy its latest files"),
        (str(tmp_path / "nowhere"), "No such file"),
    ):
        result = CliRunner().invoke(command, ["--record", wrong])
        assert isinstance(result.exception, UserError)
        assert said in str(result.exception)
