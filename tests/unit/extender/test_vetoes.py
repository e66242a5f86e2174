"""Preemptions that are put off: once, never without knowing what was before, and never without a bound."""

from extender.vetoes import JOINED_SECONDS, MAX_VETOES, MAX_VETOES_OF_A_POD, SETTLE_SECONDS, Veto, Vetoes

VETO = Veto("pod", "claim")


def begun(*plans: str) -> Vetoes:
    made = Vetoes()
    made.begin(plans)
    return made


def test_a_veto_is_spent_once() -> None:
    vetoes = begun()
    assert vetoes.spend(VETO, 0.0)
    assert not vetoes.spend(VETO, 1.0)
    assert vetoes.spend(Veto("pod", "another"), 1.0)
    assert vetoes.spend(Veto("other", "claim"), 1.0)


def test_once_the_node_has_joined_a_veto_stands_while_its_taints_go() -> None:
    vetoes = begun()
    joined = Veto("pod", "claim", joined=True)
    assert [vetoes.spend(joined, moment) for moment in (0.0, 0.01, JOINED_SECONDS - 0.1)] == [True] * 3
    assert not vetoes.spend(joined, JOINED_SECONDS), "it began with the first"
    assert vetoes.spend(Veto("pod", "another"), JOINED_SECONDS), "it was one of the pod's three"
    assert vetoes.spend(Veto("pod", "a third"), JOINED_SECONDS)
    assert not vetoes.spend(Veto("pod", "a fourth"), JOINED_SECONDS)


def test_a_pod_that_is_planned_again_and_again_is_put_off_three_times_in_all() -> None:
    vetoes = begun()
    plans = [Veto("pod", f"claim-{number}", joined) for number in range(5) for joined in (False, True)]
    spent = []
    for moment, plan in enumerate(plans):
        vetoes.forget(lambda _: True, float(moment))  # as the program does all the time
        spent.append(vetoes.spend(plan, float(moment)))
    assert spent == [True] * MAX_VETOES_OF_A_POD + [False] * 7
    assert vetoes.spend(Veto("other", "claim-4"), 10.0), "the bound is each pod's own"


def test_a_pod_that_waits_anew_has_vetoes_again() -> None:
    vetoes = begun()
    assert [vetoes.spend(Veto("pod", f"claim-{number}"), 0.0) for number in range(4)] == [True, True, True, False]
    vetoes.forget(lambda _: False, SETTLE_SECONDS)
    assert vetoes.spend(Veto("pod", "claim-4"), SETTLE_SECONDS)


def test_nothing_is_put_off_before_the_beginning_or_for_plans_of_before() -> None:
    assert not Vetoes().spend(VETO, 0.0)
    vetoes = begun("claim")
    vetoes.begin(())  # only the first look counts
    assert not vetoes.spend(VETO, 0.0)
    assert vetoes.spend(Veto("pod", "later"), 0.0)


def test_vetoes_of_pods_that_wait_no_longer_are_forgotten_after_a_while() -> None:
    vetoes = begun()
    vetoes.spend(VETO, 0.0)
    vetoes.spend(Veto("waiting", "claim"), 0.0)
    vetoes.forget("waiting".__eq__, SETTLE_SECONDS - 1)
    assert len(vetoes) == 2, "our watch may be behind"
    vetoes.forget("waiting".__eq__, SETTLE_SECONDS)
    assert len(vetoes) == 1
    assert not vetoes.spend(Veto("waiting", "claim"), SETTLE_SECONDS)


def test_beyond_the_bound_preemption_goes_on() -> None:
    vetoes = begun()
    assert all(vetoes.spend(Veto(f"pod-{i}", "claim"), 0.0) for i in range(MAX_VETOES))
    assert not vetoes.spend(VETO, 0.0)
