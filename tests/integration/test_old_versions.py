"""Manifests of old Karpenter versions with plain `kubectl apply`: what each file of tests/data/seed-manifests becomes, and life without the converter.

One control plane, one webhook and one emulated EC2 in each of two regions; `played` goes through everything once, and a test a file looks at
what was seen.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.apis import names
from provisioner.apis.conversion.definitions import BETA, documents
from provisioner.apis.openapi import defaulted, definition_of
from provisioner.kube.resources import CRDS, NODEPOOLS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.errors import StateError
from provisioner.lab.progress import progress_for
from tests.support.awscluster import CLUSTER, AwsCluster, aws_cluster
from tests.support.converted import FILES, expected
from tests.support.definitions import stored_versions
from tests.support.eventually import PATIENCE
from tests.support.hook import Hook

pytestmark = [pytest.mark.plane, pytest.mark.timeout(400)]

COMPONENT = Path(__file__).parents[2] / "manifests" / "components" / "conversion"
VERSION = "1.32"
"""The last Kubernetes that AL2 images exist for, as the emulated EKS tells it."""
TOKYO, SEOUL = "ap-northeast-1", "ap-northeast-2"


@dataclass(frozen=True)
class Row:
    """One file.

    Attributes:
        region: of the emulated EC2; its cluster is of `VERSION`.
        tags: that a subnet of each of two zones and a security group have for it.
        profile: the instance profile, or role, that is there.
        pool: the NodePool whose nodes the companion Deployment asks for; "" for files that make none.
        error: what `kubectl apply` says instead.
    """

    region: str = TOKYO
    tags: dict[str, str] = field(default_factory=dict)
    profile: str = ""
    pool: str = ""
    error: str = ""


ROWS = {
    "v1alpha5-provisioner-full": Row(
        tags={"karpenter.sh/discovery": "karpenter-test"},
        profile="KarpenterNodeInstanceProfile-karpenter-test",
        pool="test-karpenter",
    ),
    "v1alpha5-provisioner-minimal": Row(
        tags={f"kubernetes.io/cluster/{CLUSTER}": "owned"}, profile="KarpenterNodeInstanceProfile-demo", pool="default"
    ),
    "v1beta1-nodepool-and-ec2nodeclass": Row(
        tags={"karpenter.sh/discovery": "demo"}, profile="KarpenterNodeRole-demo", pool="default"
    ),
    "v1alpha5-provisioner-malformed-taints": Row(error="spec.taints[0].effect: Required value"),
    "v1-nodepool-pinned-type": Row(error="spec.template.spec.nodeClassRef: Required value"),
    "selector-workloads": Row(region=SEOUL, tags={"karpenter.sh/discovery": "seoul"}, profile="seoul"),
    "hpa-workload": Row(region=SEOUL),
}


def provisioner(name: str, capacity: list[str], **spec: Any) -> dict[str, Any]:
    """A companion of the workloads: nodes of one capacity type or two."""
    return {
        "apiVersion": "karpenter.sh/v1alpha5",
        "kind": "Provisioner",
        "metadata": {"name": name},
        "spec": {
            "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity}],
            "provider": {
                "instanceProfile": "seoul",
                "subnetSelector": {"karpenter.sh/discovery": "seoul"},
                "securityGroupSelector": {"karpenter.sh/discovery": "seoul"},
            },
            "consolidation": {"enabled": True},
            **spec,
        },
    }


COMPANIONS = [
    provisioner(
        "novo-provisioner", ["on-demand"], taints=[{"key": "karpenter", "value": "true", "effect": "NoSchedule"}]
    ),
    provisioner("general", ["spot", "on-demand"], kubeletConfiguration={"maxPods": 11}),
]

SEVEN_PODS: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1beta1",
    "kind": "NodePool",
    "metadata": {"name": "seven"},
    "spec": {
        "template": {"spec": {"requirements": [], "nodeClassRef": {"name": "default"}, "kubelet": {"maxPods": 7}}}
    },
}
"""A pool with a kubelet, which v1 has on the node class only; the class is that of the file, and has none."""


@dataclass
class Played:
    """What was seen."""

    refused: dict[str, str] = field(default_factory=dict)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    classes: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    translated: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: dict[str, str] = field(default_factory=dict)
    dead: dict[str, Any] = field(default_factory=dict)
    pods: dict[str, dict[str, str]] = field(default_factory=dict)
    max_pods: str = ""
    kept_max_pods: str = ""


def seed(aws: AwsCluster, region: str) -> None:
    """What the files of a region expect to find at AWS."""
    iam = aws.ec2.client("iam")
    rows = [one for one in ROWS.values() if one.region == region and one.tags]
    for place, row in enumerate(rows):
        for index, letter in enumerate("ac"):
            aws.ec2.add_subnet(f"{region}{letter}", f"10.0.{128 + 16 * place + 8 * index}.0/21", row.tags)
        aws.ec2.add_group(f"sg-0d0e7a11000001{place:02}", f"group-{place}", row.tags)
        aws.ec2.add_role(f"{row.profile}" if row.profile.startswith("KarpenterNodeRole") else f"role-{place}")
        if not row.profile.startswith("KarpenterNodeRole"):
            iam.create_instance_profile(InstanceProfileName=row.profile)
            iam.add_role_to_instance_profile(InstanceProfileName=row.profile, RoleName=f"role-{place}")


class OldCluster:
    """The cluster and its programs."""

    def __init__(self, cluster: DevCluster, directory: Path) -> None:
        self.cluster, self.hook, self.seen = cluster, Hook(cluster, directory, "--conversion"), Played()

    def get(self, *what: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cluster.kubectl("get", *what, "-o", "json"))
        return found

    def apply(self, name: str) -> None:
        """As a user does, with what kubectl says where it is refused."""
        try:
            self.cluster.kubectl("apply", "-f", str(FILES / f"{name}.yaml"))
        except StateError as error:
            self.seen.refused[name] = str(error)

    def component(self) -> None:
        """The component, with the address of the webhook's process."""
        made = documents({"url": f"https://{self.hook.address}/convert"}).values()
        self.cluster.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", stdin="---\n".join(map(yaml.safe_dump, made))
        )
        for name in ("rbac", "since"):
            self.cluster.kubectl("apply", "-f", str(COMPONENT / f"{name}.yaml"))
        self.hook.start()

    def start(self, aws: AwsCluster, region: str) -> None:
        seed(aws, region)
        self.start_provisioner(aws, region)

    def start_provisioner(self, aws: AwsCluster, region: str) -> None:
        """For the first time, or again."""
        aws.start(
            *("--nominate=true", "--translate-provisioners", "--eks-control-plane", "--aws-region", region),
            kubeconfig=aws.account(),
        )

    def trusted(self) -> bool:
        """Whether the API server can ask the webhook for every kind."""
        return all(
            (hook := one.spec.conversion) is not None
            and hook.webhook is not None
            and hook.webhook.client_config is not None
            and bool(hook.webhook.client_config.ca_bundle)
            for one in (self.hook.client.get(CRDS, f"{one.plural}.{one.group}") for one in BETA.values())
        )

    def look(self, name: str, pool: str) -> None:
        """Keep what became of a file."""
        self.seen.objects[name] = self.get("nodepools.v1.karpenter.sh", pool)
        self.seen.classes[name] = self.get("ec2nodeclasses.v1.karpenter.k8s.aws", pool)
        nodes = self.get("nodes", "-l", f"{names.NODEPOOL_LABEL}={pool}")["items"]
        self.seen.nodes[name] = [one["metadata"]["labels"] for one in nodes]

    def tokyo(self, aws: AwsCluster) -> None:
        for name in ("v1alpha5-provisioner-malformed-taints", "v1-nodepool-pinned-type"):
            self.apply(name)
        for name in ("v1alpha5-provisioner-full", "v1alpha5-provisioner-minimal"):
            self.apply(name)
        aws.deploy("full", 1, nodeSelector={names.NODEPOOL_LABEL: "test-karpenter"})
        aws.deploy("minimal", 1, nodeSelector={names.NODEPOOL_LABEL: "default"})
        aws.await_running(2)
        for name, pool in (
            ("v1alpha5-provisioner-full", "test-karpenter"),
            ("v1alpha5-provisioner-minimal", "default"),
        ):
            self.look(name, pool)
            self.seen.translated[name] = self.get("provisioners", pool)
        found = self.get("events", "--field-selector", "reason=Translated")["items"]
        self.seen.events = {one["involvedObject"]["name"]: one["message"] for one in found}
        aws.deploy("minimal", 0)
        aws.await_running(1)
        self.cluster.kubectl(
            "delete", "provisioner,nodepool.v1.karpenter.sh,ec2nodeclass.v1.karpenter.k8s.aws", "default"
        )
        self.apply("v1beta1-nodepool-and-ec2nodeclass")
        aws.deploy("beta", 1, nodeSelector={names.NODEPOOL_LABEL: "default"})
        aws.await_running(2)
        self.look("v1beta1-nodepool-and-ec2nodeclass", "default")
        self.seen.objects["at v1beta1"] = self.get("nodepools.v1beta1.karpenter.sh", "default")
        self.kept_kubelet(aws)
        self.without_converter(aws)

    def kept_kubelet(self, aws: AwsCluster) -> None:
        """A pool that was applied at v1beta1 with a kubelet gets a node, and goes."""
        self.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(SEVEN_PODS))
        aws.deploy("seven", 1, nodeSelector={names.NODEPOOL_LABEL: "seven"})
        aws.await_running(3)
        (node,) = self.get("nodes", "-l", f"{names.NODEPOOL_LABEL}=seven")["items"]
        self.seen.kept_max_pods = node["status"]["capacity"]["pods"]
        aws.deploy("seven", 0)
        aws.await_running(2)
        self.cluster.kubectl("delete", "nodepools.v1.karpenter.sh", "seven")

    def without_converter(self, aws: AwsCluster) -> None:
        """The webhook is dead: objects that were applied at v1beta1 live on at v1."""
        dead = self.seen.dead
        self.cluster.stop("webhook")
        dead["list"] = [one.name for one in aws.client.list(NODEPOOLS)]
        patched = aws.client.patch(NODEPOOLS, "default", {"metadata": {"annotations": {"a": "b"}}})
        status = {"status": {"nodes": patched.status.nodes}}
        dead["status"] = aws.client.patch(NODEPOOLS, "default", status, subresource="status").name
        watched = self.cluster.kubectl(
            "get",
            "nodepools.v1.karpenter.sh",
            "--watch",
            f"--request-timeout={2 * PATIENCE}s",
            "-o",
            "name",
            check=False,
        )
        dead["watch"] = watched.split()
        try:
            self.get("nodepools.v1beta1.karpenter.sh")
        except StateError as error:
            dead["v1beta1"] = str(error)
        before = {one.name for one in aws.claims()}
        aws.deploy("late", 1, {"cpu": "3", "memory": "1Gi"}, nodeSelector={names.NODEPOOL_LABEL: "default"})
        aws.await_running(3)
        dead["launched"] = {one.name for one in aws.claims()} - before
        for name in ("full", "beta", "late"):
            aws.deploy(name, 0)
        self.cluster.kubectl("delete", "nodepools.v1.karpenter.sh", "--all")
        dead["deleted"] = aws.client.list(NODEPOOLS) == []
        dead["stored"] = [stored_versions(aws.client, f"{one.plural}.{one.group}") for one in BETA.values()]
        self.cluster.kubectl("delete", "provisioners", "--all")
        aws.eventually(lambda: not aws.claims(), "all instances have gone")

    def seoul(self, aws: AwsCluster) -> None:
        self.cluster.kubectl("apply", "-f", "-", stdin="---\n".join(map(yaml.safe_dump, COMPANIONS)))
        self.apply("selector-workloads")

        def placed() -> dict[str, dict[str, str]]:
            nodes = {one["metadata"]["name"]: one["metadata"]["labels"] for one in self.get("nodes")["items"]}
            pods = self.get("pods", "-n", "default")["items"]
            there = {one["metadata"]["name"]: nodes.get(one["spec"].get("nodeName", ""), {}) for one in pods}
            return there if len(there) == 10 and all(there.values()) else {}

        self.seen.pods = aws.eventually(placed, "every pod of the file has a node")
        node = next(
            one
            for one in self.get("nodes")["items"]
            if one["metadata"]["labels"].get(names.NODEPOOL_LABEL) == "general"
        )
        self.seen.max_pods = node["status"]["capacity"]["pods"]
        self.apply("hpa-workload")  # whose loop is played by test_hpa

        def bound() -> list[str]:
            return [one["spec"].get("nodeName", "") for one in self.get("pods", "-n", "test-app")["items"]]

        aws.eventually(lambda: (there := bound()) and all(there), "the workload of the HPA has a node")
        self.seen.objects["hpa-workload"] = self.get("hpa", "-n", "test-app", "test-hpa")
        self.seen.nodes["hpa-workload"] = [self.get("node", name)["metadata"]["labels"] for name in bound()]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Everything, once."""
    cluster = DevCluster(temporary=True, extender=False, progress=progress_for(sys.__stderr__))
    cluster.up()
    try:
        stage = OldCluster(cluster, tmp_path_factory.mktemp("hook"))
        with aws_cluster(cluster, region=TOKYO, version=VERSION, clock_factor=8.0) as aws:
            stage.component()
            stage.start(aws, TOKYO)
            aws.eventually(stage.trusted, "the definitions have the CA bundle")
            stage.tokyo(aws)
        with aws_cluster(cluster, region=SEOUL, version=VERSION, clock_factor=8.0) as aws:
            stage.start(aws, SEOUL)
            stage.seoul(aws)
        yield stage.seen
    finally:
        cluster.down()


def test_every_file_has_its_row() -> None:
    assert {path.stem for path in FILES.iterdir()} == ROWS.keys()


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.error])
def test_a_file_that_cannot_be_used_is_refused_with_its_field(played: Played, name: str) -> None:
    assert ROWS[name].error in played.refused[name]


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.pool])
def test_a_file_gets_its_nodes(played: Played, name: str) -> None:
    assert name not in played.refused
    assert played.objects[name]["apiVersion"] == "karpenter.sh/v1"
    assert played.nodes[name]
    for labels in played.nodes[name]:
        assert labels.get(names.PROVISIONER_NAME) == (ROWS[name].pool if "provisioner" in name else None)
    if name == "v1alpha5-provisioner-full":
        assert {one[names.INSTANCE_TYPE_LABEL] for one in played.nodes[name]} == {"m5.large"}
        assert played.objects[name]["spec"]["template"]["spec"]["expireAfter"] == "900s"


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.pool])
def test_a_file_becomes_on_the_control_plane_what_it_becomes_offline(played: Played, name: str) -> None:
    for stored in (played.objects[name], played.classes[name]):
        wanted = expected(name).of(stored["kind"])
        definition = definition_of(wanted["apiVersion"], wanted["kind"])
        assert definition is not None
        assert (stored["apiVersion"], stored["metadata"]["name"]) == (wanted["apiVersion"], wanted["metadata"]["name"])
        assert stored["spec"] == defaulted(definition, wanted)["spec"]
        annotations = wanted["metadata"].get("annotations", {})
        assert stored["metadata"].get("annotations", {}).items() >= annotations.items()


@pytest.mark.parametrize("name", ["v1alpha5-provisioner-full", "v1alpha5-provisioner-minimal"])
def test_a_provisioner_is_told_what_became_of_it(played: Played, name: str) -> None:
    (condition,) = played.translated[name]["status"]["conditions"]
    pool = ROWS[name].pool
    assert (condition["type"], condition["status"], condition["reason"]) == ("Translated", "True", "Translated")
    assert condition["message"].startswith(f"became NodePool {pool}, EC2NodeClass {pool}")
    decisions = [one.removeprefix(f"Provisioner/{pool}: ") for one in expected(name).decisions]
    assert decisions
    assert [one for one in decisions if one not in condition["message"]] == []
    assert played.events[pool] in condition["message"] + "..."


def test_an_object_applied_at_v1beta1_is_read_there_as_it_was_written(played: Played) -> None:
    (pool, _) = yaml.safe_load_all((FILES / "v1beta1-nodepool-and-ec2nodeclass.yaml").read_text(encoding="utf-8"))
    read = played.objects["at v1beta1"]["spec"]
    assert read["disruption"].items() >= pool["spec"]["disruption"].items()
    assert read["template"]["spec"] == pool["spec"]["template"]["spec"]


def test_without_the_converter_v1_works(played: Played) -> None:
    dead = played.dead
    assert dead["list"] == ["default", "test-karpenter"]
    assert dead["status"] == "default"
    assert set(dead["watch"]) == {"nodepool.karpenter.sh/default", "nodepool.karpenter.sh/test-karpenter"}
    assert dead["launched"]
    assert dead["deleted"]
    assert dead["stored"] == [["v1"]] * len(BETA)
    assert "conversion webhook" in dead["v1beta1"]


def test_the_workloads_of_the_tutorials_get_the_nodes_that_they_select(played: Played) -> None:
    assert "selector-workloads" not in played.refused
    zonal = played.pods["zonal-spot"]
    assert (zonal[names.ZONE_LABEL], zonal[names.CAPACITY_TYPE_LABEL]) == ("ap-northeast-2a", "spot")
    assert played.pods["legacy-provisioner-name"][names.PROVISIONER_NAME] == "novo-provisioner"
    assert sum(name.startswith("eight") for name in played.pods) == 8


def test_the_workload_of_the_hpa_runs(played: Played) -> None:
    assert "hpa-workload" not in played.refused
    assert played.objects["hpa-workload"]["spec"]["maxReplicas"] == 10
    (node,) = played.nodes["hpa-workload"]
    assert node[names.NODEPOOL_LABEL] == "general"


def test_the_kubelet_of_a_provisioner_is_that_of_its_nodes(played: Played) -> None:
    assert played.max_pods == "11"


def test_the_kubelet_of_a_v1beta1_nodepool_is_that_of_its_nodes(played: Played) -> None:
    assert played.kept_max_pods == "7"
