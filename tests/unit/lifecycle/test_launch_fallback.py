from provisioner.lifecycle.launch_fallback import AGAIN, MOST, PATIENCE, SOON, Fallback


def waiting(*claims: str) -> Fallback:
    """These claims were refused at time 0."""
    made = Fallback()
    for claim in claims:
        assert not made.may_leave(claim, 0.0)
    return made


def test_one_goes_first() -> None:
    made = waiting("a", "b")
    assert not made.may_leave("a", PATIENCE - 0.1)
    assert made.may_leave("a", PATIENCE)
    made.left("a", PATIENCE)
    assert not made.may_leave("b", PATIENCE + 1)


def test_others_follow_where_it_was_right() -> None:
    made = waiting(*"abcdef")
    made.left("a", 100.0)
    made.launched("new", 2.0, 103.0)
    for name in "bcde":
        assert made.may_leave(name, 103.0)
        made.left(name, 103.0)
    assert not made.may_leave("f", 103.0)
    made.launched("newer", 1.0, 104.5)
    assert made.may_leave("f", 104.5)


def test_older_claims_that_are_launched_show_nothing() -> None:
    made = waiting("a", "b")
    made.left("a", 100.0)
    made.launched("old", 60.0, 103.0)
    assert not made.may_leave("b", 103.0)


def test_nor_do_launches_that_took_long() -> None:
    made = waiting("a", "b")
    made.left("a", 100.0)
    made.launched("new", 1.0, 100.0 + SOON + 1)
    assert not made.may_leave("b", 100.0 + SOON + 1)


def test_one_tries_again_later_and_later() -> None:
    made = waiting("a", "b", "c")
    made.left("a", 100.0)
    assert not made.may_leave("b", 100.0 + AGAIN - 1)
    assert made.may_leave("b", 100.0 + AGAIN)
    made.left("b", 100.0 + AGAIN)
    assert not made.may_leave("c", 100.0 + AGAIN)
    assert not made.may_leave("c", 100.0 + 3 * AGAIN - 1)
    assert made.may_leave("c", 100.0 + 3 * AGAIN)


def test_a_shortage_of_everything_costs_next_to_nothing() -> None:
    made, left = Fallback(), 0
    for second in range(1800):
        for number in range(70):
            if made.may_leave(f"c-{number}", float(second)):
                made.left(f"c-{number}", float(second))
                left += 1
    assert left <= 6


def test_a_pool_that_others_stand_in_for_is_left_soon() -> None:
    made, left, second = Fallback(), 0, 0.0
    while second < 120:
        for number in range(left, 125):
            if made.may_leave(f"c-{number}", second):
                made.left(f"c-{number}", second)
                left += 1
                made.launched(f"new-{number}", 0.0, second)
                break  # one a second
        second += 1.0
    assert left >= 80


def test_it_remembers_nobody_for_ever() -> None:
    made = waiting("a", "b", "c")
    made.left("a", 100.0)
    made.launched("b", 500.0, 100.0)
    made.gone("c")
    assert len(made) == 0


def test_there_is_a_most() -> None:
    made = waiting("a")
    made.left("a", 0.0)
    for number in range(1000):
        made.launched(f"new-{number}", 0.0, 1.0)
    left = 0
    for number in range(1000):
        made.may_leave(f"c-{number}", 0.0)
    while made.may_leave(f"c-{left}", PATIENCE):
        made.left(f"c-{left}", PATIENCE)
        left += 1
    assert left == MOST
