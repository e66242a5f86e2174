"""The planning process as the provisioner sees it: started when it is of use, asked with a deadline, ended when it misbehaves.

It is a program of its own (`python -m provisioner.packing`), so numpy is never loaded here, and nothing that happens to it (killed, stopped,
beyond its own bound of memory, hanging, answering nonsense) does more than cost an answer: after a fault it is ended, and started again
after a pause that doubles.
"""

import enum
import importlib.util
import os
import random
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis.pods import Pod
from provisioner.packing.confinement import NOT_INSTALLED, OUT_OF_MEMORY, environment
from provisioner.packing.protocol import FRAME_BYTES, PackingProtocolError, PackingReply, Sender, read_answer
from provisioner.scheduling.problem import World
from provisioner.scheduling.result import Result
from provisioner.support import logs
from provisioner.support.backoff import doubling
from provisioner.support.clock import Clock
from provisioner.values.message import Said

MEMORY_BYTES: Final = 1 << 30
"""Of address space; what it really uses stays below 300 MB at 100,000 pods."""
PACKAGES: Final = ("numpy", "highspy")
IDLE_SECONDS: Final = 30
"""After which it ends by itself, so that a cluster at rest has none."""
COMMAND: Final = (sys.executable, "-m", "provisioner.packing", str(MEMORY_BYTES), str(IDLE_SECONDS))
_SHORT: Final = 300
"""Pods of which a round takes as long as it does at the least: that of fewer is shorter, and so many times more are made,"""
_MOST_TIMES: Final = 10
"""up to so many: 0.3 s of its CPU for 30 pods, whose fleets cost 0.15 % less."""
_MOST_QUESTION: Final = 128 << 20  # bytes
_MOST_ANSWER: Final = 32 << 20
_START_SECONDS: Final = 60.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 300.0
_END_SECONDS: Final = 1.0
_PRICES_GRACE_SECONDS: Final = 15.0
_log = logs.get_logger(__name__)
PLANNER_NOT_INSTALLED: Final = (
    "Packages of the cost planner are not installed; packing nodes greedily. Install them with `pip install "
    "'dovetail[planner]'`"
)
_PLANNER_STARTED_LATE: Final = Said("it did not start in time")


class PackingRefusal(enum.StrEnum):
    """Why there is no answer."""

    NOT_INSTALLED = "not-installed"
    STARTING = "starting"
    FAILED = "failed"
    LATE = "late"
    TOO_LARGE = "too-large"


@dataclass(frozen=True, slots=True)
class ProcessReply:
    """An answer, and the question's pods, of which it speaks by number."""

    answered: PackingReply
    pods: tuple[Pod, ...]


class PlannerProcess:
    """One planning process, or none. Only one thread asks; `stop` may be called by any.

    Args:
        clock: the machine's; its monotonic time is the process's too.
        command: starts it.
        start_seconds: that it may take until it can be asked.

    Attributes:
        problem: why there was no answer the last time that there was none.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        command: Sequence[str] = COMMAND,
        start_seconds: float = _START_SECONDS,
    ) -> None:
        self._clock, self._command, self._start_seconds = clock, tuple(command), start_seconds
        self.problem = ""
        self._chance = random.Random()
        self._installed: bool | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        self._sender = Sender()
        self._ready = False
        self._unread = bytearray()
        self._late = False
        self._started_at = self._not_before = 0.0
        self._failures = 0

    @property
    def pid(self) -> int | None:
        process = self._process
        return None if process is None else process.pid

    def start(self) -> PackingRefusal | None:
        """See that it runs; why it does not. Waits for nothing."""
        self.tidy()
        if self._process is not None:
            return None
        if not self._is_installed():
            return PackingRefusal.NOT_INSTALLED
        if self._clock.monotonic() < self._not_before:
            return PackingRefusal.FAILED
        with self._lock:
            if self._stopped:
                return PackingRefusal.FAILED
            try:
                process = self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                    env=environment(os.environ, sys.path),
                )
            except OSError as error:
                self._failed(Said(f"it could not be started: {error}"))
                return PackingRefusal.FAILED
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        self._sender, self._ready, self._started_at = Sender(), False, self._clock.monotonic()
        self._unread, self._late = bytearray(), False
        return None

    def tidy(self) -> None:
        """Take notice where it has ended."""
        process = self._process
        if process is not None and (status := process.poll()) is not None:
            self._ended(status)

    def ask(
        self, world: World, result: Result, *, search_until: float, wait_until: float, rounds: int, seed: int
    ) -> ProcessReply | PackingRefusal:
        """Ask for a cheaper fleet than a result's.

        Args:
            world: what `result` is about.
            result: scheduling's answer.
            search_until: when the process stops to look.
            wait_until: when nobody waits any more. A process that is still starting is left to start, and one that is late for the
                first time to finish, its answer ignored; the second time in a row it is ended.
            rounds: most of them for many pods, of fewer more are made; see `packing.optimizer.propose`.
            seed: of what is left to chance.
        """
        rounds *= max(1, min(_MOST_TIMES, _SHORT // max(1, len(result.placed))))
        pods: tuple[Pod, ...] = ()

        def question() -> tuple[int, bytes]:
            nonlocal pods
            number, data, pods = self._sender.asked(world, result, deadline=search_until, rounds=rounds, seed=seed)
            return number, data

        answered = self._exchanged(question, wait_until)
        return answered if isinstance(answered, PackingRefusal) else ProcessReply(answered, pods)

    def price(
        self, world: World, pods: tuple[Pod, ...], counts: tuple[int, ...], *, until: float
    ) -> PackingReply | PackingRefusal:
        """What new nodes for so many pods of each class cost, and must cost; see `packing.optimizer.priced`.

        Args:
            world: without nodes that take any of them.
            pods: one of each class.
            counts: of each.
            until: when placing them ends; the answer comes soon after, or is not waited for.
        """
        return self._exchanged(
            lambda: self._sender.priced(world, pods, counts, deadline=until), until + _PRICES_GRACE_SECONDS
        )

    def _exchanged(self, question: Callable[[], tuple[int, bytes]], wait_until: float) -> PackingReply | PackingRefusal:
        refusal = self.await_start(wait_until)
        if refusal is not None:
            return refusal
        try:
            number, data = question()
            if len(data) > _MOST_QUESTION:
                self._end()
                self.problem = Said("the question is too large for it")
                return PackingRefusal.TOO_LARGE
            self._write(len(data).to_bytes(FRAME_BYTES, "little") + data, wait_until)
            answered = self._answer(number, wait_until)
        except TimeoutError:
            self.problem = Said("it did not answer in time")
            if self._late:
                self.fail(self.problem)
            self._late = True
            return PackingRefusal.LATE
        except (OSError, EOFError):
            return self._gone()
        except PackingProtocolError as error:
            self.fail(str(error))
            return PackingRefusal.FAILED
        self._failures, self._late = 0, False
        return answered

    def await_start(self, until: float) -> PackingRefusal | None:
        """Wait until it can be asked; why it cannot."""
        refusal = self.start()
        if refusal is not None or self._ready:
            return refusal
        try:
            if self._clock.monotonic() - self._started_at >= self._start_seconds:
                self.fail(_PLANNER_STARTED_LATE)
                return PackingRefusal.FAILED
            if not self._readable(until):
                self.problem = _PLANNER_STARTED_LATE
                return PackingRefusal.STARTING
            self._read(self._started_at + self._start_seconds)
        except (TimeoutError, PackingProtocolError) as error:
            self.fail(str(error) or _PLANNER_STARTED_LATE)
            return PackingRefusal.FAILED
        except (OSError, EOFError):
            return self._gone()
        self._ready = True
        return None

    def stop(self) -> None:
        """End the process for good; whoever waits for it hears that it is gone."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is not None:
            _kill(process)

    # ------------------------------------------------------------------ pipes

    def _write(self, data: bytes, until: float) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise EOFError
        pipe = process.stdin.fileno()
        rest = memoryview(data)
        while rest:
            try:
                self._wait(pipe, selectors.EVENT_WRITE, until)
                rest = rest[os.write(pipe, rest) :]
            except BlockingIOError:
                continue
            except TimeoutError:
                self._late = True  # with half a question it cannot be asked another one
                raise

    def _answer(self, number: int, until: float) -> PackingReply:
        """The answer to this question; those to earlier ones came too late."""
        while True:
            answered = self._read(until)
            if answered.error:
                raise PackingProtocolError(answered.error)
            if answered.number == number:
                return answered
            if not 0 < answered.number < number:
                raise PackingProtocolError("it answered a question that was not asked")

    def _read(self, until: float) -> PackingReply:
        size = int.from_bytes(self._peek(FRAME_BYTES, until), "little")
        if size > _MOST_ANSWER:
            raise PackingProtocolError(f"it wrote an answer of {size} bytes")
        data = self._peek(FRAME_BYTES + size, until)[FRAME_BYTES:]
        del self._unread[: FRAME_BYTES + size]
        return read_answer(data)

    def _peek(self, count: int, until: float) -> bytes:
        """So many bytes that it wrote; they stay unread, so that nothing is lost where time is up before they are there."""
        process = self._process
        if process is None or process.stdout is None:
            raise EOFError
        pipe = process.stdout.fileno()
        while len(self._unread) < count:
            self._wait(pipe, selectors.EVENT_READ, until)
            try:
                part = os.read(pipe, count - len(self._unread))
            except BlockingIOError:
                continue
            if not part:
                raise EOFError
            self._unread += part
        return bytes(self._unread[:count])

    def _readable(self, until: float) -> bool:
        process = self._process
        if process is None or process.stdout is None:
            raise EOFError
        try:
            self._wait(process.stdout.fileno(), selectors.EVENT_READ, until)
        except TimeoutError:
            return False
        return True

    def _wait(self, pipe: int, event: int, until: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, event)
            if not selector.select(max(0.0, until - self._clock.monotonic())):
                raise TimeoutError

    # ------------------------------------------------------------------ ends

    def _gone(self) -> PackingRefusal:
        """It closed its pipes: it ends, or has ended."""
        process = self._process
        if process is None:
            return PackingRefusal.FAILED
        try:
            status = process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.fail(Said("it closed its pipes"))
            return PackingRefusal.FAILED
        self._ended(status)
        return PackingRefusal.FAILED if self._installed is not False else PackingRefusal.NOT_INSTALLED

    def _ended(self, status: int) -> None:
        """It has ended by itself, or somebody has ended it."""
        self._end()
        if status == 0:
            return  # nobody had asked for a while
        if status == NOT_INSTALLED:
            self._missing(PACKAGES)
        elif status == OUT_OF_MEMORY:
            self._failed(Said(f"it needed more than {MEMORY_BYTES >> 20} MiB of address space"))
        elif status < 0:
            self._failed(Said(f"it was ended by signal {-status}"))
        else:
            self._failed(Said(f"it ended with status {status}"))

    def fail(self, why: str) -> None:
        """End the process, which misbehaves."""
        self._end()
        self._failed(why)

    def _failed(self, why: str) -> None:
        self.problem = why
        if self._stopped:
            return
        self._failures += 1
        pause = doubling(self._failures, base=_FIRST_PAUSE_SECONDS, cap=_LONGEST_PAUSE_SECONDS, chance=self._chance)
        self._not_before = self._clock.monotonic() + pause
        _log.warning(
            "The planning process failed; packing nodes greedily until it is restarted",
            error=why,
            seconds_until_restart=round(pause, 1),
        )

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _is_installed(self) -> bool:
        if self._installed is None:
            missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
            self._installed = not missing
            if missing:
                self._missing(missing)
        return self._installed

    def _missing(self, packages: Sequence[str]) -> None:
        self._installed = False
        self.problem = Said(
            f"{', '.join(packages)} cannot be imported; install what planning needs with `pip install "
            "'dovetail[planner]'`"
        )
        _log.warning(PLANNER_NOT_INSTALLED, missing=", ".join(packages))


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        pass  # in the kernel's hands; the next Popen reaps it
