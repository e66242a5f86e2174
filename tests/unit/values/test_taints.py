import msgspec
import pytest

from provisioner.values.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    Taint,
    Toleration,
    first_untolerated,
    tolerates,
)

TAINT = Taint("team", NO_SCHEDULE, "3")

TOLERATED = {
    "same key, value and effect": (Toleration("team", "Equal", "3", NO_SCHEDULE), True),
    "an empty operator means Equal": (Toleration("team", "", "3", NO_SCHEDULE), True),
    "another value": (Toleration("team", "Equal", "4", NO_SCHEDULE), False),
    "another key": (Toleration("gpu", "Equal", "3", NO_SCHEDULE), False),
    "another effect": (Toleration("team", "Equal", "3", NO_EXECUTE), False),
    "an empty effect means any": (Toleration("team", "Equal", "3"), True),
    "Exists asks for no value": (Toleration("team", "Exists"), True),
    "Exists without key covers everything": (Toleration(operator="Exists"), True),
    "Exists without key, for another effect": (Toleration(operator="Exists", effect=NO_EXECUTE), False),
    "Gt: the taint's value is greater": (Toleration("team", "Gt", "2"), True),
    "Gt: the taint's value is the same": (Toleration("team", "Gt", "3"), False),
    "Lt: the taint's value is less": (Toleration("team", "Lt", "4"), True),
    "Lt: the taint's value is the same": (Toleration("team", "Lt", "3"), False),
    "Lt compares numbers, not texts": (Toleration("team", "Lt", "10"), True),
    "Gt with no number": (Toleration("team", "Gt", "two"), False),
    "Gt with leading zeros": (Toleration("team", "Gt", "02"), False),
    "Gt beyond 64 bits": (Toleration("team", "Lt", "9" * 19), False),
    "an unknown operator": (Toleration("team", "Near", "3"), False),
}


@pytest.mark.parametrize(("toleration", "want"), TOLERATED.values(), ids=TOLERATED)
def test_tolerates(toleration: Toleration, *, want: bool) -> None:
    assert toleration.tolerates(TAINT) == want
    assert tolerates([Toleration("other"), toleration], TAINT) == want


def test_only_the_effects_asked_for_keep_a_pod_away() -> None:
    soft, hard, harder = (Taint("a", effect) for effect in (PREFER_NO_SCHEDULE, NO_SCHEDULE, NO_EXECUTE))
    assert first_untolerated([], [soft, hard, harder]) == hard
    assert first_untolerated([], [soft, hard, harder], effects=(NO_EXECUTE,)) == harder
    assert first_untolerated([], [soft]) is None


def test_a_node_s_taints_decode_as_they_stand() -> None:
    wire = b'[{"key":"a","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z"},{"key":"b","value":"x","effect":"NoSchedule"}]'
    first, second = msgspec.json.decode(wire, type=list[Taint])
    assert first == Taint("a", NO_EXECUTE, time_added="2026-01-01T00:00:00Z")
    assert (str(first), str(second)) == ("a:NoExecute", "b=x:NoSchedule")
    assert msgspec.json.encode([first, second]) == wire.replace(
        b'"value":"x","effect":"NoSchedule"', b'"effect":"NoSchedule","value":"x"'
    )
