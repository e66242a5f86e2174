"""When the garbage collector of Python looks for cycles.

A program that holds a cluster in memory makes many objects and few cycles: the collector mostly looks in vain.
"""

import contextlib
import ctypes
import gc
from collections.abc import Iterator
from typing import Final

_OBJECTS: Final = 50_000
"""So many more objects than before, and it looks at the new ones; Python's own 700 cost a solve a sixth of its time."""


def collect_seldom() -> None:
    """Let the collector look after 50,000 new objects, which is a few megabytes of garbage at most."""
    gc.set_threshold(_OBJECTS)


def give_back() -> None:
    """Collect cycles, and hand free pages back to the kernel where the C library can."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return  # another C library: it gives back by itself or never


@contextlib.contextmanager
def bulk_load() -> Iterator[None]:
    """Switch the collector off while caches fill, then put what they hold out of its reach, and let it look seldom.

    Half to three quarters of the time to load 50,000 objects is the collector looking at them in vain. Use once, around
    the start of the reflectors and `wait_for_sync`.
    """
    gc.disable()
    try:
        yield
    finally:
        give_back()  # what lists left behind, too
        gc.freeze()
        collect_seldom()
        gc.enable()
