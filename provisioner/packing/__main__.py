"""`python -m provisioner.packing MEMORY_BYTES IDLE_SECONDS`: one question after another from standard input, an answer to each on standard output.

It ends when nobody asks for a while, when standard input ends, and, by the kernel, when a question takes far longer than it may.
"""

import importlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import BinaryIO, Final

from provisioner.packing.confinement import NOT_INSTALLED, OUT_OF_MEMORY, confine
from provisioner.packing.protocol import FRAME_BYTES, PackingReply, PackingRequest, Receiver, answer_bytes, answer_of
from provisioner.scheduling.prepared import Prepared
from provisioner.support.clock import Clock, SystemClock
from provisioner.support.garbage import collect_seldom

_OVERRUN_SECONDS: Final = 10.0
"""After its deadline a question ends with the process: whoever asked does not wait any more, or is gone."""
_MOST_ERROR: Final = 300  # characters


def main(arguments: list[str]) -> int:
    """The process; its exit status."""
    confine(int(arguments[0]))
    collect_seldom()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for whoever started it
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    questions = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a library prints is no answer
    try:
        return _serve(questions, answers, SystemClock(), float(arguments[1]))
    except ModuleNotFoundError:
        return NOT_INSTALLED
    except MemoryError:
        return OUT_OF_MEMORY
    except BrokenPipeError:
        return 0


def _serve(questions: BinaryIO, answers: BinaryIO, clock: Clock, idle: float) -> int:
    importlib.import_module(
        "provisioner.packing.optimizer"
    )  # numpy and highspy, where a missing one is told by a status

    receiver = Receiver()
    _write(answers, PackingReply(0))
    while select.select([questions], [], [], idle)[0]:
        data = _frame(questions)
        if data is None:
            break
        signal.setitimer(signal.ITIMER_REAL, _OVERRUN_SECONDS)
        try:
            asked, prepared = receiver.question(data)
            rest = max(0.0, asked.deadline - clock.monotonic())
            signal.setitimer(signal.ITIMER_REAL, rest + _OVERRUN_SECONDS)
            answered = _answered(asked, prepared, lambda end=asked.deadline: clock.monotonic() >= end)  # type: ignore[misc]
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - what it knows of the world may be wrong now
            _write(answers, PackingReply(0, error=f"{type(error).__name__}: {error}"[:_MOST_ERROR]))
            return 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(answers, answered)
        del data, asked, prepared, answered
    return 0


def _answered(asked: PackingRequest, prepared: Prepared, expired: Callable[[], bool]) -> PackingReply:
    from provisioner.packing.optimizer import priced, propose  # noqa: PLC0415 - as in `_serve`

    if asked.counts:
        prices = priced(prepared, asked.pods, asked.counts, expired=expired)
        return PackingReply(
            asked.number,
            prices.usd_at_least,
            usd_greedy=prices.usd_greedy,
            placed=prices.placed,
            cpu_seconds=time.process_time(),
        )
    found = propose(prepared, asked.pods, asked.greedy, expired=expired, iterations=asked.rounds, seed=asked.seed)
    return answer_of(asked, found.usd_at_least, found.stage, found.kept, found.nodes)


def _frame(source: BinaryIO) -> bytes | None:
    """The next message; None where there is none any more."""
    head = source.read(FRAME_BYTES)
    if len(head) < FRAME_BYTES:
        return None
    size = int.from_bytes(head, "little")
    data = source.read(size)
    return data if len(data) == size else None


def _write(target: BinaryIO, answered: PackingReply) -> None:
    data = answer_bytes(answered)
    data = len(data).to_bytes(FRAME_BYTES, "little") + data
    view = memoryview(data)
    while view:
        view = view[target.write(view) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
