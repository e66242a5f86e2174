"""What the state and the extender promise of the same objects."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from extender.facts import Timeline, claim_facts, member_of, node_facts
from extender.plan import PlanTable
from provisioner.apis import names
from provisioner.apis.plan import HOLD_SECONDS, Plan, decode_plan, encode_plan
from provisioner.state.cluster import Cluster
from provisioner.state.keys import NodeKey
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import TYPES, claim, node, plan_text, pod

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
