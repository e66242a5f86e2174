"""Pods of PodGroups on a real control plane with the feature gate GenericWorkload: no node for a part of a group.

`test_annotated_gangs` has the same for gangs of annotations, where no feature gate is on.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from provisioner.apis import names
from provisioner.apis.gangs import GroupSource
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.launch_sets import sets_of
from provisioner.apis.meta import condition
from provisioner.apis.plan import decode_plan
from provisioner.cli.why.command import command as why_command
from provisioner.cloudprovider.errors import InsufficientCapacityError
from provisioner.cloudprovider.kwok.provider import KwokProvider
from provisioner.cloudprovider.types import InstanceType, LaunchedInstance
from provisioner.kube.client import Client
from provisioner.kube.resources import NODEPOOLS, PODGROUPS, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.operator.kwok import KwokCloud
from provisioner.support.health import serve
from tests.support.eventually import PATIENCE, eventually
from tests.support.provisioner import SECONDS, TEAM, InProcess, Plot

pytestmark = pytest.mark.plane


class Market:
    """What of kwok is sold out.

    Attributes:
        refused: NodeClaims that get no instance.
        short: of the NodeClaims of this NodePool one for a single pod is refused, and no other instance can be had; "" for none.
    """

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.short = ""

    def around(self, provider: KwokProvider) -> KwokCloud:
        create, types = provider.create, provider.instance_types

        def asked(claim: NodeClaim) -> LaunchedInstance:
            if self.short and claim.pool == self.short:
                alone = decode_plan(claim.metadata.annotations[names.PLAN_ANNOTATION]).total == 1
                if alone and not self.refused:
                    self.refused = {claim.name}
                if claim.name in self.refused:
                    raise InsufficientCapacityError(claim.name, "all are sold out", 2.0)
            return create(claim)

        def left(pool: NodePool) -> tuple[InstanceType, ...]:
            found = types(pool)
            if pool.name != self.short or not self.refused:
                return found
            return tuple(
                replace(kind, offerings=tuple(replace(one, available=False) for one in kind.offerings))
                for kind in found
            )

        provider.create, provider.instance_types = asked, left  # type: ignore[method-assign]
        return KwokCloud(provider)


@pytest.fixture(scope="module")
def market() -> Market:
    return Market()


@pytest.fixture(scope="module")
def provisioner(gang_plane: DevCluster, gang_client: Client, market: Market) -> Iterator[InProcess]:
    with InProcess(str(gang_plane.kubeconfig), cloud=market.around) as one:
        yield one


@pytest.fixture
def plot(gang_client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(gang_client)
    yield one
    one.clear()


def put_group(plot: Plot, minimum: int, name: str = "train", key: str = "") -> None:
    constraints = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    body = {
        "apiVersion": PODGROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}, **constraints},
    }
    plot.client.create(PODGROUPS, body, plot.name)


def put_pod(
    plot: Plot,
    name: str,
    *,
    group: str = "train",
    notes: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> None:
    """A pod that fills a node of the plot; one with annotations names no PodGroup."""
    terms = [{"matchExpressions": [{"key": TEAM, "operator": "In", "values": plot.pool_names}]}]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes or {}, "labels": labels or {}},
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "3", "memory": "64Mi"}}}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            },
            "tolerations": [{"key": TEAM, "operator": "Exists"}],
            **({"schedulingGroup": {"podGroupName": group}} if group and not notes else {}),
            **spec,
        },
    }
    plot.client.create(PODS, body, plot.name)


def running(plot: Plot) -> list[str]:
    return sorted(one.name for one in plot.pods() if one.phase == "Running")


def runs(plot: Plot, *wanted: str) -> bool:
    return running(plot) == sorted(wanted)


def is_bound(plot: Plot, name: str) -> bool:
    """Whether a pod has a node, which may be one that was planned for its equal."""
    return any(one.name == name and one.node_name for one in plot.pods())


def planned(plot: Plot) -> set[str]:
    """Names of the pods for which a node is planned; where equal pods took each other's nodes, one plan may be gone."""
    uids = {one.uid: one.name for one in plot.pods()}
    texts = [one.metadata.annotations.get(names.PLAN_ANNOTATION) for one in plot.claims()]
    plans = [decode_plan(text) for text in texts if text is not None]
    return {uids.get(uid, uid) for plan in plans for entry in plan.pods for uid in entry.uids}


def answer_about(cluster: DevCluster, plot: Plot, name: str) -> dict[str, Any]:
    """What `dovetail why` says, with the permissions of whoever asks."""
    asked = ["pod", f"{plot.name}/{name}", "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    found: dict[str, Any] = json.loads(CliRunner().invoke(why_command, asked).stdout)
    return found


def ungate(plot: Plot) -> None:
    plot.client.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, plot.name)


Act = Callable[[Plot], None]
GATED: dict[str, Any] = {"schedulingGates": [{"name": "example.com/later"}]}
HERE, THERE = ({names.ZONE_LABEL: f"test-zone-{zone}"} for zone in "ab")
"""kube-scheduler knows no groups of annotations, and would bind one of their pods to the node of a single one."""
ROWS: dict[str, tuple[tuple[Act, ...], str, Act, tuple[str, ...]]] = {
    "whose last member is missing": (
        (lambda plot: put_group(plot, 2), lambda plot: put_pod(plot, "first")),
        "GroupIncomplete",
        lambda plot: put_pod(plot, "second"),
        ("first", "second"),
    ),
    "of which there is no object": (
        (lambda plot: put_pod(plot, "first"), lambda plot: put_pod(plot, "second")),
        "GroupUnknown",
        lambda plot: put_group(plot, 2),
        ("first", "second"),
    ),
    "of which a member has gates": (
        (
            lambda plot: put_group(plot, 2),
            lambda plot: put_pod(plot, "first"),
            lambda plot: put_pod(plot, "gated", **GATED),
        ),
        "GroupGated",
        ungate,
        ("first", "gated"),
    ),
}


@pytest.mark.parametrize(("begin", "state", "complete", "members"), ROWS.values(), ids=ROWS)
def test_a_group_gets_no_node_before_it_is_complete(
    gang_plane: DevCluster,
    provisioner: InProcess,
    plot: Plot,
    begin: tuple[Act, ...],
    state: str,
    complete: Act,
    members: tuple[str, ...],
) -> None:
    no_node_before_it_is_complete(gang_plane, plot, begin, state, complete, members)
    assert provisioner.caches.pod_groups[GroupSource.POD_GROUP] in provisioner.caches.all


def no_node_before_it_is_complete(
    cluster: DevCluster, plot: Plot, begin: tuple[Act, ...], state: str, complete: Act, members: tuple[str, ...]
) -> None:
    """Single pods get their nodes meanwhile, and `why` tells the state."""
    plot.pool(disruption={"consolidateAfter": "Never"})
    for act in begin:
        act(plot)
    for single in (
        "alone",
        "later",
    ):  # each is planned in a batch of its own, long after the grace period of the members
        put_pod(plot, single, group="", nodeSelector=HERE)
        eventually(lambda: single in planned(plot) or is_bound(plot, single), f"{single} is planned", SECONDS)  # noqa: B023 - asked at once
    eventually(lambda: runs(plot, "alone", "later"), "single pods run", SECONDS)
    assert planned(plot) <= {"alone", "later"}  # each was in a plan; whoever took the other's node ends one
    assert len(plot.claims()) == 2
    assert answer_about(cluster, plot, "first")["state"] == state
    complete(plot)
    eventually(lambda: runs(plot, "alone", "later", *members), "the whole group runs", SECONDS)
    assert len(plot.claims()) == 4


def test_a_group_for_which_there_is_too_little_room_gets_no_node(
    gang_plane: DevCluster, provisioner: InProcess, plot: Plot
) -> None:
    put_group(plot, 3)
    no_node_where_there_is_too_little_room(gang_plane, plot)


def no_node_where_there_is_too_little_room(
    cluster: DevCluster, plot: Plot, notes: dict[str, str] | None = None
) -> None:
    """A single pod gets its node, and the gang once the limit is higher."""
    pool = plot.pool(disruption={"consolidateAfter": "Never"}, limits={"cpu": "8"})
    for name in ("a", "b", "c"):
        put_pod(plot, name, notes=notes)
    eventually(lambda: "room for only 2 of them" in answer_about(cluster, plot, "a")["summary"], "why says so", SECONDS)
    put_pod(plot, "alone", group="")
    eventually(lambda: runs(plot, "alone"), "the single pod runs", SECONDS)
    assert planned(plot) <= {"alone"}
    assert len(plot.claims()) == 1
    plot.client.patch(NODEPOOLS, pool, {"spec": {"limits": {"cpu": "40"}}})
    eventually(lambda: runs(plot, "a", "alone", "b", "c"), "the whole group runs", SECONDS)
    assert len(plot.claims()) == 4


FOUR = ("a", "b", "c", "d")


def test_a_gang_of_four_gets_four_nodes_that_are_let_in_together(provisioner: InProcess, plot: Plot) -> None:
    put_group(plot, 4)
    four_nodes_are_let_in_together(plot)


def four_nodes_are_let_in_together(plot: Plot, notes: dict[str, str] | None = None) -> None:
    """They are of one launch set."""
    plot.pool(disruption={"consolidateAfter": "Never"}, delay="2s")
    for name in FOUR:
        put_pod(plot, name, notes=notes)
    eventually(lambda: runs(plot, *FOUR), "the gang runs", SECONDS)
    claims = plot.claims()
    (one,) = {sets_of(claim.metadata.annotations) for claim in claims}
    assert [each.nodes for each in one] == [len(claims)] == [4]
    eventually(lambda: len(plot.initialized()) == len(FOUR), "their nodes are initialised", SECONDS)
    said = [condition(each.status.conditions, names.REGISTERED) for each in plot.claims()]
    at = [each.last_transition_time for each in said if each is not None and each.last_transition_time is not None]
    assert (max(at) - min(at)).total_seconds() <= 2.0 * PATIENCE


@pytest.fixture
def figures() -> Iterator[Callable[[str], float | None]]:
    """What /metrics says of a series; None where it has none of that name."""
    server = serve(0, "127.0.0.1")

    def value(series: str) -> float | None:
        with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=SECONDS) as page:
            found = [one.rpartition(" ") for one in page.read().decode().splitlines()]
        return next((float(number) for name, _, number in found if name == series), None)

    yield value
    server.stop()


def test_a_gang_is_told_of_on_its_group_and_on_one_pod_and_measured(
    gang_plane: DevCluster, provisioner: InProcess, plot: Plot, figures: Callable[[str], float | None]
) -> None:
    def measured(state: str) -> float | None:
        return figures(f'dovetail_gangs{{source="podgroup",state="{state}"}}')

    def usd_waiting() -> float | None:
        return figures("dovetail_gang_usd_waiting")

    plot.pool(disruption={"consolidateAfter": "Never"}, delay="15s")
    put_group(plot, 4)
    put_pod(plot, "a")
    eventually(lambda: measured("incomplete") == 1, "it is incomplete", SECONDS)
    assert answer_about(gang_plane, plot, "a")["gang"] == f"PodGroup {plot.name}/train: 1 pod, 4 needed, 0 have places"
    for name in FOUR[1:]:
        put_pod(plot, name)
    eventually(lambda: measured("launching") == 1, "its nodes are launched", SECONDS)
    ready = figures("dovetail_gang_ready_seconds_count") or 0.0  # with those of earlier tests
    eventually(lambda: (usd_waiting() or 0) > 0, "they cost money", SECONDS)
    assert "4 needed, 4 have places" in answer_about(gang_plane, plot, "a")["gang"]
    eventually(lambda: runs(plot, *FOUR), "the gang runs", SECONDS)
    eventually(lambda: (measured("running"), usd_waiting()) == (1, 0), "that is measured", SECONDS)
    eventually(lambda: measured("launching") is None, "it is launching no more")
    eventually(lambda: figures("dovetail_gang_ready_seconds_count") == ready + 1, "it is counted once")
    for reason, words in (("GangPlanned", "Planned 4 new nodes for 4 pods"), ("GangLaunched", "Launched all nodes")):
        for kind, name in (("PodGroup", "train"), ("Pod", "a")):
            eventually(lambda: plot.events(reason, kind), f"{reason} is told", SECONDS)  # noqa: B023 - asked at once
            (one,) = plot.events(reason, kind)
            assert (one.involved_object.name, one.count, words in one.message) == (name, 1, True)


def test_where_one_of_four_nodes_cannot_be_had_all_go_but_those_that_others_use_and_the_gang_comes_back(
    provisioner: InProcess, plot: Plot, market: Market
) -> None:
    put_group(plot, 4)
    all_but_those_that_others_use_go_and_the_gang_comes_back(plot, market)


def all_but_those_that_others_use_go_and_the_gang_comes_back(
    plot: Plot, market: Market, notes: dict[str, str] | None = None
) -> None:
    """One of four nodes cannot be had for a while."""
    market.short, market.refused = plot.name, set()
    plot.pool(disruption={"consolidateAfter": "Never"}, delay="40s")
    put_pod(plot, "beside", group="", containers=small())
    for name in FOUR:
        put_pod(plot, name, notes=notes)
    eventually(lambda: sum(bool(one.status.provider_id) for one in plot.claims()) == 3, "three are launched", SECONDS)
    eventually(lambda: len(plot.claims()) == 1, "only one is left", 60.0)
    eventually(lambda: plot.events("GangGivenUp", "Pod", ["a"]), "it is told", SECONDS)
    eventually(lambda: "beside" in running(plot), "the other pod runs", 90.0)
    assert len(plot.claims()) == 1
    assert notes or running(plot) == ["beside"]  # kube-scheduler binds pods with annotations one by one
    market.short = ""
    eventually(lambda: runs(plot, "beside", *FOUR), "the gang runs", 240.0)
    assert len(plot.claims()) in (4, 5)


def small() -> list[dict[str, Any]]:
    return [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}}}]


def test_of_two_gangs_with_room_for_one_one_runs_and_of_the_other_there_is_no_node(
    provisioner: InProcess, plot: Plot
) -> None:
    for gang in ("left", "right"):
        put_group(plot, 3, gang)
    of_two_gangs_one_runs(plot)


def of_two_gangs_one_runs(plot: Plot, notes: Callable[[str], dict[str, str] | None] = lambda _: None) -> None:
    """There is room for one; of the other there is no node."""
    plot.pool(disruption={"consolidateAfter": "Never"}, limits={"cpu": "12"})
    for gang, zone in (("left", HERE), ("right", THERE)):
        for number in range(3):
            put_pod(plot, f"{gang}-{number}", group=gang, notes=notes(gang), nodeSelector=zone)
    eventually(lambda: plot.running() == 3, "one of them runs", SECONDS)
    assert len({one.name.split("-")[0] for one in plot.pods() if one.phase == "Running"}) == 1
    assert len(plot.claims()) == 3


SINGLES = ("s0", "s1", "s2", "s3")


def test_of_ten_gangs_and_single_pods_with_too_little_room_no_half_runs_and_later_all_do(
    provisioner: InProcess, plot: Plot
) -> None:
    for number in range(10):
        put_group(plot, 2, f"g{number}")
    pool = singles_and_ten_gangs(plot)
    eventually(lambda: set(SINGLES) <= set(running(plot)) and plot.running() == 6, "one gang has the room", SECONDS)
    assert set(Counter(one.split("-")[0] for one in running(plot) if one not in SINGLES).values()) == {2}
    assert len(plot.claims()) == 6
    all_run_once_there_is_room(plot, pool)


def singles_and_ten_gangs(plot: Plot, notes: Callable[[str], dict[str, str] | None] = lambda _: None) -> str:
    """Single pods, and then ten gangs of two, where seven nodes are allowed; the NodePool."""
    pool = plot.pool(disruption={"consolidateAfter": "Never"}, limits={"cpu": "28"})
    for name in SINGLES:
        put_pod(plot, name, group="")
    eventually(lambda: len(plot.claims()) == len(SINGLES), "single pods are planned", SECONDS)
    for number in range(10):
        for each in range(2):
            put_pod(plot, f"g{number}-{each}", group=f"g{number}", notes=notes(f"g{number}"))
    return pool


def all_run_once_there_is_room(plot: Plot, pool: str) -> None:
    plot.client.patch(NODEPOOLS, pool, {"spec": {"limits": {"cpu": "400"}}})
    eventually(lambda: plot.running() == 24, "all gangs and single pods run", 2 * SECONDS)


def domains(plot: Plot, key: str) -> list[str]:
    """The values of a label on the nodes on which pods run, one a pod."""
    labels = {one.metadata.name: one.metadata.labels for one in plot.nodes()}
    return sorted(labels[one.node_name][key] for one in plot.pods() if one.node_name in labels)


def test_a_gang_with_a_topology_key_gets_nodes_in_one_zone_and_a_member_that_runs_says_which(
    provisioner: InProcess, plot: Plot
) -> None:
    plot.pool(disruption={"consolidateAfter": "Never"})
    put_group(plot, 4, key=names.ZONE_LABEL)
    for name in FOUR[1:]:
        put_pod(plot, name)
    put_pod(plot, "a", nodeSelector={names.ZONE_LABEL: "test-zone-c"})
    eventually(lambda: runs(plot, *FOUR), "the gang runs", SECONDS)
    put_pod(plot, "later")
    eventually(lambda: runs(plot, *FOUR, "later"), "another member runs", SECONDS)
    assert domains(plot, names.ZONE_LABEL) == ["test-zone-c"] * 5
    assert len(plot.claims()) == 5


def test_a_gang_that_must_be_on_one_node_gets_one_that_is_large_enough(provisioner: InProcess, plot: Plot) -> None:
    plot.pool(cpu=(4, 16), disruption={"consolidateAfter": "Never"})
    put_group(plot, 4, key=names.HOSTNAME_LABEL)
    for name in FOUR:
        put_pod(plot, name)
    eventually(lambda: runs(plot, *FOUR), "the gang runs", SECONDS)
    assert len(plot.claims()) == len(set(domains(plot, names.HOSTNAME_LABEL))) == 1


def test_a_gang_whose_topology_key_no_node_pool_sets_gets_no_node_and_why_says_so(
    gang_plane: DevCluster, provisioner: InProcess, plot: Plot
) -> None:
    pool = plot.pool(disruption={"consolidateAfter": "Never"})
    put_group(plot, 2, key="example.com/rack")
    for name in ("a", "b"):
        put_pod(plot, name)
    eventually(
        lambda: "no NodePool sets that label" in json.dumps(answer_about(gang_plane, plot, "a")), "why says so", SECONDS
    )
    assert plot.claims() == []
    spec = {"template": {"metadata": {"labels": {TEAM: pool, "example.com/rack": "r1"}}}}
    plot.client.patch(NODEPOOLS, pool, {"spec": spec})
    eventually(lambda: runs(plot, "a", "b"), "the gang runs", SECONDS)
    assert domains(plot, "example.com/rack") == ["r1", "r1"]
