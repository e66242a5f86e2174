"""Whether the caches are current. Whatever must not act on an outdated view of the cluster asks here first."""

import threading
from collections.abc import Iterable
from typing import Protocol

from provisioner.controllers import messages
from provisioner.kube.lag import BEHIND_SECONDS

#: A watch in which nothing happens is opened anew every 70 s; one that was not heard for longer than this is behind.
SILENT_SECONDS = 75.0
#: While its watch fails, a cache that was not heard for so long is behind.
FAILING_SECONDS = 10.0


class Watch(Protocol):
    """What of `kube.watch.Reflector` is needed."""

    @property
    def resource(self) -> object: ...

    @property
    def synced(self) -> threading.Event: ...

    @property
    def error(self) -> Exception | None: ...

    def staleness(self) -> float:
        """Seconds since an event, a bookmark or a list was applied; infinite before the first."""
        ...

    def lag(self) -> float:
        """Age in seconds of what the API server had and the watch has not reached."""
        ...


def stale(watches: Iterable[Watch]) -> str:
    """Which watch is behind and for how long, for a log line; "" where all are current.

    A watch that was cut without a word, or brings what happened long ago, is only noticed after 75 s: whoever ends something asks
    the API server besides.
    """
    return behind(watches, silent=SILENT_SECONDS, failing=FAILING_SECONDS)


def behind(watches: Iterable[Watch], *, silent: float, failing: float) -> str:
    """The first watch that was not heard of for `silent` seconds, or for `failing` while it fails, or that brings what is old; "" where there is none."""
    for watch in watches:
        age = watch.staleness()
        if not watch.synced.is_set():
            return messages.cache_not_synced(watch.resource)
        if age > silent or (watch.error is not None and age > failing):
            why = f": {watch.error}" if watch.error is not None else ""
            return messages.watch_is_silent(watch.resource, age, why)
        if (lag := watch.lag()) > BEHIND_SECONDS:
            return messages.watch_lags(watch.resource, lag)
    return ""
