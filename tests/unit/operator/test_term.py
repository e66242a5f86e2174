"""A term, put together without a control plane: which controllers there are, what feeds them, and which flags reach them."""

from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from functools import partial
from typing import Any, cast

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import DaemonSet
from provisioner.cloudprovider.kwok.provider import CLAIM_UID_ANNOTATION, KwokProvider
from provisioner.disruption.repair_policies import RepairPolicySet
from provisioner.kube.client import Client
from provisioner.kube.config import ApiConnection
from provisioner.kube.events import Recorder
from provisioner.operator.effects import DAEMONSET_IGNORED
from provisioner.operator.kwok import ORPHAN_AFTER, KwokCloud
from provisioner.operator.term import Term
from provisioner.options import Options, OptionsError
from provisioner.provisioning.batcher import Intake
from provisioner.provisioning.provisioner import ProvisioningController
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import (
    Change,
    NodeChanged,
    NodeClaimChanged,
    NodeClassChanged,
    NodeOverlayChanged,
    NodePoolChanged,
    PodChanged,
    SurroundingChanged,
)
from provisioner.runtime.controller import Controller
from provisioner.state.checking import CheckedCluster
from provisioner.support.poller import Poller
from provisioner.support.workers import KeyedQueue
from provisioner.termination.terminator import MIN_TAINTED_SECONDS
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import World, bound, claim, node, pod, pool
from tests.support.kube import FakeApi, ok
from tests.support.overlays import overlay
from tests.support.problems import storage_class
from tests.support.worldserver import WorldServer


def term(api: FakeApi | None = None, options: Options | None = None, *, clock: FakeClock | None = None) -> Term:
    clock, options = clock or FakeClock(), options or Options()
    api = api or FakeApi(clock=clock)
    client, caches = Client(api, clock), Caches(cast(ApiConnection, api), options, clock)
    provider = KwokProvider(client, caches.nodes.store, caches.classes.store, clock)
    return Term(caches, client, KwokCloud(provider), Recorder(client, "test", clock), options, clock)


def row(made: Term, name: str) -> Controller:
    return made.manager.controllers[name][0]


def queue(made: Term, name: str) -> KeyedQueue:
    found = made.manager.controllers[name][1]
    assert isinstance(found, KeyedQueue)
    return found


def poller(made: Term, name: str) -> Poller:
    found = made.manager.controllers[name][1]
    assert isinstance(found, Poller)
    return found


def provisioner(made: Term) -> ProvisioningController:
    begins = row(made, "provisioner").initial
    assert isinstance(begins, partial)
    planner: ProvisioningController = of(begins.args[0])
    return planner


def wanted(intake: Intake) -> int:
    return intake._window.close()


FAST = storage_class("fast")

PLANNED_AGAIN: dict[str, tuple[Change, bool]] = {
    "a pool appears": (NodePoolChanged(None, pool()), True),
    "a pool goes": (NodePoolChanged(pool(), None), True),
    "only the status of a pool changes": (NodePoolChanged(pool(), pool()), False),
    "an overlay changes": (NodeOverlayChanged(None, overlay("a", price="1")), True),
    "a StorageClass appears": (SurroundingChanged(None, FAST), True),
    "a StorageClass has a new version": (SurroundingChanged(FAST, FAST), False),
}


@pytest.mark.parametrize(("change", "want"), PLANNED_AGAIN.values(), ids=PLANNED_AGAIN)
def test_waiting_pods_are_planned_again_when(change: Change, want: bool) -> None:
    made = term()
    made.manager.heard(change)
    assert wanted(made._intake) == want


DELETED = "2026-11-21T12:00:00Z"
CLAIM = claim("c", provider_id="kwok://n", true=(names.LAUNCHED, names.REGISTERED, names.INITIALIZED))
NODE = node("n", provider_id="kwok://n")
GOING = node("n", provider_id="kwok://n", deletionTimestamp=DELETED)

HEARD: dict[str, tuple[Change, dict[str, list[Any]]]] = {
    "a pod that goes, on a Node that stays": (PodChanged(None, bound(pod("one", deleted=NOON), "n")), {}),
    "a pod that goes, on a Node that goes": (
        PodChanged(None, bound(pod("one", deleted=NOON), "going")),
        {"node.termination": ["going"]},
    ),
    "a Node": (NodeChanged(None, NODE), {"nodeclaim.lifecycle": ["c"], "nodeclaim.hydration": ["c"]}),
    "a Node that goes": (
        NodeChanged(NODE, GOING),
        {"node.termination": ["n"], "nodeclaim.lifecycle": ["c"], "nodeclaim.hydration": ["c"]},
    ),
    "a Node that is gone": (
        NodeChanged(NODE, None),
        {"nodepool": [("general", 1.0)], "nodeclaim.lifecycle": ["c"], "nodeclaim.hydration": ["c"]},
    ),
    "a Node with a plan of an earlier version": (
        NodeChanged(None, node("old", annotations={names.PLAN_ANNOTATION: "x"})),
        {"node-plan": ["old"]},
    ),
    "a claim": (
        NodeClaimChanged(None, CLAIM),
        {
            "nodepool": [("general", 1.0)],
            "nodeclaim.lifecycle": ["c"],
            "nodeclaim.consistency": [("c", 600.0)],
            "nodeclaim.hydration": ["c"],
            "nodeclaim.disruption": [("c", 1.0)],
        },
    ),
    "a claim that is gone": (
        NodeClaimChanged(CLAIM, None),
        {"nodepool": [("general", 1.0)], "nodeclaim.lifecycle": ["c"]},
    ),
    "a pool": (NodePoolChanged(None, pool()), {"nodepool": ["general"], "nodeclaim.disruption": [("c", 1.0)]}),
    "a static pool": (
        NodePoolChanged(None, pool("static", replicas=1)),
        {"nodepool": ["static"], "static-capacity": ["static"]},
    ),
    "a class": (
        NodeClassChanged(None, claim("default")),
        {"nodepool": ["general"], "nodeclaim.disruption": [("c", 5.0)]},
    ),
}


@pytest.mark.parametrize(("change", "want"), HEARD.values(), ids=HEARD)
def test_after_a_change_they_look_at(change: Change, want: dict[str, list[Any]]) -> None:
    made = term()
    cluster, caches = made._base.cluster, made._base.caches
    caches.pools.store.put("general", pool())
    for one in (NODE, node("going", deletionTimestamp=DELETED)):
        cluster.node_changed(None, one)
    cluster.claim_changed(None, CLAIM)
    watching = {
        name: list(keys(change) or ())
        for name, (one, _) in made.manager.controllers.items()
        if (keys := one.watches.get(type(change))) is not None
    }
    assert {name: keys for name, keys in watching.items() if keys} == want


def test_a_term_begins_with_all_that_there_is() -> None:
    made = term()
    cluster, caches = made._base.cluster, made._base.caches
    for pools in (pool(), pool("static", replicas=1)):
        caches.pools.store.put(pools.name, pools)
    caches.nodes.store.put("n", NODE)
    cluster.node_changed(None, NODE)
    cluster.claim_changed(None, CLAIM)
    fed = {name: [*map(key_of_fed, one.initial() or ())] for name, (one, _) in made.manager.controllers.items()}
    assert {name: keys for name, keys in fed.items() if keys} == {
        "nodeclaim.lifecycle": ["c"],
        "nodeclaim.consistency": ["c"],
        "nodeclaim.hydration": ["c"],
        "nodeclaim.disruption": ["c"],
        "nodepool": ["general", "static"],
        "node.termination": ["n"],
        "static-capacity": ["static"],
    }


def key_of_fed(key: str | tuple[str, float]) -> str:
    return key if isinstance(key, str) else key[0]


def test_what_only_the_cloud_has_runs_while_launches_of_an_earlier_process_are_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Going on with them may wait for EC2 for half a minute, and an interrupted instance has two."""
    made, begun = term(), list[tuple[bool, int]]()

    def resume(*_: object) -> None:
        begun.append(
            (
                poller(made, "instance.garbagecollection")._thread.is_alive(),
                len(queue(made, "nodeclaim.lifecycle")._threads),
            )
        )

    monkeypatch.setattr(KwokProvider, "resume", resume)
    made.start()
    made.stop()
    assert begun == [(True, 0)]


def test_what_others_hand_over_by_name_is_there() -> None:
    made = term()
    made._base.claim_again("c")
    made._base.pool_again("general")
    made._base.pool_again("")  # of a NodeClaim that a user made
    assert len(queue(made, "nodeclaim.lifecycle")) == len(queue(made, "nodepool")) == 1


def test_those_that_are_not_there_have_no_controller() -> None:
    """Of a feature gate that is off, and of certificates that nobody asks for."""
    without, all_ = (
        set(term(options=Options.parse(flags, {})).manager.controllers)
        for flags in ([], ["--feature-gates=NodeOverlay=true,CapacityBuffer=true", "--report-cert-dir=/certs"])
    )
    assert all_ - without == {"nodeoverlay", "capacitybuffer", "report-certificates", "extender-certificates"}


def test_requests_have_a_controller_where_a_class_is_ours() -> None:
    """Without one nothing is watched, kept or asked."""
    without, all_ = (
        set(term(options=Options.parse(flags, {})).manager.controllers)
        for flags in ([], ["--provisioning-classes=atomic.dovetail.dev, check-capacity.autoscaling.x-k8s.io"])
    )
    assert all_ - without == {f"provisioningrequest{one}" for one in ("", ".discovery", ".reservation")}
    assert not term()._requests.keeps("x")
    with pytest.raises(OptionsError, match=r"--provisioning-classes must be a list of .* \('x' is unknown\)"):
        Options.parse(["--provisioning-classes=x"], {})


def test_a_claim_of_kwok_whose_node_vanished_is_deleted() -> None:
    api = FakeApi(respond=lambda _: ok({"metadata": {"name": "lost", "uid": "uid-lost"}}))
    made = term(api)
    state = made._base.caches.cluster
    state.claim_changed(None, claim("lost", provider_id="kwok://lost", true=(names.LAUNCHED, names.REGISTERED)))
    poller(made, "nodeclaim.garbagecollection").once()
    assert [(sent.method, sent.path.rsplit("/", 1)[-1]) for sent in api.sent] == [
        ("GET", "lost"),
        ("DELETE", "lost"),
    ]


def test_a_node_of_kwok_whose_claim_vanished_is_drained_and_deleted_and_no_other() -> None:
    world = World()
    server, clock = WorldServer(world), world.clock
    made = term(server.api, clock=clock)
    of = {one: {CLAIM_UID_ANNOTATION: f"uid-{one}"} for one in ("lost", "kept")}
    for one in (node("lost", annotations=of["lost"]), node("kept", annotations=of["kept"]), node("stranger")):
        server.put(one)
        made._base.caches.nodes.store.put(one.metadata.name, one)
    server.put(claim("kept"))
    server.bind("web", "lost")
    garbage = poller(made, "instance.garbagecollection")
    made._base.caches.cluster.claim_changed(None, claim("kept"))

    def looks(seconds: float) -> None:
        garbage.once()
        clock.advance(seconds)
        garbage.once()

    def done() -> list[str]:
        """Apart from events, which are written in a thread of their own."""
        return [one for one in server.done if not one.startswith("POST events/")]

    looks(ORPHAN_AFTER.total_seconds() - 1)
    assert done() == []
    looks(1)
    assert done() == ["PATCH nodes/lost"], "a pod runs on it"
    server.only("pods")
    looks(MIN_TAINTED_SECONDS)
    assert done() == ["PATCH nodes/lost", "DELETE nodes/lost"]


def test_a_daemon_set_that_selects_by_too_much_is_told_on_it_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    listed = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(600)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": listed}]}}
    body = {
        "metadata": {"name": "agent", "namespace": "agents", "uid": "u"},
        "spec": {"template": {"spec": {"containers": [{"name": "c"}], "affinity": {"nodeAffinity": required}}}},
    }
    made = term()
    with caplog.at_level("WARNING"):
        made._effects.carry_out(made._base.cluster.daemonset_changed(None, msgspec.convert(body, DaemonSet)))
    (record,) = [one for one in caplog.records if one.message == DAEMONSET_IGNORED]
    (event,) = made._base.recorder._queue
    assert "has 600 of the 600 expressions" in str(vars(record))
    assert "UnreadableObject" in str(event)
    assert "agents" in str(event)


def there(part: Any) -> Any:
    """It is, in a program that is put together whole."""
    assert part is not None
    return part


def of(bound: Any) -> Any:
    """Whose method it is."""
    return bound.__self__


def repair_policies(made: Term) -> RepairPolicySet:
    found: RepairPolicySet = made._known.forceful._health._policies
    return found


REACHED: dict[str, tuple[list[str], Callable[[Term], Any], Any]] = {
    "--timeouts, hold": (["--timeouts=hold=7s"], lambda made: made._base.cluster._plans._hold_seconds, 7.0),
    "--timeouts, plan": (["--timeouts=plan=7s"], lambda made: made._base.cluster._plans._plan_seconds, 7.0),
    "--check-state": (["--check-state"], lambda made: type(made._base.cluster), CheckedCluster),
    "--batch-idle-duration": (
        ["--batch-idle-duration=7s"],
        lambda made: made._intake._window._idle,
        7.0,
    ),
    "--batch-max-duration": (
        ["--batch-max-duration=7s"],
        lambda made: made._intake._window._longest,
        7.0,
    ),
    "--timeouts, solve": (
        ["--timeouts=solve=7s"],
        lambda made: provisioner(made)._deadline,
        7.0,
    ),
    "--consolidation": (
        ["--consolidation=karpenter"],
        lambda made: made._known.disruption._settings.acceptance.value,
        "karpenter",
    ),
    "--packing": (["--packing=greedy"], lambda made: of(row(made, "provisioner").closing)._wanted, False),
    "--nominate": (["--nominate=false"], lambda made: made._steering.nominates_any(), False),
    "--max-claims-per-minute": (
        ["--max-claims-per-minute=7"],
        lambda made: made._known.growth._limits.claims_per_minute,
        7,
    ),
    "--max-usd-per-hour": (
        ["--max-usd-per-hour=7"],
        lambda made: made._known.growth._limits.usd_per_hour,
        7.0,
    ),
    "--max-disrupting-nodes": (["--max-disrupting-nodes=7"], lambda made: made._known.ledger._most, 7),
    "--timeouts, command": (
        ["--timeouts=command=7m"],
        lambda made: of(queue(made, "disruption.queue")._reconcile).inspector.timeout,
        timedelta(minutes=7),
    ),
    "--timeouts, launch": (
        ["--timeouts=launch=7m"],
        lambda made: of(queue(made, "nodeclaim.lifecycle")._reconcile)._timeouts.launch,
        timedelta(minutes=7),
    ),
    "--timeouts, registration": (
        ["--timeouts=registration=7m"],
        lambda made: of(queue(made, "nodeclaim.lifecycle")._reconcile)._timeouts.registration,
        timedelta(minutes=7),
    ),
    "--drain-timeout": (
        ["--drain-timeout=7m"],
        lambda made: of(queue(made, "nodeclaim.lifecycle")._reconcile)._timeouts.drain,
        timedelta(minutes=7),
    ),
    "--repair-timeout": (
        ["--repair-timeout=7m", "--feature-gates=NodeRepair=true"],
        lambda made: {policy.toleration for some in repair_policies(made)._found.values() for _, policy, _ in some},
        {timedelta(minutes=7)},
    ),
    "--legacy-node-repair": (
        ["--legacy-node-repair", "--feature-gates=NodeRepair=true"],
        lambda made: (
            made._known.forceful._legacy,
            getattr(made._known.disruption._ill, "__self__", None),
            {one.termination_grace_period for some in repair_policies(made)._found.values() for _, one, _ in some},
        ),
        (True, None, {timedelta(0)}),
    ),
    "--repair-breaker": (
        ["--repair-breaker=0.35"],
        lambda made: (made._known.forceful._share, made._known.disruption._settings.repair_breaker),
        (Fraction(7, 20), Fraction(7, 20)),
    ),
    "--cpu-requests": (["--cpu-requests=60000"], lambda made: queue(made, "nodeclaim.lifecycle").workers, 100),
    "--disable-cluster-state-observability": (
        ["--disable-cluster-state-observability"],
        lambda made: made._observer,
        None,
    ),
    "--report-cert-dir": (
        ["--report-cert-dir=/certs"],
        lambda made: sum("certificates" in name for name in made.manager.controllers),
        2,
    ),
    "--report-cert-dir, for whom": (
        ["--report-cert-dir=/certs"],
        lambda made: (
            "report-certificates" in made.manager.controllers
            and of(poller(made, "report-certificates")._poll)._ends.client.names.dns
        ),
        ("dovetail-scheduler",),
    ),
    "the gate NodeRepair": (
        ["--feature-gates=NodeRepair=true"],
        lambda made: bool(repair_policies(made).kinds),
        True,
    ),
    "the gate StaticCapacity": (
        ["--feature-gates=StaticCapacity=true"],
        lambda made: of(queue(made, "static-capacity")._reconcile)._enabled,
        True,
    ),
    "the gate SpotToSpotConsolidation": (
        ["--feature-gates=SpotToSpotConsolidation=true"],
        lambda made: made._known.disruption._settings.spot_to_spot,
        True,
    ),
    "the gate NodeOverlay": (
        ["--feature-gates=NodeOverlay=true"],
        lambda made: made._base.caches.overlay_objects is not None,
        True,
    ),
    "the gate CapacityBuffer": (
        ["--feature-gates=CapacityBuffer=true"],
        lambda made: made._base.caches.buffer_objects is not None,
        True,
    ),
    "the guard of cascades": (
        ["--mass-deletion-guard=0.3"],
        lambda made: cast(Any, made.manager.controllers["deletion-guards"][0].poll).__self__._share,
        0.3,
    ),
    "no history": (["--history-duration=0"], lambda made: made.history.since, None),
    "the most bytes of the history": (
        ["--history-bytes=1048576"],
        lambda made: made.history._bounds.most_bytes,
        1048576,
    ),
    "the gate ReservedCapacity": (
        ["--feature-gates=ReservedCapacity=false"],
        lambda made: provisioner(made).planning._worlds._policies.reserves,
        False,
    ),
}


def test_commands_that_repair_and_what_calls_them_off_know_the_same_health() -> None:
    made = term()._known
    health = made.forceful._health
    assert of(made.disruption._ill) is health
    assert of(made.disruption._commands.inspector._is_broken) is health


@pytest.mark.parametrize(("flags", "found", "want"), REACHED.values(), ids=REACHED)
def test_a_flag_reaches_its_part(flags: list[str], found: Callable[[Term], Any], want: Any) -> None:
    """What the part makes of it is seen by the test that test_effects names."""
    assert found(term()) != want
    assert found(term(options=Options.parse(flags, {}))) == want


BUILT_IN: dict[str, tuple[Callable[[Term], Any], Any]] = {
    "300 milliseconds until a pod that nobody judged is planned": (
        lambda made: made._base.cluster._pending.grace.total_seconds(),
        0.3,
    ),
    "10 seconds for a batch": (lambda made: provisioner(made)._deadline, 10.0),
    "three nodes for a hostname spread": (
        lambda made: provisioner(made).planning._worlds._policies.hostname_domains,
        3,
    ),
    "three nodes for a hostname spread, for disruption": (
        lambda made: there(made._known.disruption.worlds.source)._policies.hostname_domains,
        3,
    ),
}


@pytest.mark.parametrize(("found", "want"), BUILT_IN.values(), ids=BUILT_IN)
def test_without_any_flag_there_are(found: Callable[[Term], Any], want: Any) -> None:
    assert found(term(options=Options.parse([], {}))) == want
