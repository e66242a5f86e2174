"""What this process remembers of disruption commands: `CommandBook`. Nothing of it is needed after a restart."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from provisioner.apis import names
from provisioner.apis.command import CommandRecord
from provisioner.scheduling.node_claims import NewClaim
from provisioner.state.cluster import Cluster
from provisioner.state.disruption_commands import Command
from provisioner.state.keys import NodeKey
from provisioner.support import logs
from provisioner.support.backoff import doubled
from provisioner.support.clock import Clock

#: What is chosen to go is closed before the first pod of it is evicted; a command waits no longer for others that are not.
CLOSING_SECONDS: Final = 5.0
#: A node whose command was called off is left alone for so long: until then the caches have caught up.
SPARED_SECONDS: Final = 30.0
#: A pool whose replacement did not register or was not initialized is left alone for so long, and twice as long each time.
BACKOFF_SECONDS, BACKOFF_MOST_SECONDS = 30.0, 600.0
_log = logs.get_logger(__name__)


@dataclass(slots=True)
class CommandMemory:
    """What is remembered of one command, by whoever carries it out.

    Attributes:
        new: replacements as they were announced.
        seen: replacements that were seen to exist.
        launched: replacements that were seen with an instance.
        failed: replacements that the API server refuses to create, or whose command it refuses.
        looks: what all objects looked like last, and since when.
        placed: nodes that keep room for its pods, whose plans do not say so yet.
        awaits: IDs of commands whose candidates were not closed at the first look; None before it.
        awaits_until: until when that is waited for (monotonic); None before anybody asked.
        postponed_at: since when the caches do not show its candidates as they are, before these are closed; None while they did.
    """

    new: dict[str, NewClaim] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    launched: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    looks: tuple[object, float] | None = None
    placed: tuple[NodeKey, ...] = ()
    awaits: frozenset[str] | None = None
    awaits_until: float | None = None
    postponed_at: float | None = None


class CommandBook:
    """Which commands are under way, which nodes may be open still, and whom those that were called off spare. Thread-safe; makes no call."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._lock = threading.Lock()
        self._memories: dict[str, CommandMemory] = {}  # by ID of the command
        self._open: set[str] = set()  # IDs of commands whose candidates may still take pods
        self._beginning = 0  # passes whose commands are being begun
        self._spared_until: dict[str, float] = {}  # claim -> monotonic
        self._called_off = Counter[str]()
        self._backoffs: dict[str, tuple[int, float]] = {}  # pool -> failures in a row, until when

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is begun within was chosen together: no pod of it is evicted before all of it is begun."""
        with self._lock:
            self._beginning += 1
        try:
            yield
        finally:
            with self._lock:
                self._beginning -= 1

    def opened(self, commands: Iterable[Command]) -> None:
        """The nodes of these commands may be open still."""
        with self._lock:
            self._open.update(command.record.id for command in commands)

    def begun(self, record: CommandRecord, memory: CommandMemory) -> None:
        """A command has all that it needs; from now on it is known."""
        with self._lock:
            self._memories[record.id] = memory
            self._open.add(record.id)

    def known(self, holder: str) -> tuple[Command, CommandMemory] | None:
        """A command with what is remembered of it; None where there is none, or one that is still being begun."""
        first = self._cluster.command_held_by(holder)
        if first is None:
            return None
        with self._lock:
            memory = self._memories.get(first.record.id)
            if memory is None:
                if not first.written:
                    return None  # its replacements are not known yet; `begin` queues it
                memory = self._memories[first.record.id] = CommandMemory()
                self._open.add(first.record.id)
                _log.info(
                    "Resuming a disruption that was started earlier",
                    command=first.record.id,
                    reason=first.record.reason,
                )
        command = self._cluster.command_held_by(holder)  # it may have got its replacements after the first look
        return (command, memory) if command is not None and command.record.id == first.record.id else None

    def closed(self, record: CommandRecord) -> None:
        """No candidate of a command takes pods any more."""
        with self._lock:
            self._open.discard(record.id)

    def awaits_others(self, record: CommandRecord, memory: CommandMemory) -> bool:
        """Whether nodes that were chosen before the first pod of this command goes would still take it, and have it evicted once more."""
        if record.reason == names.REASON_EMPTY:
            return False
        now = self._clock.monotonic()
        with self._lock:
            if memory.awaits_until is None:
                memory.awaits_until = now + CLOSING_SECONDS
            if now >= memory.awaits_until:
                return False
            if memory.awaits is None:
                if self._beginning:
                    return True  # more are chosen at this moment
                memory.awaits = frozenset(self._open - {record.id})
            return not memory.awaits.isdisjoint(self._open)

    def spare(self, record: CommandRecord, seconds: float) -> None:
        """Leave the candidates of a command alone for so long."""
        until = self._clock.monotonic() + seconds
        with self._lock:
            self._spared_until.update(dict.fromkeys(record.candidate_names, until))

    def failed(self, record: CommandRecord, pools: Iterable[str]) -> None:
        """A command was called off, and these NodePools are to blame."""
        now = self._clock.monotonic()
        with self._lock:
            self._called_off[record.method] += 1
            self._memories.pop(record.id, None)
            self._open.discard(record.id)
            self._spared_until.update(dict.fromkeys(record.candidate_names, now + SPARED_SECONDS))
            for pool in pools:
                failures = self._backoffs.get(pool, (0, 0.0))[0] + 1
                seconds = doubled(failures, base=BACKOFF_SECONDS, cap=BACKOFF_MOST_SECONDS)
                self._backoffs[pool] = (failures, now + seconds)

    def succeeded(self, pools: Iterable[str]) -> None:
        """Candidates of these NodePools were deleted: what replaces them came up."""
        with self._lock:
            for pool in pools:
                self._backoffs.pop(pool, None)

    def tidy(self) -> None:
        """Forget what is over."""
        now = self._clock.monotonic()
        with self._lock:
            self._spared_until = {name: until for name, until in self._spared_until.items() if until > now}
            live = {command.record.id for command in self._cluster.commands()}
            self._memories = {key: one for key, one in self._memories.items() if key in live}
            self._open &= live

    def spared(self) -> frozenset[str]:
        """NodeClaims whose command was called off a moment ago."""
        with self._lock:
            return frozenset(self._spared_until)

    def called_off(self, method: str) -> int:
        """How many commands of a method were called off by this process."""
        with self._lock:
            return self._called_off[method]

    def pools_backing_off(self) -> frozenset[str]:
        """NodePools whose replacements did not become nodes a moment ago, though they had an instance."""
        now = self._clock.monotonic()
        with self._lock:
            return frozenset(pool for pool, (_, until) in self._backoffs.items() if until > now)
