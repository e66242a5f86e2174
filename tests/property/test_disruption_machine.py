"""A cluster to which anything may happen in any order, and what disruption promises whatever happens: `DisruptionMachine`.

What decides is real, from the orchestrator to the queue of commands, on frozen snapshots of the real state; judged it is by other means
(`tests.support.upkeep`). `HYPOTHESIS_PROFILE=thorough` plays many more and longer lives. Each mutant is caught.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.karpenter import NodePool
from provisioner.apis.pods import DoNotDisrupt, Guard, Pod
from provisioner.disruption import candidates, replacement
from provisioner.disruption import controller as orchestrator
from provisioner.disruption.acceptance import AcceptanceRule
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.disruption.commands import validation
from provisioner.disruption.commands.inspector import CommandInspector
from provisioner.disruption.commands.progress import CommandVerdict, ReplacementState
from provisioner.disruption.commands.queue import CommandQueue
from provisioner.disruption.controller import DisruptionController
from provisioner.disruption.gangs import GangTurns
from provisioner.disruption.methods import drift as drifted
from provisioner.disruption.methods import emptiness, repair
from provisioner.disruption.methods import moves as consolidation
from provisioner.disruption.repair_breaker import NOT_TRIPPED
from provisioner.disruption.repair_policies import Illness
from provisioner.disruption.simulation import simulator as simulation
from provisioner.disruption.simulation.simulator import Simulation
from provisioner.disruption.simulation.turns import Turns
from provisioner.disruption.view import Acceptance, DisruptionSettings
from provisioner.lifecycle import launch_gate
from provisioner.lifecycle.launch_gate import LaunchGate
from provisioner.nodeclaims.growth_ledger import GrowthLedger
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.topology.ties import topology_keys
from provisioner.state import node_views as views
from provisioner.state.cluster import HOLD_TTL
from provisioner.state.pause import NOTHING
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.state.waiting import PendingPods
from tests.support.clock import NOON
from tests.support.fleets import ABC
from tests.support.problems import apart, app, near, of_app, spread
from tests.support.upkeep import KINDS, POLICY, STATIC, Upkeep, cpus_of, nothing, price_of

THOROUGH: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
EXAMPLES, STEPS = (3000, 40) if THOROUGH else (120, 25)
ROUNDS: Final = 14
MOST: Final = 2000
"""Lives that a mutant is given, always the same."""
SLACK: Final = 1e-9
CROWD: Final = 12
STRANGERS: Final = 3
MINUTE: Final = 60
PATIENT: Final = 6
"""Rounds in which nothing begins, after which a pod that is refused where it fits holds nothing any more."""
SPELL: Final = 3700.0
"""Seconds that are longer than each `consolidateAfter` and do-not-disrupt: what time alone allows nobody has held back."""
APPS: Final = ("web", "db", "job")
POOLS: Final = ("general", "other")
LIMITS: Final = ("0", "1", "10%", "2", "50%", "100%")
REASONS: Final = (names.REASON_EMPTY, names.REASON_DRIFTED, names.REASON_UNDERUTILIZED)
SEEN: Final = Counter[str]()
"""What happened in all lives of this process."""

numbers = st.integers(0, 20)
apps = st.sampled_from(APPS)
pools = st.sampled_from(POOLS)
every_pool = st.sampled_from((*POOLS, STATIC))
zones = st.sampled_from(ABC)
kinds = st.sampled_from([one.name for one in KINDS])


def terms(name: str, kind: str) -> dict[str, Any]:
    """What an app demands of its places."""
    made: dict[str, dict[str, Any]] = {
        "nothing": {},
        "zones": {"topology_spread_constraints": (spread(names.ZONE_LABEL, app(name)),)},
        "hosts": {"topology_spread_constraints": (spread(names.HOSTNAME_LABEL, app(name), skew=2),)},
        "apart": {"affinity": apart(names.HOSTNAME_LABEL, app(name))},
        "near": {"affinity": near(names.ZONE_LABEL, app(name))},
    }
    return made[kind]


@st.composite
def demands(draw: st.DrawFn) -> dict[str, tuple[str, str]]:
    """CPUs and terms of the pods of each app."""
    kinds_of_terms = ("nothing", "nothing", "nothing", "zones", "hosts", "apart", "near")
    sizes = draw(st.sampled_from((("250m", "500m", "900m", "1500m"), ("1200m", "1500m", "1700m"))))
    return {name: (draw(st.sampled_from(sizes)), draw(st.sampled_from(kinds_of_terms))) for name in APPS}


@st.composite
def budgets(draw: st.DrawFn) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"nodes": draw(st.sampled_from(("100%", "100%", *LIMITS)))}]
    if draw(st.booleans()):
        made.append({"nodes": draw(st.sampled_from(LIMITS)), "reasons": [draw(st.sampled_from(REASONS))]})
    return made


class DisruptionMachine(RuleBasedStateMachine):
    """Events of a cluster, the steps of its commands, and passes of disruption, in any order.

    Attributes:
        broken, gangs: as of `Upkeep`.
    """

    broken = False
    gangs: ClassVar[Mapping[str, tuple[int, str]]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.at = Upkeep({}, {})

    @initialize(
        of=demands(),
        most=st.sampled_from((0, 0, 0, 1, 3)),
        rule=st.sampled_from(Acceptance),
        policies=st.lists(
            st.sampled_from(("WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "Balanced", "WhenEmpty")),
            min_size=2,
            max_size=2,
        ),
        nodes=st.lists(st.tuples(st.sampled_from((0, 0, 0, 1)), kinds, zones, st.booleans()), min_size=2, max_size=7),
        pods=st.lists(apps, min_size=2, max_size=14),
        packed=st.booleans(),
        static=st.integers(1, 3),
    )
    def begin(
        self,
        of: dict[str, tuple[str, str]],
        most: int,
        rule: Acceptance,
        policies: list[str],
        nodes: list[tuple[int, str, str, bool]],
        pods: list[str],
        packed: bool,
        static: int = 0,
    ) -> None:
        ALL = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}  # noqa: N806
        disruption = {name: {**ALL, "consolidationPolicy": one} for name, one in zip(POOLS, policies, strict=True)}
        shapes = {name: of_app(name, cpu, "512Mi", **terms(name, kind)) for name, (cpu, kind) in of.items()}
        settings = DisruptionSettings(acceptance=rule)
        self.at = Upkeep(
            shapes, disruption, most=most, settings=settings, static=static, broken=self.broken, gangs=self.gangs
        )
        for number, kind, zone, grace in nodes:
            self.at.add_node(POOLS[number], kind, zone, old=True, grace=grace)
        for one in pods:
            self.at.create(one)
        self.at.schedule(packed=packed)
        self.at.provide(old=True)
        self.at.look()
        self.at.clock.advance(20)

    def _pod(self, number: int) -> Pod | None:
        bound = [one for _, one in sorted(self.at.pods.items()) if one.node_name]
        return bound[number % len(bound)] if bound else None

    def _node(self, number: int) -> str:
        there = list(self.at.nodes())
        return there[number % len(there)] if there else ""

    def _crowd(self, pool: str, name: str) -> None:
        """A fleet with too many nodes for its pods."""
        for zone in ABC if len(self.at.nodes()) < CROWD else ():
            self.at.add_node(pool, "large", zone, old=True)
            self.at.create(name)
        self.at.schedule(packed=False)

    # ------------------------------------------------------------------ pods and nodes come and go

    @rule(name=apps, count=st.integers(1, 4), packed=st.booleans())
    def pods_are_created(self, name: str, count: int, packed: bool) -> None:
        for _ in range(count):
            self.at.create(name)
        self.at.schedule(packed=packed)

    @rule(number=numbers, count=st.integers(1, 4), again=st.booleans())
    def pods_are_deleted(self, number: int, count: int, again: bool) -> None:
        for one in range(count):
            if (pod := self._pod(number + one)) is not None:
                self.at.remove(pod, again=again)

    @rule(number=numbers)
    def a_pod_terminates(self, number: int) -> None:
        if (pod := self._pod(number)) is not None:
            self.at.terminate(pod)

    @rule(refused=st.booleans())
    def a_pod_waits_in_vain(self, refused: bool) -> None:
        if len(self.at.strangers) < STRANGERS:
            self.at.wait_in_vain(refused=refused)

    @rule()
    def what_waits_is_bound(self) -> None:
        self.at.schedule()

    @rule()
    def what_waits_gets_nodes(self) -> None:
        self.at.provide()

    @rule(pool=pools, kind=kinds, zone=zones, old=st.booleans())
    def a_node_comes(self, pool: str, kind: str, zone: str, old: bool) -> None:
        if len(self.at.nodes()) < CROWD:
            self.at.add_node(pool, kind, zone, old=old)

    @rule(number=numbers, ready=st.booleans())
    def a_node_is_ready_or_not(self, number: int, ready: bool) -> None:
        if name := self._node(number):
            self.at.set_ready(name, ready=ready)

    @rule(number=numbers)
    def a_user_deletes_a_node(self, number: int) -> None:
        if name := self._node(number):
            self.at.delete_claim(name)

    # ------------------------------------------------------------------ what users say

    @rule(pool=every_pool)
    def a_template_changes(self, pool: str) -> None:
        self.at.edit_pool(pool, label=f"v{self.at.clock.monotonic()}")

    @rule(pool=every_pool, those=budgets())
    def budgets_change(self, pool: str, those: list[dict[str, Any]]) -> None:
        self.at.edit_pool(pool, disruption={"budgets": those})

    @rule(pool=pools, after=st.sampled_from(("0s", "30s", "300s", "Never")))
    def consolidate_after_changes(self, pool: str, after: str) -> None:
        self.at.edit_pool(pool, disruption={"consolidateAfter": after})

    @rule(pool=every_pool, paused=st.booleans())
    def a_pool_is_paused_or_not(self, pool: str, paused: bool) -> None:
        self.at.edit_pool(pool, paused=paused)

    @rule(name=apps, unavailable=st.sampled_from((None, 0, 1, 2)))
    def a_pod_disruption_budget_is_made_or_removed(self, name: str, unavailable: int | None) -> None:
        self.at.guard(name, unavailable)

    @rule(number=numbers, value=st.sampled_from(("true", "1h", "")))
    def a_pod_says_do_not_disrupt_or_not(self, number: int, value: str) -> None:
        if (pod := self._pod(number)) is not None:
            self.at.annotate(pod, value)

    @rule(number=numbers, protected=st.booleans())
    def a_node_says_do_not_disrupt_or_not(self, number: int, protected: bool) -> None:
        if name := self._node(number):
            self.at.protect(name, protected=protected)

    # ------------------------------------------------------------------ time and commands

    @rule(seconds=st.sampled_from((1, 3, 6, 16, 40, 310)))
    def time_passes(self, seconds: int) -> None:
        self.at.clock.advance(seconds)

    @rule(number=st.none() | numbers)
    def commands_go_on(self, number: int | None) -> None:
        self.at.go_on(number)

    @rule()
    def a_replacement_comes_up(self) -> None:
        self.at.ready_next()

    @rule()
    def a_replacement_fails(self) -> None:
        self.at.fail_next()

    @rule(number=numbers, count=st.integers(1, 4))
    def pods_are_evicted_from_what_goes(self, number: int, count: int) -> None:
        for _ in range(count):
            self.at.drain_next(first=number, node=number)

    @rule(pool=pools, name=apps, what=st.sampled_from(("a budget", "a pod", "a node", "a pause")))
    def candidates_are_kept_before_the_last_look(self, pool: str, name: str, what: str) -> None:
        at = self.at
        self._crowd(pool, name)
        self.consolidation_looks(still=True, meanwhile="nothing")
        for candidate in list(at.going):
            if what == "a node":
                at.protect(candidate, protected=True)
            for pod in at.on(candidate):
                if what == "a pod":
                    at.annotate(pod, "true")
                elif what == "a budget":
                    at.guard(pod.labels["app"], 0)
        if what == "a pause":
            at.edit_pool(pool, paused=True)
        at.go_on()

    @rule()
    def everything_begun_comes_to_its_end(self) -> None:
        self.at.come_to_rest()

    # ------------------------------------------------------------------ passes

    @rule()
    def the_orchestrator_looks(self) -> None:
        self.at.look()

    @rule(method=st.sampled_from(("empty", "static_drift", "drift")))
    def a_method_looks(self, method: str) -> None:
        self.at.look(method)

    @rule(still=st.booleans(), meanwhile=st.sampled_from(("nothing", "nothing", "a pod", "protection", "pause")))
    def consolidation_looks(self, still: bool, meanwhile: str) -> None:
        at = self.at
        at.look()
        if still:
            at.clock.advance(16)
            at.look()

        def protect() -> None:
            if (pod := self._pod(0)) is not None:
                at.annotate(pod, "true")

        def create() -> None:
            at.create(APPS[0])
            at.schedule()

        happens: dict[str, Callable[[], object]] = {
            "nothing": nothing,
            "a pod": create,
            "protection": protect,
            "pause": lambda: at.edit_pool(POOLS[0], paused=True),
        }
        at.meanwhile = happens[meanwhile]
        at.consolidate()
        at.meanwhile = nothing

    @rule(pool=pools, most=st.sampled_from(("1", "2")), name=apps)
    def drift_begins_while_consolidation_looks(self, pool: str, most: str, name: str) -> None:
        """Both want what one budget leaves, of a fleet that has too many nodes."""
        at = self.at
        self._crowd(pool, name)
        at.edit_pool(pool, paused=False, disruption={"budgets": [{"nodes": most}], "consolidateAfter": "0s"})
        at.look()
        at.clock.advance(16)
        at.look()
        at.edit_pool(pool, label=f"v{at.clock.monotonic()}")
        at.meanwhile = at.disruption.run_once
        at.consolidate()
        at.meanwhile = nothing

    @rule(pool=pools, zone=zones, most=st.sampled_from(("2", "3", "100%")))
    def nodes_drift_whose_pods_have_to_change_zones(self, pool: str, zone: str, most: str) -> None:
        """An app of which one pod may go at a time has lost most of its pods in a zone, so that others have to come there."""
        at = self.at
        name = next((one for one in APPS if names.ZONE_LABEL in topology_keys(at.members(one))), "")
        if not name:
            return
        for _ in range(2):
            self._crowd(pool, name)
        nodes = at.nodes()
        here = [
            one
            for one in at.members(name)
            if one.node_name and nodes[one.node_name].metadata.labels[names.ZONE_LABEL] == zone
        ]
        for pod in here[1:]:
            at.remove(pod)
        at.guard(name, 1)
        at.edit_pool(pool, paused=False, label=f"v{at.clock.monotonic()}", disruption={"budgets": [{"nodes": most}]})
        self.time_passes(6)
        at.look()

    @rule()
    def nothing_happens_any_more(self) -> None:
        """What is begun ends, what waits gets nodes, and from then on disruption alone acts: it comes to an end, cheaper, with every pod at a place."""
        at = self.at
        for pool in at.pools:
            at.edit_pool(pool, paused=False)
        for name in at.nodes():
            at.set_ready(name, ready=True)
            if name in at.ill:
                at.set_ill(name, ill=False)
        at.come_to_rest()
        for pod in [one for one in at.pods.values() if one.deleted is not None]:
            at.remove(pod)
        at.provide()
        for pod in at.waiting():
            at.remove(pod)
        self._plans_of_who_waits_expire()
        quiet, patient = 0, PATIENT if at.strangers else 1
        # where one may be disrupted at a time, each node takes a pass or two
        rounds = ROUNDS + (1 + patient) * len(at.nodes())
        for _ in range(rounds):
            before = at.price()
            begun = at.look()
            at.clock.advance(20)
            begun += at.look()
            begun += at.consolidate()
            unpaid = any(one.reason == names.REASON_DRIFTED for one in begun)
            pods = len(at.pods)
            compete = at.may_compete(begun)
            at.come_to_rest(alone=True)
            if compete:
                for pool in POOLS:
                    at.edit_pool(pool, cpus=0)
                # pods that are evicted at once compete: whose place another one took is planned anew, and gets a node
                self._plans_of_who_waits_expire()
                at.provide()
            for pod in at.waiting():
                if at.lacks(pod.labels["app"]):
                    continue  # forced drift asks no group, and nothing else begins where one is incomplete
                why = {one.name: at.scheduler().refusal(pod, one) for one in at.scheduler().nodes}
                at.wrong.append(
                    f"{pod.name} has no place after {begun}, planned on {at.planned().get(pod.name)}: {why}"
                )
            if len(at.pods) != pods:
                at.wrong.append(f"{len(at.pods)} pods are left of {pods}")
            risked = sum(one.saving_usd_per_hour for one in begun if one.then)  # until the others follow
            if not unpaid and at.price() > before + risked + SLACK:
                at.wrong.append(f"all nodes cost {at.price()} after {before}, by {begun}")
            quiet = 0 if begun or at.cluster.commands() else quiet + 1
            if at.wrong or quiet == patient:
                break
        else:
            at.wrong.append(f"after {rounds} passes there is always something more to do")
        self._nobody_holds_what_he_cannot_have()
        at.seen["rests"] += 1

    def _nobody_holds_what_he_cannot_have(self) -> None:
        """All is done that may be done; that nobody waits in vain any more changes nothing."""
        at = self.at
        if at.wrong or not at.strangers:
            return
        at.clock.advance(SPELL)
        begun = at.look()
        at.clock.advance(20)
        if [*begun, *at.look(), *at.consolidate()]:
            return  # with these, too: there was something more to do with nothing but time
        at.seen["strangers"] += len(at.strangers)
        at.nobody_waits_in_vain()
        begun = at.look()
        at.clock.advance(20)
        if begun := [*begun, *at.look(), *at.consolidate()]:
            at.wrong.append(f"a pod that cannot be bound has held back {begun}")

    def _plans_of_who_waits_expire(self) -> None:
        """Who was kept from its place is planned there no more."""
        self.at.clock.advance(HOLD_TTL.total_seconds() + 1.0)
        self.at.cluster.expire()

    @invariant()
    def every_promise_is_kept(self) -> None:
        assert not self.at.wrong, "\n".join(self.at.wrong)

    def teardown(self) -> None:
        """Every life ends in peace."""
        if not self.at.wrong:
            self.nothing_happens_any_more()
            self.every_promise_is_kept()
        SEEN.update(self.at.seen)


class LimitsMachine(DisruptionMachine):
    """The same where NodePools have limits, and drains go on at them with real provisioning; what strangers hold is asked of the other lives."""

    @rule(pool=pools, more=st.sampled_from((None, None, -2, 0, 2, 8)))
    def a_limit_is_made_or_removed(self, pool: str, more: int | None) -> None:
        """Of so many CPUs more than there are."""
        self.at.edit_pool(pool, cpus=0 if more is None else max(1, self.at.cpus(pool) + more))

    @rule(
        name=apps,
        number=numbers,
        more=st.sampled_from((0, 0, 1, 2, 4)),
        usd=st.sampled_from((None, 0.0, 0.1, 0.3)),
        strangers=st.integers(0, 2),
    )
    def a_node_is_drained_at_the_limit(
        self, name: str, number: int, more: int, usd: float | None, strangers: int
    ) -> None:
        """Under PodDisruptionBudgets that let one pod go at a time, while pods of another app wait longer; and the limits are lifted."""
        at = self.at
        if not (node := self._node(number)):
            return
        for one in POOLS:
            at.edit_pool(one, cpus=max(1, at.cpus(one) + more))
        for one in {pod.labels["app"] for pod in at.on(node)}:
            at.guard(one, 1)
        for _ in range(strangers):
            at.create(name)
        at.limit_money(0.0 if usd is None else max(0.01, at.money() + usd))
        at.delete_claim(node)
        at.drain_at_the_limit()
        at.limit_money(0.0)
        for one in POOLS:
            at.edit_pool(one, cpus=0)
        for one in APPS:
            at.guard(one, None)

    @rule(name=apps, kind=kinds, zone=zones, money=st.booleans())
    def somebody_takes_what_a_limit_leaves_while_consolidation_looks(
        self, name: str, kind: str, zone: str, money: bool
    ) -> None:
        """What replaces nodes of one NodePool would come to another one, whose limit leaves room for one node."""
        at = self.at
        one, other = POOLS
        self._crowd(one, name)
        at.edit_pool(one, paused=False, disruption={"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"})
        at.edit_pool(other, paused=False, cpus=0 if money else at.cpus(other) + cpus_of(kind))
        at.look()
        at.clock.advance(16)
        at.look()
        if money:  # as low as what replaces these nodes allows
            at.limit_money(0.5 * at.money())
        at.meanwhile = lambda: at.add_node(other, kind, zone)
        at.consolidate()
        at.meanwhile = nothing
        at.edit_pool(other, cpus=0)
        at.limit_money(0.0)

    def _nobody_holds_what_he_cannot_have(self) -> None:
        """See the class."""


class BrokenNodesMachine(DisruptionMachine):
    """The same where Nodes break and are repaired, and where those of the static NodePool go before their successors are launched."""

    broken = True

    @rule(number=numbers, ill=st.sampled_from((True, True, False)))
    def a_node_breaks_or_is_well(self, number: int, ill: bool) -> None:
        if name := self._node(number):
            self.at.set_ill(name, ill=ill)

    @rule(pool=every_pool, of=st.sampled_from((1, 2, 3)))
    def many_nodes_of_a_pool_break(self, pool: str, of: int) -> None:
        """Every second one, say."""
        for name in list(self.at.nodes())[::of]:
            if self.at.server.claim(name).pool == pool:
                self.at.set_ill(name, ill=True)

    @rule()
    def broken_nodes_are_due(self) -> None:
        """They were seen as they are, and are tolerated no longer."""
        self.at.look()
        self.at.clock.advance(POLICY.toleration.total_seconds() + 1)
        self.at.look()

    @rule(breaks=st.booleans())
    def a_node_of_the_static_pool_goes_first(self, breaks: bool) -> None:
        """It breaks, or all of them drift; what comes of it is left to whatever happens next."""
        at = self.at
        at.edit_pool(STATIC, paused=False, disruption={"budgets": [{"nodes": "100%"}]})
        mine = [name for name in at.nodes() if at.server.claim(name).pool == STATIC]
        if breaks and mine:
            at.set_ill(mine[0], ill=True)
            self.broken_nodes_are_due()
        else:
            at.edit_pool(STATIC, label=f"v{at.clock.monotonic()}")
            at.look()

    @rule(number=numbers, most=st.sampled_from(("1", "20%", "100%")))
    def a_node_that_breaks_alone_is_not_forgotten(self, number: int, most: str) -> None:
        """Where all else is at rest, a budget allows one and its pods have a place, it goes; of a static NodePool before its successor comes."""
        at = self.at
        self.nothing_happens_any_more()
        static = [name for name in at.nodes() if at.server.claim(name).pool == STATIC]
        if at.wrong or not (name := static[0] if static and number % 3 == 0 else self._node(number)):
            return
        pool = at.server.claim(name).pool
        for one in at.pools:
            at.edit_pool(one, paused=False, disruption={"budgets": [{"nodes": most}]})
        at.look()
        at.come_to_rest()
        if name not in at.nodes():
            return
        at.set_ill(name, ill=True)
        self.broken_nodes_are_due()
        told = at.refused
        at.come_to_rest()
        at.seen["broken alone"] += 1
        at.seen[f"repaired of {pool}"] += name not in at.nodes()
        if name in at.nodes() and name not in told:
            at.wrong.append(f"{name} of {pool} is broken and forgotten")


class GangsMachine(DisruptionMachine):
    """The same where the pods of two apps are PodGroups: of one all go at once, and of the other those that it can spare."""

    gangs: ClassVar[Mapping[str, tuple[int, str]]] = {"db": (2, "all"), "job": (3, "single")}

    @rule(name=st.sampled_from(("db", "job")), minimum=st.integers(1, 5))
    def a_pod_group_needs_another_number(self, name: str, minimum: int) -> None:
        self.at.need(name, minimum, self.gangs[name][1])

    @rule(name=st.sampled_from(("db", "job")), count=st.integers(1, 5))
    def a_pod_group_needs_all_that_it_has(self, name: str, count: int) -> None:
        self.pods_are_created(name=name, count=count, packed=False)
        self.what_waits_gets_nodes()
        self.at.need(name, max(1, len(self.at.members(name))), self.gangs[name][1])

    @rule(pool=pools, name=st.sampled_from(("db", "job")))
    def nodes_of_a_gang_drift(self, pool: str, name: str) -> None:
        """All of its pods are needed, and some of them are alone on nodes of the NodePool."""
        for zone in ABC if len(self.at.nodes()) < CROWD else ():
            self.at.add_node(pool, "large", zone, old=True)
        self.a_pod_group_needs_all_that_it_has(name, 3)
        self.at.edit_pool(pool, paused=False, label=f"v{self.at.clock.monotonic()}")
        self.at.edit_pool(pool, disruption={"budgets": [{"nodes": "100%"}]})
        self.time_passes(6)
        self.the_orchestrator_looks()


def play(
    examples: int = EXAMPLES,
    steps: int = STEPS,
    *,
    shrink: bool = True,
    machine: type[DisruptionMachine] = DisruptionMachine,
) -> None:
    """Many lives; fails with the shortest one in which a promise is broken."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=not (THOROUGH and shrink),
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )


@pytest.mark.parametrize("refused", [False, True], ids=["of another scheduler", "refused for what nobody models"])
def test_a_pod_that_cannot_be_bound_holds_no_node(refused: bool) -> None:
    """One large node with a pod that a smaller one would take: drifted, then too dear."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=False, policies=["WhenEmptyOrUnderutilized"] * 2, static=1,
        nodes=[(0, "large", "a", False), (1, "large", "b", False)], pods=["web", "web"],
        of={"web": ("900m", "nothing"), "db": ("900m", "nothing"), "job": ("900m", "nothing")},
    )  # fmt: skip
    life.a_pod_waits_in_vain(refused)
    life.a_template_changes("general")
    life.nothing_happens_any_more()
    life.every_promise_is_kept()
    assert life.at.seen["strangers"] == 1
    life.teardown()


def test_what_consolidate_after_held_nobody_who_waits_in_vain_has_held() -> None:
    """A life that was found: `consolidateAfter` was over right after the stranger was gone."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.KARPENTER, most=3, packed=False, policies=["WhenEmptyOrUnderutilized", "WhenEmpty"], static=1,
        nodes=[(0, "small", "c", False), (0, "bargain", "b", False), (1, "small", "a", False), (1, "bargain", "b", False)],
        pods=["db", "web"], of={"web": ("1200m", "near"), "db": ("1500m", "nothing"), "job": ("1700m", "near")},
    )  # fmt: skip
    life.a_pod_waits_in_vain(refused=False)
    life.a_user_deletes_a_node(1)
    life.consolidate_after_changes("general", "300s")
    life.a_replacement_comes_up()
    life.nothing_happens_any_more()
    life.every_promise_is_kept()
    life.teardown()


def test_two_commands_of_one_pass_take_no_room_through_which_pods_of_the_other_go() -> None:
    """A life that was found: pods that move to another zone together, and may follow the first of them into room of the old one instead."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=True, policies=["WhenEmptyOrUnderutilized"] * 2, static=1,
        nodes=[(0, "tiny", "a", False), (0, "large", "b", False), (0, "large", "c", False), (0, "small", "c", False),
               (0, "large", "c", False), (0, "small", "a", False), (0, "bargain", "a", False)],
        pods=["web"] * 3 + ["db"] * 5 + ["job"] * 5, of={"web": ("1200m", "near"), "db": ("1200m", "nothing"), "job": ("1700m", "zones")},
    )  # fmt: skip
    life.a_user_deletes_a_node(0)
    life.pods_are_evicted_from_what_goes(number=0, count=1)
    life.a_node_says_do_not_disrupt_or_not(4, protected=True)
    life.pods_are_deleted(number=2, count=3, again=True)
    life.consolidation_looks(still=False, meanwhile="nothing")
    life.teardown()
    life.every_promise_is_kept()


def guarded_drain() -> tuple[DisruptionMachine, str]:
    """A node of 4 CPUs with three pods that fill it and of which one may go at a time, and no NodePool may have more CPUs than that."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=True, policies=["WhenEmpty"] * 2, nodes=[(0, "medium", "a", False)], pods=["web"] * 3,
        of={"web": ("1200m", "nothing"), "db": ("1500m", "nothing"), "job": ("250m", "nothing")},
    )  # fmt: skip
    at = life.at
    (node,) = at.nodes()
    for pool, cpus in zip(POOLS, (4, 1), strict=True):
        at.edit_pool(pool, cpus=cpus)
    at.guard("web", 1)
    return life, node


def drained(life: DisruptionMachine, going: Collection[str]) -> timedelta:
    """Deletes the claims of these nodes and drains them, whatever that takes: they are gone, and no pod waits. How long the last pod to start took."""
    at = life.at
    for node in going:
        at.delete_claim(node)
    began = at.clock.now()
    at.drain_at_the_limit()
    life.every_promise_is_kept()
    assert not set(going) & set(at.nodes())
    assert not at.waiting()
    return max((one.start_time or NOON) - began for one in at.pods.values())


def test_a_drain_ends_at_a_limit_that_exactly_one_node_fits() -> None:
    life, node = guarded_drain()
    drained(life, [node])


def test_a_drain_ends_where_money_is_left_for_those_alone_that_wait() -> None:
    """Both pods would share a node that is too dear; the one that waits gets a smaller one, so the other may go."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=True, policies=["WhenEmpty"] * 2, nodes=[(0, "small", "a", False)], pods=["web"] * 2,
        of={"web": ("900m", "nothing"), "db": ("1500m", "nothing"), "job": ("250m", "nothing")}, static=0,
    )  # fmt: skip
    at = life.at
    (node,) = at.nodes()
    at.guard("web", 1)
    at.limit_money(price_of("tiny"))
    at.delete_claim(node)
    at.drain_at_the_limit()
    life.every_promise_is_kept()
    assert at.money() == price_of("tiny")
    assert node not in at.nodes()
    assert len(at.waiting()) == 1


def test_a_drain_ends_whose_pods_may_change_the_zone_together_and_not_one_by_one() -> None:
    """There is room for both in another zone, but the one that waits has to be near the other, which still runs."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=True, policies=["WhenEmpty"] * 2, nodes=[(0, "small", "c", False)], pods=["web"] * 2,
        of={"web": ("900m", "near"), "db": ("1500m", "nothing"), "job": ("250m", "nothing")}, static=0,
    )  # fmt: skip
    at = life.at
    going = [one for one in at.nodes() if at.on(one)]
    at.add_node(POOLS[1], "large", "a")
    at.guard("web", 1)
    assert drained(life, going) < timedelta(seconds=MINUTE), "nobody waits for pods that may not leave"


@pytest.mark.parametrize("waits", [False, True], ids=["alone", "while another pod waits"])
@pytest.mark.parametrize("job", ["nothing", "zones"])
def test_pods_that_leave_one_after_another_get_one_node_where_each_may_be_bound_when_its_turn_comes(
    job: str, waits: bool
) -> None:
    """Together they could move to the zone where there is room, but each has to be near the others, which still run; each got a node of its own."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=True, policies=["WhenEmpty"] * 2, nodes=[(0, "large", "c", False)],
        pods=["web"] * 4 + ["job"], of={"web": ("900m", "near"), "db": ("1500m", "near"), "job": ("250m", job)}, static=0,
    )  # fmt: skip
    at = life.at
    going = [one for one in at.nodes() if at.on(one)]
    at.add_node(POOLS[1], "large", "a")
    for one in ("web", "job"):
        at.guard(one, 1)
    if waits:
        at.create("web")
    assert drained(life, going) < timedelta(seconds=MINUTE)
    assert at.seen["replacements"] <= 1 + waits


@pytest.mark.parametrize(
    "room", [False, True], ids=["where new nodes cost less in another zone", "where there is room in another zone"]
)
def test_a_node_drifts_whose_pods_may_change_the_zone_together_and_not_one_by_one(room: bool) -> None:
    """Each has to be near the others, which still run: all of them get a node in their own zone."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=True, policies=["WhenEmpty"] * 2, nodes=[(0, "large", "c", False)], pods=["web"] * 4,
        of={"web": ("900m", "near"), "db": ("1500m", "nothing"), "job": ("250m", "nothing")}, static=0,
    )  # fmt: skip
    at = life.at
    (going,) = [one for one in at.nodes() if at.on(one)]
    if room:
        at.add_node(POOLS[1], "large", "a")
    at.guard("web", 1)
    life.a_template_changes(POOLS[0])
    at.clock.advance(20)
    assert [one.candidates for one in at.look()] == [(going,)]
    at.come_to_rest()
    life.every_promise_is_kept()
    assert going not in at.nodes()
    assert at.seen["replacements"] == 1
    assert not at.waiting()


@pytest.mark.parametrize("missing", ["room below the limit", "instance types"])
def test_a_drain_ends_when_capacity_returns_after_ten_minutes(missing: str) -> None:
    life, node = guarded_drain()
    at = life.at
    if missing == "instance types":
        at.cloud.kinds = ()
    else:
        at.edit_pool(POOLS[0], cpus=1)
    at.delete_claim(node)
    at.drain_at_the_limit()
    life.every_promise_is_kept()
    assert node in at.nodes()
    assert len(at.waiting()) == 1, "the PodDisruptionBudget lets one go"
    at.clock.advance(600)
    at.cloud.kinds = KINDS
    at.edit_pool(POOLS[0], cpus=4)
    at.drain_at_the_limit()
    life.every_promise_is_kept()
    assert node not in at.nodes()
    assert not at.waiting()


def test_consolidation_sees_what_drift_planned_while_it_looked() -> None:
    """A life that was found: both planned pods of one spread over zones, legal each, and together not."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=False, policies=["Balanced", "WhenEmptyOrUnderutilized"],
        nodes=[(0, "tiny", "c", True), (0, "large", "b", True), (1, "large", "c", True), (0, "tiny", "c", False)],
        pods=["db", "db"], of={"web": ("1200m", "zones"), "db": ("1500m", "zones"), "job": ("1700m", "apart")},
    )  # fmt: skip
    life.a_replacement_comes_up()
    life.a_user_deletes_a_node(19)
    life.drift_begins_while_consolidation_looks(most="1", name="db", pool="other")
    life.every_promise_is_kept()
    life.teardown()


def test_a_node_that_comes_while_consolidation_looks_is_a_place() -> None:
    """A life that was found: the second method of a pass saw it, and the law knew the nodes of before."""
    life = LimitsMachine()
    life.begin(
        rule=Acceptance.KARPENTER, most=3, packed=True, policies=["WhenEmptyOrUnderutilized"] * 2, static=2,
        nodes=[(1, "medium", "b", True), (0, "tiny", "a", True)], pods=["job", "db"],
        of={"web": ("1500m", "nothing"), "db": ("1700m", "nothing"), "job": ("1700m", "apart")},
    )  # fmt: skip
    taken = life.somebody_takes_what_a_limit_leaves_while_consolidation_looks
    taken(kind="small", money=False, name="db", zone="c")
    life.what_waits_gets_nodes()
    life.a_pool_is_paused_or_not(paused=True, pool="other")
    life.everything_begun_comes_to_its_end()
    life.consolidate_after_changes(after="Never", pool="other")
    life.nothing_happens_any_more()
    life.a_node_comes(kind="bargain", old=False, pool="other", zone="b")
    taken(kind="medium", money=True, name="job", zone="b")
    life.every_promise_is_kept()
    life.teardown()


def test_a_node_that_comes_while_consolidation_looks_is_a_host_over_which_pods_spread() -> None:
    """A third pod on one node was legal as long as each node had one, and its node was drained for a place that kube-scheduler refused."""
    shapes = {"web": of_app("web", "900m", "512Mi", **terms("web", "hosts"))}
    at = Upkeep(shapes, {"general": {"consolidateAfter": "0s"}, "other": {"consolidateAfter": "Never"}})
    for pool, kind, count in (("other", "tiny", 1), ("other", "large", 2), ("general", "tiny", 1)):
        at.add_node(pool, kind, "a", old=True)
        for _ in range(count):
            at.create("web")
        at.schedule(packed=False)
    at.look()
    at.clock.advance(20)
    at.look()
    come: list[str] = []
    at.meanwhile = lambda: come.append(at.add_node("other", "tiny", "a"))
    begun = at.consolidate()
    assert not at.wrong
    assert [list(one.placements) for one in begun] == [come]


def test_a_pod_without_a_budget_leaves_before_another_takes_its_zone() -> None:
    """A life that was found: of two pods of one spread, one is on a node that a user deletes, and the other's place counts on its departure."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=False, policies=["WhenEmptyOrUnderutilized"] * 2, pods=["job", "job"],
        nodes=[(0, "tiny", "a", False)] * 3,
        of={"web": ("250m", "nothing"), "db": ("250m", "nothing"), "job": ("250m", "zones")},
    )  # fmt: skip
    life.a_user_deletes_a_node(0)
    life.candidates_are_kept_before_the_last_look(name="web", pool="general", what="a budget")
    life.every_promise_is_kept()
    assert life.at.planned()["job-4"], "nobody counts on anything"
    life.teardown()


def test_a_node_that_takes_two_may_take_one_once_others_have_begun() -> None:
    """A life that was found: the second pass begins what waited in the first, as it needs two nodes only while the others' pods count where they are."""
    life = DisruptionMachine()
    kinds = [
        ("large", "c"),
        ("tiny", "b"),
        ("medium", "b"),
        ("bargain", "a"),
        ("bargain", "c"),
        ("medium", "b"),
        ("medium", "b"),
    ]
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=True, policies=["Balanced", "WhenEmptyOrUnderutilized"],
        nodes=[(int(number == 4), *kind, number < 5) for number, kind in enumerate(kinds)],
        pods=["web", "web", "web", "job", "job", "db", "db", "job", "db", "db", "job", "web", "web", "db"],
        of={"web": ("1500m", "near"), "db": ("1200m", "zones"), "job": ("1700m", "nothing")},
    )  # fmt: skip
    for pool in POOLS:
        life.a_pool_is_paused_or_not(pool, paused=True)
    life.everything_begun_comes_to_its_end()
    life.candidates_are_kept_before_the_last_look(name="web", pool="other", what="a budget")
    life.a_pool_is_paused_or_not("general", paused=True)
    life.a_template_changes(pool="general")
    life.a_node_comes(kind="small", old=False, pool="other", zone="b")
    life.pods_are_created(count=2, name="job", packed=True)
    life.nothing_happens_any_more()
    life.every_promise_is_kept()
    life.teardown()


def test_a_node_that_had_no_place_may_have_one_once_others_have_begun() -> None:
    """A life that was found: as long as a node of another zone has room, a pod that is tied to others counts on it; another node's pod takes it."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=False, policies=["WhenEmptyOrUnderutilized"] * 2, static=1,
        nodes=[(0, "tiny", "a", False), (0, "medium", "a", True)], pods=["web", "web", "job", "job"],
        of={"web": ("1200m", "nothing"), "db": ("1200m", "nothing"), "job": ("1200m", "near")},
    )  # fmt: skip
    life.everything_begun_comes_to_its_end()
    life.a_template_changes(pool="general")
    life.a_pod_disruption_budget_is_made_or_removed(name="job", unavailable=0)
    for _ in range(9):
        life.everything_begun_comes_to_its_end()
    life.a_node_comes(kind="small", old=False, pool="general", zone="b")
    life.teardown()
    life.every_promise_is_kept()


def test_a_move_that_counts_on_another_does_not_begin_without_it() -> None:
    """A life that was found: drift took the node of the other, so it did not stand any more, and the one after it went to the zone that was to be left."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=False, policies=["WhenEmptyOrUnderutilized"] * 2, static=1,
        nodes=[(0, "tiny", "a", False)] * 5 + [(1, "small", "c", False), (1, "small", "a", False)],
        pods=["web"] * 3 + ["db"] * 4,
        of={"web": ("1500m", "zones"), "db": ("250m", "nothing"), "job": ("250m", "nothing")},
    )  # fmt: skip
    life.drift_begins_while_consolidation_looks(most="2", name="db", pool="general")
    life.every_promise_is_kept()
    life.teardown()


def test_drift_counts_the_nodes_that_static_pools_get_in_the_same_pass() -> None:
    """A life that was found: a static NodePool's new node is one more host for a spread over hosts, and the old one is gone by then."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=False, policies=["WhenEmptyOrUnderutilized"] * 2, pods=["web"] * 3,
        nodes=[(0, "tiny", "a", False), (0, "small", "a", False)], static=2,
        of={"web": ("250m", "hosts"), "db": ("250m", "nothing"), "job": ("250m", "nothing")},
    )  # fmt: skip
    life.nothing_happens_any_more()
    life.a_template_changes(pool=STATIC)
    life.a_user_deletes_a_node(0)
    life.budgets_change(pool=STATIC, those=[{"nodes": "1"}])
    life.drift_begins_while_consolidation_looks(most="1", name="web", pool="general")
    life.pods_are_created(count=2, name="web", packed=False)
    life.teardown()
    life.every_promise_is_kept()


def test_a_node_may_come_to_another_zone_than_another_command_counts_on() -> None:
    """A life that was found: the last node of a zone goes, and what replaces another one may be launched there; the new plan helps who waits then."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=True, policies=["WhenEmptyOrUnderutilized", "WhenEmpty"], static=3,
        nodes=[(0, "bargain", "a", True), (0, "bargain", "a", True), (1, "large", "c", True)],
        pods=["web", "web", "db", "job", "web", "job", "job", "web"],
        of={"web": ("1700m", "nothing"), "db": ("1200m", "apart"), "job": ("1200m", "zones")},
    )  # fmt: skip
    life.pods_are_created(count=3, name="web", packed=True)
    life.nothing_happens_any_more()
    life.pods_are_created(count=1, name="web", packed=False)
    life.a_template_changes(pool="general")
    life.a_pool_is_paused_or_not("general", paused=True)
    life.a_node_comes(kind="bargain", old=True, pool="general", zone="b")
    life.a_template_changes(pool="other")
    life.pods_are_created(count=4, name="job", packed=True)
    life.a_pod_disruption_budget_is_made_or_removed(name="job", unavailable=0)
    life.pods_are_created(count=3, name="web", packed=True)
    life.a_method_looks(method="drift")
    assert len(life.at.going) > 1, "one command alone"
    life.every_promise_is_kept()
    life.teardown()


def test_pods_without_a_budget_may_take_each_others_places_while_their_nodes_drain() -> None:
    """A life that was found: both nodes drain at the same time, so a pod came to another zone than planned, and took a place that was another one's."""
    life = DisruptionMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=True, policies=["WhenEmpty"] * 2, static=1,
        nodes=[(0, "medium", "a", False), (0, "large", "a", False), (1, "large", "c", True)],
        pods=["job", "job", "db", "web", "job", "db", "db", "web", "job", "web", "db", "db", "job", "job"],
        of={"web": ("1500m", "hosts"), "db": ("1700m", "zones"), "job": ("1700m", "zones")},
    )  # fmt: skip
    life.candidates_are_kept_before_the_last_look(name="web", pool="other", what="a budget")
    life.pods_are_deleted(again=True, count=4, number=1)
    life.a_template_changes(pool="general")
    life.candidates_are_kept_before_the_last_look(name="web", pool="general", what="a pod")
    life.pods_are_deleted(again=False, count=1, number=0)
    life.candidates_are_kept_before_the_last_look(name="web", pool="other", what="a pause")
    life.a_template_changes(pool=STATIC)
    life.pods_are_deleted(again=True, count=4, number=14)
    life.a_template_changes(pool="other")
    life.candidates_are_kept_before_the_last_look(name="web", pool="general", what="a pause")
    life.a_template_changes(pool="general")
    life.pods_are_deleted(again=True, count=1, number=2)
    for count, number in ((1, 0), (1, 10), (2, 17)):
        life.pods_are_deleted(again=False, count=count, number=number)
    life.candidates_are_kept_before_the_last_look(name="web", pool="general", what="a node")
    life.teardown()
    life.every_promise_is_kept()


def test_a_pod_that_moves_within_its_zone_counts_there_once() -> None:
    """A life that was found: what had just begun to go counted on both of its nodes, so a pod went back to the zone that has most of them already."""
    life = GangsMachine()
    life.begin(
        rule=Acceptance.SAVING, most=0, packed=False, policies=["WhenEmptyOrUnderutilized"] * 2, static=2,
        nodes=[(0, "tiny", "a", False), (0, "tiny", "b", False)], pods=["web", "web"],
        of={"web": ("250m", "zones"), "db": ("250m", "nothing"), "job": ("250m", "nothing")},
    )  # fmt: skip
    life.nodes_drift_whose_pods_have_to_change_zones(most="2", pool="other", zone="a")
    life.nothing_happens_any_more()
    life.every_promise_is_kept()
    life.teardown()


@pytest.mark.parametrize("fewer", [False, True], ids=["as it was", "where a zone has lost a pod"])
def test_a_pod_whose_move_has_begun_meanwhile_counts_once(fewer: bool) -> None:
    """Drift moves a pod within its zone while consolidation looks; without another pod there, the zone that consolidation moves a pod back to has too many."""
    web = of_app("web", "250m", "512Mi", **terms("web", "zones"))
    never = {"consolidateAfter": "Never"}
    at = Upkeep({"web": web}, {"general": {"consolidateAfter": "0s"}, "other": never, "third": never})
    nodes = []
    for pool, kind, zone, count in (
        ("third", "large", "a", 2),
        ("third", "large", "b", 2),
        ("third", "large", "c", 1),
        ("other", "tiny", "c", 1),
        ("general", "tiny", "b", 1),
    ):
        nodes.append(at.add_node(pool, kind, zone, old=True))
        for _ in range(count):
            at.create("web")
            at._bind(at.waiting()[0], nodes[-1])
    at.look()
    at.clock.advance(20)
    at.look()
    at.edit_pool("other", label="v2")

    def happens() -> None:
        if fewer:
            (pod,) = at.on(nodes[2])
            at.remove(pod)
        at.disruption.run_once()

    at.meanwhile = happens
    begun = at.consolidate()
    assert not at.wrong
    assert [one.method for one in begun] == (["drift"] if fewer else ["drift", "single"])
    assert [*begun[0].placements] == [nodes[2]]


@pytest.mark.parametrize("most", [0, 2], ids=["the budget", "the limit over all NodePools"])
def test_nodes_that_wait_for_their_gang_leave_to_others_what_is_left_of(most: int) -> None:
    """A life that was found: a node of no gang began in the second pass only, since two that waited in the first had used up the limit."""
    shapes = {name: of_app(name, "900m", "512Mi") for name in ("job", "web")}
    budgets = [{"nodes": "100%" if most else "2"}]
    at = Upkeep(
        shapes, {"general": {"budgets": budgets, "consolidateAfter": "Never"}}, most=most, gangs={"job": (3, "single")}
    )
    for name in ("job", "job", "job", "web"):
        at.add_node("general", "tiny", "a", old=True)
        at.create(name)
    at.schedule(packed=False)
    assert not at.waiting()
    (web,) = [node for node in at.nodes() if at.on(node)[0].labels["app"] == "web"]
    at.look()
    at.clock.advance(20)
    at.edit_pool("general", label="v2")
    at.clock.advance(20)
    begun = at.look()
    assert not at.wrong
    assert len(begun) == 2
    assert (web,) in [one.candidates for one in begun]
    assert at.seen["took turns"]
    for _ in range(ROUNDS):
        at.come_to_rest(alone=True)
        at.look()
    assert not at.wrong
    assert {node.metadata.labels.get("version") for node in at.nodes().values()} == {"v2"}


@pytest.mark.parametrize("meanwhile", ["nothing", "a replacement fails", "the owner forbids it"])
def test_all_pods_of_a_gang_move_at_once_for_money_or_none(meanwhile: str) -> None:
    """Three alone on nodes of eight CPUs; whatever comes between, no pod goes without the others, and in the end they cost less."""
    shapes = {"job": of_app("job", "900m", "512Mi")}
    at = Upkeep(shapes, {"general": {"budgets": [{"nodes": "100%"}]}})
    at.need("job", 3, "all", allows=True)
    for zone in ("a", "b", "c"):
        at.add_node("general", "large", zone, old=True)
    for _ in range(3):
        at.create("job")
    at.schedule(packed=False)
    old = set(at.nodes())
    assert {one.node_name for one in at.members("job")} == old
    at.look()
    at.clock.advance(16)
    at.look()
    assert at.consolidate()
    assert at.seen["moved at once for money"] == 1
    if meanwhile == "a replacement fails":
        at.fail_next()
    elif meanwhile == "the owner forbids it":
        at.need("job", 3, "all", allows=False)
    for _ in range(ROUNDS):
        at.come_to_rest(alone=True)
        at.look()
        at.clock.advance(16)
        at.consolidate()
    assert not at.wrong
    assert len(at.members("job")) == 3
    assert all(one.node_name for one in at.members("job"))
    if meanwhile != "the owner forbids it":
        assert old.isdisjoint(at.nodes())


@pytest.mark.parametrize("key", [names.HOSTNAME_LABEL, names.ZONE_LABEL])
@pytest.mark.parametrize("drifts", [False, True], ids=["deleted", "drifted"])
def test_a_drain_with_an_end_leaves_no_half_of_a_gang_of_one_domain(key: str, drifts: bool) -> None:
    """A PodDisruptionBudget lets one pod go at a time, and kube-scheduler places its successor where the others still run: all wait for the end of the drain."""
    shapes = {"job": of_app("job", "900m", "512Mi")}
    at = Upkeep(shapes, {"general": {"budgets": [{"nodes": "100%"}], "consolidateAfter": "Never"}})
    at.gangs = {}
    at.need("job", 3, key=key)
    old = at.add_node("general", "medium", "a", old=True, grace=True)
    for _ in range(3):
        at.create("job")
    at.schedule()
    assert [one.node_name for one in at.members("job")] == [old] * 3
    at.guard("job", 1)
    at.look()
    at.clock.advance(20)
    if drifts:
        at.edit_pool("general", label="v2")
        at.clock.advance(20)
        assert [one.candidates for one in at.look()] == [(old,)]
    else:
        at.delete_claim(old)
    bound: set[str] = set()
    for turn in range(60):
        at.provisioner.run()
        did = at.go_on() or at.ready_next() or at.drain_next(node=turn) or at.schedule()
        at._refuse()
        at.cluster.expire()
        at.clock.advance(1.0 if did else 120.0)
        bound = {one.node_name for one in at.members("job")}
        if old not in at.nodes() and bound and "" not in bound:
            break
    assert not at.wrong
    assert old not in at.nodes()
    assert len(at.members("job")) == 3
    assert len(bound) == 1
    assert bound != {""}, "a gang waits for ever"


def tied_nodes_drift() -> Upkeep:
    """Four pods in one zone, four larger ones in another and one in the third, of one spread and under one budget; all nodes have drifted.

    A pod of the first zone goes to the third, on a node that has room for it alone. Until it has gone, no pod of the second zone may go back there.
    """
    over_zones: dict[str, Any] = {"topology_spread_constraints": (spread(names.ZONE_LABEL, app("web"), skew=2),)}
    shapes = {one: of_app("web", cpu, "512Mi", **over_zones) for one, cpu in (("web", "900m"), ("large", "1900m"))}
    at = Upkeep(shapes, {"general": {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}})
    for kind, zone, of, count in (("large", "a", "web", 4), ("large", "b", "large", 4), ("tiny", "c", "web", 1)):
        at.add_node("general", kind, zone, old=True)
        for _ in range(count):
            at.create(of)
        at.schedule(packed=False)
    at.guard("web", 1)
    at.look()
    at.clock.advance(20)
    at.edit_pool("general", label="v2")
    at.clock.advance(5)
    for _ in range(ROUNDS):
        begun = at.look()
        while at.go_on() or at.ready_next():
            pass
        at.drain_next(node=2)
        at.schedule()
        at.come_to_rest(alone=True)
        if at.wrong or not begun:
            break
    return at


def test_nodes_whose_pods_are_tied_drift_one_after_another_where_some_change_zones() -> None:
    at = tied_nodes_drift()
    assert not at.wrong
    assert len(at.pods) == 9
    assert at.waiting() == []
    assert {node.metadata.labels.get("version") for node in at.nodes().values()} == {"v2"}
    assert ("NodeClaim", "n5", "Normal", "DisruptionBlocked") in at.server.recorder.events


def test_they_would_wait_for_each_other_if_none_waited_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    _turns(monkeypatch)
    assert any("it never ends" in one for one in tied_nodes_drift().wrong)


@settings(max_examples=25, deadline=None)
@given(
    skew=st.integers(1, 2),
    nodes=st.lists(
        st.tuples(zones, st.lists(st.sampled_from(("web", "large")), min_size=1, max_size=4)), min_size=2, max_size=4
    ),
    order=st.lists(numbers, min_size=1, max_size=20),
)
def test_nodes_that_go_unasked_drain_though_their_pods_are_tied(
    skew: int, nodes: list[tuple[str, list[str]]], order: list[int]
) -> None:
    """Nodes that expire, or that a user deletes, wait for no other: where each zone has capacity, one eviction after another finds a place."""
    over_zones: dict[str, Any] = {"topology_spread_constraints": (spread(names.ZONE_LABEL, app("web"), skew=skew),)}
    shapes = {one: of_app("web", cpu, "512Mi", **over_zones) for one, cpu in (("web", "900m"), ("large", "1900m"))}
    at = Upkeep(shapes, {"general": {"budgets": [{"nodes": "100%"}], "consolidateAfter": "Never"}})
    for zone, pods in nodes:
        at.add_node("general", "large", zone, old=True)
        for one in pods:
            at.create(one)
        at.schedule(packed=False)
    at.provide(old=True)
    at.guard("web", 1)
    count = len(at.pods)
    for name in at.nodes():
        at.delete_claim(name)
    for turn in range(10 * count + len(nodes)):
        number = order[turn % len(order)]
        at.drain_next(first=number, node=number)
        at.provide()
    assert len(at.pods) == count, "a pod had no place in any zone"
    assert [one.name for one in at.claims() if one.metadata.deletion_timestamp is not None] == []


def test_every_promise_is_kept_at_limits() -> None:
    SEEN.clear()
    play(EXAMPLES if THOROUGH else EXAMPLES // 2, machine=LimitsMachine)
    assert SEEN["drains at a limit"]


def test_every_promise_is_kept_of_broken_nodes() -> None:
    SEEN.clear()
    play(EXAMPLES if THOROUGH else EXAMPLES // 2, machine=BrokenNodesMachine)
    for what in ("repair begun", f"repaired of {STATIC}", "repaired of general", "places taken", "static_drift begun"):
        assert SEEN[what], f"no {what}: the lives prove nothing about it ({SEEN})"


def test_every_promise_is_kept_of_gangs() -> None:
    SEEN.clear()
    play(EXAMPLES if THOROUGH else EXAMPLES // 2, machine=GangsMachine)
    # which lives are drawn depends on the modules that are loaded; in a few of them a gang seldom moves at once
    for what in ("drift begun", "single begun", *(("moved at once", "took turns") if THOROUGH else ())):
        assert SEEN[what], f"no {what}: the lives prove nothing about it ({SEEN})"


def test_every_promise_is_kept_whatever_happens() -> None:
    SEEN.clear()
    play()
    for what in (
        "empty begun",
        "drift begun",
        "static_drift begun",
        "single begun",
        "asked again",
        "called off",
        "replacements",
        "evictions",
        "waited for tied",
    ):
        assert SEEN[what], f"no {what}: the lives prove nothing about it"


# --- that it can fail ---

Mutant = Callable[[pytest.MonkeyPatch], None]


def _commands_in_flight(patch: pytest.MonkeyPatch) -> None:
    begin = AllowanceLedger.__init__

    def forgetful(self: AllowanceLedger, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self._going.clear()
        self._unready_of.clear()

    patch.setattr(AllowanceLedger, "__init__", forgetful)


def _old_snapshot(patch: pytest.MonkeyPatch) -> None:
    """Who proposes is admitted by the instant at which he began to think."""
    at = BudgetLedger.at

    def noted(self: BudgetLedger, snapshot: Snapshot) -> AllowanceLedger:
        self.old = snapshot  # type: ignore[attr-defined]
        return at(self, snapshot)

    patch.setattr(BudgetLedger, "at", noted)
    patch.setattr(BudgetLedger, "_fresh", lambda self: AllowanceLedger(self.old, most=self._most))


def _most_disrupted(patch: pytest.MonkeyPatch) -> None:
    begin = AllowanceLedger.__init__

    def boundless(self: AllowanceLedger, snapshot: Snapshot, taken: Any = (), *, most: int = 0) -> None:
        begin(self, snapshot, taken, most=most * 0)

    patch.setattr(AllowanceLedger, "__init__", boundless)


def _protected_pods(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(candidates, "read_do_not_disrupt", lambda _: DoNotDisrupt(Guard.ABSENT, None))


def _protected_nodes(patch: pytest.MonkeyPatch) -> None:
    known = candidates.of_node

    def blind(*args: Any) -> Any:
        found = known(*args)
        return None if found is not None and found[0] is candidates.Obstacle.NODE_PROTECTED else found

    patch.setattr(candidates, "of_node", blind)


def _saving(patch: pytest.MonkeyPatch) -> None:
    """What costs more is what pays."""
    gain = AcceptanceRule.gain

    def dearer(self: AcceptanceRule, some: Any, saving: float, _new_usd: float, *hours: float) -> float:
        return gain(self, some, abs(saving), 0.0, *hours) + 1.0

    patch.setattr(AcceptanceRule, "gain", dearer)
    patch.setattr(AcceptanceRule, "refusal", lambda *_: "")
    patch.setattr(replacement, "settled", lambda _, claims, *__, **___: claims)


def _spread_of_leaving(patch: pytest.MonkeyPatch) -> None:
    """A node that goes is no domain from the first moment on."""
    solve = Prepared.solve

    def gone(self: Prepared, pods: Any, **how: Any) -> Any:
        leaving = frozenset(how.pop("leaving", ()))
        return solve(self, pods, **{**how, "gone": leaving | frozenset(how.get("gone", ()))})

    patch.setattr(Prepared, "solve", gone)
    patch.setattr(simulation, "drained", lambda *_: {})


def _pause(patch: pytest.MonkeyPatch) -> None:
    view = DisruptionController._view
    patch.setattr(DisruptionController, "_view", lambda *args, **how: replace(view(*args, **how), pause=NOTHING))


def _who_waits(patch: pytest.MonkeyPatch) -> None:
    """Every pod without a node takes room, whatever its scheduler has said."""
    patch.setattr(PendingPods, "waiting_less", lambda self, *_: self.pending.frozen())


def _pause_of_commands(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommandQueue, "_paused", lambda *_: "")


def _last_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommandInspector, "validated", lambda *_: CommandVerdict())


def _last_look_at_budgets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(validation, "_blocked_by", lambda *_: None)


def _stillness(patch: pytest.MonkeyPatch) -> None:
    def at_once(node: NodeView, pool: NodePool) -> datetime | None:
        return node.claim.metadata.creation_timestamp if node.claim and pool.spec.replicas is None else None

    for module in (emptiness, consolidation):
        patch.setattr(module, "consolidatable_at", at_once)


def _static(patch: pytest.MonkeyPatch) -> None:
    """Nodes of static NodePools are consolidated as all others."""
    known = emptiness.consolidatable_at

    def scaled(node: NodeView, pool: NodePool) -> datetime | None:
        return known(node, changed(pool, spec=changed(pool.spec, replicas=None)))

    patch.setattr(emptiness, "consolidatable_at", scaled)


def _replacement_first(patch: pytest.MonkeyPatch) -> None:
    """What replaces a node counts as initialized from the moment at which it is created."""
    known = CommandInspector.replacement

    def hasty(self: CommandInspector, *args: Any) -> ReplacementState:
        state = known(self, *args)
        return ReplacementState.INITIALIZED if state is ReplacementState.COMING else state

    patch.setattr(CommandInspector, "replacement", hasty)


def _accepted(patch: pytest.MonkeyPatch) -> None:
    """What was proposed before is forgotten: its room is given away twice."""
    patch.setattr(Simulation, "accept", lambda *_: None)


def _first_move(patch: pytest.MonkeyPatch) -> None:
    """A pass of consolidation ends with its first move."""
    patch.setattr(consolidation.Consolidation, "over", property(lambda work: bool(work.proposals)))


def _standing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(orchestrator, "standing", lambda proposals, *_: tuple(proposals))


def _turns(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turns, "_are_tied", lambda *_: False)


def _hasty_drift(patch: pytest.MonkeyPatch) -> None:
    """Drift proposes whoever budgets allow, and whose turn it is is asked when they begin."""

    class Hasty(Turns):
        def _are_tied(self, *_: object) -> bool:
            return False

    patch.setattr(drifted, "turns_of", lambda view: Hasty(view.snapshot, (), under_way=view.under_way))


def _going_counts(patch: pytest.MonkeyPatch) -> None:
    """Until it is gone."""
    patch.setattr(views, "goes", lambda _: False)


def _empty(patch: pytest.MonkeyPatch) -> None:
    for module in (emptiness, orchestrator):
        patch.setattr(module, "is_empty", lambda _: True)


def _drift(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(drifted, "has_drifted", lambda _: True)


MUTANTS: Final[dict[str, tuple[Mutant, str]]] = {
    "the ledger ignores commands in flight": (_commands_in_flight, "are away"),
    "the ledger admits by an old snapshot": (_old_snapshot, "are away"),
    "the limit over all pools is ignored": (_most_disrupted, "nodes are away, where"),
    "do-not-disrupt of pods is ignored": (_protected_pods, "says do-not-disrupt"),
    "do-not-disrupt of Nodes is ignored": (_protected_nodes, "says do-not-disrupt"),
    "PodDisruptionBudgets are ignored": (
        lambda patch: patch.setattr(PodBudgets, "holding", lambda *_, **__: ()),
        "the PodDisruptionBudget of",
    ),
    "the rule of savings is turned round": (_saving, "it costs|all nodes cost|always something more"),
    "the spread of a node that goes is ignored": (_spread_of_leaving, "has no place|cannot be bound"),
    "a pause is ignored by methods": (_pause, "paused"),
    "every pod without a node takes room": (_who_waits, "has held back"),
    "a pause is ignored by commands": (_pause_of_commands, "paused"),
    "the last look is left out": (_last_look, "DELETE nodeclaims"),
    "the last look asks no PodDisruptionBudget": (_last_look_at_budgets, "the PodDisruptionBudget of"),
    "consolidateAfter is ignored": (_stillness, "after a pod came or went|never consolidated"),
    "what was accepted is forgotten": (_accepted, "too small|cannot be bound|takes pods and goes"),
    "what changed meanwhile is ignored": (_standing, "."),
    "a pass of consolidation ends with its first move": (_first_move, "right after"),
    "nodes of static NodePools are consolidated": (_static, "is of NodePool static"),
    "replacements count as soon as they are created": (_replacement_first, "its replacement .* is not there"),
    "nodes with pods count as empty": (_empty, "runs there"),
    "every node has drifted": (_drift, "always something more"),
    "what waits uses up budgets": (_hasty_drift, "was proposed, and waits"),
}


QUICK: Final = (
    "the ledger ignores commands in flight",
    "the limit over all pools is ignored",
    "do-not-disrupt of pods is ignored",
    "do-not-disrupt of Nodes is ignored",
    "PodDisruptionBudgets are ignored",
    "the rule of savings is turned round",
    "the last look is left out",
    "consolidateAfter is ignored",
    "what was accepted is forgotten",
    "a pass of consolidation ends with its first move",
    "nodes of static NodePools are consolidated",
    "replacements count as soon as they are created",
    "what waits uses up budgets",
)
"""Mutants that are caught within seconds."""


def _never_due(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Illness, "choice", lambda *_: None)


def _always_due(patch: pytest.MonkeyPatch) -> None:
    choice = Illness.choice
    patch.setattr(Illness, "choice", lambda self, now: choice(self, now + timedelta(hours=1)))


def _opened(instead: LaunchGate) -> Mutant:
    """What is held is not."""
    gate = launch_gate.gate_of

    def of(*those: Any) -> LaunchGate:
        return instead if (found := gate(*those)) is LaunchGate.HELD else found

    return lambda patch: patch.setattr(launch_gate, "gate_of", of)


BROKEN: Final[dict[str, tuple[Mutant, str]]] = {
    "the breaker never trips": (
        lambda patch: patch.setattr(repair, "repair_breaker", lambda *_, **__: NOT_TRIPPED),
        "which are too many",
    ),
    "a condition is due at once": (_always_due, "is not broken, or not for long"),
    "nobody is ever due": (_never_due, "is broken and forgotten"),
    "a successor is launched while its place is taken": (_opened(LaunchGate.OPEN), "is launched beside"),
    "a place counts as free while it is taken": (_opened(LaunchGate.FREED), "is launched beside"),
}


@pytest.mark.parametrize("mutant", BROKEN)
def test_a_mutant_of_repair_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate, wrong = BROKEN[mutant]
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match=wrong):
        play(MOST, STEPS, shrink=False, machine=BrokenNodesMachine)


@pytest.mark.parametrize("mutant", QUICK)
def test_a_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_caught(mutant, monkeypatch)


@pytest.mark.bench
@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one not in QUICK])
def test_every_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_caught(mutant, monkeypatch)


GANG_MUTANTS: Final[dict[str, tuple[object, str, object, str]]] = {
    "commands take no turns at a gang": (GangTurns, "why_not", lambda *_: "", "pods of (db|job) would run, of which"),
    "pods go that would not be scheduled": (candidates, "never_back", lambda *_: "", "would not be scheduled"),
    "drift takes nodes from a gang": (drifted, "units", lambda _: {}, "whose pods go at once"),
    "consolidation takes nodes from a gang": (candidates, "moves_together", lambda *_: "", "whose pods go at once"),
}


@pytest.mark.parametrize("mutant", GANG_MUTANTS)
def test_every_mutant_of_gangs_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, otherwise, wrong = GANG_MUTANTS[mutant]
    monkeypatch.setattr(where, name, otherwise)
    with pytest.raises(AssertionError, match=wrong):
        play(MOST, STEPS, shrink=False, machine=GangsMachine)


def is_caught(mutant: str, patch: pytest.MonkeyPatch) -> None:
    """In some life that promise is broken which the mutant makes impossible to keep."""
    mutate, wrong = MUTANTS[mutant]
    mutate(patch)
    with pytest.raises(AssertionError, match=wrong):
        play(MOST, STEPS, shrink=False)


def test_a_node_that_goes_and_counts_all_the_same_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _going_counts(monkeypatch)
    life, node = guarded_drain()
    life.at.delete_claim(node)
    life.at.drain_at_the_limit()
    with pytest.raises(AssertionError, match=r"the drain of .* stands still"):
        life.every_promise_is_kept()


UNASKED: Final[dict[str, tuple[str, Callable[..., Any], str]]] = {
    "any": (
        "admit",
        lambda _, __, enter: enter(),
        r"may come to have .* CPUs, where|come to cost .* USD per hour, where",
    ),
    "of money": ("_refusal", lambda *_: None, r"come to cost .* USD per hour, where"),
}


@pytest.mark.bench
@pytest.mark.parametrize(("name", "instead", "wrong"), UNASKED.values(), ids=UNASKED)
def test_a_limit_that_is_not_asked_under_the_lock_is_found(
    name: str, instead: Callable[..., Any], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a pass was told before others took it is all that is asked."""
    monkeypatch.setattr(GrowthLedger, name, instead)
    with pytest.raises(AssertionError, match=wrong):
        play(MOST, STEPS, shrink=False, machine=LimitsMachine)
