"""`dovetail convert` on every seed manifest: the YAML on standard output, every decision on standard error, or exit status 1 with the field."""

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.openapi import defaulted, definition_of, violations
from provisioner.cli.main import dovetail
from provisioner.values import yamltext
from tests.support.converted import CLUSTER, FILES, GOLDEN, expected


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(dovetail, ["convert", *arguments], input=stdin)


def written(result: Result) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(result.stdout))


NAMES = sorted(path.stem for path in FILES.iterdir())


def test_every_file_has_its_golden() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_file_becomes_what_is_expected_and_every_decision_is_said(name: str) -> None:
    path, wanted = FILES / f"{name}.yaml", expected(name)
    result = run("--cluster-name", CLUSTER, str(path))
    told = [line.removeprefix("error: ").removeprefix(f"{path}: ") for line in result.stderr.splitlines()]
    assert told == [*wanted.decisions, *wanted.errors]
    assert result.exit_code == bool(wanted.errors)
    found = written(result) if result.stdout else []
    assert found == [*wanted.objects]
    for one in found:
        definition = definition_of(one["apiVersion"], one["kind"])
        assert definition is None or violations(definition, defaulted(definition, one)) == []


def test_one_bad_file_keeps_everything_from_being_written() -> None:
    good, bad = (str(FILES / f"{name}.yaml") for name in ("selector-workloads", "v1-nodepool-pinned-type"))
    assert run(good, bad).stdout == ""


def test_a_provisioner_without_selectors_needs_the_name_of_the_cluster() -> None:
    result = run(str(FILES / "v1alpha5-provisioner-minimal.yaml"))
    assert result.exit_code == 1
    assert "spec.provider.subnetSelector" in result.stderr
    assert "--cluster-name" in result.stderr


def test_what_a_server_added_is_left_out_and_what_is_converted_converts_to_itself() -> None:
    source = run(str(FILES / "v1beta1-nodepool-and-ec2nodeclass.yaml")).stdout
    (pool, _) = yaml.safe_load_all(source)
    pool["metadata"] |= {"uid": "u", "resourceVersion": "7", "managedFields": []}
    result = run(
        "-", stdin=yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [{**pool, "status": {"nodes": 1}}]})
    )
    assert result.exit_code == 0, result.stderr
    assert written(result) == [{**pool, "metadata": {"name": "default"}}]


ODD_NUMBERS = ["089123456789", "12345e7", "1e3", "0o17", "+1e5", ".5e3", "22:00", "1_000", "0b1"]
ODD_TEXTS = [*ODD_NUMBERS, "y", "N", "on", "~", "", "<<"]


@given(st.lists(st.sampled_from(ODD_TEXTS) | st.text(alphabet="0123456789eExXobyYnN_.:+-~=<", max_size=8), max_size=9))
def test_text_stays_text_for_kubectl(texts: list[str]) -> None:
    """Account IDs and commits look like numbers, and kubectl takes more for numbers than PyYAML does."""
    source = {"apiVersion": "v1", "kind": "ConfigMap", "data": {f"k{at}": text for at, text in enumerate(texts)}}
    source |= {"also": {text: text for text in texts if text}}
    result = run("-", stdin=json.dumps(source))
    assert list(yamltext.documents(result.stdout_bytes)) == [source]


def test_a_kubelet_of_v1beta1_is_kept_and_said() -> None:
    text = (FILES / "v1beta1-nodepool-and-ec2nodeclass.yaml").read_text(encoding="utf-8")
    (pool, _) = yaml.safe_load_all(text)
    pool["spec"]["template"]["spec"]["kubelet"] = {"maxPods": 7}
    result = run("-", stdin=yaml.safe_dump(pool))
    assert written(result)[0]["metadata"]["annotations"] == {
        "compatibility.karpenter.sh/v1beta1-kubelet-conversion": '{"maxPods":7}'
    }
    assert "spec.template.spec.kubelet" in result.stderr


def test_what_pods_say_in_former_names_is_passed_on_and_told() -> None:
    expression = {"key": "karpenter.sh/provisioner-name", "operator": "In", "values": ["a"]}
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"preference": {"matchExpressions": [expression]}}]
        }
    }
    annotations = {"karpenter.sh/do-not-evict": "true", "karpenter.sh/do-not-consolidate": "false"}
    tolerations = [
        {"key": "karpenter.sh/provisioner-name", "operator": "Exists"}
    ]  # of a taint, which asks for no label
    pod = {"metadata": {"annotations": annotations}, "spec": {"affinity": affinity, "tolerations": tolerations}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": {"template": pod}}
    result = run("-", stdin=yaml.safe_dump(deployment))
    assert written(result) == [deployment]
    where = "spec.template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key"
    assert result.stderr.splitlines() == [
        "<stdin>: Deployment/w: spec.template.metadata.annotations[karpenter.sh/do-not-evict]: has no effect at v1; use karpenter.sh/do-not-disrupt",
        f"<stdin>: Deployment/w: {where}: only nodes of NodePools made from a Provisioner have this label; use karpenter.sh/nodepool",
    ]


@pytest.mark.parametrize(
    "text", ["a: b", "- 1", "{", "apiVersion: karpenter.sh/v1alpha2\nkind: Thing\nmetadata: {name: a}"]
)
def test_what_is_no_object_is_an_error_of_one_line(text: str) -> None:
    result = run("-", stdin=text)
    assert (result.exit_code, result.stdout) == (1 if "kind: Thing" in text else 2, "")
    assert result.exception is None or isinstance(result.exception, SystemExit)


EC2_BETA = "apiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {name: a}\n"
PROVISIONER = (
    "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: a}\nspec:\n  providerRef: {name: t}\n"
)
TEMPLATE = "---\napiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {name: t}\nspec: "
ODD = {
    "a class without spec": (EC2_BETA, 0, ""),
    "a class whose spec is null": (f"{EC2_BETA}spec:\n", 0, ""),
    "limits are null": (f"{PROVISIONER}  limits:\n", 0, ""),
    "consolidation is null": (f"{PROVISIONER}  consolidation:\n", 0, ""),
    "requirements are null": (f"{PROVISIONER}  requirements:\n", 0, ""),
    "provider is null": (f"{PROVISIONER}  provider:\n", 0, ""),
    "a template is a text": (
        f"{PROVISIONER}  kubeletConfiguration: {{maxPods: 9}}\n{TEMPLATE}text\n",
        1,
        "Provisioner/a: spec.providerRef: AWSNodeTemplate t: spec: must be an object, not a string",
    ),
    "a selector of a template is a number": (
        f"{PROVISIONER}  kubeletConfiguration: {{maxPods: 9}}\n{TEMPLATE}{{instanceProfile: x, subnetSelector: {{a: 1}}}}\n",
        1,
        "Provisioner/a: spec.providerRef: AWSNodeTemplate t: spec.subnetSelector.a: must be a string",
    ),
    "a typed list, whose items have no kind of their own": (
        '{"apiVersion": "v1", "kind": "ConfigMapList", "items": [{"metadata": {"name": "a"}}]}',
        0,
        "",
    ),
    "JSON that is deep": (
        f'{{"apiVersion": "v1", "kind": "X", "a": {"[" * 600}{"]" * 600}}}',
        2,
        "is nested deeper than 64 levels",
    ),
}


@pytest.mark.parametrize(("text", "status", "error"), ODD.values(), ids=ODD)
def test_odd_files_are_converted_or_refused(text: str, status: int, error: str) -> None:
    result = run("--cluster-name", "blue", "-", stdin=text)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code == status
    assert error in result.stderr


def test_names_cannot_write_to_the_terminal() -> None:
    odd = '{"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "a\\u001b[2J"}}'
    result = run("-", stdin=odd)
    assert result.exit_code == 1
    assert all(line.isprintable() for line in result.stderr.split("\n"))
    assert "[2J" in result.stderr
