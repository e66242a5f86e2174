"""The pods that were admitted before their images were known: `MarkedPods` writes on them what is found out, and lets the gated ones go.

They carry a label, so that only they are watched; every replica looks after all of them, and whoever is first takes the label away. Of a pod
nothing is kept but its name: it is read anew when there is something to write.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeAlias

import msgspec

from provisioner.apis import names, podpatch, stamping
from provisioner.apis.core import ObjectReference
from provisioner.apis.stamping import Images, StampDecision, StampFacts
from provisioner.kube.client import Client
from provisioner.kube.config import Api
from provisioner.kube.errors import ApiError, Conflict, Invalid, NotFound, TooManyRequests
from provisioner.kube.events import Recorder
from provisioner.kube.resources import PODS, PartialIdentity, Resource, identity_in, itself
from provisioner.kube.watch import Reflector
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, ReconcileResult
from provisioner.values import jsontext
from provisioner.values.bounded import put_newest
from webhook.facts import PODS_PAGE
from webhook.images.lookups import Key, Lookups, key_of
from webhook.review import ReviewError, decode_pod

GATE_SECONDS: Final = 10.0
"""How long a pod is held at most, from the moment at which it was seen."""
LOOK_AGAIN_SECONDS: Final = 60.0
RIGHTS_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 0.1
"""After somebody else wrote the pod, most likely the other replica."""
QUICK_TRIES: Final = 3
"""So often a patch that is invalid is put down to that; a test in a patch that fails is answered alike."""
REFUSED_SECONDS: Final = 300.0
"""For how long no pods of a namespace are held after one of them was not let go."""
TURN_SECONDS: Final = 0.025
"""Between two pods of one namespace: each takes a read and a patch, of a hundred requests a second, so a fifth is left to all others."""
AHEAD_SECONDS: Final = 2.5
"""So many turns a namespace may have at once: a hundred pods. Whoever may label pods could else hold up those of everybody."""
MAX_CLOSED: Final = 1024
MAX_TURNS: Final = 1024
WORKERS: Final = 4
_RIGHTS: Final = "rights"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_QUICK_SECONDS: Final = 5.0
_log = logs.get_logger(__name__)


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_decode_review = jsontext.decoder(_AccessReview)
_MARKED_PODS: Final[Resource[PartialIdentity]] = Resource(
    "", "v1", "pods", "Pod", namespaced=True, decode=identity_in, identity=itself
)


FactsOf: TypeAlias = Callable[[str], StampFacts | None]


class MarkedPods:
    """See the module."""

    def __init__(
        self, connection: Api, client: Client, facts_of: FactsOf, lookups: Lookups, recorder: Recorder, clock: Clock
    ) -> None:
        self._client, self._facts_of, self._lookups, self._recorder, self._clock = (
            client,
            facts_of,
            lookups,
            recorder,
            clock,
        )
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self._wait_for: dict[Key, set[str]] = {}
        self._refused: Counter[str] = Counter()
        self._closed: dict[str, float] = {}
        self._turns: dict[str, float] = {}
        self._may_patch = False
        self._watch: Reflector[PartialIdentity] = Reflector(
            connection,
            _MARKED_PODS,
            changed=self.changed,
            label_selector=names.IMAGE_ARCH_PENDING,
            clock=clock,
            page=PODS_PAGE,
        )
        self.queue = KeyedQueue("image-arch", self.reconcile, clock, workers=WORKERS)
        lookups.listen(self._found)

    def start(self) -> None:
        self._watch.start()
        self.queue.start()
        self.queue.add(_RIGHTS)

    def stop(self) -> None:
        self._watch.stop()
        self.queue.stop(timeout=2.0)

    def may_gate(self, namespace: str) -> bool:
        """Whether pods of a namespace can be held: those that are held are seen here, and may be let go."""
        closed = self._clock.monotonic() < self._closed.get(namespace, float("-inf"))
        return self._may_patch and not closed and self._watch.synced.is_set() and self._watch.error is None

    # ------------------------------------------------------------------ what happens

    def changed(self, old: PartialIdentity | None, new: PartialIdentity | None) -> None:
        """A marked pod is there, has changed, or is marked no longer."""
        one = new or old
        if one is None:
            return
        key = f"{one.namespace}/{one.name}"
        with self._lock:
            if new is None:
                self._since.pop(key, None)
                self._refused.pop(key, None)
            else:
                self._since.setdefault(key, self._clock.monotonic())
        if old is None:
            self._look_at([key])

    def _found(self, key: Key) -> None:
        with self._lock:
            pods = self._wait_for.pop(key, set())
        self._look_at(sorted(pods))

    def _look_at(self, pods: Iterable[str]) -> None:
        """Reconcile pods soon: those of one namespace one after another, so that others come in between."""
        now = self._clock.monotonic()
        for pod in pods:
            namespace = pod.partition("/")[0]
            with self._lock:
                turn = max(now - AHEAD_SECONDS, self._turns.get(namespace, float("-inf"))) + TURN_SECONDS
                put_newest(self._turns, namespace, turn, MAX_TURNS)
            self.queue.add_after(pod, max(0.0, turn - now))

    # ------------------------------------------------------------------ one pod

    def reconcile(self, key: str) -> ReconcileResult:
        """Write what is known of one pod's images, if it is enough."""
        if key == _RIGHTS:
            return self._look_at_rights()
        with self._lock:
            since, refused = self._since.get(key), self._refused[key]
        if since is None:
            return DONE
        namespace, _, name = key.partition("/")
        path = PODS.path(namespace, name)
        try:
            raw = self._client.raw("GET", path, read_timeout=_QUICK_SECONDS, tries=2)
            pod, marked = decode_pod(raw), identity_in(raw)
        except (NotFound, ReviewError):
            return DONE
        facts = self._facts_of(namespace)
        if facts is None:
            return ReconcileResult(requeue_after=1.0)
        late = self._clock.monotonic() - since >= GATE_SECONDS
        hopeless = late and refused >= QUICK_TRIES
        decision = self._decide(key, pod, facts, late=late, hopeless=hopeless)
        if decision is None:
            left = since + GATE_SECONDS - self._clock.monotonic()
            return ReconcileResult(requeue_after=left if left > 0 else LOOK_AGAIN_SECONDS)
        if decision.warnings:
            reference = ObjectReference(api_version="v1", kind="Pod", name=name, namespace=namespace, uid=marked.uid)
            self._recorder.publish(
                reference,
                "Warning",
                "NoCommonArchitecture",
                "The images of the pod have no architecture in common, so no node can run all of its containers",
            )
        if not decision.operations:
            self._written(key)
            return DONE
        guards = (
            podpatch.test("metadata", "uid", value=marked.uid),
            podpatch.test("metadata", "resourceVersion", value=marked.resource_version),
        )
        try:
            self._client.raw("PATCH", path, [*guards, *decision.operations], content_type="application/json-patch+json")
        except NotFound:
            return DONE
        except Conflict:
            return ReconcileResult(requeue_after=AGAIN_SECONDS)
        except ApiError as error:
            return self._not_written(key, namespace, error)
        self._written(key)
        return ReconcileResult(requeue_after=LOOK_AGAIN_SECONDS) if late else DONE

    def _written(self, key: str) -> None:
        with self._lock:
            self._refused.pop(key, None)

    def _not_written(self, key: str, namespace: str, error: ApiError) -> ReconcileResult:
        """When to try again; and no more pods are held where a rule of the cluster lets none go."""
        is_denied = 400 <= error.status <= 500 and not isinstance(error, TooManyRequests)
        with self._lock:
            if is_denied and key in self._since:
                self._refused[key] += 1
            if isinstance(error, Invalid) and self._refused[key] <= QUICK_TRIES:
                return ReconcileResult(requeue_after=AGAIN_SECONDS)
            if is_denied:
                put_newest(self._closed, namespace, self._clock.monotonic() + REFUSED_SECONDS, MAX_CLOSED)
        _log.warning(
            "Failed to write the architectures of a pod's images to the pod; retrying", pod=key, error=str(error)
        )
        return ReconcileResult(failed=True)

    def _decide(
        self, key: str, pod: stamping.Pod, facts: StampFacts, *, late: bool, hopeless: bool
    ) -> StampDecision | None:
        """What to write; only mark and gate are taken away where everything else was refused for too long."""
        free = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
        asked = None if hopeless else stamping.images_of(free, facts)
        if asked is not None:
            wanted = {found for image in asked.images if (found := key_of(image, asked)) is not None}
            with self._lock:  # before it is asked: what is found in between is told
                for one in wanted:
                    self._wait_for.setdefault(one, set()).add(key)
            images = self._lookups.images(asked, keep=True)
            with self._lock:
                for one in wanted - {key_of(image, asked) for image in images.pending}:
                    self._forget(one, key)
            facts = replace(facts, images=images)
        else:
            facts = replace(facts, images=Images())
        return stamping.settle(free, facts, late=late)

    def _forget(self, wanted: Key, pod: str) -> None:
        waiting = self._wait_for.get(wanted)
        if waiting is not None:
            waiting.discard(pod)
            if not waiting:
                del self._wait_for[wanted]

    # ------------------------------------------------------------------ rights

    def _look_at_rights(self) -> ReconcileResult:
        """Whether pods may be patched: a gate that nobody may take away would hold a pod for ever."""
        attributes = {"verb": "patch", "resource": "pods"}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = self._client.raw("POST", _REVIEWS, body, read_timeout=_QUICK_SECONDS, tries=2)
            allowed = _decode_review(answer).status.allowed
        except (ApiError, msgspec.DecodeError):
            allowed = False
        if self._may_patch and not allowed:
            _log.warning(
                "Pods are not held until the architectures of their images are known, because the permission to patch "
                "pods is missing or the API server cannot be reached"
            )
        self._may_patch = allowed
        return ReconcileResult(requeue_after=RIGHTS_SECONDS)
