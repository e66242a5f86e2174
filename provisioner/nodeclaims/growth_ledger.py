"""Holds NodeClaims back that no limit allows now: of their NodePool, --max-claims-per-minute or --max-usd-per-hour; and all while Karpenter itself
leads, or launches are paused.

A plan is made of an instant, and two are made at a time; so what is charged is checked again here, one NodeClaim after another. The rules are in
`nodeclaims.growth_limits` and `PoolView.left`. What counts is read from the NodeClaims that there are, so a restart changes nothing. Memory adds what
they cannot tell: NodeClaims of this process that have gone within the minute.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from provisioner.apis.command import CommandPhase
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pool_limits import MICROS, USD, PoolLimitError, spending_limit
from provisioner.cloudprovider.types import InstanceType
from provisioner.nodeclaims.growth_limits import (
    WINDOW_SECONDS,
    Growth,
    GrowthLimit,
    GrowthLimits,
    HeldBack,
    HeldBackError,
)
from provisioner.options import Options
from provisioner.scheduling.capacity.hourly_price import lacks_price, usd_per_hour
from provisioner.scheduling.capacity.spending import highest_usd_per_hour
from provisioner.state.cluster import Cluster
from provisioner.state.disruption_commands import Command
from provisioner.support.clock import Clock
from provisioner.values.message import EventMessage
from provisioner.values.resources import EMPTY, Resources

T = TypeVar("T")

#: While another Karpenter leads or launches are paused, this is looked at again about as often.
KARPENTER_SECONDS: Final = 5.0
#: What is known of the NodeClaims is gathered anew after so long; until then what is created here is added.
FRESH_SECONDS: Final = 1.0
#: Nobody is refused for money by what is older.
RECENT_SECONDS: Final = 0.1


def pool_held_back(nodes: int, why: str) -> EventMessage:
    """To a NodePool whose NodeClaims wait."""
    return EventMessage("Warning", "GrowthLimited", f"{nodes} {'node waits' if nodes == 1 else 'nodes wait'}: {why}")


def limits_of(options: Options) -> GrowthLimits:
    """How far all NodePools together may grow, as the program was started."""
    return GrowthLimits(options.max_claims_per_minute, options.max_usd_per_hour)


@dataclass(slots=True)
class _Known:
    """What was gathered of the nodes, and what was admitted since.

    Attributes:
        at: when it was gathered (monotonic).
        commands: disruption commands, as they were seen last; their candidates count no more.
        prices: USD per hour of the nodes that counted, by NodeClaim.
        growth: of all NodePools.
        by_pool: likewise of those that say what their nodes may cost, by name.
    """

    at: float
    commands: tuple[Command, ...]
    prices: dict[str, tuple[str, float]]
    growth: Growth
    by_pool: dict[str, Growth]

    def take(self, pool: str, usd_per_hour: float, elapsed: float) -> None:
        """A NodeClaim is admitted."""
        for one in (self.growth, self.by_pool.get(pool)):
            if one is not None:
                one.take(usd_per_hour, elapsed)

    def noted(self, commands: tuple[Command, ...]) -> bool:
        """Take off what candidates of new commands cost; False where one is over, so that its candidates may count again."""
        if commands is self.commands:
            return True
        before, now = ({one.record.id: one.record for one in some} for some in (self.commands, commands))
        if before.keys() - now.keys():
            return False
        self.commands = commands
        for name in [name for key in now.keys() - before.keys() for name in now[key].candidate_names]:
            pool, price = self.prices.pop(name, ("", 0.0))
            for growth in (self.growth, self.by_pool.get(pool)):
                if growth is not None:
                    growth.free(price)
        return True


class _Mine(NamedTuple):
    """A NodeClaim that was announced here: when, since when it counts, and whether it was seen written."""

    announced: float
    counts: float
    written: bool = False


class GrowthLedger:
    """Admits NodeClaims one after another. Thread-safe.

    Args:
        cluster: whose NodeClaims count, announced ones included; of resources and money those that go do not.
        limits: that hold over all NodePools.
        types_of: instance types of a NodePool, by name.
        beside: that another Karpenter leads, as a sentence; "" where none does.
        paused: what pauses launches of a NodePool, or of all (""); "" where nothing does.
    """

    def __init__(
        self,
        cluster: Cluster,
        limits: GrowthLimits,
        types_of: Callable[[str], Mapping[str, InstanceType]],
        clock: Clock,
        beside: Callable[[], str] = lambda: "",
        paused: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._cluster, self._limits, self._types_of, self._clock = cluster, limits, types_of, clock
        self._beside, self._paused = beside, paused
        self._lock = threading.Lock()
        self._began = clock.monotonic()
        self._mine: dict[str, _Mine] = {}
        self._known: _Known | None = None

    def admit(self, claims: Sequence[NodeClaim], enter: Callable[[], T]) -> T:
        """Let NodeClaims come to be, all or none.

        Args:
            claims: that are needed together; more of them than may come to be in a minute do when none did, and count for the minutes that follow.
            enter: tells the state of them; something false where they did not come to be.

        Raises:
            HeldBackError: they may not be now; `enter` was not called.

        Cost: O(NodeClaims) once a second while NodeClaims are created, ten times where money is short; nothing without limits.
        """
        for pool in dict.fromkeys([claim.pool for claim in claims]):
            if (closed := self._closed(pool)) is not None:
                raise closed
        with self._lock:
            if (held := self._over_limits(claims)) is not None:
                raise HeldBackError(held, self._limits)
            if self._limits.none and not any(self._cluster.is_limited_in_money(claim.pool) for claim in claims):
                return enter()
            prices = [self._price(claim) for claim in claims]
            known = self._fresh()
            if (held := self._refusal(known, claims, prices)) is not None and held.seconds is None:
                known = self._fresh(RECENT_SECONDS)  # a node may have begun to go meanwhile
                held = self._refusal(known, claims, prices)
            if held is not None:
                raise HeldBackError(replace(held, nodes=len(claims)), self._limits)
            entered = enter()
            if entered:
                now = self._clock.monotonic()
                for number, (claim, price) in enumerate(zip(claims, prices, strict=True)):
                    at = now + known.growth.counted_after(number)
                    known.take(claim.pool, price, at - known.at)
                    self._mine[claim.name] = _Mine(now, at)
            return entered

    def _over_limits(self, claims: Sequence[NodeClaim]) -> HeldBack | None:
        """Which resource a NodePool has too little of for these NodeClaims together, or which of them has no price that a limit asks for."""
        charged: dict[str, Resources] = {}
        for claim in claims:
            pool = claim.pool
            if (asked := self._cluster.asked_of_limits(claim)) is not None:
                left, charge = asked
                total = charged[pool] = charged.get(pool, EMPTY) + charge
                for name, amount in left.items():
                    if total.amount(name) > amount:
                        return HeldBack(GrowthLimit.NODE_POOL, None, name, pool, nodes=len(claims))
            money = self._limits.usd_per_hour or self._cluster.is_limited_in_money(pool)
            if money and lacks_price(claim, self._types_of(pool)):
                return HeldBack(GrowthLimit.USD, pool=pool, unpriced=True, nodes=len(claims))
        return None

    @property
    def is_closed(self) -> bool:
        """Whether nothing comes to be, because another Karpenter leads or all launches are paused."""
        return self._closed("") is not None

    def _closed(self, pool: str) -> HeldBackError | None:
        """Why no NodeClaim of a NodePool comes to be whatever limits leave, of all NodePools for ""."""
        if text := self._beside():
            return HeldBackError(HeldBack(GrowthLimit.KARPENTER, KARPENTER_SECONDS), self._limits, text)
        for of in ("", pool):
            if text := self._paused(of):
                return HeldBackError(HeldBack(GrowthLimit.PAUSED, KARPENTER_SECONDS, pool=of), self._limits, text)
        return None

    def problems(self, prices: Sequence[float]) -> list[str]:
        """Of NodeClaims of these prices (USD per hour) that would come to be now, one after another: why not, in words; "" for those that may."""
        closed = self._closed("")
        if closed is not None or self._limits.none:
            return [str(closed or "")] * len(prices)
        with self._lock:
            known = self._fresh()
            held = known.growth.refusals(prices, self._clock.monotonic() - known.at)
        return ["" if one is None else str(HeldBackError(one, self._limits)) for one in held]

    def usd_left(self) -> float:
        """What further nodes of all NodePools may cost now, in USD per hour; infinite without such a limit."""
        with self._lock:
            return self._fresh(RECENT_SECONDS).growth.usd_left

    def note(self, name: str) -> None:
        """A NodeClaim is created now that was admitted before a restart."""
        if not self._limits.none:
            with self._lock:
                now = self._clock.monotonic()
                self._mine.setdefault(name, _Mine(now, now))

    def written(self, name: str) -> None:
        """A NodeClaim exists at the API server: it counts for a minute, whatever becomes of it."""
        with self._lock:
            if (known := self._mine.get(name)) is not None:
                self._mine[name] = known._replace(written=True)

    def _refusal(self, known: _Known, claims: Sequence[NodeClaim], prices: Sequence[float]) -> HeldBack | None:
        """What the limits over all NodePools say, then what NodePools may cost."""
        held = known.growth.refusal(sum(prices), self._clock.monotonic() - known.at, len(claims))
        if held is not None or not known.by_pool:
            return held
        most: dict[str, float] = {}
        for claim, price in zip(claims, prices, strict=True):
            if claim.pool not in known.by_pool:
                continue
            highest = max(price, highest_usd_per_hour(claim, self._types_of(claim.pool)))
            most[claim.pool] = most.get(claim.pool, 0.0) + highest
        for pool, usd in most.items():
            own = known.by_pool.get(pool)
            if own is not None and own.refusal(usd) is not None:
                return HeldBack(GrowthLimit.NODE_POOL, None, USD, pool)
        return None

    def _fresh(self, seconds: float = FRESH_SECONDS) -> _Known:
        now, known = self._clock.monotonic(), self._known
        if known is None or now - known.at >= seconds or not known.noted(self._cluster.commands()):
            known = self._known = self._gathered(now)
        return known

    def _gathered(self, now: float) -> _Known:
        snapshot = self._cluster.snapshot()
        nodes = [node for node in snapshot.nodes if node.claim is not None]
        claims = {node.key.name: node.claim for node in nodes if node.claim is not None}
        to_come = list(self._to_come(claims))
        self._remember(claims, now)
        counting = [claims[node.key.name] for node in nodes if node.counts] + to_come
        prices = {claim.name: (claim.pool, self._price(claim)) for claim in counting}
        by_pool: dict[str, Growth] = {}
        for view in snapshot.pools:
            with contextlib.suppress(PoolLimitError):
                if (most := spending_limit(view.pool)) is not None:
                    usd = sum(price for pool, price in prices.values() if pool == view.pool.name)
                    by_pool[view.pool.name] = Growth(GrowthLimits(usd_per_hour=most / MICROS), (), usd)
        ages = [*self._ages(claims.values(), now), *(0.0 for _ in to_come)]
        growth = Growth(self._limits, ages, sum(price for _, price in prices.values()))
        return _Known(now, snapshot.commands, prices, growth, by_pool)

    def _to_come(self, there: Mapping[str, NodeClaim]) -> Iterable[NodeClaim]:
        """Replacements that are written in commands and not created yet."""
        for command in self._cluster.commands():
            if command.record.phase is CommandPhase.COMMITTED:
                for one in command.record.replacements:
                    if one.name not in there:
                        yield _read(one.name, one.body)

    def _remember(self, there: Mapping[str, NodeClaim], now: float) -> None:
        """Forget what is a minute old, and what never came to be; of a large set that is gone nothing counts for later minutes."""
        kept: dict[str, _Mine] = {}
        for name, one in self._mine.items():
            claim = there.get(name)
            written = one.written or (claim is not None and bool(claim.metadata.uid))
            counts = one.counts if claim is not None else one.announced
            if now - counts < WINDOW_SECONDS and (claim is not None or written):
                kept[name] = _Mine(one.announced, counts, written)
        self._mine = kept

    def _ages(self, claims: Iterable[NodeClaim], now: float) -> Iterable[float]:
        yield from (now - one.counts for one in self._mine.values())
        wall = self._clock.now()
        for claim in claims:
            if claim.name not in self._mine:
                created = claim.metadata.creation_timestamp
                since = (wall - created).total_seconds() if created is not None else 0.0
                yield max(since, now - self._began)  # whose clock is ahead may not hold everything up for hours

    def _price(self, claim: NodeClaim) -> float:
        money = self._limits.usd_per_hour or self._cluster.is_limited_in_money(claim.pool)
        return usd_per_hour(claim, self._types_of(claim.pool)) if money else 0.0


def _read(name: str, body: Mapping[str, Any] | None) -> NodeClaim:
    try:
        return msgspec.convert(body or {}, NodeClaim, strict=False)
    except msgspec.ValidationError:
        return msgspec.convert({"metadata": {"name": name}}, NodeClaim, strict=False)
