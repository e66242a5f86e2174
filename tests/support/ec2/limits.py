"""EC2's own limits on calls: token buckets by sort of call, in real time.

Source: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
"""

import time
from typing import Final

_RATES: Final = {  # a second, burst
    "RunInstances": (2.0, 5),
    "TerminateInstances": (5.0, 100),
    "CreateTags": (10.0, 100),
    "mutating": (5.0, 50),
    "describing": (20.0, 100),
}
_READING: Final = ("Describe", "Get", "List", "Search")


class Limits:
    """The buckets. Called under the lock of the world."""

    def __init__(self) -> None:
        now = time.monotonic()
        self._left = {name: (float(burst), now) for name, (_, burst) in _RATES.items()}

    def allows(self, action: str) -> bool:
        """Whether one more call may pass now; takes its token."""
        kind = action if action in _RATES else "describing" if action.startswith(_READING) else "mutating"
        rate, burst = _RATES[kind]
        left, since = self._left[kind]
        now = time.monotonic()
        left = min(float(burst), left + (now - since) * rate)
        allowed = left >= 1.0
        self._left[kind] = (left - 1.0 if allowed else left), now
        return allowed
