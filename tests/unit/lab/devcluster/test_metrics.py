"""metrics-server in a cluster: only where it is asked for, and the parts agree about names and files."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.lab.devcluster import metrics, versions
from provisioner.lab.devcluster.components import COMPONENTS, Layout, command
from provisioner.lab.devcluster.downloading import Download
from provisioner.lab.devcluster.errors import BuildError
from provisioner.lab.devcluster.ports import PORT_NAMES
from provisioner.lab.devcluster.progress import SILENT

PORTS = {name: 20000 + number for number, name in enumerate(PORT_NAMES)}
WITHOUT, WITH = Layout(Path("/cluster"), PORTS), Layout(Path("/cluster"), PORTS, metrics=True)
USAGE = Path(metrics.__file__).with_name("usage.yaml")


def test_it_is_the_last_component_where_it_is_asked_for_and_none_otherwise() -> None:
    assert WITHOUT.components == COMPONENTS
    assert WITH.components == (*COMPONENTS, "metrics-server")
    assert "metrics-server" not in versions.ARTIFACTS


@pytest.mark.parametrize("component", ["kube-apiserver", "kube-controller-manager", "kwok"])
def test_other_components_hear_of_it_only_then(component: str) -> None:
    more = set(command(component, WITH)) - set(command(component, WITHOUT))
    assert set(command(component, WITHOUT)) < set(command(component, WITH))
    assert {flag.partition("=")[0] for flag in more} == {
        "kube-apiserver": {"--proxy-client-cert-file", "--proxy-client-key-file"},
        "kube-controller-manager": {"--horizontal-pod-autoscaler-sync-period"},
        "kwok": {"--enable-crds", "--tls-cert-file", "--tls-private-key-file"},
    }[component]


def test_it_listens_on_loopback_and_trusts_the_clusters_authority() -> None:
    flags = command("metrics-server", WITH)
    assert flags[0] == "/cluster/bin/metrics-server"
    assert "--bind-address=127.0.0.1" in flags
    assert f"--secure-port={PORTS['metrics-server']}" in flags
    assert "--kubelet-certificate-authority=/cluster/pki/ca.crt" in flags
    assert not [flag for flag in flags if "insecure" in flag]


def test_the_api_server_finds_it_without_a_cluster_network() -> None:
    service, api = metrics.api_documents(b"PEM", 20042)
    assert service["spec"] == {"type": "ExternalName", "externalName": "localhost"}
    assert api["spec"]["service"] == {**service["metadata"], "port": 20042}
    assert base64.b64decode(api["spec"]["caBundle"]) == b"PEM"
    assert metrics.SERVER_NAME.split(".")[:2] == list(service["metadata"].values()), "what its certificate says"


def test_the_usage_is_what_the_definition_allows() -> None:
    spec = metrics.definition()["spec"]
    assert f"{spec['names']['plural']}.{spec['group']}" == metrics.definition()["metadata"]["name"]
    schema: dict[str, Any] = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    document = metrics.default_usage()
    assert document["apiVersion"] == f"{spec['group']}/{spec['versions'][0]['name']}"
    (usage,) = document["spec"]["usages"]
    allowed = schema["properties"]["usages"]["items"]["properties"]["usage"]["additionalProperties"]["properties"]
    assert set(usage["usage"]) == {"cpu", "memory"}
    assert all(set(amount) <= set(allowed) for amount in usage["usage"].values())


def test_nodes_are_told_the_path_that_kwok_answers() -> None:
    metric, stage = yaml.safe_load_all(USAGE.read_text())
    assert metric["kind"] == "Metric"
    (patch,) = stage["spec"]["next"]["patches"]
    annotations = yaml.safe_load(patch["template"].replace("{{ .metadata.name }}", "{nodeName}"))["annotations"]
    assert annotations == {"metrics.k8s.io/resource-metrics-path": metric["spec"]["path"]}
    assert [one["name"] for one in metric["spec"]["metrics"]].index("pod_cpu_usage_seconds_total") < [
        one["name"] for one in metric["spec"]["metrics"]
    ].index("container_cpu_usage_seconds_total")


def test_it_cannot_be_downloaded(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"published as an image only.*Leave out --download"):
        Download("http://127.0.0.1:9").make([versions.METRICS_SERVER], tmp_path, SILENT)
