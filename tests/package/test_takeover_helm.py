"""CRDs pass from Karpenter's chart to Dovetail's and back, by the commands that `takeover plan` prints: no CRD is deleted, and no object."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.apis.crds import documents
from provisioner.kube.client import Client
from provisioner.kube.resources import CRDS, NODEPOOLS
from provisioner.lab.devcluster.building import chart_tools
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.takeover.checking import OUR_DEFINITIONS
from tests.support.provisioner import Plot

pytestmark = [pytest.mark.plane, pytest.mark.package, pytest.mark.timeout(1800)]

VALUES = "    {{- with .Values.additionalAnnotations }}\n    {{- toYaml . | nindent 4 }}\n    {{- end }}\n"


def chart(path: Path, name: str, **annotations: str) -> Path:
    """A chart of our CRDs as templates, with the value that Karpenter's has."""
    where = path / name
    (where / "templates").mkdir(parents=True)
    (where / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": name, "version": "1.14.0"}))
    (where / "values.yaml").write_text("additionalAnnotations: {}\n")
    for document in documents().values():
        one: dict[str, Any] = {
            **document,
            "metadata": {**document["metadata"], "annotations": {"chart": name, **annotations}},
        }
        text = yaml.safe_dump(one, sort_keys=False, width=10_000)
        text = text.replace("{{", '{{ "{{" }}')
        text = re.sub(rf"^    chart: {name}\n", lambda found: found[0] + VALUES, text, count=1, flags=re.MULTILINE)
        (where / "templates" / f"{document['metadata']['name']}.yaml").write_text(text)
    return where


class Shell:
    """Runs commands against the cluster."""

    def __init__(self, plane: DevCluster, charts: Path) -> None:
        self.helm = str(chart_tools(os.environ).paths["helm"])
        self.env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "HELM_CACHE_HOME": str(charts / "cache")}
        self.charts = charts

    def dovetail(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "provisioner.cli.main", "takeover", *arguments]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, timeout=300)

    def run(self, command: str) -> str:
        """A helm command as it is printed, with the charts of this test."""
        words = shlex.split(re.sub(r" --version \S+", "", command))
        assert words[0] == "helm"
        words = [self.helm, *words[1:]]
        words = [
            str(self.charts / one.rpartition("/")[2]) if "/" in one and one.endswith("-crd") else one for one in words
        ]
        found = subprocess.run(words, env=self.env, capture_output=True, text=True, check=False, timeout=300)
        assert found.returncode == 0, f"{command}: {found.stderr}"
        return found.stdout

    def planned(self, part: str) -> list[str]:
        """The helm commands of the steps."""
        found = self.dovetail("plan", "-o", "json")
        assert found.returncode in (0, 1), found.stderr
        steps = json.loads(found.stdout)[part]
        return [one for step in steps for one in step["commands"] if one.startswith("helm ") and "-crd" in one]


@pytest.fixture
def shell(plane: DevCluster, client: Client, tmp_path: Path) -> Iterator[Shell]:
    chart(tmp_path, "karpenter-crd")
    chart(tmp_path, "dovetail-crd", **{"helm.sh/resource-policy": "keep"})
    yield Shell(plane, tmp_path)
    own = {"meta.helm.sh/release-name": None, "meta.helm.sh/release-namespace": None, "helm.sh/resource-policy": None}
    for name in OUR_DEFINITIONS:
        labels = {"app.kubernetes.io/managed-by": None}
        client.patch(CRDS, name, {"metadata": {"annotations": {**own, "chart": None}, "labels": labels}})


def identities(client: Client, pool: str) -> dict[str, str]:
    found = {name: client.get(CRDS, name).metadata.uid for name in OUR_DEFINITIONS}
    return {**found, pool: client.get(NODEPOOLS, pool).metadata.uid}


def owner(client: Client) -> set[str]:
    return {client.get(CRDS, name).metadata.annotations["meta.helm.sh/release-name"] for name in OUR_DEFINITIONS}


def test_definitions_go_from_one_chart_to_the_other_and_back(client: Client, shell: Shell) -> None:
    plot = Plot(client)
    pool = plot.pool(ready=False)
    before = identities(client, pool)
    shell.run("helm upgrade --install karpenter-crd x/karpenter-crd --namespace kube-system --take-ownership")
    refused = shell.dovetail("start", "--timeout", "1")
    assert refused.returncode == 1, refused.stderr
    assert 'Helm release "karpenter-crd" in namespace "kube-system" would delete' in refused.stdout
    for name in OUR_DEFINITIONS:  # an annotation of the object alone is not what Helm reads
        client.patch(CRDS, name, {"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}})
    assert shell.dovetail("start", "--timeout", "1").returncode == 1

    keep, hand_over, *_, remove = shell.planned("steps")
    shell.run(keep)
    report = json.loads(shell.dovetail("check", "-o", "json").stdout)
    assert [one for one in report["findings"] if one["blocksStart"]] == []
    shell.run(hand_over)
    assert owner(client) == {"dovetail-crd"}
    back = shell.planned("back")
    shell.run(remove)
    assert identities(client, pool) == before

    for command in back:
        shell.run(command)
    assert owner(client) == {"karpenter-crd"}
    assert identities(client, pool) == before
    shell.run("helm uninstall karpenter-crd --namespace kube-system")
    assert identities(client, pool) == before
    plot.clear()
