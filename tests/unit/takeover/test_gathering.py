"""A cluster at the API server becomes the same input as files that hold its objects."""

import dataclasses

import pytest

from provisioner.apis import names
from provisioner.kube.errors import ApiError, ConnectionFailed
from provisioner.takeover.checking import report_on
from provisioner.takeover.gathering import InputBuilder, leases_beside, read_cluster
from provisioner.takeover.takeover_input import TakeoverInput
from tests.support import takeover
from tests.support.cluster import World
from tests.support.takeover import CA, Wire, given
from tests.support.worldserver import WorldServer

PLURALS = {
    "Deployment": "deployments",
    "Lease": "leases",
    "CustomResourceDefinition": "customresourcedefinitions",
    "Secret": "secrets",
    "NodePool": "nodepools",
    "EC2NodeClass": "ec2nodeclasses",
    "NodeClaim": "nodeclaims",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
}
KEPT = takeover.definition(keep=True)
OBJECTS = (
    takeover.deployment(),
    takeover.lease("karpenter-1"),
    KEPT,
    takeover.release_secret([KEPT]),
    takeover.node_pool(),
    takeover.node_class(),
    takeover.node_claim("a", takeover.node_pool(), takeover.node_class()),
    takeover.pod("web-1"),
    takeover.budget("web"),
)


@pytest.fixture
def server() -> WorldServer:
    server = WorldServer(World())
    server.tell = False
    for one in OBJECTS:
        server.store(PLURALS[one["kind"]], one)
    return server


def read(server: WorldServer) -> TakeoverInput:
    builder = InputBuilder("files", names.OWN_NAMESPACE)
    read_cluster(builder, server.client, b"CA")
    return builder.built(0.0)


def test_a_cluster_and_its_dump_say_the_same(server: WorldServer) -> None:
    live, dumped = report_on(read(server)), report_on(given(*OBJECTS, authority=CA))
    assert [(one.text, one.verdict) for one in live.findings] == [(one.text, one.verdict) for one in dumped.findings]
    assert live.exit_status == 0
    assert server.done == [], "nothing is written"


@pytest.mark.parametrize("plural", ["nodeclaims", "secrets", "deployments"])
def test_what_may_not_be_read_is_told_and_blocks(server: WorldServer, plural: str) -> None:
    server.refuse[plural] = 403
    report = report_on(read(server))
    assert report.exit_status == 3
    assert any("may not be read" in one.text for one in report.blocking)


def test_a_server_that_does_not_answer_ends_the_reading(server: WorldServer) -> None:
    def refuse(_: object) -> None:
        raise ConnectionFailed("refused")

    server.intercept = refuse
    with pytest.raises(ApiError):
        read(server)


def test_one_broken_object_stops_no_other(server: WorldServer) -> None:
    broken: Wire = {**takeover.node_pool("broken"), "spec": "none"}
    server.store("nodepools", broken)
    found = read(server)
    assert [one.name for one in found.pools] == ["default"]
    assert any("broken" in one for one in found.unread)
    assert dataclasses.replace(found, unread=()).claims


def test_a_lease_counts_until_nobody_renewed_it_for_a_minute(server: WorldServer) -> None:
    builder, clock = InputBuilder("cluster", names.OWN_NAMESPACE), server.world.clock
    assert leases_beside(server.client, builder.karpenter, clock) == "kube-system"
    clock.advance(59)
    assert leases_beside(server.client, builder.karpenter, clock) == "kube-system"
    server.change("leases", "karpenter-leader-election", {"spec": {"renewTime": "2"}}, "kube-system")
    clock.advance(59)
    assert leases_beside(server.client, builder.karpenter, clock) == "kube-system"
    clock.advance(61)
    assert leases_beside(server.client, builder.karpenter, clock) == ""
