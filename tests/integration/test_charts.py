"""The charts say what the kustomize tree says: the same objects, for each overlay and component, in any namespace."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from provisioner.lab.charts.karpenter import VERSIONS, keys, verdicts
from tests.support.charts import CHART, DEFINITIONS, MANIFESTS, kustomize, run, template, tools

KWOK: Final = (("base",), ("components/kwok",), ("provider=kwok",))
COMPLETE: Final = (("base", "scheduler"), ("components/kwok",), ("provider=kwok", "scheduler.enabled=true"))
AWS: Final = ("provider=aws", "settings.clusterName=my-cluster")

COMPONENTS: Final = {
    "surge": ("surge.enabled=true",),
    "vpa-predictions": ("vpaPredictions.enabled=true",),
    "conversion": ("conversion.enabled=true",),
    "on-demand-shares": ("webhook.onDemandShares.enabled=true",),
    "image-architectures": ("webhook.imageArchitectures.enabled=true",),
    "admission-policy": ("admissionPolicy.enabled=true",),
    "webhook-read-only": ("webhook.readOnly=true",),
    "cert-manager": ("webhook.certManager.enabled=true",),
    "monitoring": ("serviceMonitor.enabled=true", "prometheusRule.enabled=true", "dashboards.enabled=true"),
    "without-webhook": ("webhook.enabled=false",),
    "scheduler-before-1.35": ("scheduler.before135=true",),
}
"""The values that each component is in the chart."""


@pytest.mark.parametrize(
    ("overlay", "values"),
    [
        ("kwok", KWOK[2]),
        ("complete", COMPLETE[2]),
        (
            "aws",
            (*AWS, "settings.interruptionQueue=my-cluster", "settings.discounts=configmap/dovetail-discounts"),
        ),
    ],
)
def test_the_chart_is_each_overlay(overlay: str, values: tuple[str, ...], tmp_path: Path) -> None:
    assert template(CHART, *values) == kustomize(tmp_path, [f"overlays/{overlay}"])


def test_every_component_has_its_switch() -> None:
    there = {path.parent.name for path in (MANIFESTS / "components").glob("*/kustomization.yaml")}
    assert there == COMPONENTS.keys() | {"kwok", "aws", "namespace"}


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_chart_is_each_component(component: str, tmp_path: Path) -> None:
    resources, provider, values = COMPLETE if component in ("monitoring", "scheduler-before-1.35") else KWOK
    rendered = template(CHART, *values, *COMPONENTS[component])
    assert rendered == kustomize(tmp_path, resources, [*provider, f"components/{component}"])
    assert rendered != template(CHART, *values), "the component changes something"


def test_the_chart_is_all_components_together_in_any_namespace(tmp_path: Path) -> None:
    """But those that exclude another: the order of the chart's arguments is that of the components here."""
    chosen = [name for name in COMPONENTS if name not in ("without-webhook", "webhook-read-only")]
    values = [*AWS, "scheduler.enabled=true", *(value for name in chosen for value in COMPONENTS[name])]
    order = [
        "aws",
        "surge",
        "vpa-predictions",
        "conversion",
        "on-demand-shares",
        "image-architectures",
        "admission-policy",
        "cert-manager",
        "monitoring",
    ]
    assert {*order, "scheduler-before-1.35"} == {*chosen, "aws"}
    components = [f"components/{name}" for name in (*order, "scheduler-before-1.35")]
    rendered = template(CHART, *values, "monitoringNamespace=monitoring", namespace="autoscaling")
    overlay = kustomize(tmp_path, ["base", "scheduler"], components, namespace="autoscaling")
    for one in rendered:
        if one["kind"] == "Deployment":  # a value of the chart, which an overlay patches in
            for container in one["spec"]["template"]["spec"]["containers"]:
                container["env"] = [each for each in container["env"] if each["name"] != "CLUSTER_NAME"]
    assert rendered == overlay
    assert "dovetail-system" not in json.dumps(rendered)


@pytest.mark.parametrize(("kustomization", "values"), [("crds", ()), ("crds-conversion", ("conversion.enabled=true",))])
def test_the_chart_of_definitions_is_the_install_of_its_own(
    kustomization: str, values: tuple[str, ...], tmp_path: Path
) -> None:
    rendered = template(DEFINITIONS, *values)
    assert rendered == kustomize(tmp_path, [kustomization])
    for one in rendered:
        assert one["kind"] == "CustomResourceDefinition"
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_no_overlay_contains_a_definition_or_the_namespace(tmp_path: Path) -> None:
    kept = {"CustomResourceDefinition", "Namespace"}
    for overlay in ("kwok", "complete", "aws"):
        assert not kept & {one["kind"] for one in kustomize(tmp_path, [f"overlays/{overlay}"])}
    (namespace,) = kustomize(tmp_path, ["namespace"])
    (definition, *_) = kustomize(tmp_path, ["crds"])
    assert namespace["metadata"]["annotations"] == definition["metadata"]["annotations"]
    assert "app.kubernetes.io/name" not in namespace["metadata"]["labels"], "kubectl apply --prune selects by it"


def test_nothing_of_the_charts_is_a_hook() -> None:
    values = ("scheduler.enabled=true", *(value for name in ("surge", "conversion") for value in COMPONENTS[name]))
    for one in (*template(CHART, *AWS, *values), *template(DEFINITIONS)):
        assert not [key for key in one["metadata"].get("annotations", {}) if key.startswith("helm.sh/hook")]


@pytest.mark.parametrize("chart", [CHART, DEFINITIONS], ids=["dovetail", "dovetail-crd"])
def test_helm_finds_nothing_to_say_of_the_charts(chart: Path) -> None:
    given = ("--set", "settings.clusterName=c") if chart is CHART else ()
    assert "0 chart(s) failed" in run(tools()["helm"], "lint", "--strict", chart, *given)


def test_what_the_values_do(tmp_path: Path) -> None:
    """The suites in the chart's tests, run by helm-unittest, which writes beside the chart what it remembers."""
    copy = tmp_path / "dovetail"
    shutil.copytree(CHART, copy)
    assert "passed" in run(tools()["helm-unittest"], copy)


def refused(*values: str) -> str:
    done = subprocess.run(
        [tools()["helm"], "template", "dovetail", CHART, *(word for one in values for word in ("--set", one))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("replicas=3", "replicas: this chart calls it provisioner.replicas"),
        ("controller.image.tag=2", "controller.image.tag: this chart calls it image.tag"),
        ("hostNetwork=true", "hostNetwork: the namespace enforces the Pod Security Standard restricted"),
        ("settings.bathMaxDuration=5s", "bathMaxDuration"),
        ("settings.batchMaxDuration=soon", "batchMaxDuration"),
        ("settings.featureGates.nodeRepair=perhaps", "nodeRepair"),
        ("settings.timeouts.launch=-1s", "launch"),
        ("provider=gcp", "provider"),
        ("image.digest=latest", "digest"),
    ],
)
def test_a_value_that_is_not_ours_is_refused_with_the_reason(value: str, said: str) -> None:
    assert said in refused(*AWS, value)


def test_the_defaults_of_karpenter_are_refused_nowhere(tmp_path: Path) -> None:
    """Of values that are the chart's too, and of those that are refused: whoever gives a whole file of Karpenter's values is told of what differs alone."""
    renamed = {one.key for one in verdicts() if one.status == "renamed"}
    for version in VERSIONS:
        values: dict[str, object] = {}
        for key, default in keys(version).items():
            *parents, name = key.split(".")
            place = values
            for parent in parents:
                place = place.setdefault(parent, {})  # type: ignore[assignment]
            if key not in renamed or default not in ({}, []):
                place[name] = default
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values), encoding="utf-8")
        assert run(tools()["helm"], "template", "dovetail", CHART, "-f", file, "--set", "settings.clusterName=c")
