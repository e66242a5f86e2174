"""Instances that nobody runs: a launch makes a Node object, and kwok plays its kubelet.

The Node's name follows from the claim's, and the Node says which claim it is for. So a create that is tried again, in this process or
in the next one, finds its Node instead of making a second one.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Protocol, TypeVar

from provisioner.apis import names
from provisioner.apis.core import Node, NodeSpec, NodeStatus, NodeSystemInfo
from provisioner.apis.karpenter import NodeClaim, NodeClassReference, NodePool, requirements_of
from provisioner.apis.kwok import KWOKNodeClass
from provisioner.apis.meta import ObjectMeta, condition, is_true
from provisioner.apis.node_class_providers import kinds_of
from provisioner.cloudprovider.errors import (
    CreateError,
    InstanceNotFoundError,
    InsufficientCapacityError,
    NodeClassNotReadyError,
)
from provisioner.cloudprovider.kwok.catalogue import KwokCatalogue, generated
from provisioner.cloudprovider.kwok.orphans import KwokInstance, sort_out
from provisioner.cloudprovider.types import (
    InstanceType,
    LaunchedInstance,
    Offering,
    RegistrationHook,
    RepairAction,
    RepairPolicy,
    by_price,
    manages,
    readiness_of,
    wishes_of,
)
from provisioner.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from provisioner.kube.resources import NODES, Resource
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, ReconcileResult
from provisioner.values.duration import DurationError, parse_duration
from provisioner.values.message import Said
from provisioner.values.quantity import QuantityError
from provisioner.values.requirement import Requirements
from provisioner.values.resources import Resources

ID_PREFIX: Final = "kwok://"
CLAIM_ANNOTATION: Final = "karpenter.kwok.sh/nodeclaim"
CLAIM_UID_ANNOTATION: Final = "karpenter.kwok.sh/nodeclaim-uid"
PARTITION: Final = "a"
_MAX_NAME: Final = 63  # the name is the value of the hostname label too
_REPAIR_AFTER: Final = timedelta(minutes=10)
_REPAIRS: Final = (
    RepairPolicy(names.READY, names.FALSE, _REPAIR_AFTER, "", timedelta(0)),
    RepairPolicy(names.READY, names.UNKNOWN, _REPAIR_AFTER, termination_grace_period=timedelta(0)),
    RepairPolicy("KWOKUnhealthy", names.TRUE, timedelta(seconds=30), termination_grace_period=timedelta(seconds=45)),
    RepairPolicy(
        "KWOKRebootRequired",
        names.TRUE,
        timedelta(seconds=30),
        termination_grace_period=timedelta(minutes=1),
        action=RepairAction.REBOOT,
    ),
)
_JOINING_THREADS: Final = 4
_WATCH_LAG_SECONDS: Final = 30.0
_NOT_OF_THE_INSTANCE: Final = frozenset(
    {
        names.HOSTNAME_LABEL,
        names.REGISTERED_LABEL,
        names.INITIALIZED_LABEL,
        names.EXCLUDE_BALANCERS_LABEL,
        *names.LABEL_ALIASES,  # kube-controller-manager writes the legacy ones beside the stable ones
    }
)

T_co = TypeVar("T_co", covariant=True)
_log = logs.get_logger(__name__)


class NodeClient(Protocol):
    """What of `kube.client.Client` is needed."""

    def get(self, resource: Resource[Node], name: str, /) -> Node: ...

    def create(self, resource: Resource[Node], body: object, /, *, retry: bool = False) -> Node: ...

    def patch(
        self, resource: Resource[Node], name: str, body: object, /, namespace: str = "", subresource: str = ""
    ) -> Node: ...

    def delete(self, resource: Resource[Node], name: str, /, *, uid: str = "") -> None: ...


class Lookup(Protocol[T_co]):
    """What of `kube.store.Store` is needed."""

    def get(self, key: str, /) -> T_co | None: ...

    def list(self) -> Sequence[T_co]: ...


class DelayQueue(Protocol):
    """What of `support.workers.KeyedQueue` is needed."""

    def add_after(self, key: str, seconds: float, /) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> object: ...


@dataclass(frozen=True, slots=True)
class _Launch:
    """An instance whose Node the watch has not shown yet.

    Attributes:
        node: what is, or will be, created.
        sent: whether a create may have reached the server.
        joined_at: monotonic seconds at which the server took the Node; None before that.
    """

    node: Node
    sent: bool = False
    joined_at: float | None = None


class KwokProvider:
    """`CloudProvider` over Node objects; thread-safe.

    Args:
        clock: for what is left of a registration delay after a restart.
        catalogue: what can be launched; the generated types where it is None.
        queue_of: makes the queue, started with its first key, that runs a function for a key after a delay.
        overlaid: the instance types as NodeOverlays change them for the NodePool of that name.

    Source: karpenter 1.14 `kwok/cloudprovider/cloudprovider.go`.
    Differs: a Node has the capacity of its type, not of the claim's requests; equal prices go by type name, zone and capacity
        type, not at random; one launch makes one Node also when it is tried again or the process restarts during the
        registration delay; a missing NodeClass is "not ready", not "no capacity"; types too small for the claim's requests
        are never chosen.
    """

    name = "kwok"
    reservation_label = ""

    def __init__(
        self,
        client: NodeClient,
        nodes: Lookup[Node],
        node_classes: Lookup[KWOKNodeClass],
        clock: Clock,
        catalogue: KwokCatalogue | None = None,
        *,
        queue_of: Callable[[Callable[[str], ReconcileResult | None]], DelayQueue] | None = None,
        overlaid: Callable[[str, tuple[InstanceType, ...]], tuple[InstanceType, ...]] = lambda _, types: types,
    ) -> None:
        self._client, self._nodes, self._node_classes, self._clock = client, nodes, node_classes, clock
        self._catalogue = generated() if catalogue is None else catalogue
        self._overlaid = overlaid
        self.well_known_labels = names.WELL_KNOWN_LABELS | self._catalogue.well_known_labels
        self._lock = threading.Lock()
        self._launches: dict[str, _Launch] = {}
        self._reboots: dict[str, str] = {}  # Node -> its boot ID once it is up again
        make = queue_of if queue_of is not None else self._threads
        self._queue = make(self._join)

    def stop(self) -> None:
        """Stop making delayed Nodes; those that wait are made by `resume` in the next process."""
        self._queue.stop()

    # ------------------------------------------------------------------ instances

    def create(self, claim: NodeClaim) -> LaunchedInstance:
        """Launch the cheapest available instance that fits `claim`; its Node comes after the NodeClass' registration delay.

        Returns at once, before a delayed Node exists. Called again for the same claim it returns the same instance. One API
        write, two requests where the Node turns out to exist.

        Raises:
            InsufficientCapacityError: no type and offering fits the claim.
            NodeClassNotReadyError: the NodeClass is missing, being deleted or not ready.
            CreateError: the claim cannot be read, or its Node's name is taken by a Node of somebody else.
            ApiError: the API server did not take the Node; try again.
        """
        node_name = node_name_of(claim.metadata.name)
        known = self._known(node_name)
        if known is not None and _belongs(known, claim):
            return _instance(known)
        delay = self._delay(claim)
        node = _launched(claim, *self._choose(claim))
        if delay <= timedelta(0):
            return _instance(self._put(node))
        self._put_later(node, delay)
        return _instance(node)

    def listen(self, answered: Callable[[str], None]) -> None:
        """Nothing: no launch is ever under way."""

    def delete(self, claim: NodeClaim) -> None:
        """Terminate the claim's instance, which takes no time: what is left is a Node object with finalizers, or nothing.

        Always ends in InstanceNotFoundError, also when called again. Costs no request when the Node is being deleted already, was
        seen to be gone, or was never made; one delete when it still lives; a look at the server only for
        a claim that never registered.

        Raises:
            InstanceNotFoundError: the instance is terminated.
            ApiError: the API server did not answer as hoped; try again.
        """
        node_name = _name_in(claim.status.provider_id) or node_name_of(claim.metadata.name)
        with self._lock:
            launch = self._launches.pop(node_name, None)
        node = self._nodes.get(node_name)
        if node is None:
            never_sent = launch is not None and not launch.sent
            if never_sent or is_true(claim.status.conditions, names.REGISTERED):
                raise InstanceNotFoundError(ID_PREFIX + node_name)
            try:  # made a moment ago, perhaps by the process before this one
                node = self._client.get(NODES, node_name)
            except NotFound:
                raise InstanceNotFoundError(ID_PREFIX + node_name) from None
        if _belongs(node, claim) and node.metadata.deletion_timestamp is None:
            self._delete(node)
        raise InstanceNotFoundError(ID_PREFIX + node_name)

    def reboot(self, claim: NodeClaim, operation: str) -> None:
        """Give the claim's Node another boot ID, after as long as its NodeClass says that a Node takes to register. Source: Karpenter 1.15, kwok.

        A process that ends before forgets it.
        """
        node_name = _name_in(claim.status.provider_id)
        node = self._nodes.get(node_name)
        if node is None or not _belongs(node, claim):
            raise InstanceNotFoundError(claim.status.provider_id)
        try:
            delay = self._registration_delay(claim.spec.node_class_ref)
        except NodeClassNotReadyError:
            delay = timedelta(0)
        with self._lock:
            self._reboots[node_name] = f"kwok-{operation}"
        self._queue.start()
        self._queue.add_after(node_name, delay.total_seconds())

    def get(self, provider_id: str) -> LaunchedInstance:
        """The instance of that ID, its Node there or still to come.

        Raises:
            InstanceNotFoundError: there is none.
        """
        node_name = _name_in(provider_id)
        node = self._known(node_name) if node_name else None
        if node is None or node.spec.provider_id != provider_id:
            raise InstanceNotFoundError(provider_id)
        return _instance(node)

    def list(self) -> list[LaunchedInstance]:
        """Every instance, its Node there or still to come, in order of provider ID. No request."""
        joined = {one.metadata.name: one for one in self._nodes.list() if one.spec.provider_id.startswith(ID_PREFIX)}
        with self._lock:
            self._launches = {key: launch for key, launch in self._launches.items() if not self._is_old(launch)}
            coming = {node_name: launch.node for node_name, launch in self._launches.items()}
        instances = [_instance(node) for node in {**coming, **joined}.values()]
        return sorted(instances, key=lambda instance: instance.provider_id)

    def resume(self, claims: Iterable[NodeClaim]) -> None:
        """Make the Nodes that an earlier process had promised, and delete those whose claim is gone.

        Call once the caches are filled, with every NodeClaim. No request where nothing was interrupted.
        """
        every = list(claims)
        for claim in every:
            if self._was_interrupted(claim):
                self._promise_again(claim)
        for orphan in sort_out(self.instances(), every).orphans:
            _log.warning("Deleting the Node of a NodeClaim that no longer exists", node=orphan.id)
            with suppress(InstanceNotFoundError):  # it went meanwhile
                self.end(orphan.provider_id)

    def instances(self) -> tuple[KwokInstance, ...]:
        """Every Node that was made for a claim, whether that is there or not. No request."""
        return tuple(
            KwokInstance(
                node.metadata.name,
                node.spec.provider_id,
                node.metadata.creation_timestamp,
                owner,
                node.metadata.deletion_timestamp is not None,
            )
            for node in self._nodes.list()
            if (owner := node.metadata.annotations.get(CLAIM_UID_ANNOTATION, ""))
        )

    def end(self, provider_id: str) -> None:
        """Terminate an instance of no claim: its Node is deleted.

        Raises:
            InstanceNotFoundError: there is none.
            ApiError: the API server did not answer as hoped.
        """
        node = self._nodes.get(_name_in(provider_id))
        if node is None or node.spec.provider_id != provider_id:
            raise InstanceNotFoundError(provider_id)
        self._delete(node)

    # ------------------------------------------------------------------ what there is

    def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:  # noqa: ARG002  (the same for every pool)
        """The catalogue, always the same tuple."""
        return self._catalogue.types

    def is_drifted(self, claim: NodeClaim) -> str:  # noqa: ARG002 - the seam has it
        """Never: a KWOKNodeClass says nothing that an instance could differ from."""
        return ""

    def repair_policies(self, *, legacy: bool = False) -> tuple[RepairPolicy, ...]:
        """A Node that is not Ready for ten minutes is broken, and one with the condition KWOKUnhealthy; KWOKRebootRequired asks for a reboot.

        Tests set the last two. Source: Karpenter 1.15, kwok.
        """
        return tuple(one for one in _REPAIRS if not legacy or one.condition_type == names.READY)

    def registration_hooks(self) -> tuple[RegistrationHook, ...]:
        """None: a Node is whole when it is made."""
        return ()

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        """KWOKNodeClass alone."""
        return kinds_of(self.name)

    def node_class_ready(self, reference: NodeClassReference) -> tuple[str, str, str]:
        """Ready unless it is missing, being deleted, or its own Ready condition says otherwise."""
        one = self._node_classes.get(reference.name) if manages(self, reference) else None
        found = None if one is None else (one.metadata, one.status.conditions)
        return readiness_of(reference, found, (names.TRUE, names.READY, ""))

    # ------------------------------------------------------------------ launching

    def _threads(self, join: Callable[[str], ReconcileResult | None]) -> DelayQueue:
        return KeyedQueue("kwok-join", join, self._clock, workers=_JOINING_THREADS)

    def _known(self, node_name: str) -> Node | None:
        node = self._nodes.get(node_name)
        if node is not None:
            return node
        with self._lock:
            launch = self._launches.get(node_name)
        return None if launch is None or self._is_old(launch) else launch.node

    def _is_old(self, launch: _Launch) -> bool:
        """Whether the watch must have shown its Node by now, so that the Node store alone speaks for it."""
        return launch.joined_at is not None and launch.joined_at + _WATCH_LAG_SECONDS < self._clock.monotonic()

    def _delay(self, claim: NodeClaim) -> timedelta:
        reference = claim.spec.node_class_ref
        status, _, message = self.node_class_ready(reference)
        if status != names.TRUE:
            problem = message.removeprefix(f"{reference.kind} {reference.name}: ")  # which the error names itself
            raise NodeClassNotReadyError(reference.kind, reference.name, problem)
        return self._registration_delay(reference)

    def _registration_delay(self, reference: NodeClassReference) -> timedelta:
        node_class = self._node_classes.get(reference.name)
        text = node_class.spec.node_registration_delay if node_class is not None else None
        if not text:
            return timedelta(0)
        try:
            return parse_duration(text)
        except DurationError as error:
            problem = Said(f"spec.nodeRegistrationDelay: {error}")
            raise NodeClassNotReadyError(reference.kind, reference.name, problem) from error

    def _choose(self, claim: NodeClaim) -> tuple[InstanceType, Offering]:
        requirements, requests = wishes_of(claim)
        wanted = requirements.requirement(names.INSTANCE_TYPE_LABEL)
        types = self._overlaid(claim.pool, self._catalogue.types) if claim.pool else self._catalogue.types
        named = [one for one in types if wanted.has(one.name)]
        ways = by_price(named, requirements)
        for instance_type, offering in ways:
            if requests.fits(instance_type.allocatable):
                return instance_type, offering
        raise InsufficientCapacityError(claim.metadata.name, self._why_not(named, ways))

    def _why_not(self, named: Sequence[InstanceType], ways: Sequence[tuple[InstanceType, Offering]]) -> str:
        if not named:
            return Said(
                f"none of its instance types is among the {len(self._catalogue.types)} instance types of the catalogue"
            )
        if not ways:
            return Said(
                f"none of its {len(named)} instance types has an available offering that its requirements allow"
            )
        fitting = len({instance_type.name for instance_type, _ in ways})
        return Said(f"its resource requests fit none of the {fitting} instance types that its requirements allow")

    def _put(self, node: Node) -> Node:
        """Create the Node, or find the one that an earlier try made."""
        try:
            created = self._client.create(NODES, node, retry=True)
        except AlreadyExists:
            created = self._client.get(NODES, node.metadata.name)
            if not _same_claim(created, node):
                raise CreateError(
                    names.LAUNCH_FAILED, f"Node {node.metadata.name} exists already and belongs to another NodeClaim"
                ) from None
        with self._lock:
            self._launches[node.metadata.name] = _Launch(created, sent=True, joined_at=self._clock.monotonic())
        return created

    def _put_later(self, node: Node, delay: timedelta) -> None:
        with self._lock:
            self._launches[node.metadata.name] = _Launch(node)
        self._queue.start()
        self._queue.add_after(node.metadata.name, max(0.0, delay.total_seconds()))

    def _join(self, node_name: str) -> ReconcileResult | None:
        """Make one delayed Node, or end the reboot of one, in a thread of the queue."""
        with self._lock:
            boot_id = self._reboots.pop(node_name, "")
        if boot_id:
            if not _booted(self._client, node_name, boot_id):
                with self._lock:
                    self._reboots.setdefault(node_name, boot_id)
                return ReconcileResult(failed=True)
            return DONE
        with self._lock:
            launch = self._launches.get(node_name)
            if launch is None or launch.joined_at is not None:
                return DONE
            self._launches[node_name] = replace(launch, sent=True)
        try:
            created = self._client.create(NODES, launch.node, retry=True)
        except AlreadyExists:
            created = None  # by an earlier try; if by somebody else, registration will say so
        except ApiError as error:
            _log.warning("Failed to create a Node; retrying", node=node_name, error=str(error))
            return ReconcileResult(failed=True)
        with self._lock:
            cancelled = node_name not in self._launches
            if not cancelled:
                node = launch.node if created is None else created
                self._launches[node_name] = _Launch(node, sent=True, joined_at=self._clock.monotonic())
        if cancelled and created is not None:
            self._delete(created)
        return DONE

    def _delete(self, node: Node) -> None:
        try:
            self._client.delete(NODES, node.metadata.name, uid=node.metadata.uid)
        except (NotFound, Conflict):
            pass  # gone, or gone and its name taken again

    # ------------------------------------------------------------------ after a restart

    def _was_interrupted(self, claim: NodeClaim) -> bool:
        return (
            manages(self, claim.spec.node_class_ref)
            and claim.metadata.deletion_timestamp is None
            and claim.status.provider_id.startswith(ID_PREFIX)
            and not is_true(claim.status.conditions, names.REGISTERED)
            and self._known(_name_in(claim.status.provider_id)) is None
        )

    def _promise_again(self, claim: NodeClaim) -> None:
        """Take the instance from what the launch wrote on the claim; the catalogue may have changed since."""
        try:
            capacity, allocatable = Resources.parse(claim.status.capacity), Resources.parse(claim.status.allocatable)
        except QuantityError as error:
            _log.warning("Failed to resume a NodeClaim", nodeclaim=claim.metadata.name, error=str(error))
            return
        try:
            delay = self._registration_delay(claim.spec.node_class_ref)
        except NodeClassNotReadyError:
            delay = timedelta(0)  # the instance runs already, whatever became of its class
        launched = condition(claim.status.conditions, names.LAUNCHED)
        since = launched.last_transition_time if launched is not None else None
        passed = self._clock.now() - since if since is not None else timedelta(0)
        node = _node(claim, {}, capacity, allocatable)
        self._put_later(node, delay - passed)


def node_name_of(claim_name: str) -> str:
    """The name of the Node of this claim: always the same, at most 63 characters."""
    node_name = f"kwok-{claim_name}"
    if len(node_name) <= _MAX_NAME:
        return node_name
    digest = hashlib.blake2b(claim_name.encode(), digest_size=5).hexdigest()
    return f"{node_name[: _MAX_NAME - len(digest) - 1].rstrip('-.')}-{digest}"


def _name_in(provider_id: str) -> str:
    return provider_id.removeprefix(ID_PREFIX) if provider_id.startswith(ID_PREFIX) else ""


def _labels(requirements: Requirements, instance_type: InstanceType) -> dict[str, str]:
    """One value for every label that is settled, and for every label of the type, settled or not."""
    labels = {}
    for key, requirement in requirements.items():
        value = requirement.single_value or (requirement.any_value() if key in instance_type.requirements else "")
        if value:
            labels[key] = value
    return labels


def _booted(client: NodeClient, node_name: str, boot_id: str) -> bool:
    """Whether a Node has its new boot ID, or is gone."""
    try:
        client.patch(NODES, node_name, {"status": {"nodeInfo": {"bootID": boot_id}}}, subresource="status")
    except NotFound:
        pass
    except ApiError as error:
        _log.warning("Failed to reboot a Node; retrying", node=node_name, error=str(error))
        return False
    return True


def _launched(claim: NodeClaim, instance_type: InstanceType, offering: Offering) -> Node:
    requirements = requirements_of(claim.spec.requirements).merged(instance_type.requirements)
    labels = _labels(requirements.merged(offering.requirements), instance_type)
    labels |= {names.INSTANCE_PRICE_ANNOTATION: f"{offering.price:f}"}
    return _node(claim, labels, instance_type.capacity, instance_type.allocatable)


def _node(claim: NodeClaim, labels: dict[str, str], capacity: Resources, allocatable: Resources) -> Node:
    node_name = _name_in(claim.status.provider_id) or node_name_of(claim.metadata.name)
    return Node(
        metadata=ObjectMeta(
            name=node_name,
            labels={
                **labels,
                **claim.metadata.labels,
                names.HOSTNAME_LABEL: node_name,
                names.KWOK_NODE: names.KWOK_NODE_FAKE,
                names.KWOK_PARTITION_LABEL: PARTITION,
            },
            annotations={
                names.KWOK_NODE: names.KWOK_NODE_FAKE,
                CLAIM_ANNOTATION: claim.metadata.name,
                CLAIM_UID_ANNOTATION: claim.metadata.uid,
            },
        ),
        spec=NodeSpec(provider_id=ID_PREFIX + node_name, taints=(names.UNREGISTERED_NO_SCHEDULE_TAINT,)),
        status=NodeStatus(
            capacity={**capacity.to_wire()},
            allocatable={**allocatable.to_wire()},
            node_info=NodeSystemInfo(boot_id=f"kwok-{claim.metadata.uid}"),
        ),
    )


def _instance(node: Node) -> LaunchedInstance:
    labels = {key: value for key, value in node.metadata.labels.items() if key not in _NOT_OF_THE_INSTANCE}
    return LaunchedInstance(
        provider_id=node.spec.provider_id,
        instance_type=labels.get(names.INSTANCE_TYPE_LABEL, ""),
        zone=labels.get(names.ZONE_LABEL, ""),
        capacity_type=labels.get(names.CAPACITY_TYPE_LABEL, ""),
        labels=labels,
        capacity=Resources.parse(node.status.capacity),
        allocatable=Resources.parse(node.status.allocatable),
        node_name=node.metadata.name,
        claim_name=node.metadata.annotations.get(CLAIM_ANNOTATION, ""),
    )


def _belongs(node: Node, claim: NodeClaim) -> bool:
    """By the claim's UID; a Node that Karpenter itself made lacks it and goes by its provider ID."""
    owner = node.metadata.annotations.get(CLAIM_UID_ANNOTATION)
    return claim.status.provider_id == node.spec.provider_id if owner is None else owner == claim.metadata.uid


def _same_claim(left: Node, right: Node) -> bool:
    key = CLAIM_UID_ANNOTATION
    return left.metadata.annotations.get(key) == right.metadata.annotations.get(key)
