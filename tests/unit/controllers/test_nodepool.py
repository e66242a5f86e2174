"""Health of a pool's launches, and what a pool uses."""

import pytest

from provisioner.controllers.nodepool import Health, used_by
from provisioner.values.resources import Resources
from tests.support.cluster import claim

GENERATIONS = (1, 1)
VERDICTS: dict[str, tuple[str, str]] = {
    "nothing is known without launches": ("", "Unknown"),
    "one good launch is healthy": ("+", "True"),
    "one bad launch says nothing yet": ("-", "Unknown"),
    "two bad ones of four are too many": ("--", "False"),
    "a good one after one bad one": ("-+", "True"),
    "a good one does not outweigh two bad ones": ("--+", "False"),
    "three good ones push the bad ones out": ("--+++", "True"),
    "one bad one among good ones": ("+++-", "Unknown"),
    "bad ones in between count": ("+-+-", "False"),
}


@pytest.mark.parametrize(("launches", "verdict"), VERDICTS.values(), ids=VERDICTS.keys())
def test_the_last_four_launches_decide(launches: str, verdict: str) -> None:
    health = Health(lambda _: None)
    for launch in launches:
        health.note("general", launch == "+")
    assert health.verdict("general", GENERATIONS) == verdict


def test_pools_are_judged_apart() -> None:
    health = Health(lambda _: None)
    health.note("a", False)
    health.note("a", False)
    health.note("b", True)
    assert (health.verdict("a", GENERATIONS), health.verdict("b", GENERATIONS)) == ("False", "True")


@pytest.mark.parametrize("changed", [(2, 1), (1, 2)], ids=["of the pool", "of the class"])
def test_a_new_generation_begins_anew(changed: tuple[int, int]) -> None:
    health = Health(lambda _: None)
    health.verdict("general", GENERATIONS)
    health.note("general", False)
    health.note("general", False)
    assert health.verdict("general", changed) == "Unknown"


def test_a_pool_of_the_name_of_one_that_is_gone_begins_anew() -> None:
    health = Health(lambda _: None)
    health.note("general", False)
    health.note("general", False)
    assert health.verdict("general", GENERATIONS) == "False"
    health.forget("general")
    assert health.verdict("general", GENERATIONS) == "Unknown"


def test_the_pool_is_looked_at_again_only_when_its_ring_changed() -> None:
    told: list[str] = []
    health = Health(told.append)
    for _ in range(6):
        health.note("general", True)
    assert told == ["general"] * 4


def test_a_pool_without_machines_uses_zero_of_everything_that_is_told() -> None:
    assert used_by([], {}).to_wire() == {"cpu": "0", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "0"}


def test_a_pool_uses_what_its_machines_have_known_or_not() -> None:
    capacities = {"a": Resources.parse({"cpu": "4", "memory": "8Gi"}), "b": Resources.parse({"cpu": "2", "x/gpu": "1"})}
    used = used_by([claim("a"), claim("b"), claim("unlaunched")], capacities)
    assert used.to_wire() == {
        "cpu": "6",
        "memory": "8Gi",
        "pods": "0",
        "ephemeral-storage": "0",
        "nodes": "3",
        "x/gpu": "1",
    }
