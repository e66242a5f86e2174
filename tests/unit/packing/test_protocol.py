"""What a planning process is told and what is made of its answers, without a process."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from provisioner.apis import names
from provisioner.packing.optimizer import propose
from provisioner.packing.protocol import (
    PackingProtocolError,
    PackingReply,
    PackingRequest,
    ProposedNode,
    Receiver,
    Sender,
    answer_bytes,
    answer_of,
    proposed,
    read_answer,
)
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import Packing, World
from provisioner.scheduling.result import Result
from tests.support.problems import (
    apart,
    app,
    instance_type,
    node,
    of_app,
    pod,
    pods,
    pool,
    problem,
    shape,
    storage,
    uses,
    volume,
    volume_claim,
)
from tests.support.question import Problem

LEAN = instance_type("lean", "4", "8Gi", 0.5, capacity_types=("on-demand",))
WIDE = instance_type("wide", "8", "64Gi", 4.0, capacity_types=("on-demand",))
POOL = pool("pool", types=(LEAN, WIDE))
TWELVE = pods(12, shape("1", "1Gi"))


def world_of(asked: Problem) -> World:
    return World(**{name: getattr(asked, name) for name in World.__dataclass_fields__})


def solved(asked: Problem) -> Result:
    return prepare(world_of(asked)).solve(asked.pods)


class Conversation:
    """One process that is told things, in this one."""

    def __init__(self) -> None:
        self.sender, self.receiver, self.sizes = Sender(), Receiver(), list[int]()

    def hears(self, asked: Problem) -> tuple[PackingRequest, Prepared]:
        result = solved(asked)
        number, data, placed = self.sender.asked(world_of(asked), result, deadline=1.5, rounds=7, seed=3)
        self.sizes.append(len(data))
        question, prepared = self.receiver.question(data)
        assert (question.number, question.deadline, question.rounds, question.seed) == (number, 1.5, 7, 3)
        assert question.pods == placed
        assert all(one.shape is other.shape for one, other in zip(question.pods, placed, strict=True))
        # the same fleet, proposed by who was told little and by who knows everything
        own = propose(prepared, question.pods, question.greedy, iterations=3)
        other = propose(prepare(world_of(asked)), placed, result, iterations=3)
        assert (own.nodes, own.usd_at_least, own.stage) == (other.nodes, other.usd_at_least, other.stage)
        return question, prepared


def test_the_second_question_says_only_what_has_changed() -> None:
    bins = [node(f"n{number:03d}", "2", "8Gi", running=pods(2, prefix=f"on-{number}-")) for number in range(200)]
    heard = Conversation()
    heard.hears(problem(TWELVE, POOL, bins=bins))
    _, again = heard.hears(problem(TWELVE[:11], POOL, bins=[*bins[1:], node("new", "1", "8Gi")]))
    assert [one.name for one in again.world.bins] == [one.name for one in [*bins[1:], node("new", "1", "8Gi")]]
    assert heard.sizes[1] < heard.sizes[0] / 4


def test_another_kind_of_world_begins_anew() -> None:
    heard = Conversation()
    heard.hears(problem(TWELVE, POOL))
    other = replace(problem(TWELVE, POOL, pool("second", types=(LEAN,))), reservation_label="example.com/reservation")
    assert heard.hears(other)[1].world.reservation_label == "example.com/reservation"


def test_prices_that_change_are_told_and_other_lists_are_not_told_again() -> None:
    many = tuple([instance_type(f"t{n}", "4", "8Gi", 1.0 + n) for n in range(100)])
    heard = Conversation()
    first = problem(TWELVE, POOL, pool("many", types=many))
    heard.hears(first)
    dearer = replace(first, pools=(pool(types=(replace(LEAN, overlaid=True), WIDE)), first.pools[1]))
    assert heard.hears(dearer)[1].world.pools[0].instance_types[0].overlaid
    assert heard.sizes[1] < heard.sizes[0] / 4


def test_pods_on_nodes_are_left_out_unless_they_keep_others_away() -> None:
    lonely = pod("lonely", of_app("db", affinity=apart(names.HOSTNAME_LABEL, app("db"))))
    busy = node("n", "2", "8Gi", running=(*pods(3, prefix="other"), lonely))
    _, heard = Conversation().hears(problem(TWELVE, POOL, bins=[busy]))
    assert [one.name for one in heard.world.bins[0].pods] == ["lonely"]


def test_pods_with_volumes_are_known_and_other_volumes_are_not_told() -> None:
    mine, other = volume_claim("mine", volume="v"), volume_claim("other", volume="w")
    kept = storage(mine, other, volume("v"), volume("w"))
    asked = problem([*TWELVE, pod("stateful", shape("1", "1Gi", volumes=uses("mine")))], POOL, storage=kept)
    told = Conversation().hears(asked)[1].world.storage
    assert [*told.claims] == ["default/mine"]
    assert [*told.volumes] == ["v"]


def test_views_of_dicts_are_told_as_dicts() -> None:
    asked = replace(problem(TWELVE, POOL), namespaces=MappingProxyType({"default": MappingProxyType({"a": "b"})}))
    assert Conversation().hears(asked)[1].world.namespaces == {"default": {"a": "b"}}


def test_an_answer_comes_back_as_the_same_fleet() -> None:
    asked = problem(TWELVE, POOL)
    question, prepared = Conversation().hears(asked)
    found = propose(prepared, question.pods, question.greedy, iterations=3)
    answered = read_answer(answer_bytes(answer_of(question, found.usd_at_least, found.stage, found.kept, found.nodes)))
    assert (answered.usd_at_least, answered.stage) == (1.5, found.stage)
    assert proposed(answered, question.pods, solved(asked), asked.pools) == ((), found.nodes)


def test_what_nodes_may_count_against_limits_comes_back_with_them() -> None:
    few = instance_type("few", "10", "8Gi", 0.4, capacity_types=("on-demand",))
    asked = problem(pods(8, shape("1", "4Gi")), pool("pool", types=(LEAN, WIDE, few), limits={"cpu": "20"}))
    question, prepared = Conversation().hears(asked)
    found = propose(prepared, question.pods, question.greedy, iterations=3)
    assert found.nodes is not None
    assert {node.charge for node in found.nodes} == {(("cpu", 4000),)}
    answered = read_answer(answer_bytes(answer_of(question, found.usd_at_least, found.stage, found.kept, found.nodes)))
    assert proposed(answered, question.pods, solved(asked), asked.pools) == ((), found.nodes)


def test_how_many_pods_of_one_owner_a_node_takes_is_told() -> None:
    talk = Conversation()
    _, prepared = talk.hears(replace(problem(TWELVE, POOL), most_of_one={"pool": 2}))
    assert prepared.world.most_of_one == {"pool": 2}
    assert talk.hears(problem(TWELVE, POOL))[1].world.most_of_one == {}


def lean(*numbers: int, name: str = "pool") -> ProposedNode:
    return ProposedNode(name, "lean", "", "on-demand", numbers)


def refusal(answered: PackingReply, asked: Problem) -> str:
    result = solved(asked)
    placed = tuple([one for claim in result.claims for one in claim.pods])
    with pytest.raises(PackingProtocolError) as error:
        proposed(answered, placed, result, asked.pools)
    return str(error.value)


@pytest.mark.parametrize(
    ("kept", "nodes", "says"),
    [
        ((), (lean(*range(11)),), "every pod exactly once"),
        ((), (lean(*range(12), 3),), "every pod exactly once"),
        ((), (lean(*range(11), 12),), "pods that do not exist"),
        ((), (lean(*range(11), -1),), "pods that do not exist"),
        ((9,), (), "NodeClaims that do not exist"),
        ((0, 0), (), "NodeClaims that do not exist"),
        ((0,), (lean(*range(12)),), "every pod exactly once"),
        ((), (lean(*range(12), name="nobody"),), "moves pods to NodePool 'nobody'"),
        ((), (lean(*range(12), name="light"),), "moves pods to NodePool 'light'"),
        ((), (lean(*range(12), name="greedy"),), "moves pods to NodePool 'greedy'"),
    ],
)
def test_an_answer_that_is_not_about_the_question_is_no_answer(
    kept: tuple[int, ...], nodes: tuple[ProposedNode, ...], says: str
) -> None:
    greedy = replace(pool("greedy", types=(LEAN,), weight=9), packing=Packing.GREEDY)
    light = pool("light", types=(LEAN,), weight=1)
    own = pool("pool", types=(LEAN, WIDE), weight=10)
    assert says in refusal(PackingReply(1, kept=kept, nodes=nodes), problem(TWELVE, own, light, greedy))


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", b"\x91" * 5000, b"\x93\x01\x02", answer_bytes(PackingReply(1))[:-3]]
)
def test_bytes_that_are_no_answer(data: bytes) -> None:
    with pytest.raises(PackingProtocolError):
        read_answer(data)
