"""What single fields of v1beta1 become at v1; that nothing is lost is a law (tests/property)."""

from typing import Any

import pytest

from provisioner.apis import cel
from provisioner.apis.conversion.beta import KEPT_V1, ConversionError, convert, kept_kubelet, to_beta, to_v1
from provisioner.apis.conversion.definitions import BETA, V1, documents, two_versions
from provisioner.apis.conversion.ownership import DefinitionsOwner, owner_of
from provisioner.apis.openapi import defaulted, violations

KUBELET = "compatibility.karpenter.sh/v1beta1-kubelet-conversion"


def beta_pool(**spec: Any) -> dict[str, Any]:
    template = {"requirements": [], "nodeClassRef": {"name": "c"}, **spec.pop("template", {})}
    one = {
        "apiVersion": "karpenter.sh/v1beta1",
        "kind": "NodePool",
        "metadata": {"name": "p"},
        "spec": {"template": {"spec": template}, **spec},
    }
    return defaulted(BETA["NodePool"], one)


def v1_pool(**spec: Any) -> dict[str, Any]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}
    template = {"requirements": [], "nodeClassRef": reference, "expireAfter": "720h", **spec.pop("template", {})}
    disruption = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "0s",
        **spec.pop("disruption", {}),
    }
    whole = {"template": {"spec": template}, "disruption": disruption, **spec}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": whole}


def test_a_reference_without_kind_means_an_ec2nodeclass() -> None:
    assert to_v1(beta_pool())["spec"]["template"]["spec"]["nodeClassRef"] == {
        "group": "karpenter.k8s.aws",
        "kind": "EC2NodeClass",
        "name": "c",
    }


def test_underutilized_is_consolidated_at_once_and_expiry_moves_to_the_template() -> None:
    spec = to_v1(beta_pool())["spec"]
    assert spec["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"
    assert spec["disruption"]["consolidateAfter"] == "0s"
    assert spec["template"]["spec"]["expireAfter"] == "720h"


def test_the_kubelet_is_kept_where_the_provider_reads_it() -> None:
    found = to_v1(beta_pool(template={"kubelet": {"maxPods": 7}}))
    assert kept_kubelet(found["metadata"]["annotations"]) == {"maxPods": 7}


def test_the_empty_resources_that_karpenter_wrote_are_admitted_and_come_back() -> None:
    one = beta_pool(template={"resources": {}})
    assert violations(BETA["NodePool"], one) == []
    up = to_v1(one)
    assert violations(V1["NodePool"], up) == []
    assert "resources" not in up["spec"]["template"]["spec"]
    assert to_beta(up) == one
    (wrong,) = violations(BETA["NodePool"], beta_pool(template={"resources": {"requests": {"cpu": "1"}}}))
    assert wrong.path == "spec.template.spec.resources"


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"a":' * 100_000, "\ud800"])
def test_a_kubelet_that_cannot_be_read_is_none(text: str) -> None:
    assert kept_kubelet({KUBELET: text}) is None


def test_what_was_kept_comes_back_beside_an_edit_of_another_field() -> None:
    down = to_beta(v1_pool(template={"terminationGracePeriod": "1h"}, disruption={"consolidateAfter": "5m"}))
    down["spec"]["weight"] = 3
    up = to_v1(down)["spec"]
    assert up["template"]["spec"]["terminationGracePeriod"] == "1h"
    assert (up["disruption"]["consolidateAfter"], up["weight"]) == ("5m", 3)


def test_an_edited_policy_wins_over_what_was_kept_of_it() -> None:
    down = to_beta(v1_pool(disruption={"consolidateAfter": "5m"}))
    down["spec"]["disruption"] = {
        **down["spec"]["disruption"],
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": "60s",
    }
    assert to_v1(down)["spec"]["disruption"]["consolidateAfter"] == "60s"


def test_what_was_kept_is_not_stored_where_v1_would_refuse_it() -> None:
    down = to_beta(v1_pool(replicas=3))
    down["spec"]["weight"] = 3
    with pytest.raises(ConversionError, match="'weight' is not supported on static NodePools"):
        to_v1(down)


def test_a_forged_annotation_stores_nothing_that_v1_would_refuse() -> None:
    one = beta_pool()
    one["metadata"]["annotations"] = {KEPT_V1: '{"later":{"replicas":"many"}}'}
    with pytest.raises(ConversionError, match=r"spec\.replicas"):
        to_v1(one)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"later":7}', '{"later":{"metadata":{}}}', '{"nodeClassRef":{"nodeClassRef":7}}']
)
def test_a_damaged_annotation_keeps_nothing(text: str) -> None:
    one = beta_pool()
    plain = to_v1(one)
    one["metadata"] = {**one["metadata"], "annotations": {KEPT_V1: text}}
    found = to_v1(one)
    assert found["spec"] == plain["spec"]
    assert KEPT_V1 not in found["metadata"].get("annotations", {})


def test_an_object_of_another_kind_or_version_is_refused_by_name() -> None:
    with pytest.raises(ConversionError, match='Pod "a"'):
        convert({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, "karpenter.sh/v1")
    with pytest.raises(ConversionError, match="v2"):
        convert(v1_pool(), "karpenter.sh/v2")


def test_an_object_at_the_wanted_version_stays() -> None:
    assert convert(v1_pool(), "karpenter.sh/v1") == v1_pool()


def test_a_definition_stores_v1_alone_and_serves_the_other_as_deprecated() -> None:
    first, second = two_versions("NodePool", {})["spec"]["versions"]
    assert (first["name"], first["served"], first["storage"]) == ("v1", True, True)
    assert (second["name"], second["served"], second["storage"], second["deprecated"]) == ("v1beta1", True, False, True)


OWNERS = {
    "nobody": ({}, {}, None),
    "kubectl": ({"app.kubernetes.io/managed-by": "kustomize"}, {}, None),
    "Helm by label": (
        {"app.kubernetes.io/managed-by": "Helm"},
        {},
        DefinitionsOwner("Helm", "app.kubernetes.io/managed-by"),
    ),
    "Helm by annotation": (
        {},
        {"meta.helm.sh/release-name": "x"},
        DefinitionsOwner("Helm", "meta.helm.sh/release-name"),
    ),
    "our own chart": (
        {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "dovetail-crd-0.1.0"},
        {"meta.helm.sh/release-name": "definitions"},
        None,
    ),
    "our own chart by Argo CD": (
        {"helm.sh/chart": "dovetail-crd-0.1.0"},
        {"argocd.argoproj.io/tracking-id": "x"},
        DefinitionsOwner("Argo CD", "argocd.argoproj.io/tracking-id"),
    ),
    "Argo CD": (
        {},
        {"argocd.argoproj.io/tracking-id": "x"},
        DefinitionsOwner("Argo CD", "argocd.argoproj.io/tracking-id"),
    ),
    "Flux": (
        {"kustomize.toolkit.fluxcd.io/name": "x"},
        {},
        DefinitionsOwner("Flux", "kustomize.toolkit.fluxcd.io/name"),
    ),
}


@pytest.mark.parametrize(("labels", "annotations", "owner"), OWNERS.values(), ids=OWNERS)
def test_who_keeps_a_definition(
    labels: dict[str, str], annotations: dict[str, str], owner: DefinitionsOwner | None
) -> None:
    assert owner_of(labels, annotations) == owner


def rules(schema: Any) -> list[str]:
    """Every CEL rule of a schema."""
    if isinstance(schema, dict):
        own = [one["rule"] for one in schema.get("x-kubernetes-validations", ())]
        return own + [rule for value in schema.values() for rule in rules(value)]
    return [rule for value in schema for rule in rules(value)] if isinstance(schema, list) else []


def test_every_rule_of_the_old_versions_is_understood_offline() -> None:
    found = [rule for one in documents({}).values() for rule in rules(one) if "oldSelf" not in rule]
    assert len(found) > 50
    for rule in found:
        cel.compiled(rule)


def test_custom_images_have_to_be_named() -> None:
    spec = {
        "amiFamily": "Custom",
        "role": "r",
        "subnetSelectorTerms": [{"id": "subnet-1"}],
        "securityGroupSelectorTerms": [{"id": "sg-1"}],
    }
    one = {"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "metadata": {"name": "c"}, "spec": spec}
    (found,) = violations(BETA["EC2NodeClass"], defaulted(BETA["EC2NodeClass"], one))
    assert "amiSelectorTerms is required" in str(found)


def test_a_fragment_that_v1beta1_cannot_say_at_all_comes_back() -> None:
    """Server-side apply converts what one manager owns, here one field that is new in v1."""
    owned = {"spec": {"capacityReservationSelectorTerms": [{"id": "cr-1"}]}}
    one = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "a"}, **owned}
    assert to_v1(to_beta(one)) == one
