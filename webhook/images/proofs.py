"""Which image was seen to run on which architecture: a container that is ready on an arm64 node proves arm64 for its image.

A proof only widens what a registry says: the configuration of an image may name a wrong architecture, a container that runs does not. What nobody runs
anywhere is no proof of anything, so proofs alone restrict no pod. And it counts for the namespace of the container alone: whoever owns a pod can run a
program of their own under any image, or an emulator.
"""

import re
import threading
from collections import OrderedDict
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.meta import Object
from provisioner.apis.stamping import ARCHITECTURES
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import NODES, PODS, Bare
from provisioner.kube.survey import Unreadable, surveyed
from provisioner.support.poller import Poller
from provisioner.values.bounded import put_newest

EVERY_SECONDS: Final = 1800.0
FIRST_SECONDS: Final = 5.0
PAGE: Final = 25
"""Pods a request: a pod may have 1.5 MB, and a page is in memory twice while it arrives."""
MAX_KNOWN: Final = 8192
_DIGEST: Final = re.compile(r"(?:.{0,300}@)(sha256:[0-9a-f]{64})", re.ASCII)


class _Container(Object, frozen=True, kw_only=True):
    image_id: str = msgspec.field(default="", name="imageID")
    ready: bool = False


class _Spec(Object, frozen=True, kw_only=True):
    node_name: str = ""


class _Status(Object, frozen=True, kw_only=True):
    container_statuses: tuple[_Container, ...] = ()


class _Pod(Bare, frozen=True, kw_only=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


_node = msgspec.json.Decoder(Bare).decode
_pod = msgspec.json.Decoder(_Pod).decode


class Proofs:
    """What runs where, by namespace and digest; thread-safe. Every half an hour `poller` lists Nodes and running pods, page by page; they are not kept."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()
        self.poller = Poller("running-images", self._poll, EVERY_SECONDS, expected=(ApiError,), first=FIRST_SECONDS)

    def __len__(self) -> int:
        """The digests that were seen to run, of each namespace."""
        return len(self._seen)

    def of(self, namespace: str, digest: str) -> frozenset[str]:
        """The architectures of Linux nodes that a digest was seen to run on, in pods of a namespace."""
        return self._seen.get((namespace, digest)) or frozenset()

    def see(self, namespace: str, image_id: str, architecture: str) -> None:
        """A container of this image was ready in a pod of a namespace, on a node of this architecture."""
        found = _DIGEST.fullmatch(image_id)
        if found is None or architecture not in ARCHITECTURES:
            return
        with self._lock:
            key = (namespace, found[1])
            put_newest(self._seen, key, self._seen.get(key, frozenset()) | {architecture}, MAX_KNOWN)

    def survey(self) -> None:
        """Look once.

        Raises:
            ApiError: Nodes or pods cannot be listed.
        """
        nodes = {
            node.metadata.name: node.metadata.labels.get(names.ARCH_LABEL, "")
            for node in surveyed(self._client, NODES, decode=_node, page=PAGE)
            if not isinstance(node, Unreadable) and node.metadata.labels.get(names.OS_LABEL, "linux") == "linux"
        }
        pods = surveyed(self._client, PODS, decode=_pod, field_selector="status.phase=Running", page=PAGE)
        for pod in pods:
            if self.poller.stopped:
                return
            if isinstance(pod, Unreadable) or not (architecture := nodes.get(pod.spec.node_name, "")):
                continue
            for container in pod.status.container_statuses:
                if container.ready:
                    self.see(pod.metadata.namespace, container.image_id, architecture)

    def _poll(self) -> float:
        self.survey()
        return EVERY_SECONDS
