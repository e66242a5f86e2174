"""Karpenter's metrics about the calls of a `CloudProvider`, for whichever provider it is. Source: core spec 8.1."""

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.cloudprovider.errors import (
    InstanceNotFoundError,
    InsufficientCapacityError,
    LaunchUnderWayError,
    NodeClassNotReadyError,
)
from provisioner.cloudprovider.types import CloudProvider
from provisioner.support.clock import Clock
from provisioner.support.metrics import counter, histogram

_METHODS: Final[Mapping[str, str]] = {
    "create": "Create",
    "delete": "Delete",
    "get": "Get",
    "reboot": "Reboot",
    "list": "List",
    "instance_types": "GetInstanceTypes",
    "is_drifted": "IsDrifted",
}
_ERRORS: Final[Mapping[type[Exception], str]] = {
    InsufficientCapacityError: "InsufficientCapacityError",
    InstanceNotFoundError: "NodeClaimNotFoundError",
    NodeClassNotReadyError: "NodeClassNotReadyError",
}
_LABELS: Final = ("controller", "method", "provider")
_SECONDS: Final = histogram(
    "karpenter_cloudprovider_duration_seconds",
    "Duration of calls to the cloud provider, including repeated calls.",
    _LABELS,
)
_FAILURES: Final = counter(
    "karpenter_cloudprovider_errors_total", "Calls to the cloud provider that failed.", (*_LABELS, "error", "nodepool")
)

P = TypeVar("P", bound=CloudProvider)


def metered(provider: P, controller: str, clock: Clock) -> P:
    """The provider as `controller` sees it: its calls are timed and their errors counted, nothing else changes.

    A launch that goes on is no error; its time counts from the first call to the answer.
    """
    return cast(P, _Metered(provider, controller, clock))


class _Metered:
    def __init__(self, provider: CloudProvider, controller: str, clock: Clock) -> None:
        self._provider, self._controller, self._clock = provider, controller, clock
        self._lock = threading.Lock()
        self._begun: dict[str, float] = {}  # by uid of claims whose launch is under way

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._provider, name)
        method = _METHODS.get(name)
        return value if method is None else functools.partial(self._call, method, value)

    def _call(self, method: str, call: Callable[..., Any], *arguments: Any) -> Any:
        labels, begun = (self._controller, method, self._provider.name), self._clock.monotonic()
        subject = arguments[0] if arguments else None
        key = subject.metadata.uid if isinstance(subject, NodeClaim) and method in {"Create", "Delete"} else ""
        if method == "Delete":
            with self._lock:
                self._begun.pop(key, None)  # its launch has no answer any more
        try:
            answer = call(*arguments)
        except LaunchUnderWayError:
            with self._lock:
                self._begun.setdefault(key, begun)
            raise
        except Exception as error:
            word = next((one for kind, one in _ERRORS.items() if isinstance(error, kind)), "unknown")
            _FAILURES.labels(*labels, word, _pool_of(subject)).inc()
            self._observe(labels, key, begun)
            raise
        self._observe(labels, key, begun)
        return answer

    def _observe(self, labels: tuple[str, str, str], key: str, begun: float) -> None:
        with self._lock:
            since = self._begun.pop(key, begun) if key else begun
        _SECONDS.labels(*labels).observe(self._clock.monotonic() - since)


def _pool_of(subject: object) -> str:
    """Whose NodePool a call is about; "" where it is about none, or about an instance by its ID."""
    match subject:
        case NodeClaim():
            return subject.pool
        case NodePool():
            return subject.metadata.name
        case _:
            return ""
