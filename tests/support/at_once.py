"""Scenarios through the real programs: NodePools and pods are created, all pods at once, and what becomes of them is looked at.

The provisioner finds the instance types of the scenarios in a file, and each scenario's NodePools make nodes with the scenario's label.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.cloudprovider.kwok.catalogue import OVERHEAD
from provisioner.cloudprovider.types import InstanceType
from provisioner.kube.resources import PODS
from provisioner.lab.harness import applying
from provisioner.lab.harness.session import Session
from provisioner.scheduling.problem import SchedulingPool
from tests.support.eventually import PATIENCE, eventually
from tests.support.judge import ROW_LABEL, Document, FakeProvisioner, Scenario, Setting, stem
from tests.support.pod_waits import pod_waits

NODE_CLASS: Document = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
    "spec": {},
}
_CAPACITY_TYPES = {
    "key": names.CAPACITY_TYPE_LABEL,
    "operator": "In",
    "values": [names.CAPACITY_ON_DEMAND, names.CAPACITY_SPOT],
}


def has_relations(scenario: Scenario) -> bool:
    """Whether some pod of it minds where others are: spread, affinity to pods, ports of the host."""
    for pod in scenario.pods:
        spec = pod["spec"]
        if (
            spec.get("topologySpreadConstraints")
            or {"podAffinity", "podAntiAffinity"} & spec.get("affinity", {}).keys()
        ):
            return True
        if any(port.get("hostPort") for one in spec["containers"] for port in one["ports"]):
            return True
    return False


def write_types(path: Path, scenarios: Iterable[Scenario]) -> None:
    """A file for `--instance-types-file-path` with every type of these scenarios; allocatable is what the scenarios say it is."""
    types = {one.name: one for scenario in scenarios for pool in scenario.pools for one in pool.instance_types}
    write_types_of(path, types.values())


def write_types_of(path: Path, types: Iterable[InstanceType]) -> None:
    """The same with these types."""
    path.write_text(json.dumps([_entry(one) for one in types]))


def _entry(one: InstanceType) -> Document:
    return {
        "name": one.name,
        "architecture": one.requirements[names.ARCH_LABEL].single_value,
        "operatingSystems": ["linux"],
        "resources": (one.capacity + OVERHEAD).to_wire(),
        "offerings": [
            {"Price": offer.price, "Available": offer.available, "Requirements": offer.requirements.to_wire()}
            for offer in one.offerings
        ],
    }


def node_pool(scenario: str, one: SchedulingPool) -> Document:
    """The NodePool of a scenario, under a name of its own."""
    own = [entry for entry in one.requirements.to_wire() if entry["key"] != names.NODEPOOL_LABEL]
    wanted = [
        *own,
        {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": [t.name for t in one.instance_types]},
    ]
    if not any(entry["key"] == names.CAPACITY_TYPE_LABEL for entry in own):
        wanted.append(_CAPACITY_TYPES)
    spec: dict[str, Any] = {
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "expireAfter": "Never",
        "requirements": wanted,
        "taints": msgspec.to_builtins(one.taints),
    }
    body: Document = {
        "template": {"metadata": {"labels": {ROW_LABEL: scenario}}, "spec": spec},
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
    }
    if one.weight:
        body["weight"] = one.weight
    if one.remaining is not None:
        body["limits"] = one.remaining.to_wire()
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": f"{scenario}-{one.name}"},
        "spec": body,
    }


@dataclass(frozen=True)
class Landing:
    """What became of the pods of one scenario.

    Attributes:
        seconds: of each bound pod, by name, from the first plan that named it until it was bound; 0 for who was never planned.
        unbound: names of those that are not bound; kube-scheduler has refused each.
    """

    seconds: dict[str, float]
    unbound: frozenset[str] = frozenset()
    error: str = ""


class AtOnce:
    """The programs of a session, put to scenarios; several at a time from threads of the caller's."""

    def __init__(self, run: Session) -> None:
        self._run = run
        self._volumes = FakeProvisioner(run.client)
        applying.apply(run.client, [NODE_CLASS])

    def close(self) -> None:
        self._volumes.stop()

    def land(self, name: str, scenario: Scenario, seconds: float) -> Landing:
        """Create all, wait until as many pods are bound as the scenario says can be, at most so long on a machine of our own. Errors are part of the answer."""
        try:
            return self._land(name, scenario, seconds)
        except Exception as error:  # noqa: BLE001 - it is what the scenario fails with
            return Landing({}, error=f"{type(error).__name__}: {error}")

    def _land(self, name: str, scenario: Scenario, seconds: float) -> Landing:
        setting = Setting(self._run.client, name, scenario)
        setting.prepare()
        self._run.apply_pools([node_pool(name, one) for one in scenario.pools])
        setting.create_waiting(gated=False)
        clock, namespaces = self._run.clock, set(setting.namespaces)
        until = clock.monotonic() + seconds * PATIENCE
        while clock.monotonic() < until:
            waits = pod_waits(self._run.observer, namespaces)
            bound = sum(one.bound is not None for one in waits.values())
            if len(waits) == len(scenario.pods) and bound >= len(scenario.pods) - len(scenario.left):
                break
            clock.sleep(0.1)
        waits = {key.partition("/")[2]: one for key, one in pod_waits(self._run.observer, namespaces).items()}
        unbound = frozenset(key for key, one in waits.items() if one.bound is None)
        for one in unbound:
            self._await_refusal(setting, one)
        return Landing({key: one.seconds for key, one in waits.items() if one.bound is not None}, unbound)

    def _await_refusal(self, setting: Setting, name: str) -> None:
        def judged() -> bool:
            found = [
                one for each in setting.namespaces for one in self._run.client.list(PODS, each) if one.name == name
            ]
            return any(one.unschedulable and not one.node_name for one in found)

        eventually(judged, f"kube-scheduler refuses {name}", 30.0)


def complaint(scenario: Scenario, landing: Landing, *, extender: bool) -> str:
    """What is wrong with it; "" where everybody who can be placed was bound, and nobody else was. How soon is told by `Landing.seconds`."""
    if landing.error:
        return landing.error
    unbound, left = Counter(map(stem, landing.unbound)), Counter(map(stem, scenario.left))
    if scenario.steered and not extender and (unbound - left).total() <= 1:
        return ""
    if unbound != left:
        return f"unbound are {sorted(landing.unbound)}, not {sorted(scenario.left)}"
    return ""
