"""Which pod is evicted to repair a share on demand, and why none is."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.core import Affinity, Deployment, ReplicaSet, StatefulSet
from provisioner.apis.shares import SeatedPod, Share, ShareAttempt, Side, attempt_text, read_attempt
from provisioner.shares.repair import (
    MOST_ATTEMPTS,
    SETTLE_SECONDS,
    STOPPED_FOR,
    Adopt,
    Bar,
    Evict,
    ShareMember,
    ShareView,
    Unrepaired,
    asks,
    decide,
    drift,
    is_moving,
    last_attempt,
    member_of,
    members_of,
    tolerance,
)
from tests.support.clock import NOON
from tests.support.cluster import node, pod

OD, SPOT = Side.ON_DEMAND, Side.SPOT
OLD = NOON - timedelta(hours=1)
THIRTY = Share(percent=30)
EVICT = {names.ON_DEMAND_REPAIR: "evict"}


def member(name: str, side: Side | None, *, label: Side | None = None, **changes: Any) -> ShareMember:
    """A pod of `side`, which its label says too unless `label` says otherwise."""
    own = {field: changes.pop(field) for field in ("seated", "leaving", "bar") if field in changes}
    said = label or side
    labels = {names.ON_DEMAND_SHARE_LABEL: said.value} if said is not None else {}
    made = pod(name, node=f"n-{name}", **{"labels": labels, "ready": True, "created": OLD, **changes})
    return ShareMember(made, side, **own)


def members(on_demand: int, spot: int) -> tuple[ShareMember, ...]:
    return tuple(member(f"{i:03}", OD if i < on_demand else SPOT) for i in range(on_demand + spot))


def view(*those: ShareMember, share: Share = THIRTY, **changes: Any) -> ShareView:
    given: dict[str, Any] = {"wanted": len(those), "steady": SETTLE_SECONDS, "now": NOON}
    return ShareView(share, **{**given, "members": those, **changes})


def replaced(those: tuple[ShareMember, ...], **changes: Any) -> tuple[ShareMember, ...]:
    """The same, of which the last pod differs."""
    return (*those[:-1], ShareMember(msgspec.structs.replace(those[-1].pod, **changes), those[-1].side))


FAR = members(0, 10)
UNREPAIRED: dict[str, tuple[ShareView, Unrepaired]] = {
    "exactly right": (view(*members(3, 7)), Unrepaired.WITHIN),
    "two too few": (view(*members(1, 9)), Unrepaired.WITHIN),
    "two too many": (view(*members(5, 5)), Unrepaired.WITHIN),
    "five of a hundred too few": (view(*members(25, 75)), Unrepaired.WITHIN),
    "a count that there are not as many pods for": (view(*members(2, 0), share=Share(count=9)), Unrepaired.WITHIN),
    "no pod": (view(), Unrepaired.WITHIN),
    "a change a moment ago": (view(*FAR, steady=SETTLE_SECONDS - 1), Unrepaired.UNSETTLED),
    "a pod is missing": (view(*FAR, wanted=11), Unrepaired.UNSETTLED),
    "a pod too many": (view(*FAR, wanted=9), Unrepaired.UNSETTLED),
    "a pod ends": (view(*replaced(FAR, deleted=NOON)), Unrepaired.UNSETTLED),
    "a pod is not ready": (view(*replaced(FAR, ready=False)), Unrepaired.UNSETTLED),
    "a pod waits": (view(*replaced(FAR, node_name="")), Unrepaired.UNSETTLED),
    "a node goes": (view(*FAR[:-1], member("last", SPOT, leaving=True)), Unrepaired.UNSETTLED),
    "nobody knows a side": (view(*FAR[:-1], member("last", None)), Unrepaired.UNKNOWN),
    "all are protected": (view(*(member(str(i), SPOT, bar=Bar.PROTECTED) for i in range(10))), Unrepaired.PROTECTED),
    "a budget": (view(*(member(str(i), SPOT, bar=Bar.BUDGET) for i in range(10))), Unrepaired.BUDGET),
}


@pytest.mark.parametrize(("seen", "why"), UNREPAIRED.values(), ids=UNREPAIRED)
def test_nothing_is_evicted(seen: ShareView, why: Unrepaired) -> None:
    assert decide(seen) is why


def test_one_of_the_side_that_has_too_many_is_evicted() -> None:
    few, many = decide(view(*FAR)), decide(view(*members(10, 0)))
    assert isinstance(few, Evict)
    assert isinstance(many, Evict)
    assert (few.member.side, few.attempt.toward, few.on_demand, few.wanted) == (SPOT, OD, 0, 3)
    assert (many.member.side, many.attempt.toward, many.on_demand, many.wanted) == (OD, SPOT, 10, 3)
    assert few.bearer is not few.member.pod


def test_a_pod_that_came_without_the_webhook_goes_first_then_the_cheapest_then_the_newest() -> None:
    cost = {names.POD_DELETION_COST: "-5"}
    stranger = member("stranger", SPOT, seated=False)
    cheap, late = member("cheap", SPOT, annotations=cost), member("late", SPOT, created=NOON)
    nonsense = member("nonsense", SPOT, annotations={names.POD_DELETION_COST: "dear"})
    order = []
    left = (*FAR, late, cheap, stranger, nonsense)
    for _ in range(3):
        found = decide(view(*left))
        assert isinstance(found, Evict)
        order.append(found.member.pod.name)
        left = tuple(one for one in left if one is not found.member)
    assert order == ["stranger", "cheap", "late"]


def test_protected_pods_are_passed_over() -> None:
    those = (*(member(f"p{i}", SPOT, bar=Bar.PROTECTED) for i in range(9)), member("free", SPOT))
    found = decide(view(*those))
    assert isinstance(found, Evict)
    assert found.member.pod.name == "free"


def test_pods_that_the_webhook_does_not_count_are_labelled_before_any_eviction() -> None:
    stranger = member("stranger", SPOT, seated=False, labels={})
    liar = member("liar", SPOT, label=OD, seated=False)
    assert decide(view(*FAR, stranger, liar)) == Adopt((stranger, liar))
    assert (
        decide(view(*members(3, 6), stranger)) is Unrepaired.WITHIN
    )  # none is written where nothing is to be repaired


# --- attempts ---------------------------------------------------------------------------------------------------


def tried(attempts: int, *, ago: timedelta = timedelta(minutes=2), **changes: Any) -> ShareAttempt:
    given: dict[str, Any] = {"attempts": attempts, "toward": OD, "newest": OLD, "at": NOON - ago, "share": "30%"}
    return ShareAttempt(**{**given, **changes})


def after(attempt: ShareAttempt, *more: ShareMember, created: datetime | None = None) -> ShareView:
    """An owner whose last attempt that was; its pods were created no later than its newest pod of that moment."""
    text = {names.ON_DEMAND_REPAIRED: attempt_text(attempt)}
    old = created or min(attempt.newest, OLD)
    pods = [msgspec.structs.replace(one.pod, created=old) for one in FAR]
    brothers = (ShareMember(one, SPOT) for one in pods)
    return view(member("bearer", SPOT, annotations=text, created=old), *brothers, *more)


def attempts_of(seen: ShareView) -> int | None:
    """Of the next eviction; None where there is none."""
    found = decide(seen)
    if found is Unrepaired.STOPPED:
        return None
    assert isinstance(found, Evict)
    return found.attempt.attempts


LONG_AGO = NOON - timedelta(days=9)
THERE = FAR[0].pod.uid
FRESH = NOON - timedelta(minutes=1)
ATTEMPTS: dict[str, tuple[ShareView, int | None]] = {
    "the first": (view(*FAR), 1),
    "one that did not help": (after(tried(1)), 2),
    "too many": (after(tried(MOST_ATTEMPTS)), None),
    "remembered by who asks": (view(*FAR, known=tried(MOST_ATTEMPTS)), None),
    "a pod came to the other side": (after(tried(MOST_ATTEMPTS), member("new", OD, created=FRESH)), 1),
    "a pod came to it by chance": (after(tried(MOST_ATTEMPTS), member("new", OD, created=FRESH, seated=False)), None),
    "a pod came to the same side": (after(tried(MOST_ATTEMPTS), member("new", SPOT, created=FRESH)), None),
    "another share": (after(tried(MOST_ATTEMPTS, share="50%")), 1),
    "in the other direction": (after(tried(MOST_ATTEMPTS, toward=SPOT)), 1),
    "a day ago": (after(tried(MOST_ATTEMPTS, ago=STOPPED_FOR)), MOST_ATTEMPTS),
    "the first, which was not carried out": (after(tried(1, pod=THERE)), 1),
    "the last, which was not carried out": (after(tried(MOST_ATTEMPTS, pod=THERE)), MOST_ATTEMPTS),
    "one more that was not carried out": (after(tried(MOST_ATTEMPTS + 1, pod=THERE)), None),
    "too many, whose pod is gone": (after(tried(MOST_ATTEMPTS, pod="gone")), None),
    "by a clock that is ahead": (after(tried(MOST_ATTEMPTS, ago=-STOPPED_FOR)), None),
    "a day ago by a clock that is ahead": (
        after(tried(MOST_ATTEMPTS, ago=-STOPPED_FOR, newest=LONG_AGO), member("new", SPOT, created=NOON - STOPPED_FOR)),
        MOST_ATTEMPTS,
    ),
    "a while ago by a clock that is ahead": (
        after(tried(MOST_ATTEMPTS, ago=-STOPPED_FOR, newest=LONG_AGO), member("new", SPOT, created=OLD)),
        None,
    ),
    "by a clock that is ahead, of which nothing is left": (
        after(tried(MOST_ATTEMPTS, ago=-STOPPED_FOR, newest=NOON - STOPPED_FOR), created=LONG_AGO),
        MOST_ATTEMPTS,
    ),
}


@pytest.mark.parametrize(("seen", "attempts"), ATTEMPTS.values(), ids=ATTEMPTS)
def test_evictions_that_do_not_help_come_to_an_end(seen: ShareView, attempts: int | None) -> None:
    assert attempts_of(seen) == attempts


def test_the_last_attempt_counts_and_a_bearer_that_is_gone_is_made_up_for_by_memory() -> None:
    first, last = tried(1, ago=timedelta(hours=1)), tried(2, newest=FRESH)
    bearers = [
        pod(str(i), annotations={names.ON_DEMAND_REPAIRED: attempt_text(one)}) for i, one in enumerate((first, last))
    ]
    assert last_attempt(bearers) == last
    assert last_attempt(bearers[:1], last) == last
    assert last_attempt([]) is None


def test_which_attempt_was_the_last_is_told_by_the_clock_of_the_api_server() -> None:
    """Else that of a leader whose clock was ahead would be the last for as long, whatever was tried since."""
    ahead, last = tried(1, ago=-STOPPED_FOR), tried(2, newest=FRESH)
    bearer = pod("a", annotations={names.ON_DEMAND_REPAIRED: attempt_text(ahead)})
    assert last_attempt([bearer], last) == last


@pytest.mark.parametrize("text", ["", "x", "{}", "[]", "9" * 600, attempt_text(tried(1)).replace("Z", "", 1)])
def test_what_cannot_be_read_was_never_tried(text: str) -> None:
    assert read_attempt(pod("a", annotations={names.ON_DEMAND_REPAIRED: text})) is None


@pytest.mark.parametrize("attempts", [-1, 0, 10**6])
def test_nobody_counts_below_one_or_above_reason(attempts: int) -> None:
    assert read_attempt(pod("a", annotations={names.ON_DEMAND_REPAIRED: attempt_text(tried(attempts))})) is None


# --- from objects -----------------------------------------------------------------------------------------------


def on(capacity: str, **changes: Any) -> Any:
    return node("n", labels={names.CAPACITY_TYPE_LABEL: capacity} if capacity else {}, **changes)


def seated(ticket: str = "rs.1.review", label: str = "on-demand", **changes: Any) -> SeatedPod:
    labels = {names.ON_DEMAND_SHARE_LABEL: label} if label else {}
    return SeatedPod(pod("a", node="n", ready=True, labels=labels, **changes), ticket)


SIDES: dict[str, tuple[SeatedPod, Any, tuple[Side | None, bool]]] = {
    "a ticket of this owner": (seated(), on("spot"), (OD, True)),
    "of another": (seated("other.1.review"), on("spot"), (SPOT, False)),
    "of one whose UID begins alike": (seated("rs2.1.review"), on("spot"), (SPOT, False)),
    "none": (seated("", ""), on("on-demand"), (OD, False)),
    "on a reservation": (seated("", ""), on("reserved"), (OD, False)),
    "on a node that says nothing": (seated("", ""), on(""), (None, False)),
    "or another word": (seated("", ""), on("cheap"), (None, False)),
    "on a node that nobody knows": (seated("", ""), None, (None, False)),
    "a label that nobody knows": (seated(label="both"), on("spot"), (SPOT, False)),
}


@pytest.mark.parametrize(("one", "where", "expected"), SIDES.values(), ids=SIDES)
def test_what_a_pod_counts_as(one: SeatedPod, where: Any, expected: tuple[Side | None, bool]) -> None:
    found = member_of("rs", one, where, Bar.NONE, NOON)
    assert (found.side, found.seated) == expected


def test_what_keeps_a_pod() -> None:
    here = on("spot")
    kept = seated(annotations={names.DO_NOT_DISRUPT: "true"})
    assert member_of("rs", kept, here, Bar.NONE, NOON).bar is Bar.PROTECTED
    assert member_of("rs", seated(), here, Bar.BUDGET, NOON).bar is Bar.BUDGET
    chooses = seated("", "")
    for changes in (
        {"node_selector": {names.CAPACITY_TYPE_LABEL: "spot"}},
        {"affinity": affinity(names.CAPACITY_TYPE_LABEL)},
    ):
        shape = msgspec.structs.replace(chooses.pod.shape, **changes)
        one = SeatedPod(msgspec.structs.replace(chooses.pod, shape=shape), "")
        assert member_of("rs", one, here, Bar.NONE, NOON).bar is Bar.PROTECTED
    shape = msgspec.structs.replace(chooses.pod.shape, affinity=affinity(names.ZONE_LABEL))
    one = SeatedPod(msgspec.structs.replace(chooses.pod, shape=shape), "")
    assert member_of("rs", one, here, Bar.NONE, NOON).bar is Bar.NONE


def affinity(key: str) -> Affinity:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": ["spot"]}]}]
    body = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    return msgspec.convert(body, Affinity)


def test_a_node_that_goes() -> None:
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    assert member_of("rs", seated(), on("spot", taints=(taint,)), Bar.NONE, NOON).leaving
    assert member_of("rs", seated(), on("spot", deletionTimestamp=NOON.isoformat()), Bar.NONE, NOON).leaving
    assert not member_of("rs", seated(), on("spot"), Bar.NONE, NOON).leaving


def test_whose_pods_count() -> None:
    mine = SeatedPod(pod("mine", owner="rs"), "")
    others = [SeatedPod(pod("other", owner="other"), ""), SeatedPod(pod("lonely", owner=""), "")]
    done = SeatedPod(pod("done", owner="rs", phase="Failed"), "")
    assert members_of("rs", [mine, *others, done]) == [mine]


def test_who_asks() -> None:
    assert asks(pod("a", annotations=EVICT))
    assert asks(pod("a", annotations=EVICT, kind="StatefulSet"))
    assert not asks(pod("a", annotations=EVICT, kind="Job"))
    assert not asks(pod("a", annotations=EVICT, owner=""))
    assert not asks(pod("a", annotations={names.ON_DEMAND_REPAIR: "true"}))
    assert not asks(pod("a"))


def owner_of_pods(kind: Any, *, name: str = "web-1", above: str = "uid-web", replicas: int = 3, **status: Any) -> Any:
    references = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": above, "controller": True}]
    counts = {"observedGeneration": 1, "replicas": replicas, "readyReplicas": replicas, "updatedReplicas": replicas}
    body = {
        "metadata": {"name": name, "uid": name, "generation": 1, "ownerReferences": references if above else []},
        "spec": {"replicas": replicas},
        "status": {**counts, **status},
    }
    return msgspec.convert(body, kind)


def of_deployment(**status: Any) -> Deployment:
    body = {
        "metadata": {"name": "web", "uid": "uid-web", "generation": 1},
        "status": {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, **status},
    }
    return msgspec.convert(body, Deployment)


def test_an_owner_that_moves() -> None:
    quiet = owner_of_pods(ReplicaSet)
    empty, other = (
        owner_of_pods(ReplicaSet, name="web-0", replicas=0),
        owner_of_pods(ReplicaSet, name="api", above="api"),
    )
    assert not is_moving(quiet, of_deployment(), [quiet, empty, other])
    assert is_moving(quiet, of_deployment(replicas=4), [quiet])
    assert is_moving(quiet, of_deployment(observedGeneration=0), [quiet])
    assert is_moving(quiet, None, [quiet, owner_of_pods(ReplicaSet, name="canary")])
    assert is_moving(owner_of_pods(ReplicaSet, readyReplicas=2), of_deployment(), [])
    assert is_moving(owner_of_pods(ReplicaSet, replicas=3, observedGeneration=0), of_deployment(), [])
    assert not is_moving(owner_of_pods(ReplicaSet, above=""), None, [owner_of_pods(ReplicaSet, name="x")])
    assert not is_moving(owner_of_pods(StatefulSet, above=""), None, [])
    assert is_moving(owner_of_pods(StatefulSet, above="", updatedReplicas=1), None, [])


def test_an_owner_that_ends_or_whose_deployment_ends_moves() -> None:
    """With foreground deletion both are there, with all their pods, until the last of these is gone."""
    quiet, above = owner_of_pods(ReplicaSet), of_deployment()
    assert not is_moving(quiet, above, [quiet])
    assert is_moving(ending(quiet), above, [quiet])
    assert is_moving(quiet, ending(above), [quiet])
    assert is_moving(ending(owner_of_pods(StatefulSet, above="")), None, [])


def ending(found: Any) -> Any:
    metadata = msgspec.structs.replace(found.metadata, deletion_timestamp=NOON)
    return msgspec.structs.replace(found, metadata=metadata)


# --- laws -------------------------------------------------------------------------------------------------------

SHARES = st.one_of(
    st.integers(0, 100).map(lambda percent: Share(percent=percent)),
    st.integers(0, 60).map(lambda count: Share(count=count)),
)


class Controller:
    """A ReplicaSet and a webhook, which counts pods by their labels as `webhook.shares` does.

    Attributes:
        answers: whether evictions are carried out; those after the last are.
        ahead: by how much the clock of the leader is.
    """

    def __init__(
        self, share: Share, seats: list[tuple[Side, bool]], *, webhook: bool, answers: Iterable[bool] = ()
    ) -> None:
        self.share, self.webhook, self.answers = share, webhook, iter(answers)
        self.ahead = timedelta()
        self.now = NOON
        self.evicted = 0
        self.pods = tuple(
            member(f"{i:03}", side, seated=known, labels={names.ON_DEMAND_SHARE_LABEL: side.value} if known else {})
            for i, (side, known) in enumerate(seats)
        )

    @property
    def wrong(self) -> int:
        return drift(self.share, [one.side for one in self.pods])

    def step(self) -> bool:
        """Whether something was done."""
        self.now += timedelta(minutes=2)
        match decide(view(*self.pods, share=self.share, now=self.now + self.ahead)):
            case Adopt(members=strangers):
                known = {one.pod.uid for one in strangers}
                self.pods = tuple(_labelled(one) if one.pod.uid in known else one for one in self.pods)
            case Evict(member=gone, bearer=bearer, attempt=attempt):
                assert bearer is not gone.pod
                text = {names.ON_DEMAND_REPAIRED: attempt_text(attempt)}
                self.pods = tuple(
                    ShareMember(msgspec.structs.replace(one.pod, annotations=text), one.side, one.seated)
                    if one.pod is bearer
                    else one
                    for one in self.pods
                )
                if next(self.answers, True):
                    self.evicted += 1
                    left = [one for one in self.pods if one is not gone]
                    self.pods = (*left, self._successor(gone, left))
            case _:
                return False
        return True

    def _successor(self, gone: ShareMember, left: list[ShareMember]) -> ShareMember:
        name = f"new-{self.evicted:03}"
        if not self.webhook:
            return member(name, gone.side, seated=False, labels={}, created=self.now)
        labels = [one.pod.labels.get(names.ON_DEMAND_SHARE_LABEL) for one in left]
        counted = labels.count("on-demand")
        here = OD if counted < self.share.of(counted + labels.count("spot") + 1) else SPOT
        return member(name, here, created=self.now)


def _labelled(one: ShareMember) -> ShareMember:
    assert one.side is not None
    labels = {names.ON_DEMAND_SHARE_LABEL: one.side.value}
    return ShareMember(msgspec.structs.replace(one.pod, labels=labels), one.side, one.seated)


SEATS = st.lists(st.tuples(st.sampled_from(Side), st.booleans()), max_size=60)


ANSWERS = st.lists(st.booleans(), max_size=20)


@given(SHARES, SEATS, ANSWERS)
def test_with_a_webhook_it_ends_within_the_tolerance_and_every_eviction_helps(
    share: Share, seats: list[tuple[Side, bool]], answers: list[bool]
) -> None:
    """However many of them are not carried out."""
    owner = Controller(share, seats, webhook=True, answers=answers)
    needed = max(0, abs(owner.wrong) - tolerance(len(seats)))
    while True:
        before, evicted = owner.wrong, owner.evicted
        if not owner.step():
            break
        if owner.evicted > evicted:
            assert abs(owner.wrong) == abs(before) - 1
            assert (owner.wrong > 0) == (before > 0)
    assert abs(owner.wrong) <= tolerance(len(seats))
    assert owner.evicted == needed


@given(SHARES, SEATS, ANSWERS)
def test_without_a_webhook_it_stops_after_as_many_evictions_as_may_fail(
    share: Share, seats: list[tuple[Side, bool]], answers: list[bool]
) -> None:
    """However many more are not carried out."""
    owner = Controller(share, seats, webhook=False, answers=answers)
    for _ in range(50):
        owner.step()
    assert owner.evicted <= MOST_ATTEMPTS


@given(SHARES, SEATS, ANSWERS, st.lists(st.integers(-72, 72), min_size=2, max_size=6))
def test_leaders_whose_clocks_differ_cause_no_more_than_one_eviction_each(
    share: Share, seats: list[tuple[Side, bool]], answers: list[bool], hours: list[int]
) -> None:
    owner = Controller(share, seats, webhook=False, answers=answers)
    for ahead in hours:
        owner.ahead = timedelta(hours=ahead)
        for _ in range(20):
            owner.step()
    assert owner.evicted <= MOST_ATTEMPTS + len(hours) - 1
