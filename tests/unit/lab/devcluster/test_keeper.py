"""When a program of the control plane that has ended is started again."""

from provisioner.lab.devcluster.keeper import Pauses


def restarts(*moments: float) -> list[bool]:
    """Whether a restart is due at each of these moments, where each that is due takes place."""
    pauses = Pauses()
    found = []
    for now in moments:
        found.append(pauses.is_due(now))
        if found[-1]:
            pauses.restarted(now)
    return found


def test_the_first_restart_is_immediate_and_each_next_one_waits_twice_as_long() -> None:
    assert restarts(1000, 1009, 1010, 1029, 1030, 1069, 1070) == [True, False, True, False, True, False, True]


def test_a_pause_is_five_minutes_at_most_and_ten_quiet_minutes_end_it() -> None:
    pauses = Pauses()
    now = 1000.0
    for _ in range(8):
        pauses.restarted(now)
        now += 300
        assert pauses.is_due(now)
    pauses.restarted(now)
    assert not pauses.is_due(now + 299)
    pauses.restarted(now + 601)
    assert pauses.is_due(now + 611)
