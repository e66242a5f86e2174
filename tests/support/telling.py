"""Problems and answers in a few lines, for messages of failing tests."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from provisioner.apis.pods import PodShape
from provisioner.scheduling.result import Result
from tests.support.question import Problem


def told(problem: Problem, result: Result | None = None) -> str:
    """The problem, and what became of it."""
    lines = [f"policies: {problem.preferences}, {problem.min_values}"]
    shapes = {pod.shape.key: pod.shape for pod in problem.pods}
    for key, shape in shapes.items():
        lines.append(f"pods {' '.join(pod.name for pod in problem.pods if pod.shape.key == key)}: {_shape(shape)}")
    for pool in problem.pools:
        taints = f" taints {' '.join(map(str, pool.taints))}" if pool.taints else ""
        limits = f" left {dict(pool.remaining)}" if pool.remaining is not None else ""
        lines.append(f"pool {pool.name} weight {pool.weight}: {pool.requirements}{taints}{limits}")
        for one in pool.instance_types:
            where = Counter(
                f"{offering.zone}/{offering.capacity_type}@{offering.price}"
                for offering in one.offerings
                if offering.available
            )
            lines.append(f"    {one.name} {dict(one.capacity)}: {' '.join(sorted(where))}")
    for one_bin in problem.bins:
        taints = f" taints {' '.join(map(str, one_bin.taints))}" if one_bin.taints else ""
        leaving = " leaving" if one_bin.leaving else ""
        lines.append(
            f"bin {one_bin.name}: room {dict(one_bin.room)} labels {dict(one_bin.labels)}{taints}{leaving} attach {dict(one_bin.attach_limits)}"
        )
        lines += [f"    runs {pod.name} ({pod.namespace}): {_shape(pod.shape)}" for pod in one_bin.pods]
    lines += [f"daemon: {_shape(one)}" for one in problem.daemons]
    if result is not None:
        lines += [f"-> {claim!r} {claim.requirements}: {_names(claim.pods)}" for claim in result.claims]
        lines += [f"-> {name}: {_names(pods)}" for name, pods in result.existing.items()]
        lines += [f"-> {one.pod.name} left: {one}" for one in result.unplaced]
    return "\n".join(lines)


def _names(pods: Iterable[object]) -> str:
    return " ".join(str(getattr(pod, "name", pod)) for pod in pods)


def _shape(shape: PodShape) -> str:
    """Everything that is not as usual."""
    said = {
        "ns": shape.namespace if shape.namespace != "default" else "",
        "labels": shape.labels,
        "requests": {key: value for key, value in shape.requests.items() if key != "pods"},
        "selector": shape.node_selector,
        "affinity": shape.affinity,
        "tolerations": shape.tolerations,
        "spread": shape.spread,
        "ports": shape.host_ports,
        "volumes": shape.volumes,
        "priority": shape.priority,
        "error": shape.error,
    }
    return " ".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in said.items() if value)
