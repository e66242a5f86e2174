"""Programs as their Deployments in a cluster say, started as children of the dev cluster: nothing runs Pods there."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.harness.workload import REPOSITORY
from tests.support.kubeconfigs import service_account_kubeconfig
from tests.support.oldversion import OldVersion

Document = dict[str, Any]


def container_of(pod: Document, name: str) -> Document:
    """One container of a Pod's spec."""
    (found,) = (container for container in pod["containers"] if container["name"] == name)
    assert isinstance(found, dict)
    return found


def expanded(words: list[str], namespace: str) -> list[str]:
    """Arguments as a kubelet gives them to a program, with the one variable that is there."""
    return [word.replace("$(POD_NAMESPACE)", namespace) for word in words]


def kubeconfig_of(cluster: DevCluster, pod: Document, namespace: str) -> Path:
    """With a token of the Pod's ServiceAccount."""
    return service_account_kubeconfig(cluster, namespace, pod["serviceAccountName"])


def start(
    cluster: DevCluster,
    pod: Document,
    name: str,
    flags: Mapping[str, object],
    *,
    namespace: str,
    known_as: str = "",
    environment: Mapping[str, str] | None = None,
    version: OldVersion | None = None,
) -> None:
    """Run a container of ours with its own command line, and the places of this machine behind it: the last flag wins.

    Args:
        pod: spec of the Deployment's Pods.
        name: of the container.
        known_as: name of the program in the cluster; that of the container if empty.
        environment: beside what the container has.
        version: whose sources are run; this checkout's without one.
    """
    given = {
        "metadata.namespace": namespace,
        "metadata.name": f"dovetail-{name}-0",
        "status.podIP": "127.0.0.1",
        "requests.cpu": "1000",
        "limits.memory": "1073741824",
    }
    container = container_of(pod, name)
    its = dict(environment or {})
    for variable in container["env"]:
        source: Document = next(iter(variable.get("valueFrom", {}).values()), {})
        key = source.get("fieldPath") or source.get("resource")
        its[variable["name"]] = given[key] if key else variable["value"].replace("$(POD_IP)", "127.0.0.1")
    places = {**flags, "kubeconfig": kubeconfig_of(cluster, pod, namespace)}
    added = [f"--{flag}={value}" for flag, value in places.items()]
    arguments = (*expanded(container["args"], namespace), *added)
    if version is not None:
        version.start(cluster, known_as or name, arguments, its)
        return
    command = [sys.executable, "-m", "provisioner.cli.main", *arguments]
    cluster.start_program(known_as or name, command, {**its, "PYTHONPATH": str(REPOSITORY)})
