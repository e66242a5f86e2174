"""Whether a claim is what its pool asks for."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.hash import nodepool_hash
from provisioner.apis.karpenter import NewerNodePool, NodeClaim, NodePool
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.disruption.pool_drift import NODE_POOL, REQUIREMENTS, TYPE_NOT_FOUND, pool_drift, type_drift
from provisioner.values.requirement import Requirements
from tests.support.clock import NOON
from tests.support.cluster import claim, pool

HASHED = {names.NODEPOOL_HASH: "1", names.NODEPOOL_HASH_VERSION: "v3"}


def made(true: tuple[str, ...] = (names.LAUNCHED,), **metadata: Any) -> NodeClaim:
    return claim("a", provider_id="kwok://a", true=true, **{"annotations": HASHED, **metadata})


def asking(annotations: dict[str, str] = HASHED, *requirements: dict[str, Any]) -> NodePool:
    one = pool(requirements=requirements)
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, annotations=annotations))


def newer(one: NodePool) -> NodePool:
    """The same, with a field that this version does not know."""
    known = {name: getattr(one, name) for name in NodePool.__struct_fields__}
    return NewerNodePool(**known, unread=("spec.somethingNew",))


def hashed(digest: str = "1", version: str = "v3") -> dict[str, str]:
    return {names.NODEPOOL_HASH: digest, names.NODEPOOL_HASH_VERSION: version}


def wants(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


NOW = nodepool_hash(pool().spec.template)
SPOT = {names.NODEPOOL_LABEL: "general", names.CAPACITY_TYPE_LABEL: "spot"}
POOLS: dict[str, tuple[NodeClaim, NodePool, str]] = {
    "made from this pool": (made(), asking(), ""),
    "made from an earlier one": (made(), asking(hashed("2")), NODE_POOL),
    "made from the pool as it is, whose hash is not written yet": (made(annotations=hashed(NOW)), asking(), ""),
    "made by another version of the hash": (made(), asking(hashed("2", "v4")), ""),
    "made from an earlier one, of a pool with unknown fields": (made(), newer(asking(hashed("2"))), ""),
    "outside of the requirements of a pool with unknown fields": (
        made(labels=SPOT),
        newer(asking(HASHED, wants(names.CAPACITY_TYPE_LABEL, "In", "on-demand"))),
        REQUIREMENTS,
    ),
    "a pool that has no hash yet": (made(), asking({}), ""),
    "a claim that has none": (made(annotations={}), asking(hashed("2")), ""),
    "a claim with a hash of no version": (made(annotations={names.NODEPOOL_HASH: "1"}), asking(hashed("2")), ""),
    "a claim that is not launched": (made(true=()), asking(hashed("2")), ""),
    "still within the requirements": (
        made(labels=SPOT),
        asking(HASHED, wants(names.CAPACITY_TYPE_LABEL, "In", "spot", "on-demand")),
        "",
    ),
    "outside of them": (
        made(labels=SPOT),
        asking(HASHED, wants(names.CAPACITY_TYPE_LABEL, "In", "on-demand")),
        REQUIREMENTS,
    ),
    "without a label that they ask for": (made(labels=SPOT), asking(HASHED, wants("team", "In", "x")), REQUIREMENTS),
    "without a label that must not be there": (made(labels=SPOT), asking(HASHED, wants("team", "DoesNotExist")), ""),
    "the hash comes first": (
        made(labels=SPOT),
        asking(hashed("2"), wants(names.CAPACITY_TYPE_LABEL, "In", "on-demand")),
        NODE_POOL,
    ),
    "requirements that nobody can read": (made(labels=SPOT), asking(HASHED, wants("team", "Gt", "x")), ""),
}


@pytest.mark.parametrize(("one", "asked", "want"), POOLS.values(), ids=POOLS)
def test_pool_drift(one: NodeClaim, asked: NodePool, want: str) -> None:
    assert pool_drift(one, asked) == want


def sold(name: str, *offerings: tuple[str, str], available: bool = True) -> InstanceType:
    """A type with offerings of (zone, capacity type)."""
    made_of = tuple(
        Offering(Requirements.from_labels({names.ZONE_LABEL: zone, names.CAPACITY_TYPE_LABEL: kind}), 1.0, available)
        for zone, kind in offerings
    )
    kind = {names.INSTANCE_TYPE_LABEL: name}
    return InstanceType(name, Requirements.from_labels(kind), {}, offerings=made_of)  # type: ignore[arg-type]


def bought(capacity_type: str = "spot", **more: str) -> NodeClaim:
    return made(
        labels={
            names.NODEPOOL_LABEL: "general",
            names.INSTANCE_TYPE_LABEL: "m5.large",
            names.ZONE_LABEL: "z",
            names.CAPACITY_TYPE_LABEL: capacity_type,
            **more,
        }
    )


RESERVED = bought("reserved", **{"karpenter.k8s.aws/capacity-reservation-id": "cr-1"})
HOUR = timedelta(hours=1)
TYPES: dict[str, tuple[NodeClaim, list[InstanceType], timedelta, str]] = {
    "sold as it was bought": (bought(), [sold("m5.large", ("z", "spot"))], HOUR, ""),
    "that are not available now": (bought(), [sold("m5.large", ("z", "spot"), available=False)], HOUR, ""),
    "not sold any more": (bought(), [sold("m6.large", ("z", "spot"))], HOUR, TYPE_NOT_FOUND),
    "sold elsewhere only": (bought(), [sold("m5.large", ("y", "spot"))], HOUR, TYPE_NOT_FOUND),
    "sold in another way only": (bought(), [sold("m5.large", ("z", "on-demand"))], HOUR, TYPE_NOT_FOUND),
    "a claim younger than an hour": (bought(), [sold("m6.large", ("z", "spot"))], HOUR - timedelta(seconds=1), ""),
    "a catalogue that is empty": (bought(), [], HOUR, ""),
    "a reservation that is gone": (RESERVED, [sold("m5.large", ("z", "on-demand"))], HOUR, ""),
    "a reservation of a type that is sold as spot": (
        RESERVED,
        [sold("m5.large", ("z", "spot"))],
        HOUR,
        TYPE_NOT_FOUND,
    ),
}


@pytest.mark.parametrize(("one", "types", "age", "want"), TYPES.values(), ids=TYPES)
def test_type_drift(one: NodeClaim, types: list[InstanceType], age: timedelta, want: str) -> None:
    assert type_drift(one, types, NOON + age) == want
