"""How chaos tells an instance that is paid for a part of a gang, each second."""

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.gangs import group_of
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import LaunchSet, encode_sets
from provisioner.apis.pods import Pod
from tests.chaos.gangs import parts
from tests.support.cluster import claim, pod


def member(name: str, node: str = "", gang: str = "train") -> Pod:
    return pod(name, owner=gang, node=node, annotations={names.GANG: gang, names.GANG_MINIMUM: "2"})


def made(*pods: Pod, launched: bool = True) -> NodeClaim:
    """A NodeClaim of a launch set for each gang of these pods; its Node is n1."""
    sets = [LaunchSet(id=f"{number}", group=group_of(one), nodes=2) for number, one in enumerate(pods)]
    one = claim("c", provider_id="kwok://n1" if launched else "", annotations={names.LAUNCH_SET: encode_sets(sets)})
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, node_name="n1" if launched else ""))


A, B, RUNS, OTHER = member("a"), member("b"), member("a", "n1"), member("o", gang="other")
CASES: dict[str, tuple[NodeClaim, list[Pod], list[Pod], bool]] = {
    "nothing of the gang runs": (made(A), [A, B], [], True),
    "half of it runs there": (made(A), [RUNS, B], [RUNS], True),
    "all of it runs": (made(A), [RUNS, member("b", "n2")], [RUNS], False),
    "it is not complete": (made(A), [A], [], False),
    "it has no pods any more": (made(A), [OTHER, member("p", gang="other")], [], False),
    "it has no instance": (made(A, launched=False), [A, B], [], False),
    "another pod runs there": (made(A), [A, B], [pod("x", node="n1")], False),
    "a daemon runs there": (made(A), [A, B], [pod("d", node="n1", kind="DaemonSet")], True),
    "it is for another gang, too, that runs": (
        made(A, OTHER),
        [A, B, member("o", "n2", "other"), member("p", "n1", "other")],
        [],
        False,
    ),
    "it is for another gang, too, of which half runs": (
        made(A, OTHER),
        [A, B, OTHER, member("p", "n1", "other")],
        [member("p", "n1", "other")],
        True,
    ),
    "it is of no launch set": (claim("c", provider_id="kwok://n1"), [A, B], [], False),
}


@pytest.mark.parametrize(("one", "members", "there", "is_part"), CASES.values(), ids=CASES)
def test_a_part_of_a_gang(one: NodeClaim, members: list[Pod], there: list[Pod], is_part: bool) -> None:
    assert bool(parts([one], members, lambda node: there if node == "n1" else [])) is is_part
