"""What the provisioner's own metrics say: list prices of instances, and calls of AWS."""

import math
import re
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from provisioner.apis import names
from provisioner.support.clock import Clock

PRICES: Final = "karpenter_cloudprovider_instance_type_offering_price_estimate"
REQUESTS: Final = "dovetail_kube_requests_total"
CALLS: Final = "aws_sdk_go_request_attempt_total"
_LINE: Final = re.compile(r"(?P<name>[a-zA-Z_:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL: Final = re.compile(r'([a-zA-Z_]+)="([^"]*)"')
_READ_AGAIN_SECONDS: Final = 5.0
_TIMEOUT_SECONDS: Final = 10.0


def read(url: str) -> str:
    """The page of metrics. Raises OSError."""
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
        text: str = response.read().decode()
        return text


def series(text: str, metric: str) -> Iterable[tuple[Mapping[str, str], float]]:
    """Labels and value of every series of one metric in Prometheus' text format."""
    for line in text.splitlines():
        found = _LINE.fullmatch(line) if line.startswith(metric) else None
        if found is not None and found["name"] == metric:
            yield dict(_LABEL.findall(found["labels"] or "")), float(found["value"])


def total(text: str, metric: str) -> float:
    """Of all series of one metric."""
    return sum(value for _, value in series(text, metric))


def prices(text: str) -> dict[tuple[str, str, str], float]:
    """List price by (instance type, zone, capacity type)."""
    return {
        (labels["instance_type"], labels["zone"], labels["capacity_type"]): value
        for labels, value in series(text, PRICES)
    }


def calls(text: str) -> Counter[str]:
    """Attempts to call AWS, by "service:Action", the service in lower case as in IAM."""
    found: Counter[str] = Counter()
    for labels, value in series(text, CALLS):
        found[f"{labels['service'].lower()}:{labels['action']}"] += int(value)
    return found


def requests(text: str) -> int:
    """Requests to the API server so far, watches left out."""
    return int(total(text, REQUESTS))


class ListPrices:
    """USD per hour of a node, by its labels; read from the metrics when it is asked for a node that it does not know.

    Args:
        clock: an unknown node does not make it read again and again.
    """

    def __init__(self, url: str, clock: Clock) -> None:
        self._url, self._clock = url, clock
        self._lock = threading.Lock()
        self._known: Mapping[tuple[str, str, str], float] = {}
        self._read_at = -math.inf

    def __call__(self, labels: Mapping[str, str]) -> float:
        """0 for a node that has no price."""
        wanted = (
            labels.get(names.INSTANCE_TYPE_LABEL, ""),
            labels.get(names.ZONE_LABEL, ""),
            labels.get(names.CAPACITY_TYPE_LABEL, ""),
        )
        with self._lock:
            if wanted not in self._known and self._clock.monotonic() - self._read_at > _READ_AGAIN_SECONDS:
                self._read_at = self._clock.monotonic()
                try:
                    self._known = prices(read(self._url))
                except (OSError, ValueError):
                    return 0.0
            return self._known.get(wanted, 0.0)
