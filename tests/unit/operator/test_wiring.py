"""The parts of a term, put together without a control plane."""

from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import DaemonSet
from provisioner.cloudprovider.kwok.provider import CLAIM_UID_ANNOTATION, KwokProvider
from provisioner.clouds import Calls, LateCall
from provisioner.kube.client import Client
from provisioner.kube.config import ApiConnection
from provisioner.kube.events import Recorder
from provisioner.operator.kwok import ORPHAN_AFTER, KwokCloud, KwokTerm
from provisioner.operator.program import DAEMONSET_IGNORED, Controllers
from provisioner.options import Options
from provisioner.provisioning.batcher import Intake
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import Change, NodeOverlayChanged, NodePoolChanged, SurroundingChanged
from provisioner.state.checking import CheckedCluster
from provisioner.termination.terminator import MIN_TAINTED_SECONDS
from tests.support.clock import FakeClock
from tests.support.cluster import World, claim, node, pool
from tests.support.kube import FakeApi, ok
from tests.support.overlays import overlay
from tests.support.problems import storage_class
from tests.support.worldserver import WorldServer


def test_a_late_call_answers_once_it_is_connected() -> None:
    call: LateCall[[int], str] = LateCall("count")
    with pytest.raises(RuntimeError, match='"count" is not connected'):
        call(1)
    call.connect(str)
    assert call(1) == "1"


def test_what_is_forgotten_is_found_before_anything_starts() -> None:
    calls = Calls()
    for one in fields(calls):
        with pytest.raises(RuntimeError, match="is not connected"):
            calls.check()
        getattr(calls, one.name).connect(lambda *_: None)
    calls.check()


def controllers(
    api: FakeApi | None = None, options: Options | None = None, *, clock: FakeClock | None = None
) -> Controllers:
    clock, options = clock or FakeClock(), options or Options()
    api = api or FakeApi(clock=clock)
    client, caches = Client(api, clock), Caches(cast(ApiConnection, api), options, clock)
    provider = KwokProvider(client, caches.nodes.store, caches.classes.store, clock)
    return Controllers(caches, client, KwokCloud(provider), Recorder(client, "test", clock), options, clock)


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
    made = controllers()
    made._heard(change)
    assert wanted(made._provisioning.intake) == want


def test_a_claim_of_kwok_whose_node_vanished_is_deleted() -> None:
    api = FakeApi(respond=lambda _: ok({"metadata": {"name": "lost", "uid": "uid-lost"}}))
    made = controllers(api)
    state = made._caches.cluster
    state.claim_changed(None, claim("lost", provider_id="kwok://lost", true=(names.LAUNCHED, names.REGISTERED)))
    made._ends.garbage.once()
    assert [(sent.method, sent.path.rsplit("/", 1)[-1]) for sent in api.sent] == [
        ("GET", "lost"),
        ("DELETE", "lost"),
    ]


def test_a_node_of_kwok_whose_claim_vanished_is_drained_and_deleted_and_no_other() -> None:
    world = World()
    server, clock = WorldServer(world), world.clock
    made = controllers(server.api, clock=clock)
    of = {one: {CLAIM_UID_ANNOTATION: f"uid-{one}"} for one in ("lost", "kept")}
    for one in (node("lost", annotations=of["lost"]), node("kept", annotations=of["kept"]), node("stranger")):
        server.put(one)
        made._caches.nodes.store.put(one.metadata.name, one)
    server.put(claim("kept"))
    server.bind("web", "lost")
    garbage = cast(KwokTerm, made._own).garbage
    made._caches.cluster.claim_changed(None, claim("kept"))

    def looks(seconds: float) -> None:
        garbage.once()
        clock.advance(seconds)
        garbage.once()

    looks(ORPHAN_AFTER.total_seconds() - 1)
    assert server.done == []
    looks(1)
    assert server.done == ["PATCH nodes/lost"], "a pod runs on it"
    server.only("pods")
    looks(MIN_TAINTED_SECONDS)
    assert server.done == ["PATCH nodes/lost", "DELETE nodes/lost"]


def test_a_daemon_set_that_selects_by_too_much_is_told_on_it_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    listed = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(600)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": listed}]}}
    body = {
        "metadata": {"name": "agent", "namespace": "agents", "uid": "u"},
        "spec": {"template": {"spec": {"containers": [{"name": "c"}], "affinity": {"nodeAffinity": required}}}},
    }
    made = controllers()
    with caplog.at_level("WARNING"):
        made._carry_out(made._cluster.daemonset_changed(None, msgspec.convert(body, DaemonSet)))
    (record,) = [one for one in caplog.records if one.message == DAEMONSET_IGNORED]
    (event,) = made._recorder._queue
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


REACHED: dict[str, tuple[list[str], Callable[[Controllers], Any], Any]] = {
    "--timeouts, hold": (["--timeouts=hold=7s"], lambda made: made._cluster._plans._hold_seconds, 7.0),
    "--timeouts, plan": (["--timeouts=plan=7s"], lambda made: made._cluster._plans._plan_seconds, 7.0),
    "--check-state": (["--check-state"], lambda made: type(made._cluster), CheckedCluster),
    "--batch-idle-duration": (
        ["--batch-idle-duration=7s"],
        lambda made: made._provisioning.intake._window._idle,
        7.0,
    ),
    "--batch-max-duration": (
        ["--batch-max-duration=7s"],
        lambda made: made._provisioning.intake._window._longest,
        7.0,
    ),
    "--timeouts, solve": (
        ["--timeouts=solve=7s"],
        lambda made: of(made._provisioning.intake._run)._deadline,
        7.0,
    ),
    "--consolidation": (
        ["--consolidation=karpenter"],
        lambda made: made._disruptions.voluntary._settings.acceptance.value,
        "karpenter",
    ),
    "--packing": (["--packing=greedy"], lambda made: made._provisioning.planner._wanted, False),
    "--nominate": (["--nominate=false"], lambda made: made._joining.steering.nominates_any(), False),
    "--max-claims-per-minute": (
        ["--max-claims-per-minute=7"],
        lambda made: there(made._provisioning.creator.growth)._limits.claims_per_minute,
        7,
    ),
    "--max-usd-per-hour": (
        ["--max-usd-per-hour=7"],
        lambda made: there(made._provisioning.creator.growth)._limits.usd_per_hour,
        7.0,
    ),
    "--max-disrupting-nodes": (["--max-disrupting-nodes=7"], lambda made: made._provisioning.ledger._most, 7),
    "--timeouts, command": (
        ["--timeouts=command=7m"],
        lambda made: made._disruptions.commands.inspector.timeout,
        timedelta(minutes=7),
    ),
    "--timeouts, launch": (
        ["--timeouts=launch=7m"],
        lambda made: of(made._joining.claims._reconcile)._timeouts.launch,
        timedelta(minutes=7),
    ),
    "--timeouts, registration": (
        ["--timeouts=registration=7m"],
        lambda made: of(made._joining.claims._reconcile)._timeouts.registration,
        timedelta(minutes=7),
    ),
    "--drain-timeout": (
        ["--drain-timeout=7m"],
        lambda made: of(made._joining.claims._reconcile)._timeouts.drain,
        timedelta(minutes=7),
    ),
    "--repair-timeout": (
        ["--repair-timeout=7m", "--feature-gates=NodeRepair=true"],
        lambda made: {one.toleration for one in made._disruptions.forceful._policies},
        {timedelta(minutes=7)},
    ),
    "--cpu-requests": (["--cpu-requests=60000"], lambda made: made._joining.claims.workers, 100),
    "--disable-cluster-state-observability": (
        ["--disable-cluster-state-observability"],
        lambda made: made._observability.observer,
        None,
    ),
    "--report-cert-dir": (["--report-cert-dir=/certs"], lambda made: len(made._certificates), 2),
    "--report-cert-dir, for whom": (
        ["--report-cert-dir=/certs"],
        lambda made: made._certificates and of(made._certificates[0]._poll)._ends.client.names.dns,
        ("dovetail-scheduler",),
    ),
    "the gate NodeRepair": (
        ["--feature-gates=NodeRepair=true"],
        lambda made: bool(made._disruptions.forceful._policies),
        True,
    ),
    "the gate StaticCapacity": (
        ["--feature-gates=StaticCapacity=true"],
        lambda made: made._provisioning.static._enabled,
        True,
    ),
    "the gate SpotToSpotConsolidation": (
        ["--feature-gates=SpotToSpotConsolidation=true"],
        lambda made: made._disruptions.voluntary._settings.spot_to_spot,
        True,
    ),
    "the gate NodeOverlay": (
        ["--feature-gates=NodeOverlay=true"],
        lambda made: made._caches.overlay_objects is not None,
        True,
    ),
    "the gate CapacityBuffer": (
        ["--feature-gates=CapacityBuffer=true"],
        lambda made: made._caches.buffer_objects is not None,
        True,
    ),
    "the gate ReservedCapacity": (
        ["--feature-gates=ReservedCapacity=false"],
        lambda made: of(made._provisioning.intake._run)._worlds._policies.reserves,
        False,
    ),
}


@pytest.mark.parametrize(("flags", "found", "want"), REACHED.values(), ids=REACHED)
def test_a_flag_reaches_its_part(flags: list[str], found: Callable[[Controllers], Any], want: Any) -> None:
    """What the part makes of it is seen by the test that test_effects names."""
    assert found(controllers()) != want
    assert found(controllers(options=Options.parse(flags, {}))) == want


BUILT_IN: dict[str, tuple[Callable[[Controllers], Any], Any]] = {
    "300 milliseconds until a pod that nobody judged is planned": (
        lambda made: made._cluster._pending.grace.total_seconds(),
        0.3,
    ),
    "10 seconds for a batch": (lambda made: of(made._provisioning.intake._run)._deadline, 10.0),
    "three nodes for a hostname spread": (
        lambda made: of(made._provisioning.intake._run)._worlds._policies.hostname_domains,
        3,
    ),
    "three nodes for a hostname spread, for disruption": (
        lambda made: there(made._disruptions.voluntary.worlds.source)._policies.hostname_domains,
        3,
    ),
}


@pytest.mark.parametrize(("found", "want"), BUILT_IN.values(), ids=BUILT_IN)
def test_without_any_flag_there_are(found: Callable[[Controllers], Any], want: Any) -> None:
    assert found(controllers(options=Options.parse([], {}))) == want
