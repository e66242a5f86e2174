"""Time that stands still until everything is done."""

from provisioner.simulator.virtual_time import Agenda, VirtualClock


def test_things_happen_at_their_instants_in_their_order() -> None:
    clock = VirtualClock()
    agenda, seen = Agenda(clock), list[tuple[str, float]]()
    for name, seconds in (("late", 5.0), ("first", 2.0), ("second", 2.0)):
        agenda.after(seconds, lambda name=name: seen.append((name, clock.seconds)))  # type: ignore[misc]
    while agenda.turn(4.0):
        pass
    assert seen == [("first", 2.0), ("second", 2.0)]
    assert agenda.next_time() == 5.0
    assert not agenda.turn(4.0)


def test_who_sleeps_has_others_go_on() -> None:
    clock = VirtualClock()
    passed: list[float] = []
    clock.passing = passed.append
    clock.sleep(3.0)
    clock.sleep(0.0)
    assert passed == [3.0]
    assert VirtualClock().now() == clock.now()
