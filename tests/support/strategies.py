"""Hypothesis strategies for the value types, small enough that two draws often meet."""

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from provisioner.values.quantity import Quantity
from provisioner.values.requirement import Operator, Requirement, Requirements
from provisioner.values.resources import Resources
from provisioner.values.taints import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration

SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
KEYS = ("zone", "arch", "size")
VALUES = ("a", "b", "c", "07", "-1", *map(str, range(8)))
UNIVERSE = (
    *VALUES,
    *map(str, range(-6, 14)),
    *(f"{n:03}" for n in range(-6, 14)),
    "fresh",
    "+3",
    "9223372036854775807",
    "9223372036854775808",
)
"""Every kind of value that a requirement drawn from here can tell apart."""


def _spoken(key: str) -> list[Requirement]:
    """Everything that one operator can say about `key` with these values; a fixed list draws far faster than builds."""
    listed = [chosen for size in (1, 2, 3) for chosen in itertools.combinations(VALUES, size)]
    said: list[tuple[Operator, Iterable[str], int | None]] = [
        (Operator.EXISTS, (), None),
        (Operator.DOES_NOT_EXIST, (), None),
    ]
    said += [(operator, chosen, None) for operator in (Operator.IN, Operator.NOT_IN) for chosen in listed]
    said += [(Operator.IN, chosen, least) for least in (1, 2, 3) for chosen in listed[:20]]
    said += [
        (operator, (str(number),), None)
        for operator in (Operator.GT, Operator.LT, Operator.GTE, Operator.LTE)
        for number in range(-3, 10)
        for _ in range(16)  # as likely together as the lists
    ]
    return [Requirement.of(key, operator, values, least) for operator, values, least in said]


def intersected(key: str) -> st.SearchStrategy[Requirement]:
    """Any requirement on `key` that a few operators together can say, contradictions included; half are one operator alone."""
    said = st.sampled_from(_spoken(key))
    return said | st.lists(said, min_size=2, max_size=4).map(lambda parts: Requirements.of(parts).requirement(key))


requirement_sets = st.fixed_dictionaries({}, optional={key: intersected(key) for key in KEYS}).map(
    lambda by_key: Requirements.of(by_key.values())
)
label_sets = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))

quantities = st.builds(
    lambda sign, whole, part, suffix: Quantity.parse(f"{sign}{whole}{part}{suffix}"),
    st.sampled_from(("", "-", "+")),
    st.integers(0, 10**9),
    st.just("") | st.integers(0, 999).map(lambda digits: f".{digits:03}"),
    st.sampled_from((*SUFFIXES, "e3", "E-2", "e12")),
)

resources = st.dictionaries(st.sampled_from(("cpu", "memory", "pods", "nvidia.com/gpu")), st.integers(0, 10**6)).map(
    Resources.of
)
signed_resources = st.dictionaries(
    st.sampled_from(("cpu", "memory", "pods", "nvidia.com/gpu")), st.integers(-(10**6), 10**6)
).map(Resources.of)

taints = st.builds(
    Taint,
    key=st.sampled_from(("team", "gpu")),
    effect=st.sampled_from((NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE)),
    value=st.sampled_from(("", "a", "3", "5")),
)
tolerations = st.builds(
    Toleration,
    key=st.sampled_from(("", "team", "gpu")),
    operator=st.sampled_from(("", "Equal", "Exists", "Lt", "Gt")),
    value=st.sampled_from(("", "a", "4")),
    effect=st.sampled_from(("", NO_SCHEDULE, NO_EXECUTE)),
)

durations = st.integers(-(10**15), 10**15).map(lambda micros: timedelta(microseconds=micros))
times = st.datetimes(datetime(2024, 1, 1), datetime(2028, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001  (Hypothesis wants naive bounds)
