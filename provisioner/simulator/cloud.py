"""The cloud of a simulated day: a launch gets the cheapest offering that is not short, and its Node joins after a time that is drawn.

What was short is remembered as the real cloud's provider does it (`SimulatedStock`); without a `Market` nothing is.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
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
    capacity_type_bought,
    wishes_of,
)
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.nodeclaims.writers import Writers
from provisioner.runtime.base import Base
from provisioner.runtime.controller import Controller
from provisioner.simulator.api_server import ApiServer
from provisioner.simulator.interruptions import SpotInterruptions
from provisioner.simulator.ledger import InstanceTime, Ledger
from provisioner.simulator.market import CloudManners, Supply
from provisioner.simulator.virtual_time import Agenda, VirtualClock
from provisioner.termination.ends import Ends
from provisioner.values.message import Said

ID_PREFIX: Final = "simulated:///"
_Controllers: TypeAlias = list[Controller]
_Types: TypeAlias = tuple[InstanceType, ...]
_CODE: Final = "InsufficientInstanceCapacity"
_TAKEN_BACK: Final = "SpotInterruption"


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


class SimulatedStock:
    """What can be had of a cloud whose offerings may be short, and what its provider knows of that. One thread."""

    def __init__(self, clock: VirtualClock, supply: Supply, manners: CloudManners) -> None:
        self._clock, self._supply, self._manners = clock, supply, manners
        self._table = manners.table()
        self._shown: dict[
            str, tuple[_Types, int, _Types]
        ] = {}  # by NodePool: what for which types and version is shown

    def shown(self, pool: str, types: _Types) -> _Types:
        """These types, with what failed lately as not available; the same object as long as nothing changes."""
        if not len(self._table):
            return types
        now = self._clock.now()
        version = self._table.version(now)
        known = self._shown.get(pool)
        if known is None or known[0] is not types or known[1] != version:
            known = self._shown[pool] = (types, version, tuple(self._judged(one, now) for one in types))
        return known[2]

    def _judged(self, kind: InstanceType, now: datetime) -> InstanceType:
        offerings = [
            one if self._available(kind.name, one, now) else replace(one, available=False) for one in kind.offerings
        ]
        changed = any(new is not old for new, old in zip(offerings, kind.offerings, strict=True))
        return replace(kind, offerings=tuple(offerings)) if changed else kind

    def _available(self, kind: str, one: Offering, now: datetime) -> bool:
        return bool(self._table.standing(self._offer(kind, one), now).available)

    def _offer(self, kind: str, one: Offering) -> Any:
        return self._manners.offer(one.capacity_type, kind, one.zone)

    def gives(self, kind: InstanceType, one: Offering) -> bool:
        """Ask for an instance, and remember the answer."""
        now, offer = self._clock.now(), self._offer(kind.name, one)
        if not self._table.grant(offer, 1, now):
            return False
        if self._supply.is_short(kind.name, one.zone, one.capacity_type, self._clock.seconds):
            self._table.failed(offer, now, _CODE)
            return False
        self._table.succeeded(offer, now)
        return True

    def taken_back(self, instance: LaunchedInstance) -> None:
        """A spot instance is interrupted."""
        offer = self._manners.offer(instance.capacity_type, instance.instance_type, instance.zone)
        self._table.taken_back(offer, self._clock.now(), _TAKEN_BACK)

    def refusal(self, claim_name: str, ways: Sequence[tuple[str, Offering]]) -> InsufficientCapacityError:
        """There is nothing of any of these: (instance type, offering), at least one; it is worth another try when the first opens again."""
        now = self._clock.now()
        closed = [self._offer(kind, one) for kind, one in ways if not self._available(kind, one, now)]
        turn = self._table.opens_at(closed, now) if len(closed) == len(ways) else now
        wait = (turn - now).total_seconds() if turn is not None else self._manners.longest_wait
        wait = min(max(self._manners.shortest_wait, wait), self._manners.longest_wait)
        problem = Said(f"{_CODE}: none of its {len(ways)} offerings can be had now")
        return InsufficientCapacityError(claim_name, problem, wait, exhausted=len(closed) == len(ways))


class SimulatedCloud:
    """`CloudProvider`, and `Cloud` around it. One thread.

    Args:
        pool_of: the NodePool of a name.
        overlaid: the instance types of a NodePool as NodeOverlays change them.
        boot_seconds: one of these passes from a launch to a Node that is ready, each as likely.
        stock: None where everything can be had.
        spot: None where no instance is interrupted.
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
        stock: SimulatedStock | None = None,
        spot: SpotInterruptions | None = None,
    ) -> None:
        self._server, self._clock, self._agenda, self._chance = server, clock, agenda, chance
        self._offer, self._ledger, self._pool_of, self._overlaid = offer, ledger, pool_of, overlaid
        self._boot_seconds, self._stock, self._spot = tuple(boot_seconds), stock, spot
        self.well_known_labels, self.reservation_label = offer.well_known, offer.reservation_label
        self._instances: dict[str, LaunchedInstance] = {}  # by provider ID
        self._by_claim: dict[str, str] = {}
        self._launched = 0

    # ------------------------------------------------------------------ CloudProvider

    def create(self, claim: NodeClaim) -> LaunchedInstance:
        """The cheapest offering that fits and can be had, of the capacity type of `capacity_type_bought`; of equal prices the first by type and zone.

        Raises:
            InsufficientCapacityError: there is none.
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
        if self._spot is not None:
            self._spot.launched(
                instance,
                runs=lambda: provider_id in self._instances,
                taken=lambda: self._stock.taken_back(instance) if self._stock is not None else None,
                end=lambda: self._end(provider_id),
            )
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
        self._end(provider_id)
        raise InstanceNotFoundError(provider_id)

    def _end(self, provider_id: str) -> None:
        if self._instances.pop(provider_id, None) is not None:
            self._ledger.instances[provider_id].end = self._clock.seconds

    def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """Of the catalogue, without what could not be had lately."""
        types = self._offer.types_of(pool)
        return self._stock.shown(pool.metadata.name, types) if self._stock is not None else types

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

    def controllers(self, base: Base, writing: Writers, ending: Ends, ledger: BudgetLedger) -> _Controllers:
        """Of interruptions."""
        return self._spot.controllers(base, writing, ending, ledger) if self._spot is not None else []

    def stop(self) -> None:
        """Nothing to do."""

    # ------------------------------------------------------------------

    def _chosen(self, claim: NodeClaim) -> tuple[InstanceType, Offering]:
        requirements, requests = wishes_of(claim)
        wanted, pool = requirements.requirement(names.INSTANCE_TYPE_LABEL), self._pool_of(claim.pool)

        def fitting(types: _Types) -> list[tuple[InstanceType, Offering]]:
            ways = by_price([one for one in types if wanted.has(one.name)], requirements)
            return [(kind, one) for kind, one in ways if requests.fits(kind.allocatable)]

        open_now = self.instance_types(pool) if pool is not None else ()
        ways = fitting(self._overlaid(claim.pool, open_now))
        bought = capacity_type_bought({one.capacity_type for _, one in ways})
        for kind, offering in ways:
            if offering.capacity_type == bought:
                if self._stock is None or self._stock.gives(kind, offering):
                    return kind, offering
                self._ledger.refused += 1
        every = fitting(self._overlaid(claim.pool, self._offer.types_of(pool))) if pool is not None else []
        if self._stock is None or not every:
            raise InsufficientCapacityError(claim.metadata.name, Said("no instance type of the catalogue fits"))
        raise self._stock.refusal(claim.metadata.name, [(kind.name, one) for kind, one in every])

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
