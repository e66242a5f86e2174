"""What follows from what is known of PodGroups: who waits, what is planned again, and what the log says."""

import pytest

from provisioner.apis import names
from provisioner.apis.gangs import GroupSource
from provisioner.kube.errors import error_from
from provisioner.kube.resources import GROUP_KINDS, PODGROUPS
from provisioner.provisioning.pod_groups import pod_group_controllers
from provisioner.support.poller import Poller
from tests.support.cluster import pod
from tests.support.kube import FakeAnswer
from tests.support.latewatches import NOT_FOUND, LateKind, served
from tests.support.podgroups import grouped, left, object_of


def asked(*answers: FakeAnswer) -> tuple[LateKind, Poller]:
    one = LateKind(PODGROUPS, *answers)
    runner = pod_group_controllers(one.base)[0].runner
    assert isinstance(runner, Poller)
    return one, runner


def test_what_becomes_known_has_their_pods_planned_at_once() -> None:
    one, poller = asked(NOT_FOUND)
    one.world.add(pod("a", group="train"))
    assert one.world.cluster.snapshot().waiting == ()
    poller.once()
    assert one.again == ["podgroups"]
    assert [found.name for found in one.world.cluster.snapshot().waiting] == ["a"]


def test_without_such_pods_nothing_is_planned_again() -> None:
    one, poller = asked(NOT_FOUND)
    one.world.add(pod("single"))
    poller.once()
    assert one.again == []


def test_the_log_tells_once_that_they_cannot_be_read_and_when_they_can_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    one, poller = asked(served(PODGROUPS))
    one.watch.synced.set()
    for one.watch.error in (None, error_from(403, b""), error_from(403, b""), None):
        poller.once()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize("source", GROUP_KINDS)
def test_each_source_is_asked_for_and_told_by_itself(source: GroupSource) -> None:
    """In this world the others are never asked for."""
    kind = GROUP_KINDS[source]
    one = LateKind(kind, served(kind))
    controllers = pod_group_controllers(one.base)
    assert len(controllers) == 1
    runner = controllers[0].runner
    assert isinstance(runner, Poller)
    one.watch.synced.set()
    told, member = object_of(source), grouped(pod("a"), source)
    one.world.cluster.pod_group_changed(None, told)
    one.world.add(left(member, names.UNSCHEDULABLE), left(grouped(pod("b"), source), ""))
    assert one.world.cluster.snapshot().waiting == ()
    runner.once()
    assert (one.again, one.is_watched, one.asked) == (["podgroups"], True, 1)
    assert {each.name for each in one.world.cluster.snapshot().waiting} == {"a", "b"}
