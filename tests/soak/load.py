"""Workloads that come once: each has a name, and an owner, that was never there before and never is again."""

import random
import threading
from contextlib import suppress
from typing import Final

from provisioner.apis import names
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import DEPLOYMENTS
from provisioner.lab.harness import applying
from provisioner.lab.harness.workload import deployment

NAMESPACE: Final = "passing"
EACH_SECONDS: Final = 15.0
STAY: Final = 6
"""So many are there at a time."""
SIZES: Final = (("200m", "256Mi"), ("500m", "1Gi"), ("1", "2Gi"))


class Passing:
    """Has a Deployment come and the oldest go, every 15 s, in a thread of its own; every third is a gang.

    Attributes:
        came: how many.
    """

    def __init__(self, client: Client, chance: random.Random) -> None:
        self._client, self._chance = client, chance
        self.came = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="passing", daemon=True)

    def start(self) -> None:
        """Make the namespace, and begin."""
        applying.apply(self._client, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        self._thread.start()

    def stop(self) -> None:
        """Nothing comes any more; what is there stays."""
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        there: list[str] = []
        while not self._stop.wait(EACH_SECONDS):
            with suppress(ApiError, OSError):  # the API server is away
                while len(there) >= STAY:
                    self._client.raw(
                        "DELETE", DEPLOYMENTS.path(NAMESPACE, there[0]), {"propagationPolicy": "Background"}
                    )
                    del there[0]
                there.append(self._come())

    def _come(self) -> str:
        cpu, memory = self._chance.choice(SIZES)
        name, pods = f"job-{self.came:05d}", self._chance.randint(2, 5)
        document = deployment(name, NAMESPACE, pods, {"cpu": cpu, "memory": memory})
        if not self.came % 3:
            notes = {names.GANG: name, names.GANG_MINIMUM: str(pods)}
            document["spec"]["template"]["metadata"]["annotations"] = notes
        applying.apply(self._client, [document])
        self.came += 1
        return name
