"""Claims are named, told to the state and written by one creator, whoever wants them."""

from typing import Any

import pytest

from provisioner.apis.karpenter import NodeClaim
from provisioner.kube.client import Client
from provisioner.kube.errors import AlreadyExists, NotFound
from provisioner.nodeclaims.creator import NoFreeNameError
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.scheduling.node_claims import NewClaim, static_claim
from provisioner.support.workers import WorkerPool
from tests.support.batches import claim_creator
from tests.support.cluster import World, pool
from tests.support.kube import FakeAnswer, FakeApi, Sent, ok, refusal


class Stage:
    """A creator whose calls are answered by `respond`."""

    def __init__(self, *answers: FakeAnswer) -> None:
        self.world, self.sent, self.created = World(), list[Sent](), list[NodeClaim]()
        self.answers = list(answers)
        self.world.cluster.pool_changed(None, pool())
        client = Client(FakeApi(respond=self._respond, clock=self.world.clock), self.world.clock)
        workers = WorkerPool(1)
        writer = ClaimWriter(client, self.world.cluster, lambda _: None)
        plans = PlanWriter(self.world.cluster, writer, workers)
        self.creator = claim_creator(client, self.world.cluster, plans, created=self.created.append)

    def _respond(self, sent: Sent) -> FakeAnswer:
        self.sent.append(sent)
        return self.answers.pop(0) if self.answers else succeed(sent)

    def announce(self) -> NewClaim:
        """A claim without pods."""
        new = self.creator.announce("general", lambda name: static_claim(pool(), name))
        assert new is not None
        return new


def succeed(sent: Sent) -> FakeAnswer:
    body: dict[str, Any] = dict(sent.body)
    return ok({**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": "1"}}, 201)


def test_a_claim_without_pods_is_known_at_once_and_is_written() -> None:
    stage = Stage()
    new = stage.announce()
    assert [one.metadata.name for one in stage.world.cluster.claims()] == [new.name]
    assert stage.sent == []
    claim = stage.creator.create(new)
    assert claim is not None
    assert [one.metadata.uid for one in stage.world.cluster.claims()] == ["u"]
    assert stage.created == [claim]
    assert not stage.world.cluster.is_unneeded(new.name)


def test_a_claim_whose_name_is_taken_and_then_gone_never_came_to_be() -> None:
    stage = Stage(refusal(409, "AlreadyExists"), refusal(404, "NotFound"))
    new = stage.announce()
    with pytest.raises(NotFound):
        stage.creator.create(new)
    assert [sent.method for sent in stage.sent] == ["POST", "GET"]
    assert stage.world.cluster.claims() == []
    assert stage.created == []


def test_names_that_are_all_taken_are_an_error_and_enter_nothing() -> None:
    stage = Stage()
    stage.announce()
    taken = stage.world.cluster.claims()
    with pytest.raises(NoFreeNameError, match="'general'"):
        stage.creator.announce("general", lambda _: static_claim(pool(), taken[0].metadata.name))
    assert stage.world.cluster.claims() == taken


def test_a_lost_answer_to_the_creation_of_a_claim_without_pods_is_found_again() -> None:
    stage = Stage()
    new = stage.announce()
    there = {**new.body, "metadata": {**new.body["metadata"], "uid": "u", "resourceVersion": "1"}}
    stage.answers = [refusal(409, "AlreadyExists"), ok(there)]
    claim = stage.creator.create(new)
    assert claim is not None
    assert [one.metadata.uid for one in stage.world.cluster.claims()] == ["u"]


def test_a_claim_of_that_name_of_another_owner_is_not_taken_for_ours() -> None:
    stage = Stage()
    new = stage.announce()
    other = {**new.body["metadata"], "uid": "u", "resourceVersion": "1", "ownerReferences": []}
    stage.answers = [refusal(409, "AlreadyExists"), ok({**new.body, "metadata": other})]
    with pytest.raises(AlreadyExists):
        stage.creator.create(new)
    assert stage.world.cluster.claims() == []
