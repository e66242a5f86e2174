"""Whether the caches are current. Whatever must not act on an outdated view of the cluster asks here first."""

from collections.abc import Iterable
from typing import Any

from provisioner.kube.lag import BEHIND_SECONDS
from provisioner.kube.watch import Reflector, is_refused, trouble
from provisioner.values.message import Said

#: A watch in which nothing happens is opened anew every 70 s; one that was not heard for longer than this is behind.
SILENT_SECONDS = 75.0
#: While its watch fails, a cache that was not heard for so long is behind.
FAILING_SECONDS = 10.0


def stale(watches: Iterable[Reflector[Any]]) -> str:
    """Which watch is behind and for how long, for a log line; "" where all are current.

    A watch that was cut without a word, or brings what happened long ago, is only noticed after 75 s: whoever ends something asks
    the API server besides.
    """
    return behind(watches, silent=SILENT_SECONDS, failing=FAILING_SECONDS)


def behind(watches: Iterable[Reflector[Any]], *, silent: float, failing: float) -> str:
    """The first watch that was not heard of for `silent` seconds, or for `failing` while it fails, or that brings what is old; "" where there is none.

    One that is refused counts as behind after `FAILING_SECONDS`: no patience helps it.
    """
    for watch in watches:
        age, error = watch.staleness(), watch.error
        why = f": {trouble(error, watch.resource)}" if error is not None else ""
        if not watch.synced.is_set():
            return Said(f"the cache of {watch.resource} is not synced{why}")
        patience = min(failing, FAILING_SECONDS) if is_refused(error) else failing
        if age > silent or (error is not None and age > patience):
            return Said(f"the watch of {watch.resource} received nothing for {age:.0f} s{why}")
        if (lag := watch.lag()) > BEHIND_SECONDS:
            return Said(f"the watch of {watch.resource} is at least {lag:.0f} s behind the API server")
    return ""


def refused(watches: Iterable[Reflector[Any]]) -> str:
    """Which watches are refused, and what to do; "" for none."""
    return "; ".join(
        Said(f"the watch of {one.resource}: {trouble(one.error, one.resource)}")
        for one in watches
        if one.error is not None and is_refused(one.error)
    )
