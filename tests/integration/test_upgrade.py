"""A cluster that the first version has left in the middle of its work is taken over without harm."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from provisioner.apis import names
from provisioner.apis.ec2 import VALIDATION_SUCCEEDED
from provisioner.apis.meta import condition
from provisioner.cli.harness import applying
from provisioner.cli.harness.session import EXTENDER, PROVISIONER
from provisioner.cli.harness.workload import deployment
from provisioner.devcluster.cluster import DevCluster
from provisioner.kube.errors import TooManyRequests
from provisioner.kube.resources import DEPLOYMENTS, EC2NODECLASSES, NODECLAIMS, NODES, PDBS, PODS
from tests.chaos.churn import NAMESPACE, Churn
from tests.chaos.stage import Stage, stage
from tests.chaos.verdict import Balance, Witness, judge, nodes_ended_with_live_pods, wait_until
from tests.support import awscluster
from tests.support.apiproxy import Rule
from tests.support.awscluster import aws_cluster
from tests.support.eventually import eventually
from tests.support.oldversion import FIRST_VERSION, OldVersion

pytestmark = pytest.mark.plane

SECONDS = 90.0


@pytest.fixture
def old(request: pytest.FixtureRequest, tmp_path: Path) -> OldVersion:
    return OldVersion(tmp_path, getattr(request, "param", FIRST_VERSION))


@pytest.fixture(params=["kwok"])
def place(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(str(request.param), random.Random(0), programs=()) as found:
        yield found


def start_old(old: OldVersion, place: Stage, name: str) -> None:
    """The first version's program of that name, with today's flags, led through the same proxy."""
    program = place.program(name)
    old.start(place.cluster, f"old-{name}", program.arguments, dict(program.environment))
    eventually(program.ready, f"the old {name} serves", SECONDS)


def kill_old(place: Stage, name: str) -> None:
    place.cluster.signal(f"old-{name}", signal.SIGKILL)


def running(place: Stage, app: str) -> int:
    pods = place.client.list(PODS, NAMESPACE)
    return sum(1 for pod in pods if pod.labels.get("app") == app and pod.phase == "Running" and pod.deleted is None)


def deploy(place: Stage, name: str, replicas: int, cpu: str = "500m") -> None:
    applying.apply(
        place.client,
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            deployment(name, NAMESPACE, replicas, {"cpu": cpu, "memory": "256Mi"}),
        ],
    )


def test_plans_on_nodes_and_claims_and_half_a_drain_are_taken_over(place: Stage, old: OldVersion) -> None:
    client = place.client
    start_old(old, place, PROVISIONER)
    place.apply_pools()
    deploy(place, "first", 30)
    deploy(place, "filler", 12, "250m")
    eventually(lambda: running(place, "first") == 30 and running(place, "filler") == 12, "the first pods run", SECONDS)
    guarded = {pod.node_name for pod in client.list(PODS, NAMESPACE) if pod.name.startswith("first-")}
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "first", "namespace": NAMESPACE},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "first"}}},
    }
    client.raw("POST", PDBS.path(NAMESPACE), body)
    drained = min(guarded)
    eventually(lambda: client.list(PDBS, NAMESPACE)[0].metadata.uid, "the budget is there")
    client.delete(NODES, drained)
    eventually(
        lambda: any(taint.key == names.DISRUPTED_TAINT.key for taint in client.get(NODES, drained).spec.taints),
        "half a drain: the taint is there, the budget holds the pods",
        SECONDS,
    )
    place.cluster.signal("kube-scheduler", signal.SIGSTOP)
    client.patch(DEPLOYMENTS, "filler", {"spec": {"replicas": 0}}, NAMESPACE)
    eventually(lambda: not running(place, "filler"), "there is room on nodes that exist")
    deploy(place, "second", 25, "250m")
    eventually(
        lambda: (
            any(names.PLAN_ANNOTATION in claim.metadata.annotations for claim in client.list(NODECLAIMS))
            and client.list(NODECLAIMS)
        ),
        "plans are written",
        SECONDS,
    )
    eventually(
        lambda: any(names.PLAN_ANNOTATION in node.metadata.annotations for node in client.list(NODES)),
        "a plan stands on a Node, as the first version wrote them",
        SECONDS,
    )
    kill_old(place, PROVISIONER)
    witness = Witness(place)
    witness.start()
    place.cluster.signal("kube-scheduler", signal.SIGCONT)
    place.start((PROVISIONER,))
    eventually(lambda: running(place, "second") == 25, "pods of the old plans run", SECONDS)
    assert running(place, "first") == 30
    eventually(
        lambda: not any(names.PLAN_ANNOTATION in node.metadata.annotations for node in client.list(NODES)),
        "plans on Nodes are taken away",
        SECONDS,
    )
    pod = next(pod for pod in client.list(PODS, NAMESPACE) if pod.node_name == drained)
    with pytest.raises(TooManyRequests):  # the budget is kept to the end
        client.evict(pod.name, pod.namespace, pod.uid)
    client.patch(PDBS, "first", {"spec": {"maxUnavailable": 5}}, NAMESPACE)
    eventually(
        lambda: drained not in {node.metadata.name for node in client.list(NODES)}, "the drain is finished", SECONDS
    )
    eventually(lambda: running(place, "first") == 30, "the drained pods run elsewhere", SECONDS)
    witness.stop()
    assert nodes_ended_with_live_pods(witness) == []
    assert wait_until(place, lambda: Balance(place).is_even, SECONDS) is not None, str(Balance(place))


@pytest.mark.parametrize("place", ["aws"], indirect=True)
@pytest.mark.parametrize("marked", [0, 2])
def test_marks_of_half_a_batch_lead_to_one_instance_a_claim(place: Stage, old: OldVersion, marked: int) -> None:
    start_old(old, place, PROVISIONER)
    place.apply_pools()
    proxy = place.proxies[PROVISIONER]
    held = proxy.add(Rule("hang", "PATCH", ".*/nodeclaims/.*", after=marked))
    for number in range(5):
        deploy(place, f"app-{number}", 1, "3")
    eventually(lambda: held.hits > 0, "a mark is being written", SECONDS)
    kill_old(place, PROVISIONER)
    proxy.remove(held)
    place.start((PROVISIONER,))
    eventually(lambda: all(running(place, f"app-{number}") == 1 for number in range(5)), "every pod runs", 2 * SECONDS)
    balance = Balance(place)
    assert (balance.shared, balance.empty_claims) == ([], []), str(balance)
    assert wait_until(place, lambda: Balance(place).is_even, SECONDS) is not None, str(Balance(place))


BEFORE: Final = "c2d67022"
"""The last commit that judged what these rows have as it was judged from the first version on."""

JUDGED_ANEW: dict[str, tuple[dict[str, Any], tuple[str, ...], dict[str, str]]] = {
    "with-ipv6-on-xen": ({"kubelet": {"clusterDNS": ["fd00::a"]}}, ("t2.large",), {}),
    "no-gpu-on-a-part-of-one": ({}, ("g6f.large",), {}),
    "on-a-whole-gpu": ({}, ("g6.xlarge", "g6f.xlarge"), {"nvidia.com/gpu": "1"}),
}
"""EC2NodeClass, instance types of its NodePool, and what the pod asks for beside CPU."""


REFUSED_ANEW: Final = {
    "never-joins": "#cloud-config\npackages: [jq]\n",
    "of-another-version": "apiVersion: node.eks.aws/v2\nkind: NodeConfig\n",
}
"""User data of EC2NodeClasses that would not be Ready if they were new."""

AFTERWARDS: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "ipv6": ("with-ipv6-on-xen", ("t2.small", "t3.medium"), {}),
    "gpu": ("no-gpu-on-a-part-of-one", ("g6f.large",), {"nvidia.com/gpu": "1"}),
}
"""What comes to be then: the class, the types of a NodePool, of which the last is right, and what the pod asks for."""


def deploy_on(
    aws: awscluster.AwsCluster, name: str, node_class: str, types: tuple[str, ...], asks: dict[str, str]
) -> None:
    """A NodePool of these instance types, and a pod for it."""
    policy = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
    document = awscluster.pool(name, node_class, disruption={**policy, "budgets": [{"nodes": "100%"}]})
    document["spec"]["template"]["spec"]["requirements"] = [
        {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": list(types)}
    ]
    workload = deployment(name, awscluster.NAMESPACE, 1, {"cpu": "500m", **asks})
    pods = workload["spec"]["template"]["spec"]
    pods["nodeSelector"] = {names.NODEPOOL_LABEL: name}
    pods["containers"][0]["resources"]["limits"] = asks
    applying.apply(aws.client, [document, workload])


@pytest.mark.parametrize("old", [BEFORE], indirect=True)
def test_what_is_judged_anew_stays_as_it_is(old: OldVersion) -> None:
    cluster = DevCluster(temporary=True, extender=False)
    cluster.up()
    try:
        with aws_cluster(cluster, clock_factor=10.0, rate_limits=False) as aws:
            old.start(cluster, "old-provisioner", aws.arguments(), dict(aws.ec2.environment()))
            aws.await_ready(lambda: cluster.log("old-provisioner").read_text())
            for name, (spec, types, asks) in JUDGED_ANEW.items():
                aws.node_class(name, **spec)
                deploy_on(aws, name, name, types, asks)
            for name, user_data in REFUSED_ANEW.items():
                aws.node_class(name, userData=user_data)
            aws.await_running(len(JUDGED_ANEW), SECONDS)
            aws.eventually(lambda: len(aws.initialized()) == len(JUDGED_ANEW), "every node is initialized")
            aws.eventually(
                lambda: set(validated(aws).values()) == {("True", "ValidationSucceeded")}, "every class is valid"
            )
            before = nodes_and_classes(aws)
            cluster.stop("old-provisioner")
            aws.start()
            aws.eventually(lambda: aws.looks() > 10, "nodes were looked at", SECONDS)
            assert nodes_and_classes(aws) == before
            told = {name for name, found in validated(aws).items() if found == ("True", "InvalidUserData")}
            assert told == set(REFUSED_ANEW)
            assert not any(condition(one.status.conditions, "Drifted") for one in aws.claims())
            for name, (of, types, asks) in AFTERWARDS.items():
                deploy_on(aws, name, of, types, asks)
            aws.await_running(len(JUDGED_ANEW) + len(AFTERWARDS), SECONDS)
            bought = {one.pool: one.metadata.labels[names.INSTANCE_TYPE_LABEL] for one in aws.claims()}
            assert {name: bought[name] for name in AFTERWARDS} == {name: row[1][-1] for name, row in AFTERWARDS.items()}
    finally:
        cluster.down()


def validated(aws: awscluster.AwsCluster) -> dict[str, tuple[str, str]]:
    """Status and reason of each class's ValidationSucceeded."""
    found = {
        one.name: condition(one.status.conditions, VALIDATION_SUCCEEDED) for one in aws.client.list(EC2NODECLASSES)
    }
    return {name: (one.status, one.reason) for name, one in found.items() if one is not None}


def nodes_and_classes(aws: awscluster.AwsCluster) -> list[tuple[object, ...]]:
    """Each NodeClaim with its type, each Node with its taints, and since when each class is Ready."""
    claims = [(one.pool, one.metadata.uid, one.metadata.labels[names.INSTANCE_TYPE_LABEL]) for one in aws.claims()]
    nodes = [(node.metadata.uid, node.spec.taints) for node in aws.instance_nodes()]
    ready = [(one.name, condition(one.status.conditions, names.READY)) for one in aws.client.list(EC2NODECLASSES)]
    return [
        *sorted(claims),
        *sorted(nodes),
        *sorted((name, found.status, found.last_transition_time) for name, found in ready if found is not None),
    ]


@pytest.mark.parametrize("changes", [900, pytest.param(3600, marks=pytest.mark.judge)])
def test_an_old_extender_beside_a_new_provisioner(place: Stage, old: OldVersion, changes: int) -> None:
    """Changes of pods, one a second for an hour (a quarter of it in `make test`), as fast as this machine makes them."""
    start_old(old, place, EXTENDER)
    place.start((PROVISIONER,))
    place.apply_pools()
    witness = Witness(place)
    witness.start()
    churn = Churn(place.client, random.Random(3), 0.4, interval=0.1, lulls=0.0)
    churn.start()
    eventually(lambda: events(witness) >= changes, f"{changes} changes of pods", 180)
    churn.stop()
    churn.settle()
    wrong = judge(place, churn, witness)
    witness.stop()
    assert wrong == []
    log = place.logs("old-extender")
    assert "Traceback" not in log
    assert not any(deployed.status is None for deployed in place.client.list(DEPLOYMENTS, NAMESPACE))


def events(witness: Witness) -> int:
    """Changes of pods so far: made, bound, told to go, gone."""
    with witness.lock:
        return sum(1 + bool(life.bound) + bool(life.deleting) + bool(life.gone) for life in witness.pods.values())
