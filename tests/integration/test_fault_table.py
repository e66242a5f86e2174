"""The table of faults on a real control plane and the EC2 emulator: every surface tells the cause itself, in the words of docs/guides/troubleshooting.md.

`test_aws_provisioner.py` has a few of the rows in `make test`.
"""

import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import urllib3

from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.harness.workload import manifests
from provisioner.lab.progress import progress_for
from tests.support.awscluster import CLUSTER, PROVISIONER, AwsCluster, aws_cluster
from tests.support.ec2 import Fault
from tests.support.eventually import eventually
from tests.support.faulttable import (
    DENIALS,
    FORBIDDEN_ROLE,
    ROWS,
    TYPES_DENIED,
    FaultRow,
    differences,
    guide,
    plain,
)
from tests.support.iam import default_policies
from tests.support.kubeconfigs import user_kubeconfig

pytestmark = [pytest.mark.plane, pytest.mark.package, pytest.mark.timeout(900)]

OVERLAYS = "nodeoverlays.karpenter.sh"
BUDGETS = "poddisruptionbudgets"


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsCluster]:
    """A provisioner with the rights of its manifests, in an account that denies what the rows need denied."""
    cluster = DevCluster(temporary=True, extender=False, progress=progress_for(sys.__stderr__))
    cluster.up()
    try:
        policies = [*default_policies(CLUSTER), DENIALS]
        with aws_cluster(cluster, policies=policies, clock_factor=8.0, data="small", rate_limits=False) as one:
            one.ec2.add_role(FORBIDDEN_ROLE)
            yield one
    finally:
        cluster.down()


def first_life(aws: AwsCluster) -> None:
    """The provisioner that the rows are read of."""
    aws.ec2.script([Fault("", "shortage", match={"family": "r5"})])
    aws.start(kubeconfig=aws.account(), environment={"SYSTEM_NAMESPACE": "dovetail-system"})


@pytest.fixture(scope="module")
def rows(aws: AwsCluster) -> Iterator[AwsCluster]:
    """Every row has begun."""
    first_life(aws)
    for row in ROWS:
        row.begin(aws)
    yield aws
    for row in ROWS:
        row.end(aws)


@pytest.fixture
def alone(rows: AwsCluster) -> Iterator[AwsCluster]:
    """Without the provisioner, which comes back afterwards."""
    rows.stop_provisioner()
    yield rows
    rows.stop_provisioner()
    first_life(rows)


@pytest.mark.parametrize("row", ROWS, ids=[one.name for one in ROWS])
def test_every_surface_tells_the_cause_in_the_words_of_the_guide(rows: AwsCluster, row: FaultRow) -> None:
    row.await_told(rows)


def test_the_guide_has_no_fault_that_is_not_tested() -> None:
    ours = {row.heading for row in (*ROWS, TYPES_DENIED)}
    assert guide().keys() == ours | {
        "SQS is denied",
        "Pricing is denied",
        "The webhook has no certificate",
        "A CustomResourceDefinition is missing",
        "A role lacks a rule",
    }
    alerts = {told["alert"] for told in guide().values() if "alert" in told}
    rules = manifests() / "monitoring" / "rules" / "dovetail.yaml"
    if rules.exists():  # they come with the monitoring component
        assert alerts <= set(re.findall(r"alert: (\w+)", rules.read_text(encoding="utf-8")))


# ------------------------------------------------------------------ of the whole process


def ready(url: str) -> str:
    """What /readyz says."""
    try:
        return urllib3.request("GET", f"{url}/readyz", timeout=5.0, retries=False).data.decode()
    except urllib3.exceptions.HTTPError as error:
        return str(error)


def probes(aws: AwsCluster) -> str:
    return f"http://127.0.0.1:{aws.cluster.ports['provisioner-health']}"


def await_told(heading: str, cause: str, read: dict[str, Any], seconds: float = 90.0) -> None:
    """Until every one of these surfaces, each a question, tells the cause and what the guide says."""

    def wrong() -> list[str]:
        return differences(heading, cause, list(read), {name: plain(ask()) for name, ask in read.items()})

    eventually(lambda: not wrong(), lambda: "\n".join(wrong()), seconds, 1.0)


def test_what_the_region_denies_is_told(alone: AwsCluster) -> None:
    aws = alone
    denied = ("DescribeInstanceTypes", "GetProducts", "GetQueueUrl")
    aws.ec2.script([Fault(action, "denied") for action in denied])
    aws.start(kubeconfig=aws.account(), environment={"SYSTEM_NAMESPACE": "dovetail-system"})
    TYPES_DENIED.begin(aws)
    try:
        TYPES_DENIED.await_told(aws)
        await_told("SQS is denied", "not authorized to perform: sqs:GetQueueUrl", {"log": aws.log})
        await_told("Pricing is denied", "not authorized to perform: pricing:GetProducts", {"log": aws.log})
    finally:
        TYPES_DENIED.end(aws)


def test_a_definition_that_is_removed_makes_a_leader_not_ready_until_it_is_back(alone: AwsCluster) -> None:
    aws = alone
    aws.start("--feature-gates", "NodeOverlay=true", "--disable-leader-election", kubeconfig=aws.account())
    kept = aws.cluster.kubectl("get", "crd", OVERLAYS, "-o", "json")
    aws.cluster.kubectl("delete", "crd", OVERLAYS)
    surfaces = {"readyz": lambda: ready(probes(aws)), "log": aws.log}
    await_told("A CustomResourceDefinition is missing", f"the API server does not serve {OVERLAYS}", surfaces)
    body = json.loads(kept)
    body["metadata"] = {"name": OVERLAYS, "annotations": body["metadata"].get("annotations", {})}
    body.pop("status", None)
    aws.cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
    eventually(lambda: ready(probes(aws)).endswith("\nok\n"), lambda: ready(probes(aws)), 90.0, 1.0)


def test_a_rule_that_a_role_lacks_is_named(alone: AwsCluster) -> None:
    aws = alone
    account = aws.account()
    roles = json.loads(aws.cluster.kubectl("get", "clusterroles", "-o", "json"))["items"]
    (role,) = [
        one
        for one in roles
        if one["metadata"]["name"].startswith("dovetail")
        and any(BUDGETS in (rule.get("resources") or ()) for rule in one["rules"])
    ]
    less = [
        {**rule, "resources": [name for name in rule.get("resources") or () if name != BUDGETS]}
        for rule in role["rules"]
    ]
    changed = {**role, "rules": [rule for rule in less if rule["resources"]]}
    aws.cluster.kubectl("replace", "-f", "-", stdin=json.dumps(changed))
    command = [sys.executable, "-m", "provisioner.cli.main", *aws.arguments(account), "--disable-leader-election"]
    aws.cluster.start_program(PROVISIONER, command, aws.ec2.environment())
    surfaces = {"readyz": lambda: ready(probes(aws)), "log": aws.log}
    await_told("A role lacks a rule", f"{BUDGETS}.policy is forbidden", surfaces)
    aws.cluster.kubectl("apply", "-f", str(manifests() / "base" / "provisioner-rbac.yaml"))
    eventually(lambda: ready(probes(aws)).endswith("\nok\n"), lambda: ready(probes(aws)), 90.0, 1.0)


def test_a_webhook_without_a_certificate_says_why(aws: AwsCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    ports = aws.cluster.ports
    nobody = user_kubeconfig(aws.cluster, "system:serviceaccount:dovetail-system:dovetail-webhook", [])
    at = f"127.0.0.1:{ports['webhook-metrics']}"
    command = [sys.executable, "-m", "provisioner.cli.main", "webhook", "--kubeconfig", str(nobody)]
    command += ["--bind", f"127.0.0.1:{ports['webhook']}", "--metrics-bind", at, "--namespace", "dovetail-system"]
    command += ["--cert-dir", str(tmp_path_factory.mktemp("certs"))]
    aws.cluster.start_program("webhook", command)
    try:
        log = aws.cluster.log("webhook")
        surfaces = {"readyz": lambda: ready(f"http://{at}"), "log": lambda: log.read_text(encoding="utf-8")}
        await_told("The webhook has no certificate", "is forbidden", surfaces)
        shown = urllib3.request("GET", f"http://{at}/metrics", timeout=5.0, retries=False).data.decode()
        expires = re.search(r'dovetail_certificate_expiration_timestamp_seconds\{certificate="webhook"\} (\S+)', shown)
        assert expires is not None  # the makeshift one that it serves meanwhile lasts a day, so the alert fires
        assert float(expires[1]) - datetime.now(UTC).timestamp() < timedelta(days=7).total_seconds()
    finally:
        aws.cluster.stop("webhook")
