"""What the state and the extender promise of the same objects."""

import os
import random
from collections import Counter
from datetime import timedelta
from typing import Any, Final

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.facts import Timeline, claim_facts, member_of, node_facts
from extender.plan import PlanTable
from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.plan import HOLD_SECONDS, Plan, decode_plan, encode_plan
from provisioner.state.cluster import Cluster
from provisioner.state.keys import NodeKey
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import TYPES, claim, node, plan_text, pod

WORLDS: Final = 2000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 100
TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)


@given(
    hold=st.sampled_from((0.0, 1.0, 60.0, HOLD_SECONDS, 121.0, 300.0, 86_400.0)),
    own=st.sampled_from((30.0, HOLD_SECONDS, 600.0)),
    early=st.booleans(),
)
def test_room_is_promised_equally_long_whatever_the_flags_of_either_program_say(
    hold: float, own: float, early: bool
) -> None:
    """The time stands in the plan; the flag of a provisioner that reads it counts for what it writes itself."""
    clock, waiting = FakeClock(), pod("waiting", owner="web")
    text = encode_plan(Plan.of(decode_plan(plan_text((waiting,))).pods, hold))
    planned = claim("a", provider_id="kwok://a", true=TRUE, annotations={names.PLAN_ANNOTATION: text})
    joined = node("a", labels={names.NODEPOOL_LABEL: "general", names.INITIALIZED_LABEL: "true"})
    cluster = Cluster(lambda _: TYPES, clock, hold_ttl=timedelta(seconds=own))
    cluster.settle()
    cluster.pod_changed(None, waiting)
    cluster.claim_changed(None, planned)
    cluster.node_changed(None, joined)
    table, timeline = PlanTable(), Timeline(NOON, clock.monotonic())
    table.set_pod(member_of(waiting))
    table.set_claim(claim_facts(planned, timeline), clock.monotonic())
    table.set_node(node_facts(joined, timeline), clock.monotonic())
    clock.advance(hold - 0.5 if early and hold else hold + 0.5)
    cluster.expire()
    table.expire(clock.monotonic())
    assert bool(cluster.assigned(NodeKey("a"))) is bool(table.holds) is (early and bool(hold))


@settings(max_examples=WORLDS)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.none() | st.integers(0, 300), st.sets(st.sampled_from("pqr"), min_size=1)),
        min_size=2,
        max_size=3,
    ),
    st.randoms(use_true_random=False),
)
def test_of_plans_that_name_the_same_pods_both_programs_go_by_the_later_one(
    plans: list[Any], order: random.Random
) -> None:
    """A leader that is lost while it moves pods to other NodeClaims leaves their former plans behind. Both programs start afterwards."""
    everybody = set[str]().union(*(named for _, _, named in plans))
    clock, pods, claims = FakeClock(), {uid: pod(uid, owner="web") for uid in everybody}, list[NodeClaim]()
    cluster, table, timeline = Cluster(lambda _: TYPES, clock), PlanTable(), Timeline(NOON, clock.monotonic())
    for waiting in pods.values():
        cluster.pod_changed(None, waiting)
        table.set_pod(member_of(waiting))
    for number, (created, planned, named) in enumerate(plans):
        joined = node(f"c{number}", labels={names.NODEPOOL_LABEL: "general", names.INITIALIZED_LABEL: "true"})
        cluster.node_changed(None, joined)
        table.set_node(node_facts(joined, timeline), clock.monotonic())
        at = msgspec.UNSET if planned is None else NOON + timedelta(seconds=planned - 300)
        entries = decode_plan(plan_text(tuple(pods[uid] for uid in sorted(named)))).pods
        claims.append(
            claim(
                f"c{number}",
                provider_id=f"kwok://c{number}",
                true=TRUE,
                annotations={names.PLAN_ANNOTATION: encode_plan(Plan.of(entries, HOLD_SECONDS, at))},
                creationTimestamp=(NOON + timedelta(seconds=created - 3)).isoformat(),
            )
        )
    for one in order.sample(claims, len(claims)):
        cluster.claim_changed(None, one)
    for one in order.sample(claims, len(claims)):
        table.set_claim(claim_facts(one, timeline), clock.monotonic())
    cluster.settle()
    stated = [
        (created - 3 if planned is None else planned - 300, f"c{number}")
        for number, (created, planned, _) in enumerate(plans)
    ]
    later = Counter(
        max(at for at, (_, _, named) in zip(stated, plans, strict=True) if uid in named)[1] for uid in everybody
    )
    assert later == Counter({one.metadata.name: len(cluster.assigned(NodeKey(one.metadata.name))) for one in claims})
    assert later == {name: hold.needed(-(2**31)).amount("pods") for name, hold in table.holds.items()}
