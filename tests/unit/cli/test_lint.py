"""`dovetail lint`: files in, lines out."""

import copy
import json
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.apis.keys import KeyPlace, places
from provisioner.cli.documents import InputError
from provisioner.cli.lint import MAX_FILE_BYTES, LintItem, command, report_on
from provisioner.cli.main import dovetail
from tests.support.manifests import lint_items
from tests.support.verdict_cases import CASES, Case, node_class, pool

ROOT = Path(__file__).parents[3]
POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: general
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
  disruption:
    consolidateAfter: 30s
"""
CLASS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@v20250715}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
"""


def run(tmp_path: Path, *texts: str, arguments: tuple[str, ...] = ()) -> Result:
    files = []
    for position, text in enumerate(texts):
        path = tmp_path / f"{position}.yaml"
        path.write_text(text, encoding="utf-8")
        files.append(str(path))
    return CliRunner().invoke(command, [*arguments, *files])


def lines(tmp_path: Path, *texts: str) -> list[str]:
    """The answer without the directory and without its last line."""
    return run(tmp_path, *texts).output.replace(f"{tmp_path}/", "").splitlines()[:-1]


def test_good_objects_pass(tmp_path: Path) -> None:
    result = run(tmp_path, f"{POOL}---\n{CLASS}")
    assert (result.exit_code, result.output) == (0, "2 objects checked: 0 errors, 0 warnings\n")


def test_all_examples_pass() -> None:
    result = CliRunner().invoke(command, ["-o", "json", str(ROOT / "manifests" / "examples")])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["checked"] >= 14


def test_every_violation_is_told_with_its_line(tmp_path: Path) -> None:
    text = (
        POOL.replace("30s", "30")
        .replace("disruption:", "weight: 0\n  disruption:")
        .replace("operator: In", "operator: Equals")
    )
    assert lines(tmp_path, text) == [
        (
            '0.yaml:10: error: NodePool/general: spec.template.spec.requirements[0].operator: "Equals" is not supported; use one of In, '
            "NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte"
        ),
        "0.yaml:11: error: NodePool/general: spec.weight: 0 is less than the minimum 1",
        '0.yaml:13: error: NodePool/general: spec.disruption.consolidateAfter: must be a string, not an integer; write "30" in quotes',
    ]
    assert run(tmp_path, text).exit_code == 1


def test_a_warning_alone_is_no_failure(tmp_path: Path) -> None:
    result = run(tmp_path, POOL + "    budgets: [{nodes: '0'}]\n")
    assert result.exit_code == 0
    assert ":13: warning: NodePool/general: spec.disruption.budgets: consolidation is enabled" in result.output
    assert result.output.endswith("1 object checked: 0 errors, 3 warnings\n")


def test_what_the_controllers_refuse_later_is_an_error(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, POOL.replace("kubernetes.io/arch", "karpenter.sh/capacity-type").replace("amd64", "SPOT"))
    assert 'error: NodePool/general: spec.template.spec.requirements[0].values: "SPOT" is not a capacity type' in line


def test_one_rule_of_the_schema_hides_no_other_field(tmp_path: Path) -> None:
    both = node_class(instanceProfile="both", kubelet={"maxPods": -1})
    (first, second) = lines(tmp_path, json.dumps(both))
    assert "spec: expected exactly one of 'role' and 'instanceProfile'" in first
    assert "spec.kubelet.maxPods: -1 is negative" in second
    heavy = pool(meta={"labels": {"kubernetes.io/hostname": "a"}}, weight=101)
    heavy["metadata"]["annotations"] = {"dovetail.dev/max-usd-per-hour": "much"}
    told = lines(tmp_path, json.dumps(heavy))
    assert [one.split(": ")[3] for one in told] == [
        "metadata.annotations[dovetail.dev/max-usd-per-hour]",
        "spec.template.metadata.labels",
        "spec.weight",
    ]


def test_json_has_every_part(tmp_path: Path) -> None:
    result = run(tmp_path, POOL.replace("name: general", "name: General"), arguments=("-o", "json"))
    body = json.loads(result.output)
    assert (result.exit_code, body["errors"], body["warnings"], body["checked"], body["skipped"]) == (1, 1, 0, 1, 0)
    (finding,) = body["findings"]
    assert finding.pop("message").startswith('"General" is not a name')
    assert finding == {
        "file": str(tmp_path / "0.yaml"),
        "line": 4,
        "severity": "error",
        "object": "NodePool/General",
        "path": "metadata.name",
    }


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_says_what_the_webhook_says(case: Case) -> None:
    items = [LintItem("it", case.document, {}), *(LintItem("beside", one, {}) for one in case.beside)]
    found = [one for one in report_on(items).findings if one.file == "it"]
    for severity, wanted in (("error", case.errors), ("warning", case.warnings)):
        told = [one for one in found if one.severity == severity]
        assert len(told) == len(wanted)
        for path, text in wanted:
            assert any(one.path == path and text in one.message for one in told)


OTHERS = {
    "an old version": (
        POOL.replace("karpenter.sh/v1", "karpenter.sh/v1beta1"),
        '0.yaml:1: error: apiVersion: "karpenter.sh/v1beta1" is not served for NodePool; use karpenter.sh/v1; `dovetail convert` rewrites it',
    ),
    "a version that never was": (
        POOL.replace("karpenter.sh/v1", "karpenter.sh/v2"),
        '0.yaml:1: error: apiVersion: "karpenter.sh/v2" is not served for NodePool; use karpenter.sh/v1',
    ),
    "a kind without a way": (
        "apiVersion: karpenter.sh/v1alpha5\nkind: Machine\n",
        '0.yaml:2: error: kind: "Machine" (karpenter.sh/v1alpha5) is no longer served; use a NodeClaim (karpenter.sh/v1) instead',
    ),
    "a misspelt label of a restricted domain": (
        POOL.replace(
            "kubernetes.io/arch, operator: In, values: [amd64]",
            "karpenter.sh/capacity-typ, operator: In, values: [spot]",
        ),
        '0.yaml:10: error: NodePool/general: spec.template.spec.requirements[0].key: label domain "karpenter.sh" is restricted; did you mean karpenter.sh/capacity-type?',
    ),
    "a misspelt label that is restricted, too": (
        POOL.replace("kubernetes.io/arch", "karpenter.sh/node-pool"),
        '0.yaml:10: error: NodePool/general: spec.template.spec.requirements[0].key: label domain "karpenter.sh" is restricted',
    ),
    "a label of another provider's domain": (
        POOL.replace("kubernetes.io/arch", "karpenter.sh/instance-family"),
        '0.yaml:10: error: NodePool/general: spec.template.spec.requirements[0].key: label domain "karpenter.sh" is restricted; did you mean karpenter.k8s.aws/instance-family?',
    ),
    "a restricted label that means no other": (
        POOL.replace("kubernetes.io/arch", "karpenter.sh/nodepool"),
        '0.yaml:10: error: NodePool/general: spec.template.spec.requirements[0].key: label "karpenter.sh/nodepool" is restricted',
    ),
    "a field that another kind has now": (
        POOL.replace("      requirements:", "      kubelet: {maxPods: 20}\n      requirements:"),
        "0.yaml:9: error: NodePool/general: spec.template.spec.kubelet: unknown field; set spec.kubelet of the EC2NodeClass instead",
    ),
    "a requirement without a key": (
        POOL.replace("key: kubernetes.io/arch, operator: In, values: [amd64]", "operator: Exists"),
        "0.yaml:10: error: NodePool/general: spec.template.spec.requirements[0].key: is required",
    ),
    "an old kind": (
        "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\n",
        '0.yaml:2: error: kind: "Provisioner" (karpenter.sh/v1alpha5) is no longer served; use a NodePool (karpenter.sh/v1) instead; `dovetail convert` rewrites it',
    ),
    "a misspelt kind": (
        POOL.replace("kind: NodePool", "kind: Nodepool"),
        '0.yaml:2: error: kind: "Nodepool" is not a kind of karpenter.sh/v1; did you mean NodePool?',
    ),
    "a misspelt group": (
        POOL.replace("karpenter.sh/v1", "karpenter.ssh/v1"),
        '0.yaml:1: error: apiVersion: "karpenter.ssh" is not an API group of Dovetail; did you mean karpenter.sh?',
    ),
    "no kind": ("apiVersion: v1\n", "0.yaml:1: error: kind: is required"),
    "no object": ("- a\n", "0.yaml:1: error: is not a Kubernetes object"),
    "not valid YAML": (
        "a: [1\nb: 2\n",
        "0.yaml:2: error: is not valid YAML: did not find expected ',' or ']' (column 2)",
    ),
    "a key that is a list": ("? [a]\n: b\n", "0.yaml:1: error: a key must be a string, not null, a list or a mapping"),
    "a field that is given twice": (
        POOL.replace("  disruption:", "  weight: 1\n  weight: 2\n  disruption:"),
        "0.yaml:12: error: NodePool/general: spec.weight: is set more than once",
    ),
    "a class of another group": (
        POOL.replace("group: karpenter.k8s.aws", "group: karpenter.sh"),
        (
            "0.yaml:8: error: NodePool/general: spec.template.spec.nodeClassRef.group: "
            '"karpenter.sh" has no EC2NodeClass; did you mean karpenter.k8s.aws?'
        ),
    ),
    "a class of an unknown kind": (
        POOL.replace("kind: EC2NodeClass", "kind: EC2NodeCLass"),
        (
            "0.yaml:8: error: NodePool/general: spec.template.spec.nodeClassRef.kind: "
            '"EC2NodeCLass" of karpenter.k8s.aws is not a node class of Dovetail; did you mean EC2NodeClass?'
        ),
    ),
    "a class that is not among them": (
        f"{POOL.replace('name: default', 'name: defualt')}---\n{CLASS}",
        (
            "0.yaml:8: warning: NodePool/general: spec.template.spec.nodeClassRef.name: "
            'EC2NodeClass "defualt" is not in these files; did you mean default?'
        ),
    ),
    "nested without end": (
        "a: &a [*a]\n",
        "0.yaml:1: error: *a refers to an anchor that is not defined before it; define &a above",
    ),
}


@pytest.mark.parametrize(("text", "want"), OTHERS.values(), ids=OTHERS)
def test_one_line_about(text: str, want: str, tmp_path: Path) -> None:
    assert lines(tmp_path, text) == [want]


def test_objects_of_others_are_counted_and_left_alone(tmp_path: Path) -> None:
    result = run(tmp_path, "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n---\n" + POOL)
    assert (
        result.output == "1 object checked: 0 errors, 0 warnings; skipped 1 object of a kind that lint does not check\n"
    )


DASHBOARD = '{"title": "nodes", "panels": []}'
RULES = "groups:\n- name: nodes\n  rules: []\n"
PATCH = "- {op: remove, path: /spec}\n"


def test_documents_in_a_directory_that_are_no_objects_are_counted_and_left_alone(tmp_path: Path) -> None:
    for name, text in {"a.json": DASHBOARD, "b.yaml": RULES, "c.yaml": PATCH, "d.yaml": POOL}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    result = CliRunner().invoke(command, [str(tmp_path)])
    want = "1 object checked: 0 errors, 0 warnings; skipped 3 documents that are not Kubernetes objects\n"
    assert (result.exit_code, result.output) == (0, want)
    (tmp_path / "e.yaml").write_text("apiVersion: v1\nkind: Secret\n", encoding="utf-8")
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert result.output == (
        "1 object checked: 0 errors, 0 warnings; skipped 1 object of a kind that lint does not check "
        "and 3 documents that are not Kubernetes objects\n"
    )
    body = json.loads(CliRunner().invoke(command, ["-o", "json", str(tmp_path)]).output)
    assert (body["checked"], body["skipped"], body["skippedDocuments"]) == (1, 1, 3)


@pytest.mark.parametrize("text", [DASHBOARD, RULES, PATCH])
def test_a_named_file_must_hold_objects(tmp_path: Path, text: str) -> None:
    result = run(tmp_path, text, POOL)
    assert (result.exit_code, result.output.count(": error: ")) == (1, 1)


@pytest.mark.parametrize("lost", [("apiVersion",), ("kind",), ("apiVersion", "kind"), ("apiVersion", "metadata")])
def test_an_object_in_a_directory_that_lacks_what_every_object_has_is_an_error(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    left = {key: value for key, value in yaml.safe_load(POOL).items() if key not in lost}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(left), encoding="utf-8")
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert (result.exit_code, result.output.splitlines()[0]) == (
        1,
        f"{tmp_path}/a.yaml:1: error: {lost[0]}: is required",
    )


def test_everything_that_is_shipped_passes() -> None:
    result = CliRunner().invoke(command, [str(ROOT / "manifests")])
    assert result.exit_code == 0, result.output


def chart(directory: Path) -> Path:
    """A Helm chart with a template, a definition of its own that is good, and a chart in it."""
    for one in (directory, directory / "charts/inner"):
        (one / "templates").mkdir(parents=True)
        (one / "Chart.yaml").write_text("apiVersion: v2\nname: a\n", encoding="utf-8")
        (one / "values.yaml").write_text("a: b\n", encoding="utf-8")
        (one / "templates/pool.yaml").write_text("{{- if .Values.a }}\nkind: NodePool\n{{- end }}\n", encoding="utf-8")
    (directory / "crds").mkdir()
    (directory / "crds/pool.yaml").write_text(POOL, encoding="utf-8")
    return directory


def test_templates_of_charts_are_skipped_with_one_line(tmp_path: Path) -> None:
    made = chart(tmp_path / "all/charts/a")
    (tmp_path / "all/class.yaml").write_text(CLASS, encoding="utf-8")
    (tmp_path / "all/templates").mkdir()
    (tmp_path / "all/templates/class.yaml").write_text(CLASS.replace("default", "b"), encoding="utf-8")
    result = CliRunner().invoke(command, [str(tmp_path / "all")])
    skipped = f"skipped the chart {made}: render it with helm template"
    assert result.output.splitlines() == [skipped, "3 objects checked: 0 errors, 0 warnings"]
    assert result.exit_code == 0
    for name in (made / "templates", made / "charts"):
        result = CliRunner().invoke(command, [str(name)])
        assert (result.exit_code, "skipped the chart" in result.output) == (2, True)
        assert "nothing was checked" in result.output
    found = json.loads(CliRunner().invoke(command, ["-o", "json", str(made)]).output)
    assert (found["checked"], found["skippedCharts"]) == (1, [str(made)])
    named = CliRunner().invoke(command, [str(made / "templates/pool.yaml")])
    assert (named.exit_code, "skipped the chart" in named.output) == (2, False), "a file that is named is read"


def test_one_name_twice_is_told(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, POOL, POOL)
    assert line == (
        "1.yaml:4: warning: NodePool/general: metadata.name: is defined twice, first at 0.yaml:1; the one that is applied last takes effect"
    )


def test_objects_of_a_list_are_checked_one_by_one(tmp_path: Path) -> None:
    document = {"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(POOL), yaml.safe_load(CLASS)]}
    document["items"][0]["spec"]["weight"] = 500
    text = yaml.safe_dump(document, sort_keys=False)
    (line,) = lines(tmp_path, text)
    assert line.startswith("0.yaml:")
    assert line.endswith("NodePool/general: spec.weight: 500 is more than the maximum 100")
    assert "weight" in text.splitlines()[int(line.split(":")[1]) - 1]


def test_scalars_are_read_as_kubectl_reads_them() -> None:
    (item,) = lint_items(b"a: 2026-01-01\nb: 12:30\nc: 1e3\nd: on\ne: 0777\nf: 'on'\ng: .5\nh: ~\n1: x\non: w\n")
    assert item.document == {
        "a": "2026-01-01",
        "b": "12:30",
        "c": 1000,
        "d": True,
        "e": 511,
        "f": "on",
        "g": 0.5,
        "h": None,
        "1": "x",
        "true": "w",
    }


def test_a_large_file_is_not_read_whole(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, "#" * (MAX_FILE_BYTES + 1))
    assert line == f"0.yaml:1: error: exceeds the limit of {MAX_FILE_BYTES >> 20} MiB; split it into several files"


def test_aliases_cannot_make_a_small_file_large(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    (line,) = lines(tmp_path, bomb)
    assert "its aliases expand to more than 100,000 values" in line


def test_merge_keys_cannot_make_a_small_file_large() -> None:
    """The inner ones are merged first, so all of them were unfolded before one value was counted."""
    keys = ", ".join(f"k{at}: 1" for at in range(300))
    inner = f"<<: [&a {{{keys}}}, {', '.join(['*a'] * 300)}]"
    text = f"<<: [&b {{{inner}}}, {', '.join(['*b'] * 30)}]\n".encode()
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="expand to more than 100,000 values"):
            lint_items(text)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_merge_key_gives_way_and_an_alias_of_what_has_one_repeats_nothing() -> None:
    (item,) = lint_items(b"a: &a {x: 1, w: 1}\nb: &b {<<: [*a, {x: 2, z: 2}], w: 3}\nc: *b\n")
    assert item.document["b"] == item.document["c"] == {"x": 1, "w": 3, "z": 2}
    assert item.repeated == ()
    assert item.line("c.z") == 3


def test_a_merge_key_for_a_text_is_an_error_of_the_file(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, "a:\n  <<: text\n")
    assert line == "0.yaml:2: error: has a merge key (<<) whose value is not a mapping"


def test_an_object_of_a_list_has_its_own_lines_and_repeated_keys() -> None:
    text = "kind: List\nitems:\n" + "- {a: 1}\n" * 10 + "- {a: {b: 1,\n  b: 2}}\n- text\n"
    items = lint_items(text)
    assert [one.lines for one in (items[1], items[10], items[11])] == [
        {"": 4, "a": 4},
        {"": 13, "a": 13, "a.b": 14},
        {"": 15},
    ]
    assert [one.repeated for one in items] == [()] * 10 + [("a.b",), ()]


def test_objects_of_a_typed_list_have_its_kind(tmp_path: Path) -> None:
    """`kubectl get --raw` shows such a list: the kind of the items was missing."""
    pool_ = yaml.safe_load(POOL)
    listed = {"apiVersion": pool_.pop("apiVersion"), "kind": f"{pool_.pop('kind')}List", "items": [pool_]}
    assert run(tmp_path, yaml.safe_dump(listed)).output == "1 object checked: 0 errors, 0 warnings\n"


def test_standard_input_and_a_file_that_is_not_there() -> None:
    result = CliRunner().invoke(dovetail, ["lint", "-"], input=POOL)
    assert (result.exit_code, result.output) == (0, "1 object checked: 0 errors, 0 warnings\n")
    assert CliRunner().invoke(dovetail, ["lint", "nowhere.yaml"]).exit_code == 2


JUNK: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.just([])
    | st.just({})
    | st.just([{}, None])
    | st.floats()
)


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A good object with junk at some places."""
    document = copy.deepcopy(draw(st.sampled_from([yaml.safe_load(POOL), yaml.safe_load(CLASS)])))
    for _ in range(draw(st.integers(1, 4))):
        at: Any = document
        while True:
            keys: list[Any] = list(at) if isinstance(at, dict) else list(range(len(at))) if isinstance(at, list) else []
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if not isinstance(at[key], dict | list) or draw(st.integers(0, 3)) == 0:
                at[key] = copy.deepcopy(draw(JUNK))
                break
            at = at[key]
    return document


@settings(max_examples=60, deadline=None)
@given(documents=st.lists(damaged(), max_size=3))
def test_no_object_is_too_odd_to_be_told_of(documents: list[Any]) -> None:
    report = report_on(LintItem(f"{position}", one, {"": 1}) for position, one in enumerate(documents))
    for finding in report.findings:
        assert finding.message
        assert "\n" not in str(finding).replace(finding.message, "")
    msgspec.json.encode([str(one) for one in report.findings])


def test_names_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, json.dumps({**yaml.safe_load(POOL), "metadata": {"name": "a\x1b[2J\x9b"}}))
    assert line.isprintable()
    assert "[2J" in line


KEYS = {
    "a misspelled annotation of a template": (
        "Deployment", "spec.template", "annotations", "dovetail.dev/capcity-type", "spot",
        "error", '"dovetail.dev/capcity-type" is not an annotation of Dovetail; did you mean dovetail.dev/capacity-type?',
    ),
    "a misspelled domain": (
        "Deployment", "spec.template", "annotations", "dovetial.dev/arch", "arm64",
        "error", '"dovetial.dev" is not a domain of Dovetail; did you mean dovetail.dev/arch?',
    ),
    "a value that is not supported": ("Pod", "", "annotations", "dovetail.dev/arch", "x86", "error", "want one of amd64, arm64"),
    "a share that is none": ("Job", "spec.template", "annotations", "dovetail.dev/on-demand", "130%", "error", "neither a percentage"),
    "a cron job's template": (
        "CronJob", "spec.jobTemplate.spec.template", "annotations", "dovetail.dev/spread", "node", "error", "use zone",
    ),
    "on the workload": (
        "StatefulSet", "", "annotations", "dovetail.dev/capacity-type", "spot",
        "warning", "has no effect as an annotation of a StatefulSet; set it in spec.template.metadata.annotations",
    ),
    "a label of a pod": (
        "Pod", "", "labels", "dovetail.dev/nodepool", "a", "warning", "as a label of a Pod; set it in metadata.annotations",
    ),
    "an annotation of a namespace": (
        "Namespace", "", "annotations", "dovetail.dev/os", "linux", "warning", "of a Namespace; set it in metadata.labels",
    ),
    "a value in a namespace": ("Namespace", "", "labels", "dovetail.dev/scheduler", "on", "error", "use enabled or disabled"),
    "a cost that is no int32": (
        "Deployment",
        "spec.template",
        "annotations",
        "karpenter.sh/disruption-cost",
        "1.5",
        "error",
        "'1.5' is ignored; use a whole number from -2147483648 to 2147483647",
    ),
    "a switch": ("Deployment", "", "annotations", "dovetail.dev/surge", "yes", "error", "'yes' is not supported; use true"),
    "a pool's packing": ("NodePool", "", "annotations", "dovetail.dev/packing", "Cheap", "error", "neither 'cost' nor 'greedy'"),
    "a pool's misspelled annotation": (
        "NodePool", "", "annotations", "dovetail.dev/pasued", "true", "error", "did you mean dovetail.dev/paused?",
    ),
    "an annotation of a pool's template": (
        "NodePool", "spec.template", "annotations", "dovetail.dev/paused", "true", "warning", "it is a NodePool annotation",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "path", "field", "key", "value", "severity", "says"), KEYS.values(), ids=KEYS)
def test_keys_of_ours_are_checked_where_they_stand(
    kind: str, path: str, field: str, key: str, value: str, severity: str, says: str, tmp_path: Path
) -> None:
    one: dict[str, Any] = (
        yaml.safe_load(POOL) if kind == "NodePool" else {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}}
    )
    if kind not in ("NodePool", "Namespace", "Pod"):
        where = "spec.jobTemplate.spec.template" if kind == "CronJob" else "spec.template"
        at: Any = one
        for step in where.split("."):
            at = at.setdefault(step, {})
        at["spec"] = {"containers": [{"name": "c"}]}
    at = one
    for step in filter(None, path.split(".")):
        at = at[step]
    at.setdefault("metadata", {})[field] = {key: value}
    result = run(tmp_path, yaml.safe_dump(one))
    (line,) = result.output.replace(f"{tmp_path}/", "").splitlines()[:-1]
    assert f": {severity}: {kind}/" in line
    assert f"metadata.{field}[{key}]" in line
    assert says in line
    assert key in yaml.safe_dump(one).splitlines()[int(line.split(":")[1]) - 1]
    assert result.exit_code == (1 if severity == "error" else 0)


def test_the_cluster_s_defaults_are_checked(tmp_path: Path) -> None:
    data = {"arch": "x86", "capacty-type": "spot", "spread": "zone"}
    defaults = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dovetail-defaults"}, "data": data}
    first, second = lines(tmp_path, yaml.safe_dump(defaults))
    assert "data[arch]: " in first
    assert second.endswith("data[capacty-type]: is not a setting; did you mean capacity-type?")


def test_good_keys_and_what_programs_write_are_no_findings(tmp_path: Path) -> None:
    template = {"metadata": {"annotations": {"dovetail.dev/arch": "arm64,amd64", "dovetail.dev/on-demand": "30%"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"dovetail.dev/stamped": "x"}}}
    namespace = {
        "dovetail.dev/arch": "amd64_arm64",
        "dovetail.dev/on-demand": "30pct",
        "dovetail.dev/stamp": "disabled",
    }
    objects = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
         "spec": {"template": {**template, "spec": {"containers": []}}}},
        pod,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": namespace}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}},
    ]  # fmt: skip
    result = run(tmp_path, yaml.safe_dump_all(objects))
    assert (
        result.output
        == "3 objects checked: 0 errors, 0 warnings; skipped 1 object of a kind that lint does not check\n"
    )


def test_every_key_of_the_reference_has_a_place_or_is_no_annotation_and_no_label() -> None:
    without = {key for key, there in places().items() if not there}
    assert without <= {"dovetail.dev/image-arch"}
    assert KeyPlace("Namespace", "label") in places()["dovetail.dev/image-arch"]
    assert places()["dovetail.dev/v1"] == {
        KeyPlace(kind, "annotation") for kind in ("NodePool", "NodeClaim", "EC2NodeClass")
    }


def test_warnings_fail_where_they_are_asked_to(tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, annotations: {dovetail.dev/os: linux}}\n"
    assert run(tmp_path, text).exit_code == 0
    assert run(tmp_path, text, arguments=("--fail-on", "warning")).exit_code == 1
