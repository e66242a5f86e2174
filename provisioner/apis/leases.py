"""Whether somebody renews a Lease. Pure."""

import math
from dataclasses import dataclass
from typing import Final

from provisioner.apis.core import Lease, LeaseSpec

_LASTS: Final = 15.0
"""Seconds, of a Lease that does not say it; a leader of Kubernetes' own programs renews it every two."""


@dataclass(frozen=True, slots=True)
class SeenLease:
    """One Lease as it was seen by this process; the one owner of whether its holder renews it.

    A renewal counts from when it was first seen here, by our own clock (decision 30). What is there at the first look may be the leftover of a program that
    died: it is doubtful, until it changes or has been silent for as long as the Lease lasts. Times are monotonic seconds.

    Attributes:
        holder: who holds it; "" for nobody.
        renewal: the holder and the last renewal, to be compared only; "" where nobody holds it, None before the first look.
        since: when this renewal was first seen.
        lasts: seconds for which a renewal is good, as the Lease says.
        is_certain: whether this renewal came after the first look, so that the holder ran then.
    """

    holder: str = ""
    renewal: str | None = None
    since: float = -math.inf
    lasts: float = _LASTS
    is_certain: bool = False

    def after(self, lease: Lease | None, now: float) -> "SeenLease":
        """The same after another look; itself where nothing was renewed. `lease`: None where there is none."""
        spec = lease.spec if lease is not None else LeaseSpec()
        holder = spec.holder_identity or ""
        renewal = f"{holder} {spec.renew_time}" if holder else ""
        if renewal == self.renewal:
            return self
        return SeenLease(holder, renewal, now, spec.lease_duration_seconds or _LASTS, self.renewal is not None)

    def silent_for(self, now: float) -> float:
        """Seconds without a renewal; infinite where nobody holds it."""
        return now - self.since if self.holder else math.inf

    def is_silent(self, now: float) -> bool:
        """Whether nobody renews it: nobody holds it, or the last renewal is no longer good."""
        return self.silent_for(now) > self.lasts

    def is_renewed(self, now: float) -> bool:
        """Whether its holder was seen to renew it, and that is still good."""
        return self.is_certain and not self.is_silent(now)

    def is_doubtful(self, now: float) -> bool:
        """Whether another look may still tell one from the other."""
        return not self.is_certain and not self.is_silent(now)
