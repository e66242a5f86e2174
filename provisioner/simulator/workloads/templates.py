"""Pod templates of made-up workloads. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from provisioner.apis import names

APP: Final = "app"
"""The label by which pods of one workload know each other."""
GPU: Final = "nvidia.com/gpu"


def pod_template(
    app: str,
    *,
    cpu_millis: int,
    memory_mib: int,
    gpus: int = 0,
    selector: Mapping[str, str] | None = None,
    affinity: Mapping[str, Any] | None = None,
    zonal: bool = False,
) -> dict[str, Any]:
    """A template as of a manifest: one container that asks for so much.

    Args:
        app: value of the label `app`.
        cpu_millis: thousandths of a CPU.
        memory_mib: MiB.
        gpus: of NVIDIA's; such pods tolerate the usual taint of nodes with GPUs.
        selector: the node selector.
        affinity: as of a pod's spec.
        zonal: spread over zones, by a maxSkew of 1.
    """
    requests = {"cpu": f"{cpu_millis}m", "memory": f"{memory_mib}Mi", **({GPU: str(gpus)} if gpus else {})}
    resources: dict[str, Any] = {"requests": requests, **({"limits": {GPU: str(gpus)}} if gpus else {})}
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": resources}]}
    if selector:
        spec["nodeSelector"] = dict(selector)
    if affinity:
        spec["affinity"] = dict(affinity)
    if gpus:
        spec["tolerations"] = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    if zonal:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": names.ZONE_LABEL,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {APP: app}},
            }
        ]
    return {"metadata": {"labels": {APP: app}}, "spec": spec}


def on_spot() -> dict[str, str]:
    """The node selector of pods that are content with spot."""
    return {names.CAPACITY_TYPE_LABEL: names.CAPACITY_SPOT}
