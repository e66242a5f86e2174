"""The webhook program on a dev cluster, and what tests do with it."""

import contextlib
import json
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certs.rotation import SERVING_FILE
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import Invalid, NotFound
from provisioner.kube.resources import (
    MUTATINGWEBHOOKS,
    NAMESPACES,
    NODEPOOLS,
    SECRETS,
    VALIDATINGWEBHOOKS,
    Resource,
)
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.splitter import Address, Splitter
from webhook.registration import CONFIGURATION_NAME

HOME = "dovetail-system"
SECRET = "dovetail-webhook-tls"
PROGRAM = "webhook"
IPV6 = "[::1]"
DOVETAIL = "provisioner.cli.main"
ARM64 = {"dovetail.dev/arch": "arm64"}
IN_ARM64 = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}


class Hook:
    """The running program and what a test does with it.

    Args:
        plane: where it runs.
        directory: for its certificates.
        flags: more of its flags.
        replica: of several, the number of this one; 0 has the plane's own ports.
        host: that it listens on, in the brackets of a URL where it is IPv6.
        module: what is run; `dovetail` unless it is a program of the tests' that ends in the same one.

    Attributes:
        registered: HOST:PORT that API servers are told; another than its own where something stands before it.
    """

    def __init__(
        self,
        plane: DevCluster,
        directory: Path,
        *flags: str,
        replica: int = 0,
        host: str = "127.0.0.1",
        module: str = DOVETAIL,
    ) -> None:
        self.plane, self._flags, self._module = plane, flags, module
        self._directory = directory
        serving, metrics = plane.ports["webhook"], plane.ports["webhook-metrics"]
        if replica:
            serving, metrics = free_port(), free_port()
        self.program = f"{PROGRAM}-{replica}" if replica else PROGRAM
        self.address = f"{host}:{serving}"
        self.metrics = f"http://127.0.0.1:{metrics}"
        self.registered = self.address
        self.client = Client(connect(str(plane.kubeconfig), user_agent="test", pool_size=64), SystemClock())

    def start(self) -> None:
        """Start it and wait until pods are stamped."""
        self.launch()
        self.serve()

    def launch(self) -> None:
        """Start it."""
        arguments = ["--kubeconfig", str(self.plane.kubeconfig), "--bind", self.address]
        arguments += ["--metrics-bind", self.metrics.removeprefix("http://")]
        arguments += ["--register-url", f"https://{self.registered}", "--cert-dir", str(self._directory)]
        arguments += ["--scheduler-lease", "kube-system/kube-scheduler", "--namespace", HOME, *self._flags]
        command = [sys.executable, "-m", self._module, *(["webhook"] if self._module == DOVETAIL else []), *arguments]
        root = str(Path(__file__).parents[2])
        eventually(self._has_default_account, "the default service account is there")
        self.plane.start_program(self.program, command, {"PYTHONPATH": root})

    def serve(self) -> None:
        """Wait until pods are stamped."""
        eventually(self.ready, "webhook is ready")
        eventually(self.stamps, "a pod is stamped")

    @property
    def serving_file(self) -> Path:
        """Key and certificate that it serves."""
        return self._directory / SERVING_FILE

    def ask_patiently(self) -> None:
        """Have the API server wait 30 s for the answer to a review, not 2: how long many at once take says how crowded the machine is.

        So it is until the program registers itself again.
        """
        patch = [{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30}]
        self.client.patch(MUTATINGWEBHOOKS, CONFIGURATION_NAME, patch, kind="json")
        self.client.patch(VALIDATINGWEBHOOKS, CONFIGURATION_NAME, patch, kind="json")

    def close(self) -> None:
        """Stop it and remove what it made for the whole cluster."""
        self.plane.stop(self.program)
        made: tuple[tuple[Resource[Any], str, str], ...] = (
            (MUTATINGWEBHOOKS, CONFIGURATION_NAME, ""),
            (VALIDATINGWEBHOOKS, CONFIGURATION_NAME, ""),
            (SECRETS, SECRET, HOME),
        )
        for resource, name, namespace in made:
            with contextlib.suppress(NotFound):  # another replica removed it
                self.client.delete(resource, name, namespace)

    def _has_default_account(self) -> bool:
        try:
            self.client.raw("GET", "/api/v1/namespaces/default/serviceaccounts/default")
        except NotFound:
            return False
        return True

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.metrics}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def stamps(self) -> bool:
        """Whether a pod, not stored, comes back stamped: everything from registration to reply works."""
        return "affinity" in self.create("default", ARM64, dry_run=True)["spec"]

    def validates(self) -> bool:
        """Whether a NodePool that the rules do not allow, not stored, is refused: as `stamps`, of the other configuration."""
        requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["SPOT"]}
        node_class = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
        pool = {
            "apiVersion": NODEPOOLS.api_version,
            "kind": "NodePool",
            "metadata": {"name": "hook-denied"},
            "spec": {"template": {"spec": {"nodeClassRef": node_class, "requirements": [requirement]}}},
        }
        try:
            self.client.raw("POST", NODEPOOLS.path(), pool, query={"dryRun": "All"})
        except Invalid as error:
            return '"SPOT" is not a capacity type' in str(error)
        return False

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.metrics}/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def namespace(self, **labels: str) -> str:
        """A new namespace in which pods can be created."""
        name = f"hook-{uuid.uuid4().hex[:8]}"
        document = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "labels": {f"dovetail.dev/{key.replace('_', '-')}": v for key, v in labels.items()},
            },
        }
        self.client.create(NAMESPACES, document)
        path = f"/api/v1/namespaces/{name}/serviceaccounts"
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine"}}
        self.client.raw("POST", path, account)  # the default one may take a while
        return name

    def create(
        self,
        namespace: str,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        owners: list[dict[str, Any]] | None = None,
        dry_run: bool = False,
        **spec: Any,
    ) -> dict[str, Any]:
        """A pod as the API server stored it."""
        metadata: dict[str, Any] = {"generateName": "p-", "annotations": annotations or {}, "labels": labels or {}}
        metadata["ownerReferences"] = owners or []
        account = {} if namespace == "default" else {"serviceAccountName": "mine"}
        whole = {"containers": [{"name": "c", "image": "i"}], **account, **spec}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole}
        query = {"dryRun": "All"} if dry_run else None
        answer: dict[str, Any] = json.loads(
            self.client.raw("POST", f"/api/v1/namespaces/{namespace}/pods", body, query=query)
        )
        return answer


@dataclass(frozen=True)
class Replicas:
    """Two of the program, and what API servers connect to, which gives them connections in turn."""

    hooks: Sequence[Hook]
    splitter: Splitter

    def start(self) -> None:
        """Start both at once and wait until each of them is ready and pods are stamped."""
        for one in self.hooks:
            one.launch()
        for one in self.hooks:
            one.serve()


def split_address(address: str) -> Address:
    """Host and port of HOST:PORT or [HOST]:PORT."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


@contextlib.contextmanager
def replicas(plane: DevCluster, directories: Sequence[Path], *flags: str, module: str = DOVETAIL) -> Iterator[Replicas]:
    """Two of the program, running, each with a directory of its own; they are gone afterwards with everything that they made.

    The second, and what API servers connect to, are IPv6.
    """
    hosts = ("127.0.0.1", IPV6)
    hooks = [
        Hook(plane, each, *flags, replica=at, host=host, module=module)
        for at, (each, host) in enumerate(zip(directories, hosts, strict=True))
    ]
    with Splitter([split_address(one.address) for one in hooks], "::1") as splitter:
        try:
            made = Replicas(hooks, splitter)
            for one in hooks:
                one.registered = splitter.address
            made.start()
            yield made
        finally:
            for one in hooks:
                one.close()


def requirements(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """The expressions of the pod's only required term; empty without affinity, and of a term of fields only."""
    affinity = pod["spec"].get("affinity")
    if affinity is None:
        return []
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    expressions: list[dict[str, Any]] = term.get("matchExpressions", [])
    return expressions
