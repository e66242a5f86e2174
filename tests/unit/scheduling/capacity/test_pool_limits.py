"""The ledger of a pool's limits."""

from provisioner.scheduling.capacity.catalogue import Catalogue
from provisioner.scheduling.capacity.pool_limits import LimitLedger, Slack, shares, stairs_of
from provisioner.scheduling.constraints.bitsets import members
from provisioner.values.resources import Resources
from tests.support.problems import GPU, LARGE, MEDIUM, SMALL

TYPES = (GPU, LARGE, MEDIUM, SMALL)
CATALOGUE = Catalogue(TYPES)


def ledger(**limits: str) -> LimitLedger:
    return LimitLedger(Resources.parse({name.replace("_", "/"): amount for name, amount in limits.items()}), CATALOGUE)


def names_of(mask: int) -> list[str]:
    return [TYPES[row].name for row in members(mask)]


def test_types_above_any_limit_are_not_allowed() -> None:
    assert names_of(ledger(cpu="4", memory="4Gi").allowed({})) == ["small"]
    assert names_of(ledger(cpu="8").allowed({})) == ["gpu", "large", "medium", "small"]


def test_a_resource_that_a_type_lacks_counts_as_none_of_it() -> None:
    book = LimitLedger(Resources.of({"example.com/gpu": 0}), CATALOGUE)
    assert names_of(book.allowed({})) == ["large", "medium", "small"]


def test_below_zero_nothing_is_allowed_not_even_none_of_it() -> None:
    assert LimitLedger(Resources.of({"example.com/gpu": -1}), CATALOGUE).allowed({}) == 0


def test_a_charge_makes_room_for_the_claim_that_has_it() -> None:
    book = ledger(cpu="8", nodes="1")
    charge = book.charge_of([2])
    book.replace({}, charge)
    assert charge == {"cpu": 4000, "nodes": 1}
    assert book.remaining == {"cpu": 4000, "nodes": 0}
    assert book.allowed({}) == 0
    assert names_of(book.allowed(charge)) == ["gpu", "large", "medium", "small"]


def test_a_charge_covers_every_type_it_is_for() -> None:
    assert ledger(cpu="64", memory="64Gi").charge_of([0, 3]) == {"cpu": 8000, "memory": 32 * 2**30}


def test_only_a_smaller_charge_loosens() -> None:
    book = ledger(cpu="64")
    book.replace({}, {"cpu": 8000})
    assert not book.loosened
    book.replace({"cpu": 8000}, {"cpu": 2000})
    assert book.loosened
    assert book.remaining == {"cpu": 62000}


def test_smallest_is_the_least_of_the_given_types() -> None:
    assert ledger(cpu="1").smallest("cpu", [0, 2]) == 4000
    assert ledger(nodes="1").smallest("nodes", [0, 2]) == 1


def test_limits_that_all_pods_together_cannot_reach_need_no_looking_at() -> None:
    rooms = [(2000, 4), (4000, 8)]
    charges = [{"cpu": 2000}, {"cpu": 4000}]
    stairs = stairs_of(("cpu",), rooms, charges)
    assert stairs == {"cpu": (2000, (1.0, 500.0))}
    slack = Slack({"cpu": 30_000})
    slack.learn(0, stairs, {"cpu": 4000})
    assert slack.covers(7, (0, 0))  # seven of the largest
    assert slack.covers(10, (6_000, 0))  # planned as 26,000 together, and one of them may come to be the largest
    assert not slack.covers(10, (6_001, 0))


def test_types_that_do_not_rise_in_size_with_price_bound_by_the_largest() -> None:
    assert stairs_of(("cpu",), [(4, 1), (1, 4)], [{"cpu": 4}, {"cpu": 1}]) is None
    slack = Slack({"cpu": 8})
    slack.learn(0, None, {"cpu": 4})
    assert slack.covers(2, (0, 0))
    assert not slack.covers(3, (0, 0))


def test_claims_share_half_of_what_remains() -> None:
    assert shares({"cpu": 16_000, "nodes": 3}, 4) == {"cpu": 2_000, "nodes": 0}
    assert shares({"cpu": -5}, 2) == {"cpu": 0}
