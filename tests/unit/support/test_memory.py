"""What is done when memory runs short."""

import itertools

from provisioner.support.garbage import give_back
from provisioner.support.memory import MemoryGuard, resident_bytes
from tests.support.clock import FakeClock


def test_memory_is_given_back_above_nine_tenths_of_the_limit_only() -> None:
    used, released = [899], []
    guard = MemoryGuard(1000, FakeClock(), resident=lambda: used[0], release=lambda: released.append(used[0]))
    assert not guard.look()
    used[0] = 901
    assert guard.look()
    assert released == [901]


def test_without_a_limit_nothing_is_done() -> None:
    guard = MemoryGuard(-1, FakeClock(), resident=lambda: 10**12, release=lambda: None)
    assert (guard.is_set, guard.look()) == (False, False)


def test_it_is_said_once_in_five_minutes() -> None:
    clock = FakeClock()
    asked = itertools.count()
    guard = MemoryGuard(10, clock, resident=lambda: 100 + next(asked), release=lambda: None)
    for seconds in (0, 10, 300):
        clock.advance(seconds)
        assert guard.look()
    assert next(asked) == 5  # once a look, and again where it was said


def test_this_process_has_a_size_and_can_give_back() -> None:
    give_back()
    assert resident_bytes() > 10 * 2**20
