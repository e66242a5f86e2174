"""The parts of a term, put together without a control plane."""

from dataclasses import fields
from typing import cast

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.kwok.provider import KwokProvider
from provisioner.controllers.caches import Caches
from provisioner.controllers.changes import Change, NodeOverlayChanged, NodePoolChanged, SurroundingChanged
from provisioner.controllers.clouds import KwokCloud
from provisioner.controllers.core.intake import Intake
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.program import Controllers
from provisioner.controllers.wiring import Calls, LateCall
from provisioner.kube.client import Client
from provisioner.kube.config import Connection
from provisioner.kube.events import Recorder
from provisioner.options import Options
from tests.support.clock import FakeClock
from tests.support.cluster import claim, pool
from tests.support.kube import FakeApi, ok
from tests.support.overlays import overlay
from tests.support.problems import storage_class


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


def controllers(api: FakeApi | None = None) -> Controllers:
    clock, options = FakeClock(), Options()
    api = api or FakeApi(clock=clock)
    client, caches = Client(api, clock), Caches(cast(Connection, api), options, clock)
    provider = KwokProvider(client, caches.nodes.store, caches.classes.store, clock)
    return Controllers(caches, client, KwokCloud(provider), Recorder(client, "test", clock), Metrics(), options, clock)


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


def test_a_claim_of_kwok_whose_machine_vanished_is_deleted() -> None:
    api = FakeApi(respond=lambda _: ok({"metadata": {"name": "lost", "uid": "u"}}))
    made = controllers(api)
    state = made._caches.cluster
    state.claim_changed(None, claim("lost", provider_id="kwok://lost", true=(names.LAUNCHED, names.REGISTERED)))
    made._ends.garbage.once()
    assert [(sent.method, sent.path.rsplit("/", 1)[-1]) for sent in api.sent] == [("DELETE", "lost")]
