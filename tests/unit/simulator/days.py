"""Small days for tests of the simulator, on kwok's generated types."""

from typing import Any

from provisioner.apis import names
from provisioner.cli.capacity_options import ec2_manners
from provisioner.cloudprovider.kwok.catalogue import generated
from provisioner.options import Options
from provisioner.simulator.cloud import Offer
from provisioner.simulator.market import ByOffering, Market
from provisioner.simulator.simulation import SimulationSetting
from provisioner.simulator.workload import Change, Day

KWOK = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


def offer() -> Offer:
    """What kwok has."""
    catalogue = generated()
    known = names.WELL_KNOWN_LABELS | catalogue.well_known_labels
    return Offer(lambda _: catalogue.types, known, "", frozenset({("karpenter.kwok.sh", "KWOKNodeClass")}))


def pool(
    *,
    sizes: tuple[str, ...] = ("2", "4", "8"),
    labels: dict[str, str] | None = None,
    capacity_types: tuple[str, ...] = (names.CAPACITY_ON_DEMAND,),
    **disruption: Any,
) -> dict[str, Any]:
    """A NodePool of nodes that run Linux on amd64."""
    requirements = {
        names.CAPACITY_TYPE_LABEL: list(capacity_types),
        names.ARCH_LABEL: ["amd64"],
        names.OS_LABEL: ["linux"],
        names.KWOK_INSTANCE_CPU_LABEL: list(sizes),
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "general"},
        "spec": {
            "template": {
                "metadata": {"labels": labels or {}},
                "spec": {
                    "nodeClassRef": KWOK,
                    "expireAfter": "Never",
                    "requirements": [
                        {"key": key, "operator": "In", "values": values} for key, values in requirements.items()
                    ],
                },
            },
            "disruption": {"consolidateAfter": "0s", **disruption},
        },
    }


def template(app: str, cpu: str = "1", memory: str = "1Gi", **spec: Any) -> dict[str, Any]:
    """A pod template."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], **spec}}


def budget(app: str, **allows: object) -> dict[str, Any]:
    """A PodDisruptionBudget."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, **allows},
    }


def market(interruptions: float = 0.0, shortages: float = 0.0, seconds: tuple[float, ...] = (600.0,)) -> Market:
    """Interruptions of every spot instance per hour, and the share of the time in which an offering is short."""
    return Market(ec2_manners(), ByOffering(interruptions), ByOffering(shortages), seconds)


def setting(
    *changes: Change, seconds: float, objects: tuple[dict[str, Any], ...] = (), packing: str = "greedy", **more: Any
) -> SimulationSetting:
    """A day of these changes, with `pool` where no objects are given, and nodes that boot in 40 s."""
    options = Options.parse(["--history-duration=0s", f"--packing={packing}"], {})
    return SimulationSetting(
        Day(duration_seconds=seconds, changes=changes),
        objects or (pool(),),
        offer(),
        options,
        **{"boot_seconds": (40.0,), **more},
    )
