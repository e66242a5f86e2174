"""Which fields of pod templates Kubernetes does not have."""

from typing import Any

import pytest

from provisioner.cli.pod_fields import unknown_pod_fields

WHOLE: dict[str, Any] = {
    "metadata": {"labels": {"any.thing/at-all": "x"}, "annotations": {"a": "b"}},
    "spec": {
        "hostPID": True,
        "setHostnameAsFQDN": True,
        "nodeSelector": {"any": "label"},
        "overhead": {"cpu": "1m"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "a", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
                ]
            }
        },
        "containers": [
            {
                "name": "main",
                "image": "image",
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"requests": {"cpu": 1, "example.com/device": 1}},
                "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "a", "value": "b"}]}},
            }
        ],
        "volumes": [{"name": "a", "csi": {"driver": "d", "volumeAttributes": {"any": "x"}}}],
    },
}


def test_a_template_without_a_mistake() -> None:
    assert unknown_pod_fields(WHOLE) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"spec": {"nodeselector": {}}},
            "spec.nodeselector is ignored; Kubernetes has no such field; did you mean nodeSelector?",
        ),
        (
            {"spec": {"containers": [{}, {"resource": {}}]}},
            "spec.containers[1].resource is ignored; Kubernetes has no such field; did you mean resources?",
        ),
        (
            {"spec": {"node_selector": {}}},
            "spec.node_selector is ignored; Kubernetes has no such field; did you mean nodeSelector?",
        ),
        ({"spec": {"zzz": 1}}, "spec.zzz is ignored; Kubernetes has no such field"),
        ({"spec": {5: 1}}, "spec.5 is ignored; Kubernetes has no such field"),
        ({"replicas": 3}, "replicas is ignored; Kubernetes has no such field"),
    ],
)
def test_a_field_that_is_none_is_named(wrong: dict[Any, Any], said: str) -> None:
    assert [f"{one.path} {one.message}" for one in unknown_pod_fields(wrong)] == [said]


@pytest.mark.parametrize(
    "wrong", [{"spec": 5}, {"spec": {"containers": "none"}}, {"spec": {"containers": [5]}}, {"metadata": None}]
)
def test_values_of_another_kind_are_for_others_to_tell(wrong: dict[str, Any]) -> None:
    assert unknown_pod_fields(wrong) == []
