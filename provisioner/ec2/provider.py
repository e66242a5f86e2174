"""`CloudProvider` over EC2: the parts of this package behind the one seam that controllers know."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, Protocol

from provisioner.apis import names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim, NodeClassReference, NodePool
from provisioner.apis.launches import may_have_begun
from provisioner.apis.node_class_providers import kinds_of
from provisioner.cloudprovider.errors import CloudError
from provisioner.cloudprovider.types import (
    InstanceType,
    LaunchedInstance,
    RegistrationHook,
    RepairAction,
    RepairPolicy,
    manages,
    readiness_of,
)
from provisioner.ec2 import labels
from provisioner.ec2.launch.order_builder import INSTANCE_TYPES_NOT_READ
from provisioner.ec2.market.region_market import RegionMarket
from provisioner.ec2.nodeclass.kept_kubelet import with_kept_kubelet
from provisioner.support.clock import Clock
from provisioner.values.message import ConditionMessage
from provisioner.values.quantity import QuantityError

FIRST_READ_SECONDS: Final = 30.0
"""How long after the start a plan waits for the first answer of EC2, rather than to say that there are no instance types."""

_HALF_AN_HOUR: Final = timedelta(minutes=30)
_GPU: Final = "AcceleratedHardwareReady"
_AGENT: Final = ("StorageReady", "NetworkingReady", "KernelReady", "ContainerRuntimeReady")
_AT_ONCE: Final = timedelta(0)
_TEN_MINUTES: Final = timedelta(minutes=10)


def _xids(*codes: int) -> str:
    """Finds one of these GPU errors. Differs: Karpenter's regex finds XID46 in XID460."""
    return rf"XID(?:{'|'.join(map(str, codes))})(?!\d)"


def _gpu(toleration: timedelta, grace: timedelta, reasons: str) -> RepairPolicy:
    return RepairPolicy(_GPU, names.FALSE, toleration, reasons, grace)


_REPLACED: Final = _gpu(
    _TEN_MINUTES, timedelta(minutes=5), _xids(46, 48, 54, 62, 63, 95, 109, 110, 136, 140, 143, 155, 156, 158)
)
_REBOOTED: Final = replace(_REPLACED, action=RepairAction.REBOOT)
_REPAIRS: Final = (
    *(
        RepairPolicy(kind, status, _HALF_AN_HOUR, termination_grace_period=_TEN_MINUTES)
        for kind, status in (
            (names.READY, names.FALSE),
            (names.READY, names.UNKNOWN),
            *((kind, names.FALSE) for kind in _AGENT),
        )
    ),
    # of these a reboot is said to help
    _REPLACED,
    _gpu(_TEN_MINUTES, timedelta(minutes=5), _xids(64, 74, 79, 119, 120)),
    _gpu(_HALF_AN_HOUR, _TEN_MINUTES, ""),
)
_LEGACY_REPAIRS: Final = (
    RepairPolicy(names.READY, names.FALSE, _HALF_AN_HOUR, termination_grace_period=_AT_ONCE),
    RepairPolicy(names.READY, names.UNKNOWN, _HALF_AN_HOUR, termination_grace_period=_AT_ONCE),
    RepairPolicy(_GPU, names.FALSE, _TEN_MINUTES, termination_grace_period=_AT_ONCE),
    *(RepairPolicy(kind, names.FALSE, _HALF_AN_HOUR, termination_grace_period=_AT_ONCE) for kind in _AGENT),
)


class CatalogueNotReadError(CloudError):
    """EC2 has not said yet what it sells; with why, where it was asked."""

    def __init__(self, problem: str = "") -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"{INSTANCE_TYPES_NOT_READ}: {self.problem}" if self.problem else INSTANCE_TYPES_NOT_READ


class LaunchedInstances(Protocol):
    """Who launches, finds and ends instances."""

    def create(self, claim: NodeClaim) -> LaunchedInstance: ...

    def listen(self, answered: Callable[[str], None]) -> None: ...

    def delete(self, claim: NodeClaim) -> None: ...

    def reboot(self, claim: NodeClaim) -> None: ...

    def get(self, provider_id: str) -> LaunchedInstance: ...

    def list(self) -> Sequence[LaunchedInstance]: ...

    def resume(self, claims: Iterable[NodeClaim]) -> None: ...


class AwsProvider:
    """EC2 as a `CloudProvider`; thread-safe.

    Args:
        node_class: the EC2NodeClass of that name, from the watch.
        drifted: why a claim's instance is no longer what its class asks for.
        hooks: what Nodes wait for before they are let in.
        reboots: whether nodes with some GPU errors are rebooted (feature gate RebootForRepair).
    """

    name = "aws"
    well_known_labels = names.WELL_KNOWN_LABELS | labels.WELL_KNOWN
    reservation_label = labels.RESERVATION_ID

    def __init__(
        self,
        instances: LaunchedInstances,
        market: RegionMarket,
        node_class: Callable[[str], EC2NodeClass | None],
        drifted: Callable[[NodeClaim], str],
        clock: Clock,
        hooks: tuple[RegistrationHook, ...] = (),
        *,
        reboots: bool = False,
    ) -> None:
        self._hooks, self._reboots = hooks, reboots
        self._instances, self._market, self._node_class, self._drifted = instances, market, node_class, drifted
        self._clock = clock
        self._waits_until = clock.monotonic() + FIRST_READ_SECONDS

    # ------------------------------------------------------------------ instances

    def create(self, claim: NodeClaim) -> LaunchedInstance:
        """Launch one instance for `claim`, see `CloudProvider.create`."""
        return self._instances.create(claim)

    def listen(self, answered: Callable[[str], None]) -> None:
        """Tell `answered` of launches that were under way."""
        self._instances.listen(answered)

    def delete(self, claim: NodeClaim) -> None:
        """Terminate the claim's instance, see `CloudProvider.delete`."""
        self._instances.delete(claim)

    def reboot(self, claim: NodeClaim, operation: str) -> None:  # noqa: ARG002 - EC2 takes no token
        """Reboot the claim's instance, see `CloudProvider.reboot`."""
        self._instances.reboot(claim)

    def get(self, provider_id: str) -> LaunchedInstance:
        """The instance of that ID, see `CloudProvider.get`."""
        return self._instances.get(provider_id)

    def list(self) -> Sequence[LaunchedInstance]:
        """Every instance of this cluster, in order of provider ID."""
        return self._instances.list()

    def resume(self, claims: Iterable[NodeClaim]) -> None:
        """Finish what an earlier process began for these claims.

        Where a launch is under way this waits for EC2's first answer, as `instance_types` does: a claim whose instance type nobody knows yet would be
        told no labels of it, and would count as drifted.
        """
        every = tuple(claims)
        if any(may_have_begun(one.metadata.annotations) and not one.status.provider_id for one in every):
            self._await_market()
        self._instances.resume(every)

    # ------------------------------------------------------------------ what there is

    def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """What the pool's class may launch; () without the class.

        Waits for EC2's first answer, for half a minute after the start in all.

        Raises:
            CatalogueNotReadError: it did not come.
            QuantityError: a volume size of the class is no quantity.
        """
        node_class = self._class_for(pool)
        if node_class is None:
            return ()
        if not self._await_market():
            raise CatalogueNotReadError(self._market.problem)
        return self._market.types(node_class)

    def _await_market(self) -> bool:
        """Wait for EC2's first answer, for half a minute after the start in all; whether it came."""
        return self._market.ready or self._market.wait(max(0.0, self._waits_until - self._clock.monotonic()))

    def known_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """As `instance_types` last answered: prices and availability may be old, but nobody waits."""
        node_class = self._class_for(pool)
        try:
            return () if node_class is None else self._market.known_types(node_class)
        except QuantityError:
            return ()

    def is_drifted(self, claim: NodeClaim) -> str:
        """Why the instance is no longer what its class asks for; "" where it is.

        Raises:
            CloudError: nobody knows now.
        """
        return self._drifted(claim)

    def repair_policies(self, *, legacy: bool = False) -> tuple[RepairPolicy, ...]:
        """Conditions that the kubelet and EKS' node monitoring agent set. Source: Karpenter's AWS provider 1.15; 1.14 for the legacy ones."""
        if legacy:
            return _LEGACY_REPAIRS
        return tuple(_REBOOTED if self._reboots and one == _REPLACED else one for one in _REPAIRS)

    def registration_hooks(self) -> tuple[RegistrationHook, ...]:
        """What EC2 decides after the launch, and Nodes are labelled with."""
        return self._hooks

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        """EC2NodeClass alone."""
        return kinds_of(self.name)

    def node_class_ready(self, reference: NodeClassReference) -> tuple[str, str, str]:
        """The class's own Ready condition; False where it is missing or being deleted, Unknown until it was looked at."""
        one = self._class_of(reference)
        found = None if one is None else (one.metadata, one.status.conditions)
        return readiness_of(
            reference,
            found,
            ConditionMessage(
                names.NODECLASS_READY,
                names.UNKNOWN,
                names.NODECLASS_READINESS_UNKNOWN,
                "its readiness is not known yet",
            )[1:],
        )

    def _class_for(self, pool: NodePool) -> EC2NodeClass | None:
        found = self._class_of(pool.node_class_ref)
        return None if found is None else with_kept_kubelet(found, pool.metadata.annotations)

    def _class_of(self, reference: NodeClassReference) -> EC2NodeClass | None:
        if not manages(self, reference):
            return None
        return self._node_class(reference.name)
