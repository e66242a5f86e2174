"""What a region sells, for what, and what is short: read in the background, taken by everybody without waiting.

`RegionMarket` asks AWS and the cluster at intervals, each question in its own turn, and swaps whole values; what cannot be read stays as it was.
Whoever plans or launches takes instance types of a class from it; they are the same tuple for as long as nothing changed.
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import CloudError
from provisioner.cloudprovider.types import InstanceType
from provisioner.ec2.access.wire import SpotRow, TypeInfo, WireError
from provisioner.ec2.market import discounts, instance_types
from provisioner.ec2.market.catalogue import EC2Catalogue, Region
from provisioner.ec2.market.discounts import Bought, DiscountTable, LedgerPrices
from provisioner.ec2.market.discovered_capacity import MemoryTable, Seen
from provisioner.ec2.market.instance_types import MarketSettings, PlacementGroup, Shape
from provisioner.ec2.market.offerings import OfferingMarket, market_of
from provisioner.ec2.market.prices import PriceBook, PriceList
from provisioner.ec2.market.structural_caps import FullCapacity, occupancy
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.ec2.settings import AwsSettings
from provisioner.kube.errors import ApiError
from provisioner.support import logs
from provisioner.support.backoff import doubled
from provisioner.support.clock import Clock
from provisioner.support.workers import KeyedQueue, ReconcileResult
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import MEMORY, Resources

MARKET_SECONDS: Final = 0.1
"""How old the market may be that types are made of; one for all claims of a batch."""

CATALOGUE, ON_DEMAND, SPOT, DISCOUNTS, PREFIXES = (
    "catalogue",
    "on-demand prices",
    "spot prices",
    "discounts",
    "prefixes",
)
_SHARE_OF_INTERVAL: Final = 0.9
"""Spot prices are asked for so early: reading them takes its time."""
_DISCOUNT_SECONDS: Final = 60.0
_PREFIX_SECONDS: Final = 300.0
_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 2.0, 60.0
_READERS: Final = 3
_FAILURES: Final = (BotoCoreError, ClientError, WireError, ApiError, OSError, ValueError)

_log = logs.get_logger(__name__)
INSTANCE_TYPES_NOT_IN_TABLES: Final = (
    "This version of Dovetail does not know some instance types: their nodes are planned without vpc.amazonaws.com/pod-eni, addresses for Windows "
    "pods or the network bandwidth label; upgrade Dovetail"
)


@dataclass(frozen=True)
class Reads:
    """The questions that fill the market; each may raise.

    Attributes:
        region: types and the zones that offer them.
        spot: the spot market of this moment.
        on_demand: the halves of the price list; None where there is no Pricing API to ask.
        discounts: the text of the ledger; "" without one.
        prefix_delegation: whether the VPC CNI hands out prefixes.
    """

    region: Callable[[], Region]
    spot: Callable[[], Iterable[SpotRow]]
    on_demand: Callable[[], Sequence[Mapping[str, float]]] | None = None
    discounts: Callable[[], str] = lambda: ""
    prefix_delegation: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class MarketContext:
    """What others know that decides about offerings; asked for every market, so it must not wait for anything.

    Attributes:
        reserved: instances left, by reservation id.
        shifted: ids of zones that traffic is shifted away from.
        spent: ids of reservations of which no instance is left, as EC2 was read.
        dry: ids of subnets without a free address, likewise.
        claims: of the cluster; their instances use up discounts and placement groups.
        group_of: what the placement group selector of a class resolved to.
        ipv6: whether nodes of a class have IPv6 addresses.
    """

    reserved: Callable[[], Mapping[str, int]] = dict
    shifted: Callable[[], frozenset[str]] = frozenset
    spent: Callable[[], frozenset[str]] = frozenset
    dry: Callable[[], frozenset[str]] = frozenset
    claims: Callable[[], Iterable[NodeClaim]] = tuple
    group_of: Callable[[EC2NodeClass], PlacementGroup | None] = lambda _: None
    ipv6: Callable[[EC2NodeClass], bool] = lambda _: False


@dataclass(frozen=True, slots=True)
class _Occupied:
    """What these claims occupy: counted anew when they change, for a market is made ten times a second."""

    claims: tuple[NodeClaim, ...] = ()
    awaited: Mapping[str, int] = field(default_factory=dict)
    groups: frozenset[tuple[str, str]] = frozenset()

    def left_of(self, reserved: Mapping[str, int]) -> dict[str, int]:
        """Instances left by reservation, without those that claims wait for."""
        return {name: max(0, left - self.awaited.get(name, 0)) for name, left in reserved.items()}


@dataclass(frozen=True, slots=True)
class _Taken:
    at: float
    market: OfferingMarket
    version: Hashable


class RegionMarket:
    """The market of one region; thread-safe.

    Args:
        reserved: whether the feature gate ReservedCapacity is on.
        changed: called after something was read that differs from before.
    """

    def __init__(
        self,
        settings: AwsSettings,
        reads: Reads,
        around: MarketContext,
        shortages: Shortages,
        memory: MemoryTable,
        clock: Clock,
        *,
        reserved: bool = True,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings, self._reads, self._around = settings, reads, around
        self.shortages, self.memory, self._clock = shortages, memory, clock
        self._reserved, self._changed = reserved, changed
        self._catalogue = EC2Catalogue(
            MarketSettings(settings.region, settings.vm_memory_overhead, settings.reserved_enis)
        )
        self._region = Region()
        self._book = PriceBook(settings.region)
        self._ledger, self._ledger_text = DiscountTable(), ""
        self._unknown = frozenset[str]()
        self._read = threading.Event()
        self._taken: _Taken | None = None
        self._occupied = _Occupied()
        questions = {
            CATALOGUE: self._read_region,
            SPOT: self._read_spot,
            DISCOUNTS: self._read_discounts,
            PREFIXES: self._read_prefixes,
        }
        if reads.on_demand is not None:
            questions[ON_DEMAND] = self._read_on_demand
        self._questions: Mapping[str, Callable[[], float]] = questions
        self._failures: dict[str, int] = {}
        self._problems: dict[str, str] = {}
        self._estimated = 0
        self._queue = KeyedQueue("aws-market", self._refresh, clock, workers=_READERS)

    def start(self) -> None:
        """Begin to read."""
        self._queue.start()
        self._queue.add_all(self._questions)

    def stop(self) -> None:
        """Read no more."""
        self._queue.stop(1.0)

    def refresh(self, question: str) -> float:
        """Ask one of the questions; seconds until it should be asked again. What fails is logged, and nothing changes."""
        try:
            seconds = self._questions[question]()
            self._failures.pop(question, None)
            self._problems.pop(question, None)
        except _FAILURES as error:
            self._problems[question] = str(error)
            _log.warning(
                "Failed to refresh instance types and prices; keeping the previous ones",
                what=question,
                error=str(error),
            )
            failures = self._failures[question] = self._failures.get(question, 0) + 1
            return doubled(failures, base=_RETRY_SECONDS, cap=_LONGEST_RETRY_SECONDS)
        return seconds

    # ------------------------------------------------------------------ what there is

    @property
    def ready(self) -> bool:
        """Whether the region was read."""
        return self._read.is_set()

    @property
    def problem(self) -> str:
        """Why the region could not be read the last time; "" where it could be, or was not tried."""
        return self._problems.get(CATALOGUE, "")

    def wait(self, seconds: float) -> bool:
        """Wait until the region was read; whether it was."""
        return self._read.wait(seconds)

    @property
    def prices(self) -> PriceList:
        """List prices of this moment."""
        return self._book.current()

    def adjusted(self, instance_type: str, zone: str, capacity_type: str) -> bool:
        """Whether decisions take another price for an offering than EC2's."""
        return self._market().market.adjusted(instance_type, zone, capacity_type)

    @property
    def region(self) -> Region:
        """What EC2 sells."""
        return self._region

    def info(self, instance_type: str) -> TypeInfo | None:
        """What EC2 says of one type."""
        return self._catalogue.info(instance_type)

    def shape(self, node_class: EC2NodeClass, *, grouped: bool = True) -> Shape:
        """What of the class instance types depend on; not `grouped` without its placement group, which may not be known.

        Raises:
            QuantityError: a volume size of the class is no quantity.
        """
        group = self._around.group_of(node_class) if grouped else None
        return Shape.of(node_class, group, reserved=self._reserved, ipv6=self._around.ipv6(node_class))

    def types(self, node_class: EC2NodeClass) -> tuple[InstanceType, ...]:
        """What instances of the class can be, in order of name; the same tuple while nothing changed; () before the region was read.

        Raises:
            QuantityError: a volume size of the class is no quantity.
            CloudError: the class wants a placement group that is not known; nothing may be launched outside of it.

        Cost: see `Catalogue.types`; nothing while the market is the same.
        """
        return self._types_of(self.shape(node_class))

    def _types_of(self, shape: Shape) -> tuple[InstanceType, ...]:
        taken, memory = self._market(), self.memory
        return self._catalogue.types(
            shape,
            taken.market,
            taken.version,
            lambda name, image: memory.lookup(name, image, shape.family),
            memory.version,
            at=self._clock.monotonic(),
        )

    def known_types(self, node_class: EC2NodeClass) -> tuple[InstanceType, ...]:
        """As `types` last answered: right in everything but prices and availability, and free.

        Without its placement group while that is not known: what instances have does not depend on it.
        """
        try:
            shape = self.shape(node_class)
        except CloudError:
            shape = self.shape(node_class, grouped=False)
        known = self._catalogue.known(shape)
        return self._types_of(shape) if known is None else known

    def max_pods(self, node_class: EC2NodeClass, instance_type: str) -> int:
        """How many pods a node of the type may have; 0 for a type that the region does not have."""
        info = self.info(instance_type)
        return 0 if info is None else instance_types.max_pods(info, self.shape(node_class), self._catalogue.settings)

    def reserved(self, node_class: EC2NodeClass, instance_type: str) -> instance_types.Reserved:
        """What expressions of the class's kubelet reserve on a type; () without any.

        Raises:
            FormulaError: one has no value for the type, which is not launched then.
        """
        info, shape = self.info(instance_type), self.shape(node_class)
        if info is None or not shape.kubelet.has_formulas:
            return ()
        found = instance_types.resolved_kubelet(info, shape, self._catalogue.settings)
        return (("kubeReserved", found.kube_reserved), ("systemReserved", found.system_reserved))

    def formula_problem(self, node_class: EC2NodeClass) -> str:
        """The first type of the region, by name, for which an expression of the class's kubelet has no value, a clause; "" for none.

        Cost: nothing without expressions, else some 0.2 s.
        """
        shape = self.shape(node_class, grouped=False)
        if not shape.kubelet.has_formulas:
            return ""
        found = (instance_types.formula_problem(one, shape, self._catalogue.settings) for one in self._region.infos)
        return next(filter(None, found), "")

    def efa_launch(self, node_class: EC2NodeClass, instance_type: str) -> instance_types.EfaLaunch:
        """How instances of the type are launched for pods that ask for EFA; without any for a type that the region does not have."""
        info = self.info(instance_type)
        if info is None:
            return instance_types.EfaLaunch()
        return instance_types.efa_launch(info, self.shape(node_class), self._catalogue.settings)

    def _market(self) -> _Taken:
        taken, now = self._taken, self._clock.monotonic()
        if taken is None or now - taken.at >= MARKET_SECONDS:
            market, version = self._market_at(self._clock.now())
            taken = self._taken = _Taken(now, market, version)
        return taken

    def _market_at(self, now: datetime) -> tuple[OfferingMarket, Hashable]:
        around, region = self._around, self._settings.region
        ledger, paid, claims = self._ledger, None, tuple(around.claims())
        if ledger.rows:
            used = ledger.used(bought(claims), region)
            paid = LedgerPrices(ledger, used, region, now)
        occupied = self._occupied
        if occupied.claims != claims:  # as a rule the same objects
            occupied = self._occupied = _Occupied(claims, *occupancy(claims))
        reserved = occupied.left_of(around.reserved())
        full = FullCapacity(around.spent(), occupied.groups, around.dry())
        return market_of(self._book.current(), paid, self.shortages, now, reserved, around.shifted(), full)

    # ------------------------------------------------------------------ what nodes show

    def learn(self, node: Node, claim: NodeClaim, node_class: EC2NodeClass) -> bool:
        """Take over the memory of a registered Node, where it can be true; whether anything changed."""
        seen = seen_on(node, claim, node_class, self._clock.now())
        if seen is None:
            return False
        if not is_plausible(seen.memory, self._advertised(seen.instance_type)):
            _log.warning(
                "Ignored the memory capacity that a Node reports because it is implausible",
                node=node.metadata.name,
                instance_type=seen.instance_type,
                bytes=seen.memory,
            )
            return False
        return self.memory.learn(seen)

    def _advertised(self, instance_type: str) -> int | None:
        """Bytes of memory that EC2 says the type has; None while that is not read."""
        return next((info.memory_mib << 20 for info in self._region.infos if info.name == instance_type), None)

    # ------------------------------------------------------------------ reading

    def _refresh(self, question: str) -> ReconcileResult:
        return ReconcileResult(requeue_after=self.refresh(question))

    def _read_region(self) -> float:
        region = self._reads.region()
        if not region.infos or not region.zones:
            raise ValueError("EC2 listed no instance types, or no zones that offer them")
        if self._catalogue.load(region):
            self._region = region
            _log.info("Refreshed instance types", types=len(region.infos), region=self._settings.region)
            unknown = frozenset(instance_types.unknown_to_tables(region.infos))
            if news := sorted(unknown - self._unknown):
                _log.warning(INSTANCE_TYPES_NOT_IN_TABLES, types=", ".join(news))
            self._unknown |= unknown
            self._after()
        self._read.set()
        return self._settings.catalogue_refresh.total_seconds()

    def _read_spot(self) -> float:
        version = self.prices.version
        if not self._book.take_spot(self._reads.spot()):
            return _LONGEST_RETRY_SECONDS
        self._after(self.prices.version != version)
        return self._settings.spot_refresh.total_seconds() * _SHARE_OF_INTERVAL

    def _read_on_demand(self) -> float:
        version = self.prices.version
        if self._reads.on_demand is None or not self._book.take_on_demand(self._reads.on_demand(), self._clock.now()):
            return _LONGEST_RETRY_SECONDS
        self._after(self.prices.version != version)
        return self._settings.price_refresh.total_seconds()

    def _read_discounts(self) -> float:
        text = self._reads.discounts()
        if text != self._ledger_text:
            ledger, problems = discounts.parse(text)
            for problem in problems:
                _log.warning(problem)
            self._ledger_text, self._ledger = text, ledger
            self._after()
        return _DISCOUNT_SECONDS

    def _read_prefixes(self) -> float:
        settings = replace(self._catalogue.settings, prefix_delegation=self._reads.prefix_delegation())
        if self._catalogue.configure(settings):
            _log.info("Discovered the prefix delegation setting of aws-node", on=settings.prefix_delegation)
            self._after()
        return _PREFIX_SECONDS

    def _after(self, changed: bool = True) -> None:
        if not changed:
            return
        self._taken = None
        if self.prices.on_demand_at is not None or self._reads.on_demand is None:  # before that the list is not whole
            unpriced = self._book.newly_unpriced(info.name for info in self._region.infos)
            if unpriced:
                _log.warning(
                    "Instance types without a known price are offered last, and not at all where the price of nodes "
                    "is limited",
                    types=", ".join(unpriced),
                )
            prices = self.prices
            estimated = sum(prices.is_estimated(info.name) for info in self._region.infos)
            if estimated != self._estimated:
                self._estimated = estimated
                _log.warning(
                    "On-demand prices that are missing from the price list of the Region are estimated from those of another Region",
                    types=estimated,
                    region=prices.estimated_from,
                )
        self._changed()


def bought(claims: Iterable[NodeClaim]) -> Iterable[Bought]:
    """The instances of claims, as the discount ledger counts them."""
    for claim in claims:
        if claim.status.provider_id:
            own = claim.metadata.labels
            yield Bought(
                own.get(names.INSTANCE_TYPE_LABEL, ""),
                own.get(names.ZONE_LABEL, ""),
                own.get(names.CAPACITY_TYPE_LABEL, ""),
                own.get(names.OS_LABEL) or "linux",
            )


def is_plausible(memory: int, advertised: int | None) -> bool:
    """Whether an instance of a type with so much memory may show a Node with this.

    A kubelet writes its Node's capacity, and what is learned of one counts for all instances of its type to come. Firmware, kernel and
    a crash kernel take up to a fifth of the smallest types, and nothing adds any.
    """
    return advertised is None or advertised // 2 <= memory <= advertised


def seen_on(node: Node, claim: NodeClaim, node_class: EC2NodeClass, now: datetime) -> Seen | None:
    """What a Node shows about the memory of its type with its image; None before it is registered, and where it shows nothing."""
    if not node.registered or not claim.status.image_id:
        return None
    try:
        memory = Resources.parse(node.status.capacity).get(MEMORY, 0)
    except QuantityError:
        return None
    instance_type = claim.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "")
    if not memory or not instance_type:
        return None
    return Seen(instance_type, claim.status.image_id, node_class.family, "", memory, int(now.timestamp()))


def prefix_delegation_of(daemon_set: bytes) -> bool:
    """Whether the aws-node DaemonSet, as JSON, turns prefix delegation on; False for what is no DaemonSet."""
    try:
        return instance_types.prefix_delegation(instance_types.aws_node_environment(daemon_set))
    except msgspec.DecodeError:
        return False
