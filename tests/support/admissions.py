"""Templates, and what of a cluster decides what becomes of them: judged by hand in unit tests, by a real API server in integration tests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from provisioner.apis.core import LimitRange, PodTemplateSpec, PriorityClass, RuntimeClass
from provisioner.apis.stamping import StampFacts
from provisioner.apis.templates import Admission, Admitted, admitted_pods, owned
from provisioner.state.admission import Admitting, admission_of
from provisioner.values.taints import Taint

Body = dict[str, Any]
NAMESPACE: Final = "team"
TAINT: Final = Taint(key="example.com/team", value="a", effect="NoSchedule")
_RUNTIME: Final = {
    "overhead": {"podFixed": {"cpu": "250m", "memory": "160Mi"}},
    "scheduling": {
        "nodeSelector": {"sandbox": "kata"},
        "tolerations": [{"key": "sandbox", "operator": "Equal", "value": "kata", "effect": "NoSchedule"}],
    },
}


@dataclass(frozen=True, slots=True)
class Row:
    """One template.

    Attributes:
        spec: of the pod.
        limits: items of a LimitRange of its namespace; none without.
        runtime: of the RuntimeClass that `{runtime}` names; none without.
        priority: of the PriorityClass that `{priority}` names; none without.
        settings: labels of its namespace, without our prefix; `{pool}` is a NodePool with the taint `TAINT`.
        annotations: of the pod, without our prefix.
        workload: the kind of what makes it; none without.
        stamps: settings and what else the webhook sees in it, by the name in its record.
        want: fields of the shape, as Kubernetes writes them.
    """

    spec: Body
    want: Body
    limits: tuple[Body, ...] = ()
    runtime: Body | None = None
    priority: Body | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    workload: str = ""
    stamps: frozenset[str] = frozenset()

    def template(self, names: Mapping[str, str]) -> PodTemplateSpec:
        """The template, with the names of the classes."""
        metadata = {"labels": {"app": "web"}, "annotations": self.marks(self.annotations, names)}
        body = {"metadata": metadata, "spec": self.body(names)}
        template = msgspec.json.decode(msgspec.json.encode(body), type=PodTemplateSpec)
        return owned(template, self.workload) if self.workload else template

    @staticmethod
    def marks(settings: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
        """Settings as labels or annotations."""
        return {f"dovetail.dev/{key}": value.format(**names) for key, value in settings.items()}

    def facts(self, names: Mapping[str, str], namespace: str = NAMESPACE) -> StampFacts:
        """What the webhook goes by."""
        taints = {names["pool"]: (TAINT,)}
        return StampFacts(namespace, self.marks(self.settings, names), taints_of=taints.get)

    def made(self, names: Mapping[str, str], namespace: str = NAMESPACE) -> Admitted:
        """What becomes of the first pod of the template."""
        facts = self.facts(names, namespace)
        return admitted_pods(self.template(names), self.admission(names, namespace), facts)[0][1]

    def body(self, names: Mapping[str, str]) -> Body:
        """The pod's spec, with the names of the classes."""
        classes = {
            key: value.format(**names)
            for key, value in self.spec.items()
            if key in ("runtimeClassName", "priorityClassName")
        }
        return {**self.spec, **classes}

    def objects(self, names: Mapping[str, str], namespace: str = NAMESPACE) -> list[tuple[str, Body]]:
        """(path of the collection, body) of what decides about it."""
        found = []
        if self.limits:
            body = {"metadata": {"name": "defaults", "namespace": namespace}, "spec": {"limits": list(self.limits)}}
            found.append((f"/api/v1/namespaces/{namespace}/limitranges", body))
        if self.runtime is not None:
            body = {"metadata": {"name": names["runtime"]}, "handler": "kata", **self.runtime}
            found.append(("/apis/node.k8s.io/v1/runtimeclasses", body))
        if self.priority is not None:
            body = {"metadata": {"name": names["priority"]}, **self.priority}
            found.append(("/apis/scheduling.k8s.io/v1/priorityclasses", body))
        if "nodepool" in {*self.settings, *self.annotations}:
            found.append(("/apis/karpenter.sh/v1/nodepools", _pool_named(names["pool"])))
        return found

    def admission(self, names: Mapping[str, str], namespace: str = NAMESPACE) -> Admission:
        """What admission goes by, as people write it: not completed by an API server."""
        kinds = {"limitranges": LimitRange, "runtimeclasses": RuntimeClass, "priorityclasses": PriorityClass}
        objects: list[Admitting] = [
            msgspec.json.decode(msgspec.json.encode(body), type=kinds[kind])
            for path, body in self.objects(names, namespace)
            if (kind := path.rpartition("/")[2]) in kinds
        ]
        return admission_of(objects)


def _pool_named(name: str) -> Body:
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    spec = {"nodeClassRef": reference, "requirements": [], "taints": [msgspec.to_builtins(TAINT)]}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": spec}},
    }


def box(requests: Body | None = None, limits: Body | None = None, name: str = "c", **more: Any) -> Body:
    """A container."""
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {"name": name, "image": "x", "resources": resources, **more}


def _pod(*containers: Body, **more: Any) -> Body:
    return {"containers": list(containers), "automountServiceAccountToken": False, **more}


_SPOT: Final = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
_PREFERS_SPOT: Final = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [_SPOT]}}]
    }
}
_ON_WINDOWS: Final = {"windowsOptions": {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"}}
_MI: Final = 2**20
ROWS: Final[dict[str, Row]] = {
    "a template with requests": Row(_pod(box({"cpu": "100m"})), {"cpu": 100, "pods": 1}),
    "limits only, a GPU among them": Row(
        _pod(box({"cpu": "1"}, {"example.com/gpu": "1"})), {"cpu": 1000, "example.com/gpu": 1, "pods": 1}
    ),
    "limits only in an init container and a sidecar": Row(
        _pod(
            box({"cpu": "100m"}),
            initContainers=[
                box(None, {"cpu": "2"}, "init"),
                box(None, {"cpu": "300m", "memory": "64Mi"}, "side", restartPolicy="Always"),
            ],
        ),
        {"cpu": 2000, "memory": 64 * _MI, "pods": 1},
    ),
    "limits of the pod as a whole only": Row(
        _pod(box(), box(name="d"), resources={"limits": {"cpu": "3", "memory": "2Gi"}}),
        {"cpu": 3000, "memory": 2048 * _MI, "pods": 1},
    ),
    "limits of the pod where a container requests some": Row(
        _pod(
            box({"cpu": "100m"}),
            box(None, {"memory": "10Mi"}, "d"),
            resources={"limits": {"cpu": "3", "memory": "2Gi"}},
        ),
        {"cpu": 100, "memory": 10 * _MI, "pods": 1},
    ),
    "requests of the pod as a whole": Row(
        _pod(box({"cpu": "100m"}), box(name="d"), resources={"requests": {"cpu": "2500m"}, "limits": {"cpu": "3"}}),
        {"cpu": 2500, "pods": 1},
    ),
    "huge pages of a container with limits of the pod": Row(
        _pod(
            box({"cpu": "1", "memory": "64Mi"}, {"hugepages-2Mi": "4Mi"}),
            resources={"limits": {"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "8Mi"}},
        ),
        {"cpu": 1000, "memory": 64 * _MI, "hugepages-2Mi": 8 * _MI, "pods": 1},
    ),
    "default requests of a LimitRange": Row(
        _pod(box(), box({"cpu": "10m"}, name="d"), initContainers=[box(name="init")]),
        {"cpu": 910, "memory": 2 * 64 * _MI, "pods": 1},
        limits=({"type": "Container", "defaultRequest": {"cpu": "900m", "memory": "64Mi"}},),
    ),
    "a LimitRange's limits are its requests where it gives none": Row(
        _pod(box()),
        {"cpu": 900, "memory": 1024 * _MI, "pods": 1},
        limits=({"type": "Container", "default": {"cpu": "2", "memory": "1Gi"}, "defaultRequest": {"cpu": "900m"}},),
    ),
    "a LimitRange's maximum and minimum": Row(
        _pod(box()),
        {"cpu": 2000, "memory": 32 * _MI, "pods": 1},
        limits=({"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "32Mi"}},),
    ),
    "a container's limits come before a LimitRange's requests": Row(
        _pod(box(None, {"cpu": "200m"})),
        {"cpu": 200, "pods": 1},
        limits=({"type": "Container", "defaultRequest": {"cpu": "50m"}},),
    ),
    "a LimitRange for whole pods gives nothing": Row(
        _pod(box({"cpu": "100m"}, {"cpu": "1"})),
        {"cpu": 100, "pods": 1},
        limits=({"type": "Pod", "max": {"cpu": "2"}},),
    ),
    "a RuntimeClass with overhead, selector and tolerations": Row(
        _pod(box({"cpu": "900m"}), runtimeClassName="{runtime}", nodeSelector={"tier": "gold"}),
        {"cpu": 1150, "memory": 160 * _MI, "pods": 1},
        runtime=_RUNTIME,
    ),
    "a RuntimeClass whose toleration the pod has wider": Row(
        _pod(
            box({"cpu": "900m"}),
            runtimeClassName="{runtime}",
            tolerations=[{"key": "sandbox", "operator": "Exists"}, {"key": "a", "operator": "Exists"}],
        ),
        {"cpu": 1150, "memory": 160 * _MI, "pods": 1},
        runtime=_RUNTIME,
    ),
    "a RuntimeClass whose toleration is wider than the pod's": Row(
        _pod(
            box({"cpu": "900m"}),
            runtimeClassName="{runtime}",
            tolerations=[{"key": "sandbox", "operator": "Equal", "value": "kata", "effect": "NoSchedule"}],
        ),
        {"cpu": 900, "pods": 1},
        runtime={"scheduling": {"tolerations": [{"operator": "Exists"}]}},
    ),
    "a PriorityClass": Row(
        _pod(box({"cpu": "100m"}), priorityClassName="{priority}"),
        {"cpu": 100, "pods": 1},
        priority={"value": 1000, "preemptionPolicy": "Never"},
    ),
    "a PriorityClass of the system": Row(
        _pod(box({"cpu": "100m"}), priorityClassName="system-node-critical"), {"cpu": 100, "pods": 1}
    ),
    "the default PriorityClass": Row(
        _pod(box({"cpu": "100m"})), {"cpu": 100, "pods": 1}, priority={"value": 7, "globalDefault": True}
    ),
    "tolerations of unreachable nodes that the pod has itself": Row(
        _pod(
            box({"cpu": "100m"}),
            tolerations=[
                {
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 5,
                }
            ],
        ),
        {"cpu": 100, "pods": 1},
    ),
    "host ports of a pod on the host's network": Row(
        _pod(box({"cpu": "100m"}, ports=[{"containerPort": 9100, "protocol": "TCP"}]), hostNetwork=True),
        {"cpu": 100, "pods": 1},
    ),
    "all at once": Row(
        _pod(
            box(),
            box(None, {"example.com/gpu": "2"}, "d"),
            initContainers=[box(None, {"cpu": "3"}, "init")],
            runtimeClassName="{runtime}",
            priorityClassName="{priority}",
            resources={"limits": {"memory": "4Gi", "cpu": "4"}},
        ),
        {"cpu": 3250, "memory": 4256 * _MI, "example.com/gpu": 2, "pods": 1},
        runtime=_RUNTIME,
        priority={"value": 1000},
    ),
    "an architecture that the namespace asks for": Row(
        _pod(box({"cpu": "100m"})), {"cpu": 100, "pods": 1}, settings={"arch": "arm64"}, stamps=frozenset({"arch"})
    ),
    "a NodePool that the pod asks for, with its taints": Row(
        _pod(box({"cpu": "100m"})),
        {"cpu": 100, "pods": 1},
        annotations={"nodepool": "{pool}"},
        stamps=frozenset({"nodepool", "tolerations"}),
    ),
    "a capacity type beside a preference, and a spread": Row(
        _pod(box({"cpu": "100m"}), affinity=_PREFERS_SPOT),
        {"cpu": 100, "pods": 1},
        settings={"capacity-type": "spot_on-demand", "spread": "zone"},
        stamps=frozenset({"capacity-type", "spread"}),
    ),
    "a deprecated selector": Row(
        _pod(box({"cpu": "100m"}), nodeSelector={"beta.kubernetes.io/arch": "arm64"}),
        {"cpu": 100, "pods": 1},
        settings={"legacy-labels": "rewrite", "arch": "amd64"},
        stamps=frozenset({"legacy-labels"}),
    ),
    "a pod for Windows whose namespace asks for arm64": Row(
        _pod(box({"cpu": "100m"}), hostNetwork=True, securityContext=_ON_WINDOWS),
        {"cpu": 100, "pods": 1},
        settings={"arch": "arm64", "capacity-type": "spot"},
        stamps=frozenset({"capacity-type"}),
    ),
    "a pod that opts out": Row(
        _pod(box({"cpu": "100m"})),
        {"cpu": 100, "pods": 1},
        settings={"arch": "arm64"},
        annotations={"stamp": "disabled"},
    ),
    "the first pod of a share on demand": Row(
        _pod(box({"cpu": "100m"})),
        {"cpu": 100, "pods": 1},
        annotations={"on-demand": "30%"},
        workload="Deployment",
        stamps=frozenset({"on-demand"}),
    ),
    "stamps over a RuntimeClass and a LimitRange": Row(
        _pod(box(), runtimeClassName="{runtime}"),
        {"cpu": 750, "memory": 160 * _MI, "pods": 1},
        limits=({"type": "Container", "defaultRequest": {"cpu": "500m"}},),
        runtime=_RUNTIME,
        settings={"os": "linux", "nodepool": "{pool}"},
        stamps=frozenset({"os", "nodepool", "tolerations"}),
    ),
}
"""By what the row is about."""
