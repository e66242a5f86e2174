"""The cloud of a simulated day: every launch succeeds with the cheapest offering, and its Node joins after a time that is drawn."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim, NodeClassReference, NodePool, requirements_of
from provisioner.cloudprovider.errors import InstanceNotFoundError, InsufficientCapacityError
from provisioner.cloudprovider.types import (
    InstanceType,
    LaunchedInstance,
    Offering,
    RegistrationHook,
    RepairPolicy,
    by_price,
    wishes_of,
)
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.nodeclaims.writers import Writers
from provisioner.runtime.base import Base
from provisioner.runtime.controller import Controller
from provisioner.simulator.api_server import ApiServer
from provisioner.simulator.ledger import InstanceTime, Ledger
from provisioner.simulator.virtual_time import Agenda, VirtualClock
from provisioner.termination.ends import Ends
from provisioner.values.message import Said

ID_PREFIX: Final = "simulated:///"
_Controllers: TypeAlias = list[Controller]


@dataclass(frozen=True, slots=True)
class Offer:
    """What may be launched.

    Attributes:
        types_of: of a NodePool, before its requirements.
        well_known: labels that Nodes get by themselves.
        reservation_label: see `CloudProviderView`.
        kinds: (group, kind) of the NodeClasses that are served.
    """

    types_of: Callable[[NodePool], tuple[InstanceType, ...]]
    well_known: frozenset[str]
    reservation_label: str
    kinds: frozenset[tuple[str, str]]


class SimulatedCloud:
    """`CloudProvider`, and `Cloud` around it. One thread.

    Args:
        pool_of: the NodePool of a name.
        overlaid: the instance types of a NodePool as NodeOverlays change them.
        boot_seconds: one of these passes from a launch to a Node that is ready, each as likely.
    """

    name = "simulated"

    def __init__(
        self,
        server: ApiServer,
        clock: VirtualClock,
        agenda: Agenda,
        chance: random.Random,
        offer: Offer,
        ledger: Ledger,
        *,
        pool_of: Callable[[str], NodePool | None],
        overlaid: Callable[[str, tuple[InstanceType, ...]], tuple[InstanceType, ...]],
        boot_seconds: Sequence[float],
    ) -> None:
        self._server, self._clock, self._agenda, self._chance = server, clock, agenda, chance
        self._offer, self._ledger, self._pool_of, self._overlaid = offer, ledger, pool_of, overlaid
        self._boot_seconds = tuple(boot_seconds)
        self.well_known_labels, self.reservation_label = offer.well_known, offer.reservation_label
        self._instances: dict[str, LaunchedInstance] = {}  # by provider ID
        self._by_claim: dict[str, str] = {}
        self._launched = 0

    # ------------------------------------------------------------------ CloudProvider

    def create(self, claim: NodeClaim) -> LaunchedInstance:
        """The cheapest offering that fits; of equal prices the first by type, zone and capacity type.

        Raises:
            InsufficientCapacityError: none does.
        """
        if known := self._by_claim.get(claim.metadata.uid):
            return self._instances[known]
        kind, offering = self._chosen(claim)
        self._launched += 1
        provider_id = f"{ID_PREFIX}{offering.zone}/i-{self._launched:06d}"
        instance = LaunchedInstance(
            provider_id=provider_id,
            instance_type=kind.name,
            zone=offering.zone,
            capacity_type=offering.capacity_type,
            labels=_labels(claim, kind, offering),
            capacity=kind.capacity,
            allocatable=kind.allocatable,
            node_name=f"node-{self._launched:06d}",
            claim_name=claim.metadata.name,
        )
        self._instances[provider_id] = instance
        self._by_claim[claim.metadata.uid] = provider_id
        self._ledger.instances[provider_id] = InstanceTime(
            kind.name, offering.zone, offering.capacity_type, claim.pool, offering.price, self._clock.seconds
        )
        boot = self._chance.choice(self._boot_seconds)
        self._agenda.after(boot, lambda: self._join(instance, claim))
        return instance

    def listen(self, answered: Callable[[str], None]) -> None:
        """Nothing: no launch is ever under way."""

    def get(self, provider_id: str) -> LaunchedInstance:
        """See `CloudProviderView`."""
        if (found := self._instances.get(provider_id)) is None:
            raise InstanceNotFoundError(provider_id)
        return found

    def list(self) -> Sequence[LaunchedInstance]:
        """See `CloudProviderView`."""
        return [one for _, one in sorted(self._instances.items())]

    def reboot(self, claim: NodeClaim, operation: str) -> None:  # noqa: ARG002 - the seam has it
        """Nothing breaks here, so nobody asks."""
        raise InstanceNotFoundError(claim.status.provider_id)

    def resume(self, claims: Iterable[NodeClaim]) -> None:
        """Nothing was begun before the day."""

    def delete(self, claim: NodeClaim) -> None:
        """It is paid for until now.

        Raises:
            InstanceNotFoundError: always: it is gone at once.
        """
        provider_id = claim.status.provider_id or self._by_claim.get(claim.metadata.uid, "")
        if self._instances.pop(provider_id, None) is not None:
            self._ledger.instances[provider_id].end = self._clock.seconds
        raise InstanceNotFoundError(provider_id)

    def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """Of the catalogue."""
        return self._offer.types_of(pool)

    def is_drifted(self, claim: NodeClaim) -> str:  # noqa: ARG002 - the seam has it
        """Never: images and networks are no part of a simulation."""
        return ""

    def repair_policies(self, *, legacy: bool = False) -> tuple[RepairPolicy, ...]:  # noqa: ARG002 - likewise
        """Nothing breaks."""
        return ()

    def registration_hooks(self) -> tuple[RegistrationHook, ...]:
        """A Node is whole when it joins."""
        return ()

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        """As the catalogue has them."""
        return self._offer.kinds

    def node_class_ready(self, reference: NodeClassReference) -> tuple[str, str, str]:  # noqa: ARG002 - likewise
        """Always, whether there is one or not."""
        return names.TRUE, names.READY, ""

    # ------------------------------------------------------------------ Cloud

    @property
    def provider(self) -> "SimulatedCloud":
        """Itself."""
        return self

    def types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """As `instance_types`."""
        return self.instance_types(pool)

    def start(self) -> None:
        """Nothing to do."""

    def is_uncertain(self, claim: NodeClaim) -> bool:  # noqa: ARG002 - the seam has it
        """Never."""
        return False

    def controllers(self, base: Base, writing: Writers, ending: Ends, ledger: BudgetLedger) -> _Controllers:  # noqa: ARG002 - likewise
        """None of its own."""
        return []

    def stop(self) -> None:
        """Nothing to do."""

    # ------------------------------------------------------------------

    def _chosen(self, claim: NodeClaim) -> tuple[InstanceType, Offering]:
        requirements, requests = wishes_of(claim)
        wanted, pool = requirements.requirement(names.INSTANCE_TYPE_LABEL), self._pool_of(claim.pool)
        types = self._overlaid(claim.pool, self._offer.types_of(pool)) if pool is not None else ()
        for kind, offering in by_price([one for one in types if wanted.has(one.name)], requirements):
            if requests.fits(kind.allocatable):
                return kind, offering
        raise InsufficientCapacityError(claim.metadata.name, Said("no instance type of the catalogue fits"))

    def _join(self, instance: LaunchedInstance, claim: NodeClaim) -> None:
        """Its kubelet registers a Node that is ready, unless the instance has ended meanwhile."""
        if instance.provider_id not in self._instances:
            return
        labels = {**instance.labels, **claim.metadata.labels, names.HOSTNAME_LABEL: instance.node_name}
        taint = names.UNREGISTERED_NO_SCHEDULE_TAINT
        ready = {"type": names.READY, "status": names.TRUE, "lastTransitionTime": self._clock.stamp()}
        node: dict[str, Any] = {
            "metadata": {"name": instance.node_name, "labels": labels},
            "spec": {"providerID": instance.provider_id, "taints": [{"key": taint.key, "effect": taint.effect}]},
            "status": {
                "capacity": dict(instance.capacity.to_wire()),
                "allocatable": dict(instance.allocatable.to_wire()),
                "conditions": [ready],
            },
        }
        self._server.store("nodes", node)


def _labels(claim: NodeClaim, kind: InstanceType, offering: Offering) -> dict[str, str]:
    """One value for every label that is settled, and for every label of the type, settled or not."""
    wanted = requirements_of(claim.spec.requirements).merged(kind.requirements).merged(offering.requirements)
    labels = {}
    for key, requirement in wanted.items():
        value = requirement.single_value or (requirement.any_value() if key in kind.requirements else "")
        if value:
            labels[key] = value
    return labels
