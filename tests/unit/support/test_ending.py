"""How a process stops: on a signal that comes at the worst moment, and in time though parts of it hang."""

import subprocess
import sys
import threading
import time

from provisioner.support.ending import stop_all

PROGRAM = """
import os, signal, threading
from provisioner.support import logs
from provisioner.support.ending import ThisProcess, stop_on_signals

logs.configure("info", "json")
stopping = threading.Event()
stop_on_signals(stopping, ThisProcess(), {seconds})
{body}
"""
AT_THE_WORST_MOMENT = """
with stopping._cond:  # as the main thread does for a moment whenever it waits for the event
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):
        pass
assert stopping.wait(30)
os._exit(7)
"""
TO_ANOTHER_THREAD = """
other = threading.Event()
thread = threading.Thread(target=other.wait, daemon=True)
thread.start()
threading.Timer(0.3, lambda: signal.pthread_kill(thread.ident, signal.SIGTERM)).start()  # the main thread is not interrupted
stopping.wait()
os._exit(7)
"""
HANGING = """
os.kill(os.getpid(), signal.SIGINT)
threading.Event().wait(60)
"""


def run(body: str, seconds: float) -> subprocess.CompletedProcess[str]:
    text = PROGRAM.format(body=body, seconds=seconds)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=15, check=False)


def test_a_signal_that_comes_while_the_event_is_locked_is_heard() -> None:
    done = run(AT_THE_WORST_MOMENT, seconds=30)
    assert done.returncode == 7, done.stderr


def test_a_signal_that_the_kernel_gives_to_another_thread_is_heard() -> None:
    done = run(TO_ANOTHER_THREAD, seconds=30)
    assert done.returncode == 7, done.stderr


def test_a_process_that_does_not_stop_is_ended() -> None:
    done = run(HANGING, seconds=0.5)
    assert done.returncode == 1, done.stderr
    assert "the process did not stop within 0.5 s of the signal" in done.stdout + done.stderr


def test_what_hangs_or_fails_keeps_nobody_from_being_stopped() -> None:
    let_go, stopped = threading.Event(), threading.Event()

    def fails() -> None:
        raise ValueError

    begun = time.monotonic()
    assert not stop_all([let_go.wait, let_go.wait, let_go.wait, fails, stopped.set], 0.3)
    assert time.monotonic() - begun < 10, "one after the other"
    assert stopped.is_set()
    let_go.set()
    assert stop_all([let_go.wait, stopped.set], 10.0)
    assert stop_all([], 0.0)
