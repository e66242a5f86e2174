"""What a run of provisioning is asked about, and what comes after all others."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from provisioner.apis import names
from provisioner.apis.gangs import group_of
from provisioner.apis.pods import Pod
from provisioner.provisioning.questions import BatchQuestion, pods_of, spoilt_pods
from provisioner.requests.bookings import NOTHING_ASKED
from provisioner.state.snapshot import Snapshot
from tests.support.cluster import pod


def member(name: str, gang: str) -> Pod:
    return pod(name, annotations={names.GANG: gang, names.GANG_MINIMUM: "2"})


ONE, TWO, SINGLE = member("one", "a"), member("two", "a"), pod("single")
RUNS = pod("runs", node="n")


def instant(waiting: tuple[Pod, ...] = (), leaving: tuple[Pod, ...] = (), stopped: tuple[Pod, ...] = ()) -> Snapshot:
    found = SimpleNamespace(waiting=waiting, leaving=leaving, stopped={one.shape.key: None for one in stopped})
    return cast(Snapshot, found)


def test_pods_that_a_request_has_places_for_are_not_planned() -> None:
    assert pods_of(instant((ONE, SINGLE), (RUNS,)), {ONE.uid}) == (SINGLE, RUNS)


def test_pods_that_run_are_left_where_they_are_while_nothing_is_launched_for_their_kind() -> None:
    assert pods_of(instant((ONE,), (RUNS,), stopped=(RUNS,)), ()) == (ONE,)


@pytest.mark.parametrize(
    ("pods", "leaving", "expected"),
    [
        ((ONE, TWO, SINGLE), (), {ONE.uid, TWO.uid}),
        ((ONE, TWO), (), set()),
        ((ONE, SINGLE), (TWO,), set()),
    ],
    ids=["after the others", "there are no others", "company on nodes that go"],
)
def test_a_spoilt_group_is_planned_after_all_others(
    pods: tuple[Pod, ...], leaving: tuple[Pod, ...], expected: set[str]
) -> None:
    groups = frozenset({group_of(ONE)})
    assert spoilt_pods(groups, instant(leaving=leaving), pods) == expected
    assert groups == {group_of(ONE)}


def test_every_pod_is_planned_together_with_others_or_after_them() -> None:
    waiting, pods = (ONE, TWO, SINGLE), (ONE, TWO, SINGLE, RUNS)
    question = BatchQuestion("", instant(waiting, (RUNS,)), pods, (), NOTHING_ASKED, frozenset(), (), frozenset())
    assert (question.together, question.waiting, question.running) == (pods, waiting, frozenset({RUNS.uid}))
    spoilt = replace(question, spoilt=frozenset({ONE.uid, TWO.uid}))
    assert (spoilt.together, spoilt.waiting) == ((SINGLE, RUNS), (SINGLE,))
