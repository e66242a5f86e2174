"""A cluster that the first version has left in the middle of its work is taken over without harm."""

import json
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import pytest
import urllib3
from click.testing import CliRunner

from provisioner.apis import names
from provisioner.apis.ec2 import VALIDATION_SUCCEEDED
from provisioner.apis.meta import condition, is_true
from provisioner.apis.plan import HOLD_SECONDS, Plan, decode_plan
from provisioner.cli.main import dovetail
from provisioner.kube.errors import TooManyRequests
from provisioner.kube.resources import (
    DEPLOYMENTS,
    EC2NODECLASSES,
    EVENTS,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PODS,
)
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.harness import applying
from provisioner.lab.harness.session import EXTENDER, PROVISIONER, WEBHOOK
from provisioner.lab.harness.workload import REPOSITORY, deployment
from provisioner.options import command
from tests.chaos.churn import NAMESPACE, Churn
from tests.chaos.stage import ChaosCluster, stage
from tests.chaos.verdict import Balance, Witness, judge, nodes_ended_with_live_pods, wait_until
from tests.support import awscluster
from tests.support.apiproxy import Rule
from tests.support.awscluster import aws_cluster
from tests.support.eventually import eventually
from tests.support.hook import Hook
from tests.support.oldversion import FIRST_VERSION, OldVersion

pytestmark = pytest.mark.plane

SECONDS = 90.0


@pytest.fixture
def old(request: pytest.FixtureRequest, tmp_path: Path) -> OldVersion:
    return OldVersion(tmp_path, getattr(request, "param", FIRST_VERSION))


@pytest.fixture(params=["kwok"])
def place(request: pytest.FixtureRequest) -> Iterator[ChaosCluster]:
    with stage(str(request.param), random.Random(0), programs=()) as found:
        yield found


def start_old(old: OldVersion, place: ChaosCluster, name: str, *flags: str) -> None:
    """The old version's program of that name, with today's flags and these, led through the same proxy."""
    program = place.program(name)
    old.start(place.cluster, f"old-{name}", (*program.arguments, *flags), dict(program.environment))
    eventually(program.ready, f"the old {name} serves", SECONDS)


def kill_old(place: ChaosCluster, name: str) -> None:
    place.cluster.signal(f"old-{name}", signal.SIGKILL)


def running(place: ChaosCluster, app: str) -> int:
    pods = place.client.list(PODS, NAMESPACE)
    return sum(1 for pod in pods if pod.labels.get("app") == app and pod.phase == "Running" and pod.deleted is None)


def deploy(place: ChaosCluster, name: str, replicas: int, cpu: str = "500m") -> None:
    applying.apply(
        place.client,
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            deployment(name, NAMESPACE, replicas, {"cpu": cpu, "memory": "256Mi"}),
        ],
    )


def test_plans_on_nodes_and_claims_and_half_a_drain_are_taken_over(place: ChaosCluster, old: OldVersion) -> None:
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
    # it was deleted before the first version that writes down since when it is installed
    held = next(one for one in client.list(NODECLAIMS) if one.status.node_name == drained)
    client.patch(NODECLAIMS, held.name, {"metadata": {"annotations": {names.CONFIRM_DELETION: "true"}}})
    eventually(
        lambda: drained not in {node.metadata.name for node in client.list(NODES)}, "the drain is finished", SECONDS
    )
    eventually(lambda: running(place, "first") == 30, "the drained pods run elsewhere", SECONDS)
    witness.stop()
    assert nodes_ended_with_live_pods(witness) == []
    assert wait_until(place, lambda: Balance(place).is_even, SECONDS) is not None, str(Balance(place))


@pytest.mark.parametrize("place", ["aws"], indirect=True)
@pytest.mark.parametrize("marked", [0, 2])
def test_marks_of_half_a_batch_lead_to_one_instance_a_claim(place: ChaosCluster, old: OldVersion, marked: int) -> None:
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


BEFORE: Final = "4c5ed5a7"
"""The last commit that judged everything that these rows have as it was judged from the first version on."""

OWN_TAINT: Final = {"key": "dovetail.dev/team", "effect": names.NO_SCHEDULE}
STARTUP_TAINT: Final = {"key": "karpenter.sh/warming", "effect": names.NO_SCHEDULE}
EFA: Final = "vpc.amazonaws.com/efa"


@dataclass(frozen=True)
class Judged:
    """An EC2NodeClass, a NodePool of it, and a pod there, each with something that is judged anew.

    Attributes:
        types: of instances that the NodePool allows.
        node_class: more of the class's spec.
        asks: what the pod asks for beside CPU.
        template: more of the NodePool's template.
        budgets: of the NodePool.
        found: what the condition ValidationSucceeded of the NodePool names afterwards.
    """

    types: tuple[str, ...]
    node_class: Mapping[str, Any] = field(default_factory=dict)
    asks: Mapping[str, str] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)
    budgets: tuple[Mapping[str, str], ...] = ({"nodes": "100%"},)
    found: str = ""


JUDGED_ANEW: Final = {
    "reserved-taint": Judged(
        ("m5.large",),
        template={"taints": [OWN_TAINT]},
        found="spec.template.spec.taints[0].key: dovetail.dev/team is reserved",
    ),
    "reserved-startup-taint": Judged(
        ("m5.large",),
        template={"startupTaints": [STARTUP_TAINT]},
        found="spec.template.spec.startupTaints[0].key: karpenter.sh/warming is reserved",
    ),
    "budgets-with-a-gap": Judged(
        ("m5.large",), budgets=({"nodes": "10%", "schedule": "0 1 * * mon", "duration": "4h"},)
    ),
    "with-ipv6-on-xen": Judged(("t2.large",), {"kubelet": {"clusterDNS": ["fd00::a"]}}),
    "no-gpu-on-a-part-of-one": Judged(("g6f.large",)),
    "on-a-whole-gpu": Judged(("g6.xlarge", "g6f.xlarge"), asks={"nvidia.com/gpu": "1"}),
    "efa-on-each-card": Judged(("p4d.24xlarge",), asks={EFA: "4"}),
    "public-beside-efa": Judged(("p4d.24xlarge",), {"associatePublicIPAddress": True}),
}

REFUSED_ANEW: Final = {
    "never-joins": "#cloud-config\npackages: [jq]\n",
    "of-another-version": "apiVersion: node.eks.aws/v2\nkind: NodeConfig\n",
}
"""User data of EC2NodeClasses that would not be Ready if they were new."""

_TWO_INTERFACES: Final = [
    {"networkCardIndex": 0, "deviceIndex": device, "interfaceType": "interface"} for device in (0, 1)
]
WARNED_ANEW: Final[Mapping[str, Mapping[str, Any]]] = {
    "public-with-two-interfaces": {"associatePublicIPAddress": True, "networkInterfaces": _TWO_INTERFACES},
    "a-term-without-filter": {
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": awscluster.CLUSTER}}, {"tags": {}}]
    },
}
"""EC2NodeClasses that are Ready, and of which something is told."""

_WEIGHT: Final = {"weight": 7}
_MONITORED: Final = {"detailedMonitoring": True}
TOLD_ANEW: Final[tuple[tuple[str, str, str, str, Mapping[str, Any], Mapping[str, Any]], ...]] = (
    (
        *("NodePool", "reserved-taint", "error", "spec.template.spec.taints[0].key", _WEIGHT),
        {"template": {"spec": {"taints": [{**OWN_TAINT, "key": "dovetail.dev/other"}]}}},
    ),
    (
        *("NodePool", "reserved-startup-taint", "error", "spec.template.spec.startupTaints[0].key", _WEIGHT),
        {"template": {"spec": {"startupTaints": [{**STARTUP_TAINT, "key": "karpenter.sh/other"}]}}},
    ),
    (
        *("NodePool", "budgets-with-a-gap", "warning", "spec.disruption.budgets", _WEIGHT),
        {"disruption": {"budgets": [{"nodes": "20%", "schedule": "0 1 * * mon", "duration": "4h"}]}},
    ),
    (
        "EC2NodeClass",
        "never-joins",
        "error",
        "spec.userData",
        _MONITORED,
        {"userData": "#cloud-config\npackages: [x]\n"},
    ),
    (
        *("EC2NodeClass", "of-another-version", "error", "spec.userData", _MONITORED),
        {"userData": "apiVersion: node.eks.aws/v2\nkind: NodeConfig\nspec: {}\n"},
    ),
    (
        *("EC2NodeClass", "public-with-two-interfaces", "warning", "spec.associatePublicIPAddress", _MONITORED),
        {"networkInterfaces": [*_TWO_INTERFACES, {**_TWO_INTERFACES[1], "deviceIndex": 2}]},
    ),
    (
        *("EC2NodeClass", "a-term-without-filter", "warning", "spec.subnetSelectorTerms[1]", _MONITORED),
        {"subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": awscluster.CLUSTER}}, {"tags": {}}, {"tags": {}}]},
    ),
)
"""What lint and webhook say: kind, name, severity, field, another field that may be changed, and a change of the field for no better."""

AFTERWARDS: Final = {
    "ipv6": ("with-ipv6-on-xen", ("t2.small", "t3.medium"), {}),
    "gpu": ("no-gpu-on-a-part-of-one", ("g6f.large",), {"nvidia.com/gpu": "1"}),
}
"""What comes to be then: the class, the types of a NodePool, of which the last is right, and what the pod asks for."""


def deploy_on(aws: awscluster.AwsCluster, name: str, node_class: str, wanted: Judged) -> None:
    """A NodePool, and a pod for it."""
    policy = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
    document = awscluster.pool(name, node_class, disruption={**policy, "budgets": list(wanted.budgets)})
    document["spec"]["template"]["spec"] |= {
        "requirements": [{"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": list(wanted.types)}],
        **wanted.template,
    }
    workload = deployment(name, awscluster.NAMESPACE, 1, {"cpu": "500m", **wanted.asks})
    pods = workload["spec"]["template"]["spec"]
    pods["nodeSelector"] = {names.NODEPOOL_LABEL: name}
    pods["tolerations"] = [{"key": OWN_TAINT["key"], "operator": "Exists"}]
    pods["containers"][0]["resources"]["limits"] = dict(wanted.asks)
    applying.apply(aws.client, [document, workload])


@pytest.mark.parametrize("old", [BEFORE], indirect=True)
def test_what_is_judged_anew_stays_as_it_is(old: OldVersion, tmp_path: Path) -> None:
    cluster = DevCluster(temporary=True, extender=False)
    cluster.up()
    hook = Hook(cluster, tmp_path / "certs")
    try:
        with aws_cluster(cluster, clock_factor=10.0, rate_limits=False) as aws:
            old.start(cluster, "old-provisioner", aws.arguments(), dict(aws.ec2.environment()))
            aws.await_ready(lambda: cluster.log("old-provisioner").read_text())
            for name, judged in JUDGED_ANEW.items():
                aws.node_class(name, **judged.node_class)
                deploy_on(aws, name, name, judged)
            for name, user_data in REFUSED_ANEW.items():
                aws.node_class(name, userData=user_data)
            for name, spec in WARNED_ANEW.items():
                aws.node_class(name, **spec)
            aws.eventually(lambda: end_of_startup(aws), "the agent of the startup taint has done its work", SECONDS)
            aws.await_running(len(JUDGED_ANEW), SECONDS)
            aws.eventually(lambda: len(aws.initialized()) == len(JUDGED_ANEW), "every node is initialized")
            aws.eventually(
                lambda: set(validated(aws).values()) == {("True", "ValidationSucceeded")}, "every class is valid"
            )
            before = nodes_and_classes(aws)
            cluster.stop("old-provisioner")
            aws.start()
            hook.launch()
            aws.eventually(lambda: aws.looks() > 10, "nodes were looked at", SECONDS)
            assert nodes_and_classes(aws) == before

            def told() -> set[str]:
                return {name for name, found in validated(aws).items() if found == ("True", "InvalidUserData")}

            aws.eventually(lambda: told() == set(REFUSED_ANEW), "user data that would be refused is told")
            assert not any(condition(one.status.conditions, "Drifted") for one in aws.claims())
            for name, judged in JUDGED_ANEW.items():
                found = condition(aws.client.get(NODEPOOLS, name).status.conditions, VALIDATION_SUCCEEDED)
                assert found is not None
                assert found.status == names.TRUE
                assert found.reason == (names.RESERVED_TAINTS if judged.found else VALIDATION_SUCCEEDED), name
                assert judged.found in found.message
            warned = {*REFUSED_ANEW, "public-with-two-interfaces"}
            warned_of = {(name, "NodeClassWarning") for name in warned}
            warned_of |= {(name, names.RESERVED_TAINTS) for name, judged in JUDGED_ANEW.items() if judged.found}
            aws.eventually(lambda: warned_of == warnings(aws), "events tell what is judged anew", SECONDS)
            eventually(hook.validates, "the webhook judges NodePools", SECONDS)
            hook.ask_patiently()
            what_is_bad_stays_and_grows_no_worse(aws, cluster)
            for name, (of, types, asks) in AFTERWARDS.items():
                deploy_on(aws, name, of, Judged(types, asks=asks))
            aws.await_running(len(JUDGED_ANEW) + len(AFTERWARDS), SECONDS)
            bought = {one.pool: one.metadata.labels[names.INSTANCE_TYPE_LABEL] for one in aws.claims()}
            assert {name: bought[name] for name in AFTERWARDS} == {name: row[1][-1] for name, row in AFTERWARDS.items()}
    finally:
        hook.close()
        cluster.down()


def warnings(aws: awscluster.AwsCluster) -> set[tuple[str, str]]:
    """Object and reason of each Warning about a class or pool."""
    kinds = ("EC2NodeClass", "NodePool")
    found = [one for one in aws.client.list(EVENTS, "default") if one.type == "Warning"]
    return {(one.involved_object.name, one.reason) for one in found if one.involved_object.kind in kinds}


def end_of_startup(aws: awscluster.AwsCluster) -> bool:
    """Take the startup taint off its registered node, as its agent would; whether it was there."""
    for node in aws.instance_nodes():
        left = [one for one in node.spec.taints if one.key != STARTUP_TAINT["key"]]
        if len(left) < len(node.spec.taints) and names.REGISTERED_LABEL in node.metadata.labels:
            aws.client.patch(NODES, node.metadata.name, {"spec": {"taints": msgspec.to_builtins(left)}})
            return True
    return False


def what_is_bad_stays_and_grows_no_worse(aws: awscluster.AwsCluster, cluster: DevCluster) -> None:
    """Another field may be changed, with a warning that names the bad one; the bad one may be changed for a good one only; lint names it too."""

    def kubectl(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command, environment = [str(cluster.bin("kubectl")), *arguments], {**cluster.env, **cluster.environment()}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def patched(kind: str, name: str, spec: Mapping[str, Any]) -> "subprocess.CompletedProcess[str]":
        return kubectl("patch", kind, name, "--type=merge", "-p", json.dumps({"spec": spec}))

    written = kubectl("get", "nodepools,ec2nodeclasses", "-o", "yaml").stdout
    linted = json.loads(CliRunner().invoke(dovetail, ["lint", "-o", "json", "-"], input=written).stdout)["findings"]
    for kind, name, severity, field_of, other, bad in TOLD_ANEW:
        path = f"{kind}/{name}", severity, field_of
        assert path in {(one["object"], one["severity"], one["path"]) for one in linted}, (path, linted)
        done = patched(kind, name, other)
        assert not done.returncode, done.stderr
        assert field_of in done.stderr, f"no warning of {field_of}: {done.stderr!r}"
        done = patched(kind, name, bad)
        assert bool(done.returncode) == (severity == "error"), f"{name}: {done.stderr}"
        assert field_of in done.stderr
    aws.eventually(lambda: aws.looks() > 0 and all(ready(aws).values()), "all classes stay Ready", SECONDS)


def ready(aws: awscluster.AwsCluster) -> dict[str, bool]:
    """Whether each class is Ready as it stands."""
    found = {}
    for one in aws.client.list(EC2NODECLASSES):
        told = condition(one.status.conditions, names.READY)
        assert told is None or told.status == names.TRUE, f"{one.name}: {told}"
        found[one.name] = told is not None and told.observed_generation == one.metadata.generation
    return found


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


WITH_ALL_SETTINGS: Final = "9982b13a"
"""The last commit before settings of the provisioner were folded or removed."""

GIVEN: Final = {"--health-bind": "127.0.0.1:0", "--identity": "webhook-a"}
"""Values of flags that may not be empty and have no default."""


def flags_before(program: str) -> dict[str, str]:
    """Every flag that a program had, with its default."""
    asked = ["git", "-C", str(REPOSITORY), "show", f"{WITH_ALL_SETTINGS}:docs/reference/flags.md"]
    page = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    section = page.partition(f"## dovetail {program}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `(--[\w-]+)` \| [^|]* \| (?:`([^`]*)`)? \|", section, re.MULTILINE)
    return {flag: "" if default == "none" else default for flag, default in found}


def test_the_programs_start_with_every_flag_of_the_version_before(place: ChaosCluster) -> None:
    """A setting that was folded or removed since then is told once, with what replaces it."""
    programs = []
    for name in (WEBHOOK, EXTENDER, PROVISIONER):
        program, flags = place.program(name), {**flags_before(name)}
        assert len(flags) > 15
        more = [
            f"{flag}={GIVEN.get(flag, default)}"
            for flag, default in flags.items()
            if flag not in program.arguments and (name == PROVISIONER or default != "false")  # switches take no value
        ]
        programs.append(replace(program, arguments=(*program.arguments, *more)))
    for program in programs:
        place.programs.start(program)
    for program in programs:
        place.programs.wait_ready(program, SECONDS)
    place.apply_pools()
    deploy(place, "app", 3)
    eventually(lambda: running(place, "app") == 3, "pods run", SECONDS)
    assert place.programs.healed == []
    told = [json.loads(line) for line in place.logs(PROVISIONER).splitlines()]
    warned = Counter(str(one["message"]).partition(" ")[0] for one in told if one["level"] == "warning")
    shown = {one.opts[0] for one in command().params if isinstance(one, click.Option) and not one.hidden}
    gone = flags_before(PROVISIONER).keys() - shown
    defaults_of_karpenter = {"--karpenter-service", "--disable-controller-warmup", "--log-error-output-paths"}
    assert len(gone) > 20
    assert {flag: warned[flag] for flag in gone} == {flag: int(flag not in defaults_of_karpenter) for flag in gone}


@pytest.mark.parametrize("changes", [900, pytest.param(3600, marks=pytest.mark.judge)])
def test_an_old_extender_beside_a_new_provisioner(place: ChaosCluster, old: OldVersion, changes: int) -> None:
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


TIMED: Final = "c2d67022"
"""A commit whose plans say for how long they hold room."""


@pytest.mark.parametrize(
    ("old", "which", "written", "ends"),
    [
        pytest.param(FIRST_VERSION, EXTENDER, 45.0, "hold", id="an extender with a time of its own"),
        pytest.param(TIMED, EXTENDER, 45.0, "plan", id="an extender that reads the plan's"),
        pytest.param(FIRST_VERSION, PROVISIONER, HOLD_SECONDS, "", id="a provisioner that writes none into its plans"),
        pytest.param(TIMED, PROVISIONER, 10.0, "plan", id="a provisioner that writes its own"),
    ],
    indirect=["old"],
)
def test_an_old_program_whose_hold_ttl_is_another_than_the_new_ones(
    place: ChaosCluster, old: OldVersion, which: str, written: float, ends: str
) -> None:
    """kube-scheduler stands still until the shorter time is over; then planned pods and strangers all find a node."""
    start_old(old, place, which, "--hold-ttl=10" if ends == "hold" else "--hold-ttl=10s")  # it took seconds
    place.session.setup = replace(place.session.setup, provisioner_flags=("--timeouts=hold=45s",))
    place.start((PROVISIONER if which == EXTENDER else EXTENDER,))
    place.apply_pools()
    place.cluster.signal("kube-scheduler", signal.SIGSTOP)
    deploy(place, "planned", 6)
    eventually(lambda: plans(place) and held(place) == len(plans(place)), "room is held", SECONDS)
    ready, over = plans(place), time.monotonic() + 12.0
    assert {plan.hold_seconds for plan in ready.values()} == {written}
    match ends:
        case "plan":
            eventually(lambda: not plans(place) and held(place) == 0, "the plan's time is over, and says so", SECONDS)
        case "hold":
            eventually(lambda: held(place) == 0, "the extender's own time is over", SECONDS)
            assert plans(place) == ready, "the plan is not"
        case _:
            eventually(lambda: time.monotonic() > over, "the provisioner's own time is over")
            assert held(place) == len(ready), "the extender's is not"
    deploy(place, "stranger", 6)
    place.cluster.signal("kube-scheduler", signal.SIGCONT)
    eventually(lambda: running(place, "planned") == running(place, "stranger") == 6, "every pod runs", SECONDS)
    assert "Traceback" not in place.logs(f"old-{which}") + place.logs(which)
    assert wait_until(place, lambda: Balance(place).is_even, SECONDS) is not None, str(Balance(place))


def plans(place: ChaosCluster) -> dict[str, Plan]:
    """The plans of NodeClaims whose nodes are ready."""
    return {
        claim.metadata.name: decode_plan(text)
        for claim in place.client.list(NODECLAIMS)
        if (text := claim.metadata.annotations.get(names.PLAN_ANNOTATION, ""))
        and is_true(claim.status.conditions, names.INITIALIZED)
    }


def held(place: ChaosCluster) -> int:
    """On how many nodes the extender holds room."""
    url = f"http://127.0.0.1:{place.cluster.ports['extender-metrics']}/metrics"
    text = urllib3.request("GET", url, timeout=20.0).data.decode()
    return int(float(re.findall(r"^dovetail_extender_held_nodes (\S+)", text, re.MULTILINE)[0]))


def events(witness: Witness) -> int:
    """Changes of pods so far: made, bound, told to go, gone."""
    with witness.lock:
        return sum(1 + bool(life.bound) + bool(life.deleting) + bool(life.gone) for life in witness.pods.values())
