"""A cluster that the first version has left in the middle of its work is taken over without harm."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.apis import names
from provisioner.cli.harness import applying
from provisioner.cli.harness.session import EXTENDER, PROVISIONER
from provisioner.cli.harness.workload import deployment
from provisioner.kube.errors import TooManyRequests
from provisioner.kube.resources import DEPLOYMENTS, NODECLAIMS, NODES, PDBS, PODS
from tests.chaos.churn import NAMESPACE, Churn
from tests.chaos.stage import Stage, stage
from tests.chaos.verdict import Balance, Witness, judge, nodes_ended_with_live_pods, wait_until
from tests.support.apiproxy import Rule
from tests.support.eventually import eventually
from tests.support.oldversion import OldVersion

pytestmark = pytest.mark.plane

SECONDS = 90.0


@pytest.fixture
def old(tmp_path: Path) -> OldVersion:
    return OldVersion(tmp_path)


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
