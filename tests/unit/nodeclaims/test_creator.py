"""Claims are named, told to the state and written by one creator, whoever wants them."""

import pytest

from provisioner.apis.karpenter import NodeClaim
from provisioner.kube.errors import AlreadyExists, NotFound
from provisioner.nodeclaims.creator import NoFreeNameError
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.scheduling.node_claims import NewClaim, static_claim
from provisioner.support.workers import WorkerPool
from tests.support.batches import claim_creator
from tests.support.cluster import World, pool
from tests.support.kube import refusal
from tests.support.worldserver import WorldServer


class Creating(WorldServer):
    """A creator on a server of which the caches hear nothing but from it."""

    def __init__(self) -> None:
        super().__init__(World())
        self.tell, self.created = False, list[NodeClaim]()
        self.world.cluster.pool_changed(None, pool())
        plans = PlanWriter(self.world.cluster, self.writer, WorkerPool(1))
        self.creator = claim_creator(self.client, self.world.cluster, plans, created=self.created.append)

    def announce(self) -> NewClaim:
        """A claim without pods."""
        new = self.creator.announce("general", lambda name: static_claim(pool(), name))
        assert new is not None
        return new

    @property
    def uids(self) -> list[str]:
        """Of the claims that the caches know."""
        return [one.metadata.uid for one in self.world.cluster.claims()]


def test_a_claim_without_pods_is_known_at_once_and_is_written() -> None:
    stage = Creating()
    new = stage.announce()
    assert [one.metadata.name for one in stage.world.cluster.claims()] == [new.name]
    assert stage.api.sent == []
    claim = stage.creator.create(new)
    assert claim is not None
    assert stage.uids == [f"uid-{new.name}"]
    assert stage.created == [claim]
    assert not stage.world.cluster.is_unneeded(new.name)


def test_a_claim_whose_name_is_taken_and_then_gone_never_came_to_be() -> None:
    stage = Creating()
    new = stage.announce()
    stage.intercept = lambda sent: refusal(409, "AlreadyExists") if sent.method == "POST" else None
    with pytest.raises(NotFound):
        stage.creator.create(new)
    assert [sent.method for sent in stage.api.sent] == ["POST", "GET"]
    assert stage.world.cluster.claims() == []
    assert stage.created == []


def test_names_that_are_all_taken_are_an_error_and_enter_nothing() -> None:
    stage = Creating()
    stage.announce()
    taken = stage.world.cluster.claims()
    with pytest.raises(NoFreeNameError, match="'general'"):
        stage.creator.announce("general", lambda _: static_claim(pool(), taken[0].metadata.name))
    assert stage.world.cluster.claims() == taken


def test_a_lost_answer_to_the_creation_of_a_claim_without_pods_is_found_again() -> None:
    stage = Creating()
    new = stage.announce()
    stage.store("nodeclaims", dict(new.body))
    claim = stage.creator.create(new)
    assert claim is not None
    assert stage.uids == [f"uid-{new.name}"]


def test_a_claim_of_that_name_of_another_owner_is_not_taken_for_ours() -> None:
    stage = Creating()
    new = stage.announce()
    stage.store("nodeclaims", {**new.body, "metadata": {**new.body["metadata"], "ownerReferences": []}})
    with pytest.raises(AlreadyExists):
        stage.creator.create(new)
    assert stage.world.cluster.claims() == []
