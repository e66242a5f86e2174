"""`dovetail` commands against a dev cluster, killed at each of their writes or not, and a kubelet that ends what they scale to 0."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Final, Literal

from provisioner.kube.client import Client
from provisioner.kube.resources import DEPLOYMENTS
from provisioner.lab.devcluster.cluster import DevCluster
from tests.support.dying import KILLED
from tests.support.eventually import eventually

_SECONDS: Final = 600.0
_MOST_WRITES: Final = 100

Death = Literal["", "before", "after"]
"""Whether a command kills itself right before its first write is sent, or right after it was answered."""


def dovetail(
    cluster: DevCluster, *arguments: str, environment: Mapping[str, str] | None = None, dying: Death = ""
) -> tuple[int, str]:
    """One run: its exit status and what it printed."""
    program = ["tests.support.dying", "1", dying, "any"] if dying else ["provisioner.cli.main"]
    command = [sys.executable, "-m", *program, *arguments, "--kubeconfig", str(cluster.kubeconfig)]
    its = {**os.environ, **(environment or {})}
    run = subprocess.run(command, capture_output=True, text=True, env=its, timeout=_SECONDS, check=False)
    return run.returncode, run.stdout + run.stderr


def killed_at_every_write(run: Callable[[Death], tuple[int, str]]) -> int:
    """Runs that are killed before and after each write, until one has nothing more to write; how many writes there were.

    Before, because what a run does to a cloud since its last write is done then.
    """
    deaths: tuple[Death, ...] = ("before", "after")
    for writes in range(_MOST_WRITES):
        for when in deaths:
            status, output = run(when)
            assert status in (0, -signal.SIGKILL), output
            if KILLED not in output:
                return writes
    raise AssertionError("it never comes to its end")


def stops_when_scaled(client: Client, namespace: str, stop: Callable[[], object]) -> threading.Thread:
    """What a kubelet does: the provisioner ends when its Deployment is scaled to 0."""

    def follow() -> None:
        eventually(
            lambda: client.get(DEPLOYMENTS, "dovetail-provisioner", namespace).spec.replicas == 0, "scaled", 300.0
        )
        stop()

    made = threading.Thread(target=follow, name="kubelet", daemon=True)
    made.start()
    return made
