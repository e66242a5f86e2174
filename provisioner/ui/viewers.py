"""Who looks at the leader's page: a few, each as far as the API server lets them; those with equal rights share one page.

A stream ends after a minute, and whoever goes on looking asks again: so their rights are reviewed every minute, by the token that they have then, and
no token is kept. Pages are made in one thread, only while somebody looks, and for at most a twentieth of its time.
"""

import re
import threading
import urllib.parse
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final

from provisioner.apis import names
from provisioner.history.digest import HistoryTold
from provisioner.kube.lease import LostLease
from provisioner.support.clock import Clock
from provisioner.support.http.values import HttpRequest, Response
from provisioner.support.poller import Poller
from provisioner.ui.events import EventBoard, EventFeed
from provisioner.ui.fleet import Answers, PageMaker, asked_about, namespaces_of_pods
from provisioner.ui.page import MOST_BYTES, encoded
from provisioner.ui.past import history_of
from provisioner.ui.sight import Sight, blind
from provisioner.why.access import Access, AccessError, Right, User
from provisioner.why.instant import Instant
from provisioner.why.pods import why_pods

PATH: Final = "/page"
PAGE: Final = "page"
"""The kind of an event that has a page."""
MOST_VIEWERS: Final = 8
STREAM_SECONDS: Final = 60.0
PAGE_SECONDS: Final = 2.0
"""Between two pages, at least."""
BYTES_A_SECOND: Final = 500_000
"""To one viewer: a port-forward leads through the API server, which has other things to do."""
SHARE: Final = 0.02
"""Of one processor, for all pages, but for what is said of pods that wait."""
ANSWERS_SHARE: Final = 0.03
"""For that."""
ANSWERS_SECONDS: Final = 30.0
"""Between two looks at why pods wait, at least."""
MOST_ASKED: Final = 50
"""Classes of pods that wait, of which the page says why."""
MOST_NAMESPACES: Final = 48
"""Whoever may not list the pods of all namespaces is asked about so many: those that the request names, then others by name."""
_MOST_NAMED: Final = 8
_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


Past = Callable[[], tuple[HistoryTold, float] | None]
NO_HISTORY: Final = "No history: the leader keeps none, because its --history-duration is 0."
NOT_SEEN: Final = "No history: it tells of nodes, which you may not list."


class AnswerBook:
    """Why pods wait, looked up now and then: an answer costs a plan of everything that waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._until = clock, 0.0
        self._known: Answers = {}

    def of(self, instant: Instant) -> Answers:
        """The answers, as old as they are."""
        begun = self._clock.monotonic()
        if begun >= self._until:
            asked = asked_about(instant.snapshot.pending, MOST_ASKED)
            self._known = dict(zip(asked, map(blind, why_pods(instant, list(asked.values()))), strict=True))
            end = self._clock.monotonic()
            self._until = end + max(ANSWERS_SECONDS if asked else 0.0, (end - begun) / ANSWERS_SHARE)
        return self._known


class Viewers:
    """Answers GET /page with a stream of events. `start` begins to make pages.

    Args:
        instant: the leader's present; None where this process does not lead.
        access: who asks, and what they may see.
        clock: of the time.
        history: what the leader's tells, and since when it is known; None where it keeps none.
    """

    def __init__(
        self, instant: Callable[[], Instant | None], access: Access, clock: Clock, history: Past = lambda: None
    ) -> None:
        self._instant, self._access, self._clock, self._history = instant, access, clock, history
        self._lock = threading.Lock()
        self._feeds: dict[EventFeed, Sight] = {}
        self._boards: dict[Sight, EventBoard] = {}
        self._makers: dict[Sight, PageMaker] = {}  # of the thread that makes pages
        self._book, self._due = AnswerBook(clock), 0.0
        self._poller = Poller("page", self.make, expected=(LostLease,))

    def start(self) -> None:
        self._poller.start()

    def stop(self) -> None:
        self._poller.stop()

    def attend(self, request: HttpRequest, user: User, instant: Instant) -> Response:
        """A stream of pages for somebody.

        Raises:
            AccessError: they may see nothing, nobody can say what they may see, or too many look on.
        """
        query = urllib.parse.parse_qs(request.target.partition("?")[2], max_num_fields=_MOST_NAMED)
        sight = self.sight_of(user, query.get("namespace", []), instant)
        with self._lock:
            for one in [one for one in self._feeds if one.over]:
                del self._feeds[one]
            if len(self._feeds) >= MOST_VIEWERS:
                text = f"{MOST_VIEWERS} viewers are connected, which is the most"
                raise AccessError(HTTPStatus.TOO_MANY_REQUESTS, text, STREAM_SECONDS / MOST_VIEWERS)
            new = sight not in self._boards
            board = self._boards.setdefault(sight, EventBoard())
            feed = EventFeed(board, self._clock, STREAM_SECONDS, self._gone)
            self._feeds[feed] = sight
        if new:
            self._poller.wake()
        return feed.response()

    def sight_of(self, user: User, named: Iterable[str], instant: Instant) -> Sight:
        """What somebody may see.

        Raises:
            AccessError: nothing, or it cannot be found out.
        """
        may = self._access.may
        nodes, claims, pools = (
            may(user, Right("list", resource, group))
            for resource, group in (("nodes", ""), ("nodeclaims", names.GROUP), ("nodepools", names.GROUP))
        )
        namespaces: frozenset[str] | None = None
        if not may(user, Right("list", "pods")):
            there = sorted(namespaces_of_pods(instant.snapshot.nodes, instant.snapshot.pending))
            wanted = [one for one in named if _NAMESPACE.fullmatch(one)]
            asked = list(dict.fromkeys((*wanted, *there)))[:MOST_NAMESPACES]
            namespaces = frozenset(one for one in asked if may(user, Right("list", "pods", namespace=one)))
        if not (nodes or claims or pools or namespaces is None or namespaces):
            raise AccessError(HTTPStatus.FORBIDDEN, f"{user.name} may not list nodes, NodePools or pods")
        return Sight(nodes, claims, pools, namespaces)

    def make(self) -> float:
        """Pages for everybody who looks, or for those who have none yet; seconds until the next ones."""
        with self._lock:
            wanted = {sight for one, sight in self._feeds.items() if not one.over}
            for sight in [one for one in self._boards if one not in wanted]:
                del self._boards[sight]
                self._makers.pop(sight, None)
            boards = dict(self._boards)
        begun = self._clock.monotonic()
        if begun < self._due:
            boards = {sight: one for sight, one in boards.items() if not one.latest[0]}
        if not boards:
            return max(1.0, self._due - begun)
        instant = self._instant()
        if instant is None:
            self._end()
            return 1.0
        looked = self._clock.monotonic()
        answers = self._book.of(instant)
        begun += self._clock.monotonic() - looked  # it has a share of its own
        known, longest = self._history(), 0
        for sight, board in boards.items():
            history = history_of(*known, sight) if known is not None else None
            why_none = NO_HISTORY if known is None else NOT_SEEN
            maker = self._makers.setdefault(sight, PageMaker(sight))
            page = maker.page_of(instant, answers, source="the leader", history=history, no_history=why_none)
            data = encoded(page, MOST_BYTES)
            board.put(PAGE, data)
            longest = max(longest, len(data))
        end = self._clock.monotonic()
        self._due = max(self._due, end + max(PAGE_SECONDS, longest / BYTES_A_SECOND, (end - begun) / SHARE))
        return self._due - end

    def _gone(self, feed: EventFeed) -> None:
        with self._lock:
            self._feeds.pop(feed, None)

    def _end(self) -> None:
        with self._lock:
            feeds = list(self._feeds)
        for one in feeds:
            one.close()
