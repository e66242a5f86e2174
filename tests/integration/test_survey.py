"""Lists past every cache and guarded writes, on a real API server: what it writes is what we read."""

import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Condition, is_true
from provisioner.kube.client import Client
from provisioner.kube.errors import Conflict
from provisioner.kube.resources import NAMESPACES, NODECLAIMS, PODS
from provisioner.kube.survey import Unreadable, survey, surveyed
from provisioner.lab.harness import applying
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.state.cluster import Cluster
from provisioner.support.clock import SystemClock

pytestmark = pytest.mark.plane

LEVELS = 1_000


@pytest.fixture
def place(client: Client) -> Iterator[str]:
    """A namespace, and the name of a Node that does not exist."""
    name = f"survey-{uuid.uuid4().hex[:6]}"
    applying.apply(client, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
    yield name
    for one in ("a", "b", "deep"):
        client.raw("DELETE", PODS.path(name, one), query={"gracePeriodSeconds": "0"})
    client.delete(NAMESPACES, name)


def pod(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "registry.example/none"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"nodeName": node, "containers": [container]},
    }


def too_deep(name: str, node: str) -> bytes:
    """A pod with managedFields that the API server takes, as any tenant may write them."""
    fields = b'{"f:a":' * LEVELS + b"{}" + b"}" * LEVELS
    entry = {
        "manager": "tenant",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-21T10:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": "FIELDS",
    }
    return msgspec.json.encode(pod(name, node, managedFields=[entry])).replace(b'"FIELDS"', fields)


@pytest.mark.parametrize("page", [1, 2, 500])
def test_a_pod_that_is_nested_too_deeply_is_read_like_the_others(client: Client, place: str, page: int) -> None:
    for name in ("a", "b"):
        client.raw("POST", PODS.path(place), pod(name, place))
    client.raw("POST", PODS.path(place), too_deep("deep", place))
    found = list(surveyed(client, PODS, decode=PODS.decode, field_selector=f"spec.nodeName={place}", page=page))
    assert sorted(one.name for one in found) == ["a", "b", "deep"]
    assert not any(isinstance(one, Unreadable) for one in found)
    assert len(survey(client, PODS, decode=PODS.decode, field_selector=f"spec.nodeName={place}").objects) == len(found)


def writer(client: Client) -> ClaimWriter:
    """One whose caches know nothing."""
    return ClaimWriter(client, Cluster(lambda _: {}, SystemClock()), lambda _: None)


def with_condition(claim: NodeClaim, kind: str, reason: str = "") -> tuple[Condition, ...]:
    now = SystemClock().now()
    return CLAIM_CONDITIONS.set(claim.status.conditions, kind, names.TRUE, reason, generation=1, now=now)


def test_two_writers_of_one_claim_lose_nothing_of_each_other(client: Client) -> None:
    name = f"two-{uuid.uuid4().hex[:6]}"
    body = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name},
        "spec": {
            "requirements": [{"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]}],
            "nodeClassRef": {"group": "nobody.example", "kind": "Nothing", "name": "x"},
        },
    }
    seen = client.create(NODECLAIMS, body)
    try:
        writer(client).status(seen, with_condition(seen, names.LAUNCHED), providerID="x://1")
        writer(client).status(seen, with_condition(seen, names.DRIFTED))
        now = client.get(NODECLAIMS, name)
        assert is_true(now.status.conditions, names.LAUNCHED)
        assert is_true(now.status.conditions, names.DRIFTED)
        assert now.status.provider_id == "x://1"
        with pytest.raises(Conflict, match="Drifted"):
            writer(client).status(seen, with_condition(seen, names.DRIFTED, "RequirementsDrifted"))
    finally:
        client.delete(NODECLAIMS, name)
