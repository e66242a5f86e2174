"""The algebra of requirements, law by law."""

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.values.requirement import NONE, Operator, Requirement, Requirements
from tests.support.strategies import KEYS, UNIVERSE, intersected, label_sets, requirement_sets

requirements = intersected("zone")


def read_back(entries: list[dict[str, object]]) -> Requirements:
    return Requirements.of(
        Requirement.of(entry["key"], entry["operator"], entry.get("values", ()), entry.get("minValues"))  # type: ignore[arg-type]
        for entry in entries
    )


def satisfies(labels: dict[str, str], wanted: Requirements) -> bool:
    """What kube-scheduler would say of a node with these labels, written without the algebra's help."""
    return all(
        requirement.has(labels[key]) if key in labels else requirement.admits(None)
        for key, requirement in wanted.items()
    )


@given(requirements)
def test_idempotence(a: Requirement) -> None:
    assert a.intersection(pickle.loads(pickle.dumps(a))) == a


@given(requirements)
def test_identity_exists_changes_nothing_that_must_be_present(a: Requirement) -> None:
    got = a.intersection(Requirement.of("zone", Operator.EXISTS))
    assert got == a if a.present else not got.admits(None)


@given(requirements, requirements)
def test_commutativity(a: Requirement, b: Requirement) -> None:
    assert a.intersection(b) == b.intersection(a)
    assert hash(a.intersection(b)) == hash(b.intersection(a))


@given(requirements, requirements, requirements)
def test_associativity(a: Requirement, b: Requirement, c: Requirement) -> None:
    assert a.intersection(b).intersection(c) == a.intersection(b.intersection(c))


@settings(max_examples=300)  # two bounds on one side must meet
@given(requirements, requirements)
def test_has_agrees_with_intersection(a: Requirement, b: Requirement) -> None:
    both = a.intersection(b)
    assert [both.has(value) for value in UNIVERSE] == [a.has(value) and b.has(value) for value in UNIVERSE]


@given(requirements, requirements)
def test_absence_agrees_with_intersection(a: Requirement, b: Requirement) -> None:
    assert a.intersection(b).admits(None) == (a.admits(None) and b.admits(None))


@settings(max_examples=300)  # two bounds on one side must meet
@given(requirements, requirements)
def test_intersects_is_whether_the_intersection_holds_anything(a: Requirement, b: Requirement) -> None:
    assert a.intersects(b) == b.intersects(a) == (not a.intersection(b).is_contradiction)


@given(requirements)
def test_a_contradiction_is_exactly_what_nothing_satisfies(a: Requirement) -> None:
    assert a.is_contradiction == (not a.admits(None) and not any(map(a.has, UNIVERSE)))


@given(requirements)
def test_round_trip_of_to_wire(a: Requirement) -> None:
    assert read_back(a.to_wire()) == Requirements.of([a])


@given(requirements)
def test_any_value_is_one_that_it_has(a: Requirement) -> None:
    value = a.any_value()
    assert a.has(value) if value else not any(map(a.has, UNIVERSE))


@given(requirements)
def test_a_single_value_is_the_only_state_allowed(a: Requirement) -> None:
    single = a.single_value
    if single is not None:
        assert not a.admits(None)
        assert {value for value in UNIVERSE if a.has(value)} == {single}


@given(requirements, requirements)
def test_the_larger_min_values_wins(a: Requirement, b: Requirement) -> None:
    asked = [one.min_values for one in (a, b) if one.min_values is not None]
    assert a.intersection(b).min_values == max(asked, default=None)


@given(requirement_sets)
def test_sets_identity(a: Requirements) -> None:
    assert a.merged(NONE) == a == NONE.merged(a)


@given(requirement_sets, requirement_sets)
def test_sets_commutativity(a: Requirements, b: Requirements) -> None:
    assert a.merged(b) == b.merged(a)
    assert hash(a.merged(b)) == hash(b.merged(a))


@given(requirement_sets, requirement_sets, requirement_sets)
def test_sets_associativity(a: Requirements, b: Requirements, c: Requirements) -> None:
    assert a.merged(b).merged(c) == a.merged(b.merged(c))


@given(requirement_sets)
def test_sets_round_trip_of_to_wire(a: Requirements) -> None:
    assert read_back(a.to_wire()) == a
    assert pickle.loads(pickle.dumps(a)) == a


@given(requirement_sets, requirement_sets)
def test_conflict_is_symmetric_and_names_the_first_shared_contradiction(a: Requirements, b: Requirements) -> None:
    shared = [key for key in a if key in b and a[key].intersection(b[key]).is_contradiction]
    found, mirrored = a.conflict(b), b.conflict(a)
    assert (found.key if found else None) == (mirrored.key if mirrored else None) == (shared[0] if shared else None)


@given(label_sets, requirement_sets)
def test_a_node_s_labels_are_compatible_exactly_when_they_satisfy_every_requirement(
    labels: dict[str, str], wanted: Requirements
) -> None:
    assert (Requirements.from_labels(labels).incompatibility(wanted) is None) == satisfies(labels, wanted)


@given(requirement_sets, requirement_sets, st.sets(st.sampled_from(KEYS)))
def test_allowing_more_undefined_keys_never_makes_incompatible(
    a: Requirements, b: Requirements, keys: set[str]
) -> None:
    if a.incompatibility(b) is None:
        assert a.incompatibility(b, frozenset(keys)) is None


@given(requirement_sets, requirement_sets)
def test_with_every_key_allowed_undefined_only_conflicts_are_left(a: Requirements, b: Requirements) -> None:
    assert a.incompatibility(b, frozenset(KEYS)) == a.conflict(b)


@given(requirement_sets, requirement_sets, st.sets(st.sampled_from(KEYS)))
def test_conflicts_are_counted_key_by_key(a: Requirements, b: Requirements, keys: set[str]) -> None:
    """None exactly where nothing is incompatible, and each key counts by itself."""
    allowed = frozenset(keys)
    alone = [a.incompatibility(Requirements.of([one]), allowed) is not None for _, one in b.items()]
    assert a.conflicts(b, allowed) == sum(alone)
    assert (a.conflicts(b, allowed) == 0) == (a.incompatibility(b, allowed) is None)
