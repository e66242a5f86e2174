"""The table of faults: what goes wrong, by row, and what an operator reads of it: the event of a pod, `dovetail why`, conditions, the log and /readyz.

Each row has a NodePool of its own, an EC2NodeClass where it needs one, and a pod that no other NodePool may take. So all rows happen at once.
"""

import functools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from provisioner.apis import names
from provisioner.apis.ec2 import NODECLASS_TAG
from provisioner.cli.why.command import command as why
from provisioner.kube.resources import EC2NODECLASSES, EVENTS, NODECLAIMS, NODEPOOLS, PODS
from provisioner.lab.devcluster import versions
from provisioner.lab.harness import applying
from tests.support.awscluster import NAMESPACE, AwsCluster, node_class, pool
from tests.support.eventually import eventually

GUIDE: Final = Path(__file__).parents[2] / "docs" / "guides" / "troubleshooting.md"
FORBIDDEN_ROLE: Final = "NotPassed"
MISSING_ROLE: Final = "NoSuchRole"
NOTHING: Final = [{"tags": {"karpenter.sh/discovery": "nothing"}}]


def _denial(action: str, name: str) -> dict[str, Any]:
    """A statement that denies an action for one EC2NodeClass, as an organization's policy might."""
    of_class = {"StringEquals": {f"aws:RequestTag/{NODECLASS_TAG}": name}}
    return {"Effect": "Deny", "Action": action, "Resource": "*", "Condition": of_class}


DENIALS: Final[Mapping[str, Any]] = {
    "Version": "2012-10-17",
    "Statement": [
        _denial("ec2:CreateFleet", "create-fleet"),
        _denial("ec2:RunInstances", "run-instances"),
        {"Effect": "Deny", "Action": "iam:PassRole", "Resource": f"arn:aws:iam::*:role/{FORBIDDEN_ROLE}"},
        {"Effect": "Allow", "Action": "iam:PassRole", "Resource": f"arn:aws:iam::*:role/{MISSING_ROLE}"},
    ],
}
"""What the account denies, for the rows that need it and for nothing else."""


@dataclass(frozen=True)
class FaultRow:
    """One row.

    Attributes:
        name: of its NodePool, its EC2NodeClass and its pod; the heading of the guide, in words.
        cause: what each surface has to say, part of a sentence.
        node_class: fields of its spec; None for no class.
        pool: fields of the NodePool's spec.
        requirements: of the NodePool.
        surfaces: where the cause is told: event, why, condition, log.
    """

    name: str
    heading: str
    cause: str
    node_class: Mapping[str, Any] | None = field(default_factory=dict)
    pool: Mapping[str, Any] = field(default_factory=dict)
    requirements: tuple[Mapping[str, Any], ...] = ()
    surfaces: tuple[str, ...] = ("event", "why", "condition", "log")

    def begin(self, aws: AwsCluster) -> None:
        """Make its objects."""
        if self.node_class is not None:
            applying.apply(aws.client, [node_class(self.name, **self.node_class)])
        applying.apply(aws.client, [pool(self.name, self.name, self.requirements, **self.pool)])
        aws.deploy(self.name, 1, nodeSelector={names.NODEPOOL_LABEL: self.name})

    def end(self, aws: AwsCluster) -> None:
        """Take them away."""
        aws.deploy(self.name, 0)
        aws.client.delete(NODEPOOLS, self.name)
        if self.node_class is not None:
            aws.client.delete(EC2NODECLASSES, self.name)

    def differences(self, aws: AwsCluster) -> list[str]:
        """What the guide, and the cause, is not read of now."""
        return differences(self.heading, self.cause, self.surfaces, self.read(aws))

    def await_told(self, aws: AwsCluster, seconds: float = 90.0) -> None:
        """Until every surface tells the cause, and what the guide says."""
        eventually(lambda: not self.differences(aws), lambda: "\n".join(self.differences(aws)), seconds, 1.0)

    def read(self, aws: AwsCluster) -> dict[str, str]:
        """What each surface says of it now, whole; ids of the account and of objects are cut."""
        pod = next((found for found in aws.client.list(PODS, NAMESPACE) if found.labels["app"] == self.name), None)
        if pod is None:
            return dict.fromkeys(("event", "why", "condition", "log"), "")
        events = [each for each in aws.client.list(EVENTS, NAMESPACE) if each.involved_object.name == pod.name]
        told = CliRunner().invoke(
            why, ["pod", pod.key, "--kubeconfig", str(aws.cluster.kubeconfig)], env=dict(aws.ec2.environment())
        )
        objects: list[Any] = [one for one in aws.client.list(NODEPOOLS) if one.name == self.name]
        objects += [one for one in aws.client.list(EC2NODECLASSES) if one.name == self.name]
        objects += [one for one in aws.client.list(NODECLAIMS) if one.pool == self.name]
        conditions = [
            f"{type(each).__name__} {cond.type}={cond.status} {cond.reason}: {cond.message}"
            for each in objects
            for cond in each.status.conditions
        ]
        return {
            "event": plain("\n".join(f"{each.reason}: {each.message}" for each in events if each.type == "Warning")),
            "why": plain(told.output),
            "condition": plain("\n".join(conditions)),
            "log": plain("\n".join(line for line in aws.log().splitlines() if self.name in line)),
        }


def plain(text: str) -> str:
    """A text without what differs from run to run, and from one Kubernetes to another."""
    text = re.sub(r"Kubernetes 1\.\d+ can boot", f"Kubernetes {versions.DEFAULT} can boot", text)
    text = re.sub(r"request id: [\w-]+", "request id: ID", text)
    text = re.sub(r"NodeClaim ([a-z-]+)-[a-z0-9]{5}\b", r"NodeClaim \1", text)
    return re.sub(r"(default|shop)/([a-z-]+)-[a-f0-9]{6,10}-[a-z0-9]{5}\b", r"\1/\2", text)


@functools.cache
def guide() -> Mapping[str, Mapping[str, str]]:
    """What the guide says: by heading, and there by the word before it, each text as it is printed."""
    found: dict[str, dict[str, str]] = {}
    heading = ""
    for line in GUIDE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("    ") and heading:
            word, _, text = line.strip().partition("  ")
            found.setdefault(heading, {})[word] = text.strip()
    return found


def differences(heading: str, cause: str, surfaces: Collection[str], seen: Mapping[str, str]) -> list[str]:
    """How the guide differs from what was read, and which surface leaves the cause out."""
    told = guide().get(heading, {})
    wrong = [f"{one}: the guide has no text" for one in surfaces if one not in told]
    wrong += [f"{one}: the cause is not in: {seen[one]}" for one in surfaces if cause not in seen[one]]
    for one in surfaces:
        text = told.get(one, "")
        wrong += [f"{one}: the guide does not name the cause {cause}"] * (cause not in text)
        wrong += [f"{one}: not read: {text}; but: {seen[one]}"] * (text not in seen[one])
    return wrong


ROWS: Final = (
    FaultRow("no-class", "No EC2NodeClass", "EC2NodeClass no-class does not exist; create it", None),
    FaultRow("no-subnet", "No subnet", "spec.subnetSelectorTerms select no subnet", {"subnetSelectorTerms": NOTHING}),
    FaultRow(
        "no-group",
        "No security group",
        "spec.securityGroupSelectorTerms select no security group",
        {"securityGroupSelectorTerms": NOTHING},
    ),
    FaultRow(
        "no-image",
        "No image",
        "spec.amiSelectorTerms select no image",
        {"amiFamily": "AL2023", "amiSelectorTerms": [{"name": "nothing-*"}]},
    ),
    FaultRow("no-role", "No role", MISSING_ROLE, {"role": MISSING_ROLE}),
    FaultRow("create-fleet", "CreateFleet is denied", "not authorized to perform: ec2:CreateFleet"),
    FaultRow("run-instances", "RunInstances is denied", "not authorized to perform: ec2:RunInstances"),
    FaultRow("pass-role", "PassRole is denied", "not authorized to perform: iam:PassRole", {"role": FORBIDDEN_ROLE}),
    FaultRow(
        "sold-out",
        "Insufficient capacity",
        "no capacity for NodeClaim sold-out",
        requirements=({"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["r5"]},),
        surfaces=("event", "why", "condition"),
    ),
    FaultRow(
        "limited",
        "A limit is reached",
        "limit on cpu: 1 left",
        pool={"limits": {"cpu": "1"}},
        surfaces=("event", "why"),
    ),
)
TYPES_DENIED: Final = FaultRow(
    "unlisted",
    "DescribeInstanceTypes is denied",
    "not authorized to perform: ec2:DescribeInstanceTypes",
    surfaces=("event", "why", "log"),
)
QUICK: Final = tuple(one for one in ROWS if one.name in {"no-class", "no-subnet", "no-image", "limited"})
