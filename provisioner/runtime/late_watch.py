"""The watch of a kind that not every API server has: a watch of what is not there would fail for ever, so it begins once the kind is found to be served.

What is known meanwhile is told to whom it concerns: see `KindKnowledge`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from provisioner.kube.client import Client
from provisioner.kube.discovery import serves
from provisioner.kube.errors import ApiError, Forbidden, NotFound
from provisioner.kube.resources import Resource
from provisioner.kube.store import Store
from provisioner.kube.watch import Reflector
from provisioner.runtime.caches import Caches
from provisioner.runtime.freshness import stale
from provisioner.runtime.poller import ApiPoller
from provisioner.state.knowledge import KindKnowledge
from provisioner.support.clock import Clock

T = TypeVar("T")
AGAIN_SECONDS: Final = 60.0
"""Between two questions whether they are served."""
FIRST_SECONDS, LOOK_SECONDS = 1.0, 5.0
"""Between two looks at their watch, before and after its first answer."""


class LateWatch(Generic[T]):
    """Asks whether a kind is served until it is; once it is watched, says whether the watch can be believed.

    Args:
        name: of its thread.
        caches: have the watches.
        client: asks.
        clock: of the questions.
        watches: those of the caches that are not begun with the others: of each version of the kind, the one that is best first.
        told: is told what is known, each time it is something else, and why it cannot be read ("" where it can, or there is nothing to read).
    """

    def __init__(
        self,
        name: str,
        caches: Caches,
        client: Client,
        clock: Clock,
        watches: Sequence[Reflector[T]],
        told: Callable[[KindKnowledge, str], None],
    ) -> None:
        self._caches, self._client, self._clock = caches, client, clock
        self._watches, self._told = watches, told
        self._asked = float("-inf")
        self._known = KindKnowledge.NOT_YET
        self.poller = ApiPoller(name, self._poll, expected=(ValueError,))

    def found(self) -> tuple[Store[T], Resource[T]] | None:
        """The objects, and their version; None before they are known, and where they are not served. Any thread may ask."""
        current = self._current()
        return (current.store, current.resource) if current is not None and current.synced.is_set() else None

    def _current(self) -> Reflector[T] | None:
        """What is watched, as long as its version is served."""
        begun = self._caches.all
        return next((one for one in self._watches if one in begun and not isinstance(one.error, NotFound)), None)

    def _poll(self) -> float:
        if (current := self._current()) is not None:
            return self._look(current)
        now, due = self._clock.monotonic(), self._asked + AGAIN_SECONDS
        if now < due:  # not `now - asked`, which rounds: the wait could be 0, for ever where time passes by waits alone
            wait = due - now
            return min(wait, LOOK_SECONDS) if any(one in self._caches.all for one in self._watches) else wait
        try:
            served = next((one for one in self._watches if serves(self._client, one.resource)), None)
        except Forbidden as error:
            self._asked = now
            self._know(KindKnowledge.UNREADABLE, str(error))
            return AGAIN_SECONDS
        except (ApiError, ValueError) as error:
            self._know(KindKnowledge.UNREADABLE, str(error))
            raise
        self._asked = now
        if served is None:
            self._know(KindKnowledge.NOT_SERVED)
            return AGAIN_SECONDS
        if served not in self._caches.all:
            self._caches.watch(served)
        return self._look(served)

    def _look(self, watch: Reflector[T]) -> float:
        """Whether the watch has what there is; before its first answer nobody knows."""
        if not watch.synced.is_set() and watch.error is None:
            return FIRST_SECONDS
        problem = stale((watch,))
        self._know(KindKnowledge.UNREADABLE if problem else KindKnowledge.READ, problem)
        return LOOK_SECONDS

    def _know(self, known: KindKnowledge, problem: str = "") -> None:
        if known is not self._known:
            self._known = known
            self._told(known, problem)
