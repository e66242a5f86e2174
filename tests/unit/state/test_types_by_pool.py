"""Which instance types a claim may become: its pool's, or its NodeClass's where it has no pool."""

import msgspec

from provisioner.apis.karpenter import NodePool
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.types import InstanceType
from provisioner.state.types_by_pool import TypesByPool
from tests.support.cluster import claim, pool

TYPES = catalogue.generated().types


def test_pools_with_the_same_types_share_one_table() -> None:
    types = TypesByPool(lambda name: pool(name), lambda _: TYPES)
    assert types("a")[TYPES[0].name] is TYPES[0]
    assert types("a") is types("b")


def test_a_pool_with_other_types_has_its_own_table() -> None:
    by_pool = {"a": TYPES, "b": TYPES[:1]}
    types = TypesByPool(lambda name: pool(name), lambda found: by_pool[found.name])
    assert (len(types("a")), len(types("b"))) == (len(TYPES), 1)
    assert types("a") is types("a")


def test_types_that_changed_are_taken_over() -> None:
    now: list[tuple[InstanceType, ...]] = [TYPES]
    types = TypesByPool(lambda name: pool(name), lambda _: now[0])
    before = types("a")
    now[0] = TYPES[:2]
    assert (len(before), len(types("a"))) == (len(TYPES), 2)


def test_a_pool_that_is_gone_has_none() -> None:
    there = {"a": pool("a")}
    types = TypesByPool(there.get, lambda _: TYPES)
    assert types("a")
    there.clear()
    assert types("a") == {}


def test_a_claim_without_a_pool_has_the_types_of_its_class() -> None:
    by_class = {"default": TYPES[:2], "other": ()}
    asked: list[NodePool] = []

    def of_class(found: NodePool) -> tuple[InstanceType, ...]:
        asked.append(found)
        return by_class[found.node_class_ref.name]

    types, alone = TypesByPool(pool, of_class), claim("a", labels={})
    assert list(types.of_claim(alone)) == [one.name for one in TYPES[:2]]
    assert types.of_claim(alone) is types.of_claim(alone)
    reference = msgspec.structs.replace(alone.spec.node_class_ref, name="other")
    other = msgspec.structs.replace(alone, spec=msgspec.structs.replace(alone.spec, node_class_ref=reference))
    assert types.of_claim(other) == {}
    assert {one.name for one in asked} == {""}, "no pool was asked about"


def test_a_claim_of_a_pool_has_the_types_of_the_pool() -> None:
    by_pool = {"general": TYPES[:3]}
    types = TypesByPool(pool, lambda found: by_pool[found.name])
    assert list(types.of_claim(claim("a"))) == [one.name for one in TYPES[:3]]
