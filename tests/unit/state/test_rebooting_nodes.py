"""What pods see of a node that is rebooted: it comes back, and takes them then; one whose reboot failed does not."""

import pytest
from msgspec.structs import replace

from provisioner.apis import names
from provisioner.apis.meta import Condition
from provisioner.apis.pods import Pod
from provisioner.apis.reboot import RebootEnd, RebootEpisode, RebootIntent, RebootRecord, encode_reboots
from provisioner.state.snapshot import NodeView
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pod

EPISODE = RebootEpisode(requested=NOON, condition="Gpu", boot_id="a")
ISSUED = replace(EPISODE, intent=RebootIntent("a", 1, NOON))
OVER = replace(ISSUED, end=RebootEnd.SUCCEEDED)
ALL = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)


def seen(
    episode: RebootEpisode | None, *, initialized: bool = True, told: bool = False, pods: tuple[Pod, ...] = ()
) -> NodeView:
    world = World()
    marks = {names.REBOOT_ANNOTATION: encode_reboots(RebootRecord(episode=episode))} if episode is not None else {}
    true = ALL if initialized else ALL[:2]
    known = claim("n", provider_id="kwok://n", true=true, labels={names.NODEPOOL_LABEL: "general"}, annotations=marks)
    if told:
        condition = Condition(type=names.REBOOTING, status=names.TRUE, reason=names.REBOOT_REQUESTED)
        known = replace(known, status=replace(known.status, conditions=(*known.status.conditions, condition)))
    made = node("n", labels={names.NODEPOOL_LABEL: "general"})
    world.cluster.claim_changed(None, known)
    world.cluster.node_changed(None, replace(made, spec=replace(made.spec, taints=(names.REBOOTING_TAINT,))))
    world.add(*pods)
    return world.view("n")


@pytest.mark.parametrize("initialized", [True, False])
@pytest.mark.parametrize(
    "episode", [EPISODE, ISSUED, OVER], ids=["requested", "issued", "over, which is yet to be told"]
)
def test_its_room_counts_as_coming_back(episode: RebootEpisode, *, initialized: bool) -> None:
    view = seen(episode, initialized=initialized)
    assert view.rebooting
    assert view.taints == ()
    assert view.spends


LEAVES = pod("leaves", node="n", cpu="3", deleted=NOON)
RIDES = pod("rides", node="n", cpu="500m")


def test_pods_that_leave_it_take_none_of_its_room_so_that_their_successors_wait_for_it() -> None:
    before = seen(ISSUED, pods=(RIDES,))
    view = seen(ISSUED, pods=(RIDES, LEAVES))
    assert (view.room, view.used) == (before.room, before.used)
    assert view.pods == (RIDES,)
    assert view.used == RIDES.shape.requests


def test_pods_that_leave_a_node_that_does_not_reboot_take_its_room_until_they_are_gone() -> None:
    for episode in (None, replace(ISSUED, end=RebootEnd.RECOVERY_TIMEOUT)):
        view = seen(episode, pods=(RIDES, LEAVES))
        assert view.pods == (LEAVES, RIDES)
        assert view.used == RIDES.shape.requests + LEAVES.shape.requests


def test_what_karpenter_says_counts_where_nothing_is_written() -> None:
    assert seen(None, told=True).rebooting


@pytest.mark.parametrize("end", [RebootEnd.PROVIDER_ERROR, RebootEnd.RECOVERY_TIMEOUT])
def test_nothing_is_planned_onto_one_whose_reboot_failed(end: RebootEnd) -> None:
    view = seen(replace(ISSUED, end=end), initialized=False)
    assert not view.rebooting
    assert view.reboot_failed
    assert view.taints == (names.REBOOTING_TAINT,)
    assert view.spends


def test_a_taint_that_a_kubelet_writes_makes_no_reboot() -> None:
    view = seen(None)
    assert not view.rebooting
    assert view.taints == (names.REBOOTING_TAINT,)
