"""`dovetail simulate`: files and options, and what is said of those that are wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from provisioner.cli.files import check_writable
from provisioner.cli.main import dovetail
from provisioner.cloudprovider.kwok.catalogue import ZONES, generated
from provisioner.history.entries import (
    ClaimSeen,
    ClassSeen,
    HistoryEntry,
    HistoryPodClass,
    OfferingTurned,
    PodsArrived,
    PodsStanding,
    PoolSeen,
)
from provisioner.history.segments import SegmentHead, SegmentWriter
from provisioner.values.errors import ExitStatus
from tests.unit.simulator.days import budget, pool, template

DAY: dict[str, Any] = {
    "durationSeconds": 100,
    "changes": [{"type": "Arrival", "at": 12, "name": "web", "template": template("web"), "count": 2}],
}


class Files:
    """A day and what is there when it begins."""

    def __init__(self, directory: Path) -> None:
        self.day, self.objects = directory / "day.yaml", directory / "objects.yaml"
        self.write(DAY, pool(), budget("web", maxUnavailable=1))

    def write(self, day: object, *objects: dict[str, Any]) -> None:
        self.day.write_text(yaml.safe_dump(day), encoding="utf-8")
        self.objects.write_text(yaml.safe_dump_all(objects), encoding="utf-8")

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(dovetail, ["simulate", str(self.day), "-f", str(self.objects), *arguments])


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_day_in_json_for_each_seed(files: Files) -> None:
    files.write(DAY, pool(), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
    told = files.run("--seed", "1", "--seed", "2", "--boot-seconds", "20,50", "-o", "json")
    assert told.exit_code == ExitStatus.DONE, told.output
    found = json.loads(told.output)
    assert (found["catalogue"], found["currency"], found["durationSeconds"]) == ("kwok", "USD", 100)
    assert [one["seed"] for one in found["runs"]] == [1, 2]
    assert found["spread"]["pods"]["mean"] == 2
    assert found["spread"]["usd"]["lowest"] > 0
    assert "Objects of kind ConfigMap were left out: 1." in found["notes"]


def test_a_page_is_written_and_a_place_that_cannot_be_is_told(files: Files, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    told = files.run("--set", "packing=greedy", "--html", str(page))
    assert told.exit_code == ExitStatus.DONE, told.output
    assert "cost" in told.output
    assert "<title>Dovetail</title>" in page.read_text(encoding="utf-8")
    told = files.run("--set", "packing=greedy", "--html", str(tmp_path / "no" / "page.html"))
    assert (told.exit_code, "--html" in told.output) == (ExitStatus.USAGE, True)
    assert "node-hours" not in told.output, "it is told before the runs"
    page.write_bytes(b"older")
    check_writable(page, "--html")
    check_writable(tmp_path / "new.html", "--html")
    assert (page.read_bytes(), (tmp_path / "new.html").exists()) == (b"older", False)


def test_interruptions_and_shortages_are_those_of_the_options(files: Files) -> None:
    files.write(DAY, pool(capacity_types=("spot",)))
    always = ("--set", "packing=greedy", "-o", "json")
    short = json.loads(files.run("--shortage-share", "spot=1", *always).output)
    assert (short["spread"]["unbound"]["mean"], short["spread"]["launches"]["mean"]) == (2, 0)
    assert short["spread"]["refused"]["mean"] > 0
    told = files.run("--interruptions-per-hour", "61")
    assert (told.exit_code, "write numbers from 0 to 60" in told.output) == (ExitStatus.USAGE, True)


@pytest.mark.parametrize(
    ("field", "name"), [("instanceTypes", "m5.large"), ("zones", "test-zone-x"), ("capacityTypes", "sopt")]
)
def test_a_shortage_of_what_is_not_in_the_catalogue_is_told(files: Files, field: str, name: str) -> None:
    shortage = {"type": "Shortage", "at": 1, "until": 2, field: [name]}
    files.write({**DAY, "changes": [*DAY["changes"], shortage]}, pool())
    told = files.run()
    assert told.exit_code == ExitStatus.USAGE
    line = " ".join(told.output.split())
    assert f"changes[{len(DAY['changes'])}].{field}: the catalogue kwok does not have {name}" in line


def test_settings_change_flags_and_fields(files: Files) -> None:
    always = ("--boot-seconds", "40", "-o", "json")
    slow = json.loads(files.run("--set", "batch-idle-duration=9s", "--set", "packing=greedy", *always).output)
    quick = json.loads(files.run(*always).output)
    assert slow["spread"]["waitP50"]["mean"] > quick["spread"]["waitP50"]["mean"] + 5
    none = json.loads(files.run("--set", "nodepool/general.spec.limits.cpu=0", "-o", "json").output)
    assert (none["spread"]["unbound"]["mean"], none["spread"]["usd"]["mean"]) == (2, 0)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--set", "batch-idle=9s"], "--set batch-idle=9s: unknown flag --batch-idle"),
        (["--set", "batch-idle=9s", "--variant", "a:packing=cost"], "--set batch-idle=9s: unknown flag --batch-idle"),
        (["--set", "help"], "--set help: this is no setting; write NAME=VALUE"),
        (["--set", "nodepool/general.spec.weight={"], "spec.weight={: the value is not valid YAML"),
        (
            ["--set", "nodepool/general.spec.weight=x"],
            "--set nodepool/general.spec.weight=x: NodePool general: spec.weight",
        ),
        (["--pass-interval", "nan"], "--pass-interval nan: write seconds from 0 to 3600"),
        (["--set", "nodepool/other.spec.weight=1"], "there is no NodePool other; name one of those in -f"),
        (["--set", "nodepool/general=1"], "write nodepool/NAME.spec.FIELD=VALUE"),
        (["--set", "nodepool/general.kind.more=1"], "more is not a field of what stands before it"),
        (["--set", "nodepool/general.spec.weight=many"], "spec.weight"),
        (["--boot-seconds", "soon"], "--boot-seconds soon: write seconds from 1 to 3600"),
        (
            ["--shortage-share", "sopt=1"],
            "--shortage-share sopt=...: the catalogue kwok has no instance type, zone or capacity",
        ),
        (
            ["--interruptions-per-hour", "on-demand=1"],
            "on-demand=...: only spot instances are interrupted; leave it out",
        ),
        (["--catalogue", "gcp"], "catalogue 'gcp' does not exist"),
    ],
)
def test_wrong_options_are_told(files: Files, arguments: list[str], problem: str) -> None:
    files.write(DAY, pool(), budget("web", maxUnavailable=1))
    told = files.run(*arguments)
    assert told.exit_code == ExitStatus.USAGE
    assert problem in told.output


def test_a_day_needs_a_node_pool_and_one_document(files: Files) -> None:
    files.write(DAY, budget("web", maxUnavailable=1))
    assert "no NodePool in the input" in files.run().output
    files.write({"durationSeconds": 60}, pool())
    told = files.run()
    assert told.exit_code == ExitStatus.USAGE
    assert "missing required field `changes`" in told.output


def test_a_day_is_one_file_that_is_not_nested_too_deep(files: Files, tmp_path: Path) -> None:
    told = CliRunner().invoke(dovetail, ["simulate", str(tmp_path), "-f", str(files.objects)])
    said = "has no file of `dovetail record`; give its directory, or a day"
    assert (told.exit_code, said in told.output) == (ExitStatus.USAGE, True)
    deep = tmp_path / "day.json"
    deep.write_text(json.dumps(DAY).replace('"count"', f'"x": {"[" * 90}{"]" * 90}, "count"'))
    told = CliRunner().invoke(dovetail, ["simulate", str(deep), "-f", str(files.objects)])
    assert (told.exit_code, "is nested deeper than" in told.output) == (ExitStatus.USAGE, True), told.output


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"spec": {"maxUnavailable": "x%"}}, "spec.maxUnavailable: 'x%' is neither a number of pods nor a percentage"),
        ({"spec": {"minAvailable": -1}}, "spec.minAvailable: -1 is neither a number of pods nor a percentage"),
        ({"spec": "none"}, "PodDisruptionBudget web: spec: Expected `object`"),
        ({"metadata": {"name": 5}}, "metadata.name: Expected `str`"),
        ({"kind": []}, "cannot be applied; use one of DaemonSet"),
        ({"apiVersion": "v1", "kind": "Node"}, "v1 Node cannot be applied; use one of DaemonSet"),
    ],
)
def test_a_wrong_object_is_refused_before_the_day_begins(files: Files, wrong: dict[str, Any], problem: str) -> None:
    made = {**budget("web", maxUnavailable=1), **wrong}
    files.write({**DAY, "changes": [{"type": "Apply", "at": 1, "object": made}]}, pool())
    told = files.run()
    assert told.exit_code == ExitStatus.USAGE, told.output
    assert f"{files.day}: changes[0].object: " in told.output
    assert problem in told.output
    if "kind" not in wrong:
        files.write(DAY, pool(), made)
        told = files.run()
        assert (told.exit_code, problem in told.output) == (ExitStatus.USAGE, True), told.output


def test_a_budget_without_a_spec_allows_nothing_and_ends_nothing(files: Files) -> None:
    bare = {key: value for key, value in budget("web").items() if key != "spec"}
    files.write({**DAY, "changes": [*DAY["changes"], {"type": "Apply", "at": 20, "object": bare}]}, pool())
    assert files.run("--set", "packing=greedy").exit_code == ExitStatus.DONE


def test_what_goes_wrong_in_the_day_is_told_with_its_change(files: Files) -> None:
    files.write({**DAY, "changes": [*DAY["changes"], *DAY["changes"]]}, pool())
    told = files.run("--set", "packing=greedy")
    assert told.exit_code == ExitStatus.USAGE
    assert f"{files.day}: changes[1]: Deployment default/web arrives at 12 s, but is there already; end" in told.output


def test_what_admission_makes_of_templates_is_that_of_the_objects(files: Files) -> None:
    kata = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata"}
    sandboxed = template("web", runtimeClassName="kata", nodeSelector={"sandbox": "kata"})
    day = {**DAY, "changes": [{**DAY["changes"][0], "template": sandboxed}]}
    files.write(day, pool(), {**kata, "scheduling": {"nodeSelector": {"sandbox": "other"}}})
    told = files.run()
    assert told.exit_code == ExitStatus.USAGE
    assert f"{files.day}: changes[0].template: the API server refuses its pods: RuntimeClass kata" in told.output
    files.write(day, pool())
    assert "The day has no RuntimeClass kata; its additions" in files.run("--set", "packing=greedy").output


def test_a_misspelt_field_is_told(files: Files) -> None:
    misspelt = "nodepool/general.spec.disruption.consolidateafter=10m"
    told = files.run("--set", misspelt, "--set", "packing=greedy")
    assert told.exit_code == ExitStatus.DONE
    assert "ignores spec.disruption.consolidateafter of NodePool general" in told.output


def test_each_seed_makes_another_day_of_settings(files: Files) -> None:
    quiet = {"bursts": {"perDay": 0}, "jobs": {"perHour": 0}, "nightBatch": {"jobs": 0}}
    files.write({"hours": 0.03, "services": {"count": 2, "pods": 6, "zonal": 0}, **quiet}, pool())
    found = json.loads(files.run("--seed", "1", "--seed", "2", "--set", "packing=greedy", "-o", "json").output)
    assert found["durationSeconds"] == pytest.approx(108)
    first, second = found["runs"]
    assert first["pods"] > 0
    assert first["launched"] != second["launched"] or first["waitP99"] != second["waitP99"]


def test_fields_that_pods_do_not_have_are_told(files: Files) -> None:
    misspelt = template("web", nodeselector={"a": "b"}, dnsPolicy="Default")
    misspelt["spec"]["containers"][0] |= {"resource": {}, "image": "web:1", "env": [{"name": "A", "valu": "b"}]}
    daemon = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {"selector": {}, "template": {**template("agent"), "specs": {}}},
    }
    arrival = {**DAY["changes"][0], "template": misspelt}
    files.write({**DAY, "changes": [arrival, {**arrival, "name": "other"}]}, pool(), daemon)
    told = files.run("--set", "packing=greedy", "-o", "json")
    assert told.exit_code == ExitStatus.DONE, told.output
    where = f"{files.day}: changes[0].template.spec"
    assert sorted(json.loads(told.output)["notes"][:4]) == [
        f"{where}.containers[0].env[0].valu is ignored; Kubernetes has no such field; did you mean value?",
        f"{where}.containers[0].resource is ignored; Kubernetes has no such field; did you mean resources?",
        f"{where}.nodeselector is ignored; Kubernetes has no such field; did you mean nodeSelector?",
        f"{files.objects}: DaemonSet agent: spec.template.specs is ignored; Kubernetes has no such field; did you mean spec?",
    ]


def test_texts_of_others_do_not_write_to_the_terminal(files: Files) -> None:
    hostile = "x\x1b[31m\u202e\ny"
    general = pool()
    files.write(DAY, {**general, "spec": {**general["spec"], hostile: 1}}, {"kind": hostile, "metadata": {}})
    told = files.run()
    assert told.exit_code == ExitStatus.DONE, told.output
    assert "Objects of kind x?[31m??y were left out: 1." in told.output.splitlines()
    assert "The plan ignores spec.x?[31m??y of NodePool general: unknown field." in told.output


def test_variants_and_policies_are_compared_on_the_same_days(files: Files) -> None:
    compared = (
        "--variant",
        "slow:batch-idle-duration=9s",
        "--variant",
        "as-it-is:",
        "--variant",
        "slow:nodepool/general.spec.weight=2",
    )
    found = json.loads(files.run(*compared, "--policy", "both", "--seed", "1", "--seed", "2", "-o", "json").output)
    cases = found["cases"]
    assert [(one["variant"], one["policy"]) for one in cases] == [
        ("slow", "dovetail"),
        ("slow", "karpenter"),
        ("as-it-is", "dovetail"),
        ("as-it-is", "karpenter"),
    ]
    assert cases[0]["settings"] == ["batch-idle-duration=9s", "nodepool/general.spec.weight=2"]
    waits = [one["spread"]["waitP50"]["median"] for one in cases]
    assert waits[0] > waits[2] + 5
    assert waits[1] > waits[3] + 5
    assert all([run["seed"] for run in one["runs"]] == [1, 2] for one in cases)
    lines = files.run(*compared, "--policy", "both").output.splitlines()
    assert lines[0] == "0.0277778 hours, 1 seed, cost in USD"
    assert lines[2].split()[:4] == ["variant", "policy", "cost", "node-hours"]
    assert [line.split()[:2] for line in lines[3:7]] == [
        ["slow", "dovetail"],
        ["slow", "karpenter"],
        ["as-it-is", "dovetail"],
        ["as-it-is", "karpenter"],
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--variant", "fast"], "--variant fast: write NAME:SETTING"),
        (["--variant", "-x:packing=greedy"], "--variant -x:packing=greedy: write NAME:SETTING"),
        (["--variant", "fast:batch-idle=9s"], "--variant fast: batch-idle=9s: unknown flag --batch-idle"),
        (
            ["--variant", "fast:nodepool/no.spec.weight=1"],
            "--variant fast: nodepool/no.spec.weight=1: there is no NodePool",
        ),
        (
            [each for number in range(21) for each in ("--variant", f"v{number}:")],
            "there are 21 variants; give at most 20",
        ),
        (
            [each for number in range(3) for each in ("--variant", f"v{number}:")]
            + [each for number in range(80) for each in ("--seed", str(number))],
            "240 simulations are more than 200; give fewer seeds or variants",
        ),
        (["--since", "2026-11-29"], "--since and --until choose a part of a record"),
    ],
)
def test_wrong_variants_are_told_before_anything_begins(files: Files, arguments: list[str], problem: str) -> None:
    told = files.run(*arguments)
    assert told.exit_code == ExitStatus.USAGE
    assert problem in " ".join(told.output.split())


class Record:
    """Two segments of an hour each, of a cluster with one NodePool."""

    def __init__(self, directory: Path, *told: HistoryEntry) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        for number in (0, 1):
            own = HistoryPodClass("web", "default", "ReplicaSet", 0, requests={"cpu": 1000, "pods": 1}, constraints={})
            opening: list[HistoryEntry] = [ClassSeen(1, own), PoolSeen("general", pool()["spec"])]
            if number:
                opening.append(PodsStanding(1, 0, 3))
            head = SegmentHead(
                id=f"s{number}",
                source="record",
                began=3600.0 * number,
                ended=0.0,
                entries=0,
                follows="s0" if number else "",
            )
            writer = SegmentWriter(head, opening)
            writer.add(3600.0 * number + 60, [PodsArrived(1, 3), *told])
            writer.add(3600.0 * (number + 1), [])
            (directory / f"{number}.history").write_bytes(writer.to_bytes())

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(dovetail, ["simulate", str(self.directory), *arguments])


def test_a_record_is_a_day_and_has_node_pools(tmp_path: Path) -> None:
    record = Record(tmp_path)
    told = record.run("--pass-interval", "600", "-o", "json")
    assert told.exit_code == ExitStatus.DONE, told.output
    found = json.loads(told.output)
    assert (found["durationSeconds"], found["runs"][0]["pods"], found["runs"][0]["unbound"]) == (7200, 6, 0)
    assert "The record is from 1970-01-01T00:00:00Z to 1970-01-01T02:00:00Z." in found["notes"]
    assert "The NodePools are those of the record, as they were and as they changed." in found["notes"]


def test_a_record_in_a_bucket_is_to_be_copied_first() -> None:
    told = CliRunner().invoke(dovetail, ["simulate", "s3://bucket/prefix"])
    assert told.exit_code == ExitStatus.USAGE
    assert "s3://bucket/prefix is in a bucket: copy its latest files to a directory" in told.output


def test_a_node_pool_of_a_record_that_cannot_be_used_is_told_with_its_remedy(tmp_path: Path, files: Files) -> None:
    """Such as of an anonymous record, whose schedules nobody can read."""
    spec = {
        **pool()["spec"],
        "disruption": {"budgets": [{"nodes": "1", "schedule": "x2290dbac23e7", "duration": "8h"}]},
    }
    record = Record(tmp_path / "record", PoolSeen("other", spec))
    told = record.run()
    assert told.exit_code == ExitStatus.USAGE
    line = " ".join(told.output.split())
    assert f"{record.directory}: NodePool other: spec.disruption.budgets[0].schedule: schedule 'x2290dbac23e7'" in line
    assert "This is of the record; give NodePools by -f instead" in line
    given = record.run("-f", str(files.objects), "--set", "packing=greedy", "--pass-interval", "600")
    assert given.exit_code == ExitStatus.DONE, given.output


def test_boots_and_shortages_are_those_of_the_record_unless_options_say_otherwise(tmp_path: Path) -> None:
    claim = ClaimSeen("c", "general", "c-2x", "a", "on-demand", "c", 60, 60, 150, 160)
    short = [
        OfferingTurned(one.name, zone, "on-demand", available=False) for one in generated().types for zone in ZONES
    ]
    foreign = OfferingTurned("m5.large", ZONES[0], "on-demand", available=False)
    record = Record(tmp_path, claim, *short, foreign)
    common = ("--pass-interval", "600", "--set", "packing=greedy", "-o", "json", "--until", "1970-01-01T00:30:00Z")
    learned = json.loads(record.run(*common).output)
    assert "Shortages of the record that name what the catalogue kwok does not have: 1." in learned["notes"]
    assert "Boot times are those of the record: 1, from 100 to 100 s." in learned["notes"]
    assert f"Shortages are those of the record: {len(short) + 1}." in learned["notes"]
    assert (learned["runs"][0]["unbound"], learned["runs"][0]["refused"] > 0) == (3, True)
    free = json.loads(record.run(*common, "--shortage-share", "0").output)
    assert free["runs"][0]["unbound"] == 0
    assert 100 < free["runs"][0]["waitP50"] < 110
    quick = json.loads(record.run(*common, "--shortage-share", "0", "--boot-seconds", "20").output)
    assert quick["runs"][0]["waitP50"] < 30
    assert not any("of the record:" in note for note in quick["notes"])


def test_the_page_compares_variants(files: Files, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    variants = ("--variant", "now:", "--variant", "slow:batch-idle-duration=9s")
    told = files.run("--set", "packing=greedy", *variants, "--html", str(page))
    assert told.exit_code == ExitStatus.DONE, told.output
    text = page.read_text(encoding="utf-8")
    assert '"heads":["Figure","now, dovetail","slow, dovetail"]' in text
    assert '"name":"slow, dovetail, seed 1"' in text


def test_a_part_of_a_record_with_other_node_pools(tmp_path: Path, files: Files) -> None:
    record = Record(tmp_path / "record")
    common = ("--pass-interval", "600", "-o", "json", "-f", str(files.objects), "--set", "packing=greedy")
    told = record.run("--since", "1970-01-01T01:30:00Z", *common)
    assert told.exit_code == ExitStatus.DONE, told.output
    found = json.loads(told.output)
    assert (found["durationSeconds"], found["runs"][0]["pods"]) == (3600, 6), "three were there, three came"
    assert found["notes"][0] == "The record is from 1970-01-01T01:00:00Z to 1970-01-01T02:00:00Z."
    assert not any("those of the record" in note for note in found["notes"])
    told = record.run("--until", "1970-01-01T00:30:00Z", *common)
    assert json.loads(told.output)["runs"][0]["pods"] == 3
    told = record.run("--since", "2026-01-01", *common)
    assert (told.exit_code, "the record is from 1970-01-01T00:00:00Z to" in told.output) == (ExitStatus.USAGE, True)
    (record.directory / "0.history").write_bytes(b"nothing")
    told = record.run(*common)
    assert any(
        note.startswith("Of the record: ") and "0.history is left out" in note
        for note in json.loads(told.output)["notes"]
    )
    alone = CliRunner().invoke(dovetail, ["simulate", str(record.directory / "1.history"), *common])
    assert json.loads(alone.output)["runs"][0]["pods"] == 6
