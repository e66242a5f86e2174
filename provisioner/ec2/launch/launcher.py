"""Launches: NodeClaims in, instances out.

`Launcher.create` never waits. It collects claims for a moment (35 ms after the last, a second at most), puts those with equal orders into one
CreateFleet, and tells `listen`'s callable when a claim has its answer. The way of a batch, each step on the next one's shoulders:

1. its launch templates exist;
2. each of its claims carries its mark `<batch>/<attempt>/<ordinal>`, that of ordinal 0 last;
3. CreateFleet with client token and tag of batch and attempt;
4. the instance ids, in order, are dealt to the ordinals, and the claims are told;
5. the marks of claims that got none are taken off.

An attempt is *spent* when what became of it is known. One that is not, because an answer was lost or the process died, is searched for: `create` of a
claim with its mark looks for the batch's instances, or sends the same call again, until `recovery` says that this is all there is. Whoever reads
a mark that is not spent must take it that there may be an instance; nothing is launched for its claim meanwhile. An attempt is in one pair of hands
at a time (`MarkBook.hold`), an ordinal is dealt once, and an instance that any claim has is given to no other. Nothing but the marks has to survive. Classes
have threads of their own, so what hangs for one delays no other. Source: spec/karpenter-aws.md 5 and 6.1.

NodeClaims of the same launch sets with equal orders wait for one another for a moment. Where EC2 can be asked for all or none (`fleet.can_be_whole`), they
have a fleet of their own.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from provisioner.apis import ec2, names
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import CloudError, CreateError, InstanceNotFoundError, LaunchUnderWayError
from provisioner.cloudprovider.types import LaunchedInstance, other_owner
from provisioner.ec2 import labels
from provisioner.ec2.access.client import Clients
from provisioner.ec2.instances.endings import EndedAtLaunchError
from provisioner.ec2.instances.instances import Ec2Instance, Instances
from provisioner.ec2.launch import launch_marks, orders, recovery
from provisioner.ec2.launch.fleet_launch import FleetLaunch
from provisioner.ec2.launch.launch_book import LaunchBook
from provisioner.ec2.launch.launch_recovery import LaunchRecovery
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.mark_book import MarkBook
from provisioner.ec2.launch.order_builder import OrderBuilder
from provisioner.ec2.launch.orders import LaunchWorld, Order, OrderContext
from provisioner.ec2.launch.pace import LONGEST_WAIT
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.ec2.nodeclass.reservations import ReservationBook
from provisioner.ec2.nodeclass.subnets import SubnetBook
from provisioner.ec2.settings import AwsSettings
from provisioner.support import heartbeat, logs
from provisioner.support.clock import Clock
from provisioner.values.bounded import forget_oldest

LOOK_SECONDS: Final = 2.0
"""So long after a look at a launch that was interrupted comes the next one."""

MATES_SECONDS: Final = 1.0
"""So long at most NodeClaims of a launch set wait for those of it that are to be launched with the same order."""

_MAX_WAITS: Final = 4096
_Company = tuple[str, ...]
_Kind = tuple[bytes, _Company]

_log = logs.get_logger(__name__)


class Launcher:
    """Launches and ends instances; thread-safe, and only `delete`, `get` and `list` wait for EC2.

    Args:
        reserved: whether the feature gate ReservedCapacity is on.
        best_effort: whether minValues may be missed.
        look: seconds between two looks at a launch that was interrupted.
        patience: seconds for which it is looked for, see `recovery.PATIENCE_SECONDS`.
    """

    def __init__(
        self,
        aws: Clients,
        instances: Instances,
        templates: LaunchTemplates,
        world: LaunchWorld,
        *,
        subnets: SubnetBook,
        reservations: ReservationBook,
        shortages: Shortages,
        clock: Clock,
        settings: AwsSettings,
        reserved: bool = True,
        best_effort: bool = False,
        look: float = LOOK_SECONDS,
        patience: float = recovery.PATIENCE_SECONDS,
    ) -> None:
        self._instances, self._world, self._reservations, self._clock = instances, world, reservations, clock
        self._book = book = LaunchBook(world.claims, clock, settings)
        self._marks = marks = MarkBook(clock, look, patience)
        self._builder = builder = OrderBuilder(world, subnets, shortages, clock, settings, reserved, best_effort)
        self._fleets = FleetLaunch(aws, templates, world, book, marks, builder, subnets, reservations, shortages, clock)
        self._recovery = LaunchRecovery(self._fleets, instances, templates, world, book, marks, builder, clock)
        self._mates_since: dict[_Kind, float] = {}  # of the launcher's thread alone
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Launcher: {self._book}>"

    # ------------------------------------------------------------------ what controllers ask

    def listen(self, answered: Callable[[str], None]) -> None:
        """Call `answered` with a claim's name when `create` has an answer for it."""
        self._book.answered = answered

    def create(self, claim: NodeClaim) -> LaunchedInstance:
        """The instance of a claim, launched if there is none yet; see `CloudProvider.create`. Never waits."""
        answer = self._book.offer(claim)
        if isinstance(answer, LaunchedInstance):
            return answer
        if answer is not None:
            raise answer
        self._start()
        raise LaunchUnderWayError(claim.metadata.name)

    def resume(self, claims: Iterable[NodeClaim]) -> None:
        """Go on with what an earlier process began; at once, so that the claims of a batch are together."""
        begun = (
            claim
            for claim in claims
            if claim.metadata.deletion_timestamp is None
            and not claim.status.provider_id
            and launch_marks.mark_of(claim) is not None
        )
        if self._book.offer_all(begun):
            self._start()

    def delete(self, claim: NodeClaim) -> None:
        """Begin the end of the claim's instance, also of one that nobody has written down yet; see `CloudProvider.delete`."""
        under_way, answer = self._book.withdraw(claim)
        if under_way:
            return  # its instance is about to be known
        known = claim.status.provider_id or (answer.provider_id if isinstance(answer, LaunchedInstance) else "")
        try:
            if not known:
                known = self._recovery.lost_instance(claim)
            if known:
                self._must_be_its_own(claim, known)
                self._fleets.note_failure(claim, known, self._instances.terminate(known))
        except InstanceNotFoundError as gone:
            if isinstance(gone, EndedAtLaunchError):
                self._fleets.note_failure(claim, known, gone.failure)
            reservation = claim.metadata.labels.get(labels.RESERVATION_ID, "")
            if self._book.forget(claim) and reservation:
                self._reservations.terminated(reservation, self._clock.now())
            raise

    def _must_be_its_own(self, claim: NodeClaim, provider_id: str) -> None:
        """Raises `InstanceNotFoundError` where another claim, which stays, has the same instance: then this one has none of its own."""
        other = other_owner(claim, provider_id, self._world.claims())
        if other is not None:
            _log.error(
                "Two NodeClaims refer to one instance; the NodeClaim that is not being deleted keeps it",
                nodeclaim=claim.metadata.name,
                other=other.metadata.name,
                provider_id=provider_id,
            )
            raise InstanceNotFoundError("")

    def reboot(self, claim: NodeClaim) -> None:
        """Reboot the claim's instance; see `CloudProvider.reboot`."""
        self._must_be_its_own(claim, claim.status.provider_id)
        self._instances.reboot(claim.status.provider_id)

    def get(self, provider_id: str) -> LaunchedInstance:
        """The instance of that ID; see `CloudProvider.get`."""
        return _instance(self._instances.get(provider_id))

    def list(self) -> Sequence[LaunchedInstance]:
        """Every instance of this cluster, in order of provider ID."""
        return sorted(map(_instance, self._instances.list()), key=lambda one: one.provider_id)

    def stop(self) -> None:
        """Begin nothing more. What was begun or waited is continued by `resume` of the next process."""
        lanes = self._book.close()
        if self._thread is not None:
            self._thread.join(1.0)
        for lane in lanes:
            lane.close(0.2)
        self._fleets.close()

    # ------------------------------------------------------------------ from claims to orders

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._book.closed:
                self._thread = threading.Thread(target=self._run, name="launcher", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pulse = heartbeat.pulse("launcher")
        while True:
            pulse.beat()
            claims = self._book.next_window(pulse, self._pause)
            if not claims:
                return
            try:
                self._release(claims)
            except Exception:  # noqa: BLE001 - one claim or order that fails stops no other
                _log.exception("Failed to launch NodeClaims; retrying")
                self._book.turn_away(
                    self._book.under_way(claims, in_lane=False),
                    CreateError(names.LAUNCH_FAILED, "internal error; the log of the provisioner has the details"),
                    LONGEST_WAIT,
                )

    def _pause(self, claim: NodeClaim) -> float:
        """Seconds until something may be done for a claim; to look for what was launched for it, nobody has to wait."""
        mark = launch_marks.mark_of(claim)
        if mark is not None and not self._marks.is_spent(mark.tag):
            return 0.0
        return self._fleets.turn(claim)[1]

    def _release(self, claims: Sequence[NodeClaim]) -> None:
        """Begin whatever may begin now; the rest waits for the next window."""
        interrupted: dict[str, list[NodeClaim]] = {}
        asks: dict[_Kind, list[NodeClaim]] = {}
        for claim in claims:
            if self._book.has_instance(claim):
                continue
            mark = launch_marks.mark_of(claim)
            if mark is not None and not self._marks.is_spent(mark.tag):
                interrupted.setdefault(mark.tag, []).append(claim)
            else:
                asks.setdefault(_kind(claim), []).append(claim)
        for tag, some in interrupted.items():
            self._book.submit(some, lambda tag=tag, some=some: self._recovery.resume(tag, some))  # type: ignore[misc]
        arounds: dict[tuple[str, str], OrderContext | CloudError] = {}
        groups: dict[tuple[str, _Company], tuple[Order, list[NodeClaim]]] = {}
        late = self._late(asks)
        for kind, alike in asks.items():
            short, pause = self._fleets.turn(alike[0])
            if pause > 0 or kind in late:
                self._book.put_back(alike)
                continue
            order = self._builder.order_or_error(alike[0], arounds)
            if not isinstance(order, Order):
                self._book.turn_away(alike, order, order.retry_after)
            elif short:  # one at a time: what its answer teaches may change the next order
                self._fleets.begin(order, alike)
            else:
                whole = orders.for_company(order, alike, len(alike)).all_or_none  # then no stranger is in its fleet
                groups.setdefault((order.key, kind[1] if whole else ()), (order, []))[1].extend(alike)
        for order, some in groups.values():
            self._fleets.begin(order, some)

    def _late(self, asks: Collection[_Kind]) -> set[_Kind]:
        """Of which of these others have not been asked for yet, and not for long. Cost: all claims, if any is of a set."""
        companies = {company for _, company in asks if company}
        mates: dict[_Kind, list[NodeClaim]] = {}
        for claim in self._world.claims() if companies else ():
            if not claim.status.provider_id and claim.metadata.deletion_timestamp is None:
                mark = launch_marks.mark_of(claim)
                if orders.company_of(claim) in companies and (mark is None or self._marks.is_spent(mark.tag)):
                    mates.setdefault(_kind(claim), []).append(claim)
        late, now = set[_Kind](), self._clock.monotonic()
        for kind in asks:
            if self._book.not_asked(mates.get(kind, ())):
                since = self._mates_since.setdefault(kind, now)
                if now - since < MATES_SECONDS:
                    late.add(kind)
                    continue
            self._mates_since.pop(kind, None)
        forget_oldest(self._mates_since, _MAX_WAITS)
        return late


def _kind(claim: NodeClaim) -> _Kind:
    """Equal for claims that get equal orders and are of the same launch sets."""
    return orders.ask_key(claim), orders.company_of(claim)


def _instance(instance: Ec2Instance) -> LaunchedInstance:
    """An instance as everybody knows instances; what its claim says of it is not repeated."""
    return LaunchedInstance(
        provider_id=instance.provider_id,
        instance_type=instance.instance_type,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        image_id=instance.image_id,
        claim_name=instance.tags.get(ec2.NODECLAIM_TAG, ""),
    )
