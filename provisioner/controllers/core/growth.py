"""Holds NodeClaims back that --max-claims-per-minute or --max-usd-per-hour does not allow yet; the rules are in `scheduling.growth`.

What counts is read from the NodeClaims that there are, so a restart changes nothing. Memory adds what they cannot tell: NodeClaims of
this process that have gone within the minute.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from provisioner.apis.command import Phase
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import InstanceType
from provisioner.controllers.core import messages
from provisioner.options import Options
from provisioner.scheduling.growth import WINDOW_SECONDS, Growth, GrowthLimits, HeldBack, Limit, usd_per_hour
from provisioner.state.cluster import Cluster
from provisioner.support.clock import Clock

T = TypeVar("T")

#: What is known of the NodeClaims is gathered anew after so long; until then what is created here is added.
FRESH_SECONDS: Final = 1.0


def limits_of(options: Options) -> GrowthLimits:
    """How far all NodePools together may grow, as the program was started."""
    return GrowthLimits(options.max_claims_per_minute, options.max_usd_per_hour)


class HeldBackError(Exception):
    """A NodeClaim may not be created now; `held` says for how long."""

    def __init__(self, held: HeldBack, limits: GrowthLimits) -> None:
        super().__init__(held, limits)
        self.held, self.limits = held, limits

    def __str__(self) -> str:
        if self.held.limit is Limit.CLAIMS:
            return messages.claims_held_back(self.limits.claims_per_minute)
        return messages.usd_held_back(self.limits.usd_per_hour)


class GrowthLedger:
    """Admits NodeClaims one after another. Thread-safe.

    Args:
        cluster: whose NodeClaims count, announced ones and those that go included.
        limits: that hold over all NodePools.
        types_of: instance types of a NodePool, by name.
    """

    def __init__(
        self,
        cluster: Cluster,
        limits: GrowthLimits,
        types_of: Callable[[str], Mapping[str, InstanceType]],
        clock: Clock,
    ) -> None:
        self._cluster, self._limits, self._types_of, self._clock = cluster, limits, types_of, clock
        self._lock = threading.Lock()
        self._began = clock.monotonic()
        self._mine: dict[str, tuple[float, bool]] = {}  # announced here: when, and whether it was seen written
        self._known: tuple[float, Growth] | None = None

    def admit(self, claim: NodeClaim, enter: Callable[[], T]) -> T:
        """Let a NodeClaim come to be.

        Args:
            claim: it.
            enter: tells the state of it; something false where it did not come to be.

        Raises:
            HeldBackError: it may not be now; `enter` was not called.

        Cost: O(NodeClaims) once a second while NodeClaims are created; nothing without limits.
        """
        if self._limits.none:
            return enter()
        with self._lock:
            at, growth = self._fresh()
            price = self._price(claim)
            elapsed = self._clock.monotonic() - at
            held = growth.refusal(price, elapsed)
            if held is not None:
                raise HeldBackError(held, self._limits)
            entered = enter()
            if entered:
                growth.take(price, elapsed)
                self._mine[claim.name] = (self._clock.monotonic(), False)
            return entered

    def problem(self, usd_per_hour: float) -> str:
        """Why no NodeClaim of that price may come to be now, in words; "" where one may."""
        if self._limits.none:
            return ""
        with self._lock:
            at, growth = self._fresh()
            held = growth.refusal(usd_per_hour, self._clock.monotonic() - at)
        return "" if held is None else str(HeldBackError(held, self._limits))

    def note(self, name: str) -> None:
        """A NodeClaim is created now that was admitted before a restart."""
        if not self._limits.none:
            with self._lock:
                self._mine.setdefault(name, (self._clock.monotonic(), False))

    def written(self, name: str) -> None:
        """A NodeClaim exists at the API server: it counts for a minute, whatever becomes of it."""
        with self._lock:
            if (known := self._mine.get(name)) is not None:
                self._mine[name] = (known[0], True)

    def _fresh(self) -> tuple[float, Growth]:
        now = self._clock.monotonic()
        if self._known is None or now - self._known[0] >= FRESH_SECONDS:
            claims = {claim.name: claim for claim in self._cluster.claims()}
            to_come = list(self._to_come(claims))
            self._remember(claims, now)
            ages = [*self._ages(claims.values(), now), *(0.0 for _ in to_come)]
            usd = sum(map(self._price, (*claims.values(), *to_come)))
            self._known = now, Growth(self._limits, ages, usd)
        return self._known

    def _to_come(self, there: Mapping[str, NodeClaim]) -> Iterable[NodeClaim]:
        """Replacements that are written in commands and not created yet."""
        for command in self._cluster.commands():
            if command.record.phase is Phase.COMMITTED:
                for one in command.record.replacements:
                    if one.name not in there:
                        yield _read(one.name, one.body)

    def _remember(self, there: Mapping[str, NodeClaim], now: float) -> None:
        """Forget what is a minute old, and what never came to be."""
        kept: dict[str, tuple[float, bool]] = {}
        for name, (at, seen) in self._mine.items():
            claim = there.get(name)
            written = seen or (claim is not None and bool(claim.metadata.uid))
            if now - at < WINDOW_SECONDS and (claim is not None or written):
                kept[name] = (at, written)
        self._mine = kept

    def _ages(self, claims: Iterable[NodeClaim], now: float) -> Iterable[float]:
        yield from (now - at for at, _ in self._mine.values())
        wall = self._clock.now()
        for claim in claims:
            if claim.name not in self._mine:
                created = claim.metadata.creation_timestamp
                since = (wall - created).total_seconds() if created is not None else 0.0
                yield max(since, now - self._began)  # whose clock is ahead may not hold everything up for hours

    def _price(self, claim: NodeClaim) -> float:
        return usd_per_hour(claim, self._types_of(claim.pool)) if self._limits.usd_per_hour else 0.0


def _read(name: str, body: Mapping[str, Any] | None) -> NodeClaim:
    try:
        return msgspec.convert(body or {}, NodeClaim, strict=False)
    except msgspec.ValidationError:
        return msgspec.convert({"metadata": {"name": name}}, NodeClaim, strict=False)
