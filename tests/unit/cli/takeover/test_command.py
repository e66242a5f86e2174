"""The takeover commands: output and exit statuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from provisioner.cli.main import dovetail
from tests.support import takeover
from tests.unit.takeover.test_node_groups import GROUP


def run(*arguments: object) -> Result:
    return CliRunner().invoke(dovetail, ["takeover", *map(str, arguments)])


def written(path: Path, *documents: Any) -> Path:
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return path


def test_a_check_that_finds_nothing(tmp_path: Path) -> None:
    result = run("check", written(tmp_path / "all.yaml", takeover.deployment(), takeover.node_pool()))
    assert result.exit_code == 0, result.output
    assert "0 of 0 NodeClaims would drift" in result.output
    assert "all 6 checks passed" in result.output


def test_findings_for_programs(tmp_path: Path) -> None:
    argo = takeover.deployment(annotations={"argocd.argoproj.io/tracking-id": "x"})
    result = run("check", "-o", "json", written(tmp_path / "all.yaml", argo))
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["exitCode"] == 1
    (found,) = (one for one in report["findings"] if one["verdict"] == "finding")
    assert found["found"].startswith("Argo CD would start Karpenter again")
    assert "argocd app set" in found["advice"]


USAGE = {
    "a file that is not there": ("check", "/nowhere.yaml"),
    "a directory": ("check", "/"),
    "files and a cluster": ("check", "/nowhere.yaml", "--context", "x"),
    "an unknown option": ("check", "--nothing"),
}


@pytest.mark.parametrize("arguments", USAGE.values(), ids=USAGE)
def test_wrong_usage_is_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "text",
    ["", "a: [", "\x00\x01", "kind: Thing\napiVersion: v1\n"],
    ids=["empty", "no YAML", "binary", "nothing of ours"],
)
def test_files_that_hold_nothing_are_2(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    assert run("check", tmp_path / "x.yaml").exit_code == 2


def test_a_cluster_that_cannot_be_reached_is_3(tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
    }
    result = run("check", "--kubeconfig", written(tmp_path / "config", config))
    assert result.exit_code == 3, result.output
    assert "the cluster could not be read" in result.output


def test_what_aws_does_not_answer_is_3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    source = ("--from", "cluster-autoscaler", "--cluster-name", "prod", "--aws-region", "eu-west-1")
    result = run("plan", *source, written(tmp_path / "all.yaml", takeover.deployment()))
    assert (result.exit_code, result.stderr) == (3, "dovetail: AWS: Unable to locate credentials\n")


INJECTED = "x\nSteps:\n 1. evil"


def test_what_objects_say_begins_no_line(tmp_path: Path) -> None:
    condition = {"type": "Ready", "status": "False", "reason": "No", "message": INJECTED}
    condition["lastTransitionTime"] = "2026-11-29T10:00:00Z"
    pool = {**takeover.node_pool(), "status": {"conditions": [condition]}}
    program = takeover.deployment(annotations={"meta.helm.sh/release-name": INJECTED}, env={"CLUSTER_NAME": INJECTED})
    result = run("plan", written(tmp_path / "all.yaml", program, pool))
    assert result.output.count("evil") > 2
    assert [one for one in result.output.splitlines() if one.startswith("Steps:")] == ["Steps:"]
    assert not any(one.startswith(" 1. evil") for one in result.output.splitlines())


# --- from Cluster Autoscaler


def grouped(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "groups.json"
    path.write_text(json.dumps({"nodegroup": {**GROUP, **changes}}), encoding="utf-8")
    return path


GROUPS = ("plan", "--from", "cluster-autoscaler")


def test_node_groups_are_written_as_manifests_that_lint_accepts(tmp_path: Path) -> None:
    result = run(*GROUPS, "-o", "yaml", grouped(tmp_path))
    assert result.exit_code == 0, result.output
    made = [one for one in yaml.safe_load_all(result.stdout) if one]
    assert [(one["kind"], one["metadata"]["name"]) for one in made] == [("EC2NodeClass", "web"), ("NodePool", "web")]
    path = tmp_path / "made.yaml"
    path.write_text(result.stdout, encoding="utf-8")
    assert CliRunner().invoke(dovetail, ["lint", str(path)]).exit_code == 0


def test_a_group_that_cannot_be_taken_over_is_a_finding(tmp_path: Path) -> None:
    result = run(*GROUPS, grouped(tmp_path, amiType="CUSTOM"))
    assert result.exit_code == 1
    assert 'Node group "web" (1 to 10 nodes) is not taken over: it uses a custom AMI' in result.output


def test_what_a_group_says_is_no_manifest(tmp_path: Path) -> None:
    evil = "x\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: evil}\n#"
    for changes in ({"amiType": evil}, {"launchTemplate": {"name": evil}}, {"remoteAccess": {"ec2SshKey": evil}}):
        result = run(*GROUPS, "-o", "yaml", grouped(tmp_path, **changes))
        assert {one["kind"] for one in yaml.safe_load_all(result.stdout) if one} <= {"EC2NodeClass", "NodePool"}
    assert run(*GROUPS, "-o", "yaml", grouped(tmp_path, nodegroupName="web\n")).exit_code == 2


def test_the_steps_of_node_groups(tmp_path: Path) -> None:
    result = run(*GROUPS, grouped(tmp_path), "--group", "web")
    assert result.exit_code == 0, result.output
    assert "dovetail takeover start --from cluster-autoscaler --cluster-name prod --group web" in result.output
    assert "aws eks delete-nodegroup --cluster-name prod --nodegroup-name web" in result.output


MISUSED = {
    "no groups": GROUPS,
    "a group that is not there": (*GROUPS, "--group", "none"),
    "manifests from Karpenter": ("plan", "-o", "yaml"),
    "files for Karpenter": ("start",),
}


@pytest.mark.parametrize("name", MISUSED)
def test_misuse_is_2(tmp_path: Path, name: str) -> None:
    pods = written(tmp_path / "pods.yaml", takeover.pod("a"))
    result = run(*MISUSED[name], pods if name in ("no groups", "manifests from Karpenter") else grouped(tmp_path))
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
