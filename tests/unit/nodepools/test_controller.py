"""Health of a pool's launches, and what a pool uses."""

from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.hash import HASH_VERSION, nodepool_hash
from provisioner.apis.karpenter import NewerNodePool, NodePool
from provisioner.apis.meta import condition
from provisioner.cloudprovider.types import CloudProvider, InstanceType
from provisioner.nodepools.controller import PoolController, PoolHealth, used_by, why_launches_failed
from provisioner.support.metrics import REGISTRY
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint
from tests.support.clock import NOON
from tests.support.cluster import TYPES, World, claim, pool
from tests.support.fleets import Fleet
from tests.support.worldserver import WorldServer

GENERATIONS = (1, 1)
VERDICTS: dict[str, tuple[str, str]] = {
    "nothing is known without launches": ("", "Unknown"),
    "one good launch is healthy": ("+", "True"),
    "one bad launch says nothing yet": ("-", "Unknown"),
    "two bad ones of four are too many": ("--", "False"),
    "a good one after one bad one": ("-+", "True"),
    "a good one does not outweigh two bad ones": ("--+", "False"),
    "three good ones push the bad ones out": ("--+++", "True"),
    "one bad one among good ones": ("+++-", "Unknown"),
    "bad ones in between count": ("+-+-", "False"),
}


@pytest.mark.parametrize(("launches", "verdict"), VERDICTS.values(), ids=VERDICTS.keys())
def test_the_last_four_launches_decide(launches: str, verdict: str) -> None:
    health = PoolHealth(lambda _: None)
    for launch in launches:
        health.note("general", launch == "+")
    assert health.verdict("general", GENERATIONS) == verdict


def test_pools_are_judged_apart() -> None:
    health = PoolHealth(lambda _: None)
    health.note("a", False)
    health.note("a", False)
    health.note("b", True)
    assert (health.verdict("a", GENERATIONS), health.verdict("b", GENERATIONS)) == ("False", "True")


@pytest.mark.parametrize("changed", [(2, 1), (1, 2)], ids=["of the pool", "of the class"])
def test_a_new_generation_begins_anew(changed: tuple[int, int]) -> None:
    health = PoolHealth(lambda _: None)
    health.verdict("general", GENERATIONS)
    health.note("general", False)
    health.note("general", False)
    assert health.verdict("general", changed) == "Unknown"


def test_a_pool_of_the_name_of_one_that_is_gone_begins_anew() -> None:
    health = PoolHealth(lambda _: None)
    health.note("general", False)
    health.note("general", False)
    assert health.verdict("general", GENERATIONS) == "False"
    health.forget("general")
    assert health.verdict("general", GENERATIONS) == "Unknown"


def test_the_pool_is_looked_at_again_only_when_its_ring_changed() -> None:
    told: list[str] = []
    health = PoolHealth(told.append)
    for _ in range(6):
        health.note("general", True)
    assert told == ["general"] * 4


def test_a_pool_without_nodes_uses_zero_of_everything_that_is_told() -> None:
    assert used_by([]).to_wire() == {"cpu": "0", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "0"}


def test_a_pool_uses_what_its_nodes_have_known_or_not() -> None:
    fleet = Fleet()
    fleet.node("a", capacity=Resources.parse({"cpu": "4", "memory": "8Gi"}))
    fleet.node("b", capacity=Resources.parse({"cpu": "2", "x/gpu": "1"}))
    fleet.node("unlaunched", capacity=Resources.of({}))
    used = used_by(fleet.nodes)
    assert used.to_wire() == {
        "cpu": "6",
        "memory": "8Gi",
        "pods": "0",
        "ephemeral-storage": "0",
        "nodes": "3",
        "x/gpu": "1",
    }


# --- what an earlier leader said, and classes that change --------------------------------------------------------------------

TOLD = {
    "an unhealthy pool needs more than one good launch": ("False", "+", "False"),
    "three of them make it healthy": ("False", "+++", "True"),
    "a healthy pool stays so after one bad launch": ("True", "-", "Unknown"),
    "and not after two": ("True", "--", "False"),
    "what was unknown counts for nothing": ("Unknown", "+", "True"),
}


@pytest.mark.parametrize(("told", "launches", "verdict"), TOLD.values(), ids=TOLD)
def test_a_new_leader_goes_on_from_what_the_pool_says(told: str, launches: str, verdict: str) -> None:
    health = PoolHealth(lambda _: None)
    assert health.verdict("general", GENERATIONS, told) == told
    for launch in launches:
        health.note("general", launch == "+")
    assert health.verdict("general", GENERATIONS, told) == verdict


class Provider:
    name = "kwok"
    well_known_labels = names.WELL_KNOWN_LABELS
    types = tuple(TYPES.values())
    readiness = ("True", "", "")

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        return frozenset({("karpenter.kwok.sh", "KWOKNodeClass")})

    def instance_types(self, _: object) -> tuple[InstanceType, ...]:
        return self.types

    def node_class_ready(self, _: object) -> tuple[str, str, str]:
        return self.readiness


class Stage:
    """A pool, its class's generation, and a controller of pools."""

    def __init__(self, **status: Any) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.pool = pool(status=status)
        self.provider = Provider()
        self.generation: int | None = 1
        self.health = PoolHealth(lambda _: None)
        self.controller = PoolController(
            self.world.cluster,
            self.server.client,
            cast(CloudProvider, self.provider),
            self.server.writer,
            self.world.clock,
            pool=lambda _: self.pool,
            class_generation=lambda _: self.generation,
            health=self.health,
            ready=lambda: None,
            recorder=self.server.recorder,
        )

    @property
    def pool(self) -> NodePool:
        """As the server has it."""
        found: NodePool = msgspec.convert(self.server.get("nodepools", "general"), NodePool, strict=False)
        return found

    @pool.setter
    def pool(self, one: NodePool) -> None:
        self.server.store("nodepools", msgspec.json.decode(msgspec.json.encode(one)))

    @property
    def writes(self) -> list[Any]:
        return [sent.body for sent in self.server.api.sent]

    @property
    def reasons(self) -> list[str]:
        return [event[3] for event in self.server.recorder.events]

    def limit(self, usd_per_hour: str | None) -> None:
        patch = {"metadata": {"annotations": {names.MAX_USD_PER_HOUR: usd_per_hour}}}
        self.server.change("nodepools", "general", patch)

    @property
    def healthy(self) -> str:
        self.controller.reconcile("general")
        found = condition(self.pool.status.conditions, names.NODE_REGISTRATION_HEALTHY)
        assert found is not None
        return found.status


@pytest.mark.parametrize(
    ("limit", "status", "text"),
    [
        ("0.3", "False", "nodes cost $0.1520 of $0.3 per hour; further nodes fit"),
        ("0.16", "True", "nodes cost $0.1520 of $0.16 per hour; no further node fits"),
    ],
)
def test_a_pool_with_a_money_limit_says_what_its_nodes_cost(limit: str, status: str, text: str) -> None:
    one = Stage()
    one.world.cluster.pool_changed(None, one.pool)
    for name in ("a", "b"):
        one.world.existing_node(name)
    one.controller.reconcile("general")  # writes the hash
    one.limit(limit)
    one.controller.reconcile("general")
    found = condition(one.pool.status.conditions, names.SPENDING_LIMIT_REACHED)
    assert found is not None
    assert (found.status, found.message) == (status, text)
    labels = {"nodepool": "general", "resource_type": "usd_per_hour"}
    assert REGISTRY.get_sample_value("karpenter_nodepools_limit", labels) == float(limit)
    assert REGISTRY.get_sample_value("karpenter_nodepools_usage", labels) == pytest.approx(0.152, abs=1e-4)
    one.provider.types = tuple(
        [
            replace(kind, offerings=tuple([replace(way, price=100_000.0) for way in kind.offerings]))
            for kind in TYPES.values()
        ]
    )
    one.controller.reconcile("general")
    found = condition(one.pool.status.conditions, names.SPENDING_LIMIT_REACHED)
    assert found is not None
    assert found.message.startswith("nodes cost $0.0000 of ")
    assert found.message.endswith("; nodes without a known price, which count as free: 2")
    one.limit(None)
    one.controller.reconcile("general")
    assert condition(one.pool.status.conditions, names.SPENDING_LIMIT_REACHED) is None
    assert REGISTRY.get_sample_value("karpenter_nodepools_limit", labels) is None


def test_a_pool_whose_launches_fail_says_why() -> None:
    stage = Stage()
    assert stage.healthy == "Unknown"
    stage.health.note("general", False, "EC2 terminated instance i-1 at launch: no key")
    assert stage.healthy == "Unknown"
    stage.health.note("general", False, "EC2 terminated instance i-2 at launch: no key")
    assert stage.healthy == "False"
    found = condition(stage.pool.status.conditions, names.NODE_REGISTRATION_HEALTHY)
    assert found is not None
    assert "EC2 terminated instance i-2 at launch: no key" in found.message
    assert stage.reasons == ["LaunchFailed"]
    stage.health.forget("general")  # the next leader, which has seen no launch yet
    assert stage.healthy == "False"
    told = condition(stage.pool.status.conditions, names.NODE_REGISTRATION_HEALTHY)
    assert told is not None
    assert told.message == found.message
    assert why_launches_failed(stage.pool, 1) == "EC2 terminated instance i-2 at launch: no key"
    assert not why_launches_failed(stage.pool, 2), "the class was changed, and nobody has judged it since"
    assert not why_launches_failed(stage.pool, None)
    theirs = [
        msgspec.structs.replace(told, message="Failed to register node: no key"),  # Karpenter's
        msgspec.structs.replace(told, observed_generation=told.observed_generation + 1),
    ]
    for one in theirs:
        status = msgspec.structs.replace(stage.pool.status, conditions=(one,))
        assert not why_launches_failed(msgspec.structs.replace(stage.pool, status=status), 1)
    stage.health.note("general", True)
    stage.health.note("general", True)
    stage.health.note("general", True)
    assert stage.healthy == "True"
    assert not why_launches_failed(stage.pool, 1)
    assert not why_launches_failed(None, 1)


def test_the_hash_of_a_pool_with_unknown_fields_is_left_as_it_is_and_the_pool_is_told() -> None:
    stage = Stage()
    known = {name: getattr(stage.pool, name) for name in NodePool.__struct_fields__}
    theirs = msgspec.structs.replace(stage.pool.metadata, annotations={names.NODEPOOL_HASH: "of-theirs"})
    newer = NewerNodePool(**{**known, "metadata": theirs}, unread=("spec.new",))
    stage.controller._pool = lambda _: newer
    stage.controller.reconcile("general")
    assert not any("annotations" in one.get("metadata", {}) for one in stage.writes)
    assert stage.reasons == ["UnknownFields"]
    assert "spec.new" in stage.server.recorder.messages[0]


def test_a_pool_whose_money_limit_cannot_be_read_is_not_ready() -> None:
    one = Stage()
    one.controller.reconcile("general")  # writes the hash
    one.limit("much")
    one.controller.reconcile("general")
    found = condition(one.pool.status.conditions, names.VALIDATION_SUCCEEDED)
    assert found is not None
    assert found.status == "False"
    assert (
        "metadata.annotations[dovetail.dev/max-usd-per-hour]: 'much' is not a decimal number above 0" in found.message
    )


def test_a_pool_that_is_not_ready_says_the_cause_in_its_own_condition_and_once_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "dovetail.nodepools")
    one = Stage()
    cause = "EC2NodeClass default: no subnet"
    one.provider.readiness = ("False", "SubnetsNotFound", cause)
    for _ in range(3):
        one.controller.reconcile("general")
    ready, of_class = (condition(one.pool.status.conditions, kind) for kind in (names.READY, names.NODECLASS_READY))
    assert ready is not None
    assert of_class is not None
    assert (ready.status, ready.message) == ("False", f"NodeClassReady=False: {cause}")
    assert (of_class.reason, of_class.message) == ("SubnetsNotFound", cause)
    told = [(record.levelname, record.message, vars(record)["fields"]) for record in caplog.records]
    assert told == [
        ("WARNING", "A NodePool is not Ready", {"nodepool": "general", "reason": "SubnetsNotFound", "error": cause})
    ]
    one.provider.readiness = ("True", "", "")
    one.controller.reconcile("general")
    assert [(record.levelname, record.message) for record in caplog.records[1:]] == [("INFO", "A NodePool is Ready")]


def test_a_pool_that_has_a_reserved_taint_stays_in_use_and_says_so() -> None:
    one = Stage()
    taint = Taint(key="karpenter.sh/unregistered", effect="NoSchedule")
    spec = msgspec.structs.replace(one.pool.spec.template.spec, startup_taints=(taint,))
    template = msgspec.structs.replace(one.pool.spec.template, spec=spec)
    one.pool = msgspec.structs.replace(one.pool, spec=msgspec.structs.replace(one.pool.spec, template=template))
    one.controller.reconcile("general")  # writes the hash
    one.controller.reconcile("general")
    found = condition(one.pool.status.conditions, names.VALIDATION_SUCCEEDED)
    assert found is not None
    assert (found.status, found.reason) == ("True", "ReservedTaints")
    assert found.message.startswith("spec.template.spec.startupTaints[0].key: karpenter.sh/unregistered is reserved")
    assert one.server.recorder.events[-1] == ("NodePool", "general", "Warning", "ReservedTaints")


def test_a_class_that_changes_makes_the_health_of_its_pools_unknown() -> None:
    stage = Stage()
    assert stage.healthy == "Unknown"
    stage.health.note("general", False)
    stage.health.note("general", False)
    assert stage.healthy == "False"
    stage.generation = 2
    assert stage.healthy == "Unknown"
    assert stage.pool.status.node_class_observed_generation == 2
    stage.health.note("general", True)
    assert stage.healthy == "True"


def test_a_class_that_is_away_for_a_moment_changes_nothing() -> None:
    stage = Stage()
    stage.health.note("general", True)
    assert stage.healthy == "True"
    stage.generation = None
    assert stage.healthy == "True"
    stage.generation = 1
    writes = len(stage.writes)
    assert stage.healthy == "True"
    assert len(stage.writes) == writes


def hashed(digest: str, version: str = HASH_VERSION) -> dict[str, str]:
    return {names.NODEPOOL_HASH: digest, names.NODEPOOL_HASH_VERSION: version}


@pytest.mark.parametrize("of_pool", [hashed("old", "v2"), {}], ids=["an older version", "none, since they were lost"])
def test_claims_hashed_by_another_version_take_the_hash_over_unless_they_have_drifted(of_pool: dict[str, str]) -> None:
    stage = Stage()
    stage.pool = msgspec.structs.replace(
        stage.pool, metadata=msgspec.structs.replace(stage.pool.metadata, annotations=of_pool)
    )
    wanted = nodepool_hash(stage.pool.spec.template)
    for name, true, annotations in (
        ("a", (), hashed("old", "v2")),
        ("b", (), hashed("old", "v2")),
        ("c", (names.DRIFTED,), hashed("old", "v2")),
        ("d", (), hashed("other")),
    ):
        stage.server.put(claim(name, true=true, annotations=annotations))
    del stage.server.objects["nodeclaims"]["b"]  # the caches do not know of it yet
    stage.controller.reconcile("general")

    def carried(name: str) -> tuple[str, str]:
        found = stage.world.cluster.claim(name)
        assert found is not None
        return found.metadata.annotations[names.NODEPOOL_HASH], found.metadata.annotations[names.NODEPOOL_HASH_VERSION]

    assert [carried(name) for name in "acd"] == [
        (wanted, HASH_VERSION),
        ("old", HASH_VERSION),
        ("other", HASH_VERSION),
    ]
    assert stage.pool.metadata.annotations == hashed(wanted), "the pool comes last"


@pytest.mark.parametrize(("generation", "healthy"), [(1, "False"), (2, "Unknown")], ids=["the same", "another class"])
def test_a_new_leader_keeps_what_was_said_of_the_same_class(generation: int, healthy: str) -> None:
    said = {
        "type": "NodeRegistrationHealthy",
        "status": "False",
        "reason": "RegistrationFailed",
        "observedGeneration": 1,
        "lastTransitionTime": NOON.isoformat(),
    }
    stage = Stage(conditions=[said], nodeClassObservedGeneration=1)
    stage.generation = generation
    assert stage.healthy == healthy


def test_a_pool_of_another_provider_is_told_of_once_and_nothing_is_written(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    wire = msgspec.to_builtins(pool())
    wire["spec"]["template"]["spec"]["nodeClassRef"] = reference
    stage.server.only("nodepools", wire)
    for _ in range(3):
        stage.controller.reconcile("general")
    (told,) = [vars(one)["fields"] for one in caplog.records if one.message.startswith("Ignoring a NodePool")]
    assert told["nodepool"] == "general"
    assert told["error"] == (
        "nodeClassRef names EC2NodeClass, which the provider kwok does not serve; create the NodePool again with KWOKNodeClass in "
        "nodeClassRef, or run the provisioner with --provider=aws"
    )
    assert stage.writes == []
