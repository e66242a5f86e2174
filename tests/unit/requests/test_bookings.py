"""Which pods a run is asked about: turns of tenants, bounds, and laws of what real pods take."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.core import Container, PodSpec, PodTemplateSpec, ResourceRequirements
from provisioner.apis.meta import Condition, ObjectMeta
from provisioner.apis.pods import Pod
from provisioner.apis.provisioning_request import (
    BEST_EFFORT_ATOMIC,
    CHECK_CAPACITY,
    ProvisioningRequest,
    ProvisioningRequestSpec,
    ProvisioningRequestStatus,
    RequestedPods,
    RequestedTemplate,
    request_named,
)
from provisioner.apis.stamping import StampFacts
from provisioner.apis.templates import NO_ADMISSION
from provisioner.requests.bookings import (
    MOST_A_RUN,
    MOST_KEPT,
    NOTHING_ASKED,
    RequestsAsked,
    RequestStanding,
    RequestTurn,
    ask,
    units_of,
)
from tests.support.cluster import pod

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
BOOKED = (Condition(type="Provisioned", status="True", reason="CapacityIsFound", last_transition_time=NOON),)


def template(cpu: str) -> PodTemplateSpec:
    resources = ResourceRequirements(requests={"cpu": cpu, "memory": "1Gi"})
    return PodTemplateSpec(spec=PodSpec(containers=(Container(name="c", resources=resources),)))


def standing(
    name: str,
    *,
    namespace: str = "default",
    counts: tuple[int, ...] = (2,),
    cpus: tuple[str, ...] = ("3", "1", "2"),
    klass: str = BEST_EFFORT_ATOMIC,
    booked: bool = False,
    age: int = 0,
    consumers: tuple[Pod, ...] = (),
    tried: float = float("-inf"),
) -> RequestStanding:
    sets = tuple(
        RequestedPods(pod_template_ref=RequestedTemplate(name=f"t{n}"), count=count) for n, count in enumerate(counts)
    )
    request = ProvisioningRequest(
        metadata=ObjectMeta(
            name=name, namespace=namespace, uid=f"u-{name}", creation_timestamp=NOON - timedelta(seconds=age)
        ),
        spec=ProvisioningRequestSpec(pod_sets=sets, provisioning_class_name=klass),
        status=ProvisioningRequestStatus(conditions=BOOKED if booked else ()),
    )
    templates = [template(cpu) for cpu in cpus[: len(counts)]]
    units = units_of(request, templates, NO_ADMISSION, StampFacts(namespace, {}))
    return RequestStanding(request, units, consumers, tried=tried)


def asked_of(
    *standings: RequestStanding, waiting: frozenset[str] = frozenset(), assigned: frozenset[str] = frozenset()
) -> RequestsAsked:
    return ask(standings, waiting, lambda: assigned)


def nobody() -> frozenset[str]:
    raise AssertionError("it is not asked where there is no request")


def test_without_requests_nothing_is_looked_at() -> None:
    assert ask((), (), nobody) is NOTHING_ASKED


def test_one_tenant_does_not_keep_others_from_their_turn() -> None:
    many = [standing(f"m{n:03}", namespace="greedy", age=1000 - n) for n in range(200)]
    one = standing("late", namespace="modest")
    found = asked_of(*many, one)
    assert len(found.asked) == MOST_A_RUN
    assert "modest/late" in {asked.key for asked in found.asked}


def test_all_have_their_turn() -> None:
    """Whoever was asked about comes after those that were not."""
    known = {f"default/r{n:02}": float("-inf") for n in range(50)}
    for run in range(3):
        found = asked_of(*(standing(key.removeprefix("default/"), tried=tried) for key, tried in known.items()))
        known.update((one.key, float(run)) for one in found.asked)
    assert min(known.values()) >= 0


def test_reserved_room_is_bounded_and_the_bound_is_told() -> None:
    half = MOST_KEPT // 2
    full = standing("full", namespace="a", counts=(half,), booked=True)
    more, other = standing("more", namespace="a", counts=(1,)), standing("other", namespace="b", counts=(1,))
    found = asked_of(full, more, other)
    assert {one.key for one in found.asked} == {"a/full", "b/other"}
    assert list(found.limited) == ["a/more"]
    everywhere = [standing(f"f{n}", namespace=f"n{n}", counts=(half,), booked=True) for n in range(2)]
    assert list(asked_of(*everywhere, other).limited) == ["b/other"]


def test_a_request_is_never_too_large_by_itself() -> None:
    assert len(asked_of(standing("r", counts=(MOST_KEPT // 2,))).asked) == 1


@pytest.mark.parametrize(
    ("klass", "turn"), [(CHECK_CAPACITY, RequestTurn.CHECK), (BEST_EFFORT_ATOMIC, RequestTurn.LAUNCH)]
)
def test_turns(klass: str, turn: RequestTurn) -> None:
    assert [one.turn for one in asked_of(standing("r", klass=klass)).asked] == [turn]
    assert [one.turn for one in asked_of(standing("r", klass=klass, booked=True)).asked] == [RequestTurn.KEPT]


def test_a_group_is_of_all_pods_of_a_request_and_of_no_other() -> None:
    one, other = asked_of(standing("r", counts=(2, 3)), standing("s", counts=(4,))).asked
    assert sorted([*one.minima.values(), *other.minima.values()]) == [4, 5]
    assert not one.minima.keys() & other.minima.keys()
    assert len({virtual.uid for each in (one, other) for virtual in each.pods}) == 9


def test_both_names_of_the_annotation_are_read_and_the_new_one_first() -> None:
    new, old = names.CONSUMES
    assert request_named(pod("p", annotations={old: "o"})) == "default/o"
    assert request_named(pod("p", annotations={old: "o", new: "n"})) == "default/n"
    assert request_named(pod("p")) == ""


STATES = st.sampled_from(["bound", "assigned", "waiting", "gated"])


@given(
    states=st.lists(st.tuples(STATES, st.sampled_from(["3", "1", "5"])), max_size=8),
    counts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    booked=st.booleans(),
)
def test_laws_of_places(states: list[tuple[str, str]], counts: tuple[int, int], booked: bool) -> None:
    """Each place is a real pod's or a virtual one's, never both; and nothing is launched for a pod that has one."""
    consumers = tuple(
        msgspec.structs.replace(
            pod(f"p{n}", cpu=cpu, annotations={names.CONSUMES[0]: "r"}), node_name="x" if state == "bound" else ""
        )
        for n, (state, cpu) in enumerate(states)
    )
    by_state = {state: frozenset(f"p{n}" for n, (its, _) in enumerate(states) if its == state) for state, _ in states}
    one = standing("r", counts=counts, booked=booked, consumers=consumers)
    found = asked_of(one, waiting=by_state.get("waiting", frozenset()), assigned=by_state.get("assigned", frozenset()))
    (asked,) = found.asked
    for number, count in enumerate(counts):
        waits = sum(its == number for its, _ in asked.consumers)
        assert asked.taken[number] + waits + len(asked.virtual[number]) == count
    counted = {one.uid for one in consumers[: sum(counts)]}  # they are of one age, so by UID
    has_place = by_state.get("bound", frozenset()) | by_state.get("assigned", frozenset())
    assert found.held == counted - has_place
    assert sum(asked.taken) == len(counted & has_place)
    waiting = counted & by_state.get("waiting", frozenset())
    assert {each.uid for _, each in asked.consumers} == (waiting if booked else set())
    kinds = Counter(each.shape.requests.get("cpu", 0) for some in asked.virtual for each in some)
    assert kinds.total() == sum(counts) - sum(asked.taken) - len(asked.consumers)
