import botocore.session
import pytest

from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import ObjectMeta
from provisioner.controllers.ec2.cloud import classes_concerned, region_of
from tests.support.cluster import claim, pool

CLASS = EC2NodeClass(metadata=ObjectMeta(name="blue"))
POOL = pool("general")
CLAIM = claim("one")


def generation(of: NodePool, number: int) -> NodePool:
    return NodePool(metadata=ObjectMeta(name=of.name, generation=number), spec=of.spec)


CONCERNED: dict[str, tuple[str, object, object, tuple[str, ...]]] = {
    "a class that is new": ("class", None, CLASS, ("blue",)),
    "a class that changed": ("class", CLASS, CLASS, ("blue",)),
    "a class that is gone": ("class", CLASS, None, ()),
    "a pool that is new": ("pool", None, POOL, ("default",)),
    "a pool that is gone": ("pool", POOL, None, ("default",)),
    "a pool that changed": ("pool", generation(POOL, 1), generation(POOL, 2), ("default",)),
    "a pool whose status changed": ("pool", generation(POOL, 1), generation(POOL, 1), ()),
    "a claim that is new": ("claim", None, CLAIM, ()),
    "a claim that is gone": ("claim", CLAIM, None, ("default",)),
}


@pytest.mark.parametrize(("what", "old", "new", "want"), CONCERNED.values(), ids=CONCERNED)
def test_classes_that_an_event_concerns(what: str, old: object, new: object, want: tuple[str, ...]) -> None:
    assert classes_concerned(what, old, new) == want


def test_the_region_is_that_of_every_sdk() -> None:
    session = botocore.session.Session()
    session.set_config_variable("region", "eu-west-1")
    assert region_of(session) == "eu-west-1"
