"""Zones that ARC has shifted traffic away from: nothing is launched there. Source: spec/karpenter-aws.md 3.8.

Differs: what ARC said last is all there is, so a shift that is cancelled ends at once, whatever other shifts remain.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from provisioner.ec2.access.client import Clients
from provisioner.support.clock import Clock

SERVICE: Final = "arc-zonal-shift"
_APPLIED: Final = "APPLIED"


def shifts_of(answer: Mapping[str, Any]) -> dict[str, datetime | None]:
    """Zone ids that an answer of GetManagedResource shifts away from, and until when; None for an autoshift. Pure."""
    found: dict[str, datetime | None] = {}
    for zone, until in _applied(answer):
        known = found.get(zone, until)
        found[zone] = None if known is None or until is None else max(known, until)
    return found


def _applied(answer: Mapping[str, Any]) -> Iterator[tuple[str, datetime | None]]:
    for one in answer.get("zonalShifts", ()):
        if one.get("appliedStatus") == _APPLIED and one.get("expiryTime") is not None:
            yield one["awayFrom"], one["expiryTime"]
    for one in answer.get("autoshifts", ()):
        if one.get("appliedStatus") == _APPLIED:
            yield one["awayFrom"], None


class ZonalShifts:
    """What ARC says of the cluster; thread-safe.

    Args:
        cluster_arn: of the EKS cluster, which must be a managed resource of ARC; "" while it is not known.
    """

    def __init__(self, aws: Clients, cluster_arn: Callable[[], str], clock: Clock) -> None:
        self._aws, self._cluster_arn, self._clock = aws, cluster_arn, clock
        self._lock = threading.Lock()
        self._until: Mapping[str, datetime | None] = {}

    def refresh(self) -> frozenset[str]:
        """Ask ARC; the zone ids that are shifted now. Nobody is asked about a cluster that is not known yet.

        Raises:
            botocore.exceptions.ClientError: ARC did not answer, or the cluster is none of its resources; what was known stays.
        """
        arn = self._cluster_arn()
        if not arn:
            return self.zones()
        answer = self._aws.client(SERVICE).get_managed_resource(resourceIdentifier=arn)
        found = shifts_of(answer)
        with self._lock:
            self._until = found
        return self.zones()

    def can_ask(self) -> bool:
        """Whether it is known which cluster to ask about."""
        return bool(self._cluster_arn())

    def zones(self) -> frozenset[str]:
        """Zone ids that are shifted away from now."""
        now = self._clock.now()
        with self._lock:
            return frozenset(zone for zone, until in self._until.items() if until is None or until > now)
