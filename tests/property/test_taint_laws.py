"""Taints and tolerations, law by law."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from provisioner.values.taints import NO_EXECUTE, NO_SCHEDULE, Taint, Toleration, first_untolerated, tolerates
from tests.support.strategies import taints, tolerations

EFFECTS = (NO_SCHEDULE, NO_EXECUTE)


@given(taints)
def test_a_toleration_of_everything_covers_every_taint(taint: Taint) -> None:
    assert Toleration(operator="Exists").tolerates(taint)


@given(st.lists(tolerations), tolerations, taints)
def test_one_more_toleration_never_takes_one_away(some: list[Toleration], more: Toleration, taint: Taint) -> None:
    assert not tolerates(some, taint) or tolerates([*some, more], taint)


@given(st.lists(tolerations), st.lists(taints))
def test_the_first_untolerated_taint_is_one_and_is_the_first(some: list[Toleration], there: list[Taint]) -> None:
    refused = [taint for taint in there if taint.effect in EFFECTS and not any(one.tolerates(taint) for one in some)]
    assert first_untolerated(some, there) is (refused[0] if refused else None)


@given(st.lists(tolerations), st.lists(taints), st.lists(taints))
def test_more_taints_never_let_a_pod_in(some: list[Toleration], there: list[Taint], more: list[Taint]) -> None:
    assert first_untolerated(some, there) is None or first_untolerated(some, [*there, *more]) is not None


@given(taints, tolerations)
def test_both_survive_the_wire(taint: Taint, toleration: Toleration) -> None:
    assert msgspec.json.decode(msgspec.json.encode(taint), type=Taint) == taint
    assert msgspec.json.decode(msgspec.json.encode(toleration), type=Toleration) == toleration
