"""What `dovetail why` answers about pods and nodes of a dump."""

import json
import pathlib
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from provisioner.apis import names
from provisioner.apis.command import CandidateRecord, CommandRecord, Replacement, encode_command
from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.gangs import GroupSource
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import OwnerReference
from provisioner.cli.documents import plain_yaml
from provisioner.cli.main import dovetail
from provisioner.cli.why import gathering
from provisioner.cli.why.command import command
from provisioner.cli.why.gathering import WhyObjects, from_cluster
from provisioner.cli.why.world import local
from provisioner.kube.client import Client
from provisioner.kube.resources import PODS
from provisioner.options import Options
from provisioner.state.knowledge import KindKnowledge
from provisioner.values.errors import UserError
from provisioner.why.pods import why_pod
from tests.support.autoscalers import wire_autoscaler
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import claim, node, plan_text, pod_budget, pool
from tests.support.cluster import pod as short_pod
from tests.support.dumps import existing_node, plain, wire_pod
from tests.support.kube import FakeApi, Sent, ok, refusal

AT = ("--at", "2026-11-21T13:00:00Z")


class Dump:
    """A file that `kubectl get -o yaml` could have written."""

    def __init__(self, path: pathlib.Path, *things: Any, plain_pool: bool = True) -> None:
        items = [plain(one) for one in (*([pool()] if plain_pool else []), *things)]
        path.write_text(plain_yaml({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
        self._path = path

    def ask(self, *arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(dovetail, ["why", *arguments, "--from", str(self._path), *AT])
        assert result.exit_code == status, result.output
        return str(result.output)

    def json(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask(*arguments, "-o", "json", status=status))
        return found


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Whoever runs the tests may have some."""
    for name in (
        "AWS_PROFILE",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ROLE_ARN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "dump.yaml"


# ------------------------------------------------------------------ pods


def test_a_pod_that_is_too_large_is_told_for_every_pool_which_types_refuse_it(file: pathlib.Path) -> None:
    arm = pool("arm", requirements=({"key": names.ARCH_LABEL, "operator": "In", "values": ["arm64"]},))
    dump = Dump(file, arm, wire_pod("big", "400"), *existing_node("n"))
    found = dump.json("pod", "default/big")
    assert found["state"] == "Unschedulable"
    assert found["scheduler"] == "0/0 nodes are available"
    by_pool = {one["nodePools"][0]: one for one in found["reasons"] if "nodePools" in one}
    assert by_pool["general"]["type"] == "TooLarge"
    assert "exceeds" in by_pool["general"]["message"]
    (nodes,) = [one for one in found["reasons"] if "nodePools" not in one]
    assert (nodes["type"], nodes["message"]) == ("BinsRefuse", "0/1 existing nodes: 1 insufficient cpu")
    pools = {one["name"]: one for one in found["nodePools"]}
    causes = {one["cause"]: len(one["instanceTypes"]) for one in pools["arm"]["refused"]}
    assert causes == {"not-in-nodepool": 72, "too-small": 72}
    text = dump.ask("pod", "default/big")
    assert text.startswith(
        "No node can take pod default/big, and no NodePool can launch one for it.\nkube-scheduler said: "
    )
    assert "72 types: less than 400 CPUs allocatable" in text


def test_what_daemon_sets_request_is_told_apart_from_what_a_type_has(file: pathlib.Path) -> None:
    agent = {"containers": [{"name": "agent", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default", "uid": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": agent},
        },
    }
    text = Dump(file, daemons, wire_pod("big", "15")).ask("pod", "default/big")
    assert ": less than 15 CPUs allocatable\n" in text
    assert ": less than 15 CPUs allocatable after the requests of DaemonSets" in text


def test_a_label_that_no_pool_sets_is_said_of_all_of_them(file: pathlib.Path) -> None:
    asks = wire_pod("web", "1")
    asks["spec"]["nodeSelector"] = {"disktype": "ssd"}
    text = Dump(file, pool("second"), asks).ask("pod", "default/web")
    assert 'NodePool general: no NodePool sets the label "disktype"' in text
    assert 'types: the NodePool does not set the label "disktype"' in text
    text = Dump(
        file, pool("second", requirements=({"key": "disktype", "operator": "In", "values": ["hdd"]},)), asks
    ).ask("pod", "default/web")
    assert 'NodePool general: the NodePool does not set the label "disktype"' in text
    assert "NodePool second: disktype In [hdd] conflicts with disktype In [ssd]" in text


MISSPELT = {
    names.NODEPOOL_LABEL: ("genral", 'no NodePool is named "genral" (did you mean "general"?)'),
    names.ZONE_LABEL: (
        "tset-zone-a",
        'no instance type has "tset-zone-a" as topology.kubernetes.io/zone (did you mean "test-zone-a"?)',
    ),
    names.CAPACITY_TYPE_LABEL: (
        "spott",
        'no instance type has "spott" as karpenter.sh/capacity-type (did you mean "spot"?)',
    ),
    names.ARCH_LABEL: ("x86_64", 'no instance type has "x86_64" as kubernetes.io/arch (did you mean "amd64"?)'),
}


@pytest.mark.parametrize("key", MISSPELT)
def test_a_value_that_nothing_has_is_said_once_with_the_one_that_was_meant(file: pathlib.Path, key: str) -> None:
    value, says = MISSPELT[key]
    asks = wire_pod("web", "1")
    asks["spec"]["nodeSelector"] = {key: value}
    dump = Dump(file, pool("second"), asks)
    assert dump.ask("pod", "default/web").splitlines().count(f"  {says}") == 1
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    others = {"matchExpressions": [{"key": "disktype", "operator": "Exists"}]}
    either = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, others]}}
    asks["spec"] = {**asks["spec"], "nodeSelector": {}, "affinity": {"nodeAffinity": either}}
    assert "did you mean" not in Dump(file, pool("second"), asks).ask("pod", "default/web"), "the other term would do"


def test_every_type_is_either_fitting_or_refused_once(file: pathlib.Path) -> None:
    dump = Dump(file, pool("small", limits={"cpu": "8"}), wire_pod("web", "3"))
    for one in dump.json("pod", "default/web")["nodePools"]:
        every = [*one["fitting"], *(name for group in one["refused"] for name in group["instanceTypes"])]
        assert len(every) == len(set(every)) == 144
        assert {"c-4x-amd64-linux", "s-8x-arm64-linux"} <= set(one["fitting"])
    small = next(one for one in dump.json("pod", "default/web")["nodePools"] if one["name"] == "small")
    assert {group["cause"] for group in small["refused"]} == {"too-small", "limit"}


POOLS = {
    "one that is not Ready": (
        pool(status={"conditions": [{"type": "NodeClassReady", "status": "False", "message": "no subnet"}]}),
        "NotReady",
        "not Ready: no subnet",
    ),
    "one that no provisioner has looked at": (
        pool(status={}),
        "NotReady",
        "not Ready: its conditions are not set yet; nodeClassRef names KWOKNodeClass: a provisioner with --provider=kwok sets them",
    ),
    "a static one": (pool(replicas=3), "Static", "it is static: its nodes follow spec.replicas, not pods"),
    "one with a taint": (
        pool(template={"taints": [{"key": "gpu", "effect": "NoSchedule"}]}),
        "Refuses",
        "no instance type takes the pod",
    ),
    "one whose types are not known here": (
        pool(template={"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}),
        "Unknown",
        "its instance types are not known here",
    ),
    "one of those that refuses the pod whatever its types are": (
        pool(
            template={
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "taints": [{"key": "gpu", "effect": "NoSchedule"}],
            }
        ),
        "Refuses",
        "taint gpu:NoSchedule is not tolerated",
    ),
}


@pytest.mark.parametrize(("one", "state", "message"), POOLS.values(), ids=POOLS)
def test_what_keeps_a_pool_from_launching(file: pathlib.Path, one: NodePool, state: str, message: str) -> None:
    renamed = msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, name="other"))
    dump = Dump(file, renamed, wire_pod("web"))
    known = one.node_class_ref.kind != "EC2NodeClass"
    found = {each["name"]: each for each in dump.json("pod", "default/web", status=0 if known else 3)["nodePools"]}
    assert (found["other"]["state"], found["other"]["message"]) == (state, message)


def test_a_pool_of_unknown_types_is_said_to_be_missing_from_the_answer(file: pathlib.Path) -> None:
    aws = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}
    found = Dump(file, pool("aws", template=aws), wire_pod("big", "400")).json("pod", "default/big", status=3)
    assert found["summary"].endswith("whether a new node could is not known here.")
    assert any(
        "EC2NodeClass default are not known here (there are no AWS credentials)" in one for one in found["missing"]
    )


def test_pools_of_unknown_types_are_told_of_in_one_sentence(file: pathlib.Path) -> None:
    aws = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}
    pools = [pool(f"aws-{number}", template=aws) for number in range(7)]
    found = Dump(file, *pools, wire_pod("big", "400")).json("pod", "default/big", status=3)
    (note,) = [one for one in found["missing"] if "instance types" in one]
    assert note.startswith(
        "The instance types of EC2NodeClass default are not known here (there are no AWS credentials), "
    )
    assert "new nodes of NodePools aws-0, aws-1, aws-2, aws-3, aws-4 and 2 more and the prices of their nodes" in note


def test_what_is_settled_by_the_pod_itself_leaves_nothing_out(file: pathlib.Path) -> None:
    aws = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}
    found = Dump(file, pool("aws", template=aws), gated()).json("pod", "default/web", status=0)
    assert (found["state"], found.get("missing", [])) == ("Gated", [])


def gated() -> dict[str, Any]:
    return wire_pod("web", spec__schedulingGates=[{"name": "later"}, {"name": "example.com/quota"}])


def opted_out() -> dict[str, Any]:
    term = {"matchExpressions": [{"key": names.NODEPOOL_LABEL, "operator": "DoesNotExist"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return wire_pod("web", spec__affinity={"nodeAffinity": required})


def of_a_daemon_set() -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "agent", "controller": True}
    return wire_pod("web", metadata__ownerReferences=[owner])


def of(scheduler: str, *, refused: bool = False) -> dict[str, Any]:
    """A pod of that scheduler, which has refused it or has said nothing."""
    one = wire_pod("web", spec__schedulerName=scheduler)
    return one if refused else {**one, "status": {"phase": "Pending"}}


PREEMPTS = wire_pod("web", "3", status__nominatedNodeName="n")
"""In place of the victim, which has its time to end."""
VICTIM = wire_pod(
    "low", on="n", metadata__deletionTimestamp="2026-11-21T13:00:30Z", metadata__deletionGracePeriodSeconds=30
)


def of_a_group(name: str = "web", **changes: Any) -> dict[str, Any]:
    return wire_pod(name, spec__schedulingGroup={"podGroupName": "train"}, **changes)


GANG = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "priority": 0},
}
OTHER_GANG = {**GANG, "metadata": {"name": "other", "namespace": "default"}}
GROUPS = {
    "of which there is no object": (
        (OTHER_GANG,),
        "GroupUnknown",
        "PodGroup default/train (spec.schedulingGroup), which does not exist.",
    ),
    "of which a pod is missing": (
        (GANG,),
        "GroupIncomplete",
        "which has 1 of the 2 pods that it needs (finished pods do not count).",
    ),
    "of which a pod has gates": (
        (GANG, of_a_group("late", spec__schedulingGates=[{"name": "later"}])),
        "GroupGated",
        "which has a pod with scheduling gates (late).",
    ),
    "whose pods differ": (
        (GANG, of_a_group("vip", spec__priority=5)),
        "GroupContradiction",
        "which has pods that differ in spec.priority, or from its priority.",
    ),
    "that is complete": ((GANG, of_a_group("other")), "FitsExistingNode", "fits on node n"),
    "in a dump without PodGroups": ((), "FitsExistingNode", "fits on node n"),
}


def volcano_group(phase: str, minimum: int = 2) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"minMember": minimum},
        "status": {"phase": phase},
    }


PLUGIN_GROUP = {**volcano_group("", 3), "apiVersion": "scheduling.x-k8s.io/v1alpha1"}
OF_VOLCANO: dict[str, Any] = {
    "metadata__annotations": {"scheduling.k8s.io/group-name": "train"},
    "spec__schedulerName": "volcano",
    "status": {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Undetermined"}],
    },
}
OF_PLUGIN: dict[str, Any] = {"metadata__labels": {"scheduling.x-k8s.io/pod-group": "train"}}
MEMBERS: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...], str, str]] = {
    "of Volcano without an object": (
        OF_VOLCANO,
        (volcano_group("Inqueue") | {"metadata": {"name": "other", "namespace": "default"}},),
        "GroupUnknown",
        "PodGroup default/train of Volcano (annotation scheduling.k8s.io/group-name), which does not exist. Volcano does not",
    ),
    "of Volcano in its queue": (
        OF_VOLCANO,
        (volcano_group("Pending", 1),),
        "GroupQueued",
        "which waits in its queue (status.phase Pending). Volcano does not",
    ),
    "of Volcano of which a pod is missing": (
        OF_VOLCANO,
        (volcano_group("Inqueue"),),
        "GroupIncomplete",
        "which has 1 of the 2 pods that it needs. Volcano does not",
    ),
    "of Volcano that is complete": (OF_VOLCANO, (volcano_group("Inqueue", 1),), "FitsExistingNode", "fits on node n"),
    "of the plugin of which pods are missing": (
        OF_PLUGIN,
        (PLUGIN_GROUP,),
        "GroupIncomplete",
        "which has 1 of the 3 pods that it needs (finished pods do not count). The coscheduling plugin does not",
    ),
}


@pytest.mark.parametrize(("pod", "others", "state", "words"), MEMBERS.values(), ids=MEMBERS)
def test_the_state_of_a_pod_of_another_group(
    file: pathlib.Path, pod: dict[str, Any], others: Any, state: str, words: str
) -> None:
    dump = Dump(file, wire_pod("web", **pod), *others, *existing_node("n"))
    found = dump.json("pod", "web")
    assert (found["state"], words in found["summary"]) == (state, True), found["summary"]
    assert not any("podgroups" in one for one in found.get("missing", ()))


def test_a_dump_without_podgroups_of_volcano_says_so(file: pathlib.Path) -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"phase": "Pending", "conditions": [said]}
    dump = Dump(file, wire_pod("web", **{**OF_VOLCANO, "status": status}), *existing_node("n"))
    missing = "The dump has no podgroups.scheduling.volcano.sh, so pods of groups are taken as single pods"
    assert missing in dump.json("pod", "web")["missing"]


@pytest.mark.parametrize(("others", "state", "words"), GROUPS.values(), ids=GROUPS)
def test_the_state_of_a_pod_of_a_group(file: pathlib.Path, others: Any, state: str, words: str) -> None:
    dump = Dump(file, of_a_group(), *others, *existing_node("n"))
    found = dump.json("pod", "web")
    assert (found["state"], words in found["summary"]) == (state, True), found["summary"]
    assert any("podgroups" in one for one in found.get("missing", ())) == (not others)


def of_a_gang(name: str = "web", minimum: str = "2", cpu: str = "1", **changes: Any) -> dict[str, Any]:
    return wire_pod(name, cpu, metadata__annotations={names.GANG: "train", names.GANG_MINIMUM: minimum}, **changes)


def of_a_labelled_gang(name: str = "web", **changes: Any) -> dict[str, Any]:
    notes = {names.GANG_LABEL: "example.com/set", names.GANG_MINIMUM: "2"}
    return wire_pod(name, metadata__annotations=notes, metadata__labels={"example.com/set": "s"}, **changes)


ANNOTATED = {
    "of which a pod is missing": (
        (of_a_gang(),),
        "GroupIncomplete",
        "belongs to gang default/train (annotation dovetail.dev/gang), which has 1 of the 2 pods that it needs. Nodes are launched as soon as 2 of",
    ),
    "by a label, of which a pod is missing": (
        (of_a_labelled_gang(),),
        "GroupIncomplete",
        "belongs to gang default/example.com/set=s (annotation dovetail.dev/gang-label), which has 1 of the 2 pods that it needs.",
    ),
    "of which a pod has gates": (
        (of_a_gang(), of_a_gang("late", spec__schedulingGates=[{"name": "later"}])),
        "GroupGated",
        "which has a pod with scheduling gates (late).",
    ),
    "of which another pod runs": ((of_a_gang(), of_a_gang("old", on="n")), "FitsExistingNode", "fits on node n"),
    "that is complete": ((of_a_gang(), of_a_gang("other")), "FitsExistingNode", "fits on node n"),
    "with more than is needed": (
        (
            of_a_gang(),
            *(of_a_gang(f"other-{n}", spec__schedulingGates=[{"name": "x"}]) for n in range(1)),
            of_a_gang("third"),
        ),
        "FitsExistingNode",
        "fits on node n",
    ),
    "of which one has no place": (
        (of_a_gang(), of_a_gang("large", cpu="999")),
        "Unschedulable",
        "No node is launched for pod default/web: 2 pods of gang default/train need nodes at the same time, but there is room for only 1 of them.",
    ),
}


@pytest.mark.parametrize(("pods", "state", "words"), ANNOTATED.values(), ids=ANNOTATED)
def test_the_state_of_a_pod_of_an_annotated_gang(file: pathlib.Path, pods: Any, state: str, words: str) -> None:
    found = Dump(file, *pods, *existing_node("n")).json("pod", "web")
    assert (found["state"], words in found["summary"]) == (state, True), found["summary"]


JOB_OF_GANG = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u1", "controller": True}


@pytest.mark.parametrize(("uid", "state"), [("u1", "GroupIncomplete"), ("u2", "FitsExistingNode"), ("", "GroupUnread")])
def test_a_gang_of_which_the_job_is_another_one_by_now_is_single_pods(file: pathlib.Path, uid: str, state: str) -> None:
    """As for the provisioner: nobody can tell how many are needed."""
    lone = wire_pod("web", metadata__annotations={names.GANG: "train"}, metadata__ownerReferences=[JOB_OF_GANG])
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default", "uid": uid},
        "spec": {"parallelism": 2},
    }
    assert Dump(file, lone, *([job] if uid else []), *existing_node("n")).json("pod", "web")["state"] == state


def test_jobs_of_gangs_that_are_gone_are_known_to_be() -> None:
    objects = WhyObjects()
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="u1", controller=True)
    objects.add(PODS, (msgspec.structs.replace(short_pod("web", annotations={names.GANG: "train"}), owner=owner),))
    gathering._add_jobs(objects, Client(FakeApi(refusal(404, "NotFound")), FakeClock()))
    assert objects.gone_jobs == {("default", "train")}
    assert not objects.missing


def test_a_job_that_cannot_be_read_does_not_hide_the_others() -> None:
    objects = WhyObjects()
    for name in ("first", "second"):
        owner = OwnerReference(api_version="batch/v1", kind="Job", name=name, uid=name, controller=True)
        objects.add(PODS, (msgspec.structs.replace(short_pod(name, annotations={names.GANG: name}), owner=owner),))
    gathering._add_jobs(objects, Client(FakeApi(refusal(403, "Forbidden"), refusal(404, "NotFound")), FakeClock()))
    assert objects.gone_jobs == {("default", "second")}
    assert ["default/first" in one for one in objects.missing] == [True]


def test_annotations_without_effect_are_told(file: pathlib.Path) -> None:
    lone = wire_pod("web", metadata__annotations={names.GANG: "train"})
    found = Dump(file, lone, *existing_node("n")).json("pod", "web")
    assert found["state"] == "FitsExistingNode"
    assert [(one["type"], "gang-minimum is required" in one["message"]) for one in found["reasons"]] == [
        ("GangIgnored", True)
    ]


STATES = {
    "a pod that runs": (wire_pod("web", on="n"), "Bound", "node n"),
    "a pod that has ended": (wire_pod("web", on="n", status__phase="Succeeded"), "Finished", "Succeeded"),
    "a pod that is being deleted": (
        wire_pod("web", metadata__deletionTimestamp="2026-11-21T13:00:30Z"),
        "Finished",
        "is being deleted",
    ),
    "a pod with gates": (gated(), "Gated", "(spec.schedulingGates: later, example.com/quota)"),
    "a pod that wants no node of ours": (opted_out(), "OptedOut", "the label karpenter.sh/nodepool"),
    "a pod of a DaemonSet": (of_a_daemon_set(), "DaemonSet", "DaemonSet agent"),
    "a mirror pod": (wire_pod("web", metadata__annotations={names.CONFIG_MIRROR: "x"}), "Mirror", "static pod"),
    "a pod of a scheduler whose name is misspelled": (
        of("dovetail-schedular"),
        "OtherScheduler",
        (
            'spec.schedulerName "dovetail-schedular". That scheduler has not marked it as unschedulable, and only pods '
            "of default-scheduler and dovetail-scheduler are planned before that, so no node is launched for it. No pod "
            "of that scheduler is bound to a node; check that it runs and that the name is right. Did you mean "
            '"dovetail-scheduler"?'
        ),
    ),
    "a pod of another scheduler": (of("volcano"), "OtherScheduler", "that the name is right."),
    "a pod that another scheduler has refused": (of("volcano", refused=True), "FitsExistingNode", "fits on node n"),
    "a pod of our own scheduler": (of("dovetail-scheduler"), "FitsExistingNode", "fits on node n"),
    "a pod that gets room by preemption": (PREEMPTS, "Preempting", "node n (status.nominatedNodeName)"),
    "a pod with room on a node": (wire_pod("web"), "FitsExistingNode", "fits on node n"),
    "a pod with room on a new node alone": (wire_pod("web", "30"), "FitsNewNode", "NodePool general"),
}


@pytest.mark.parametrize(("one", "state", "words"), STATES.values(), ids=STATES)
def test_the_state_of_a_pod(file: pathlib.Path, one: dict[str, Any], state: str, words: str) -> None:
    others = [VICTIM] if one is PREEMPTS else []
    found = Dump(file, one, *others, *existing_node("n")).json("pod", "web")
    assert found["state"] == state
    assert found["summary"].startswith("Pod default/web ")
    assert words in found["summary"]


def test_a_scheduler_that_binds_other_pods_is_not_said_to_be_misspelled(file: pathlib.Path) -> None:
    other = wire_pod("other", on="n", spec__schedulerName="volcano")
    found = Dump(file, of("volcano"), other, *existing_node("n")).json("pod", "web")
    assert found["summary"].endswith("so no node is launched for it.")


NO_POOL = {
    "none exists": ([], "no NodePool exists"),
    "none is Ready": ([pool("a", status={}), pool("b", replicas=1)], "no NodePool is Ready"),
    "all are static": ([pool("a", replicas=1), pool("b", replicas=2)], "all NodePools are static"),
}


@pytest.mark.parametrize(("pools", "want"), NO_POOL.values(), ids=NO_POOL)
def test_a_pod_without_a_pool_is_told_which_of_the_causes_it_is(
    file: pathlib.Path, pools: list[NodePool], want: str
) -> None:
    found = Dump(file, *pools, wire_pod("web"), plain_pool=False).json("pod", "web")
    assert ("NoPools", want) in {(one["type"], one["message"]) for one in found["reasons"]}


def test_node_pools_are_listed_by_weight_and_their_requirements_as_they_are_written(file: pathlib.Path) -> None:
    few = ({"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["17"]},)
    every = [pool("a", weight=1), pool("z", weight=100, requirements=few), pool("m", weight=50)]
    found = Dump(file, *every, wire_pod("web", "400")).json("pod", "web")["nodePools"]
    assert [one["name"] for one in found] == ["z", "m", "a", "general"]
    assert "not karpenter.kwok.sh/instance-cpu Lt 17, as the NodePool requires" in {
        each["message"] for each in found[0]["refused"]
    }


def test_a_new_node_is_named_with_its_price(file: pathlib.Path) -> None:
    found = Dump(file, wire_pod("web", "30")).json("pod", "default/web")["place"]
    assert (found["nodePool"], found["capacityType"]) == ("general", "spot")
    assert found["usdPerHour"] > 0


def test_a_pod_with_a_plan_says_what_its_claim_waits_for(file: pathlib.Path) -> None:
    planned = claim("c")
    annotations = {**planned.metadata.annotations, names.PLAN_ANNOTATION: planned_for("web")}
    body = plain(planned)
    body["metadata"]["annotations"] = annotations
    body["status"] = {
        "conditions": [
            {
                "type": "Launched",
                "status": "Unknown",
                "reason": "InsufficientCapacity",
                "message": "all are sold out",
                "lastTransitionTime": NOON.isoformat(),
            }
        ]
    }
    found = Dump(file, body, wire_pod("web")).json("pod", "default/web")
    assert found["state"] == "Planned"
    assert found["summary"] == (
        "Pod default/web is planned onto NodeClaim c (c-4x-amd64-linux test-zone-a spot), which is not Launched yet "
        "(InsufficientCapacity: all are sold out)."
    )
    assert found["place"]["nodeClaim"] == "c"


def planned_for(name: str) -> str:
    """A plan for one pod of ReplicaSet web of any class: its UID is what counts."""
    return plan_text((short_pod(name, owner="web"),))


# ------------------------------------------------------------------ nodes


def test_a_node_under_a_budget_says_which(file: pathlib.Path) -> None:
    dump = Dump(file, *existing_node("n"), wire_pod("web", on="n"), pod_budget(allowed=0))
    found = dump.json("node", "n")
    assert (found["state"], found["reasons"][0]["type"]) == ("Blocked", "PodBudget")
    assert found["summary"] == (
        "Node n is not disrupted: Pdb prevents pod evictions (PodDisruptionBudget=default/guard)."
    )
    methods = {one["reason"]: one["message"] for one in found["methods"]}
    assert methods["Empty"] == "it is not empty: 1 pod would need another node"
    assert methods["Drifted"] == "it has not drifted"
    assert methods["Underutilized"] == "Pdb prevents pod evictions (PodDisruptionBudget=default/guard)"
    text = dump.ask("node", "n")
    assert "NodeClaim n-claim, NodePool general, c-4x-amd64-linux, test-zone-a, on-demand, $" in text
    assert "Underutilized: blocked for the reason above" in text
    assert text.count("default/guard") == 1


def test_until_when_a_pod_protects_its_node_is_said(file: pathlib.Path) -> None:
    kept = wire_pod("web", on="n", metadata__annotations={names.DO_NOT_DISRUPT: "90m"})
    found = Dump(file, *existing_node("n"), kept).json("node", "n-claim")
    assert (found["reasons"][0]["type"], found["reasons"][0]["until"]) == ("PodProtected", "2026-11-21T13:30:00Z")


def test_a_node_that_is_young_says_from_when_on_it_may_go(file: pathlib.Path) -> None:
    patient = pool(disruption={"consolidateAfter": "2h"})
    found = Dump(file, patient, *existing_node("n")).json("node", "n")
    empty = next(one for one in found["methods"] if one["reason"] == "Empty")
    assert empty == {
        "reason": "Empty",
        "disrupts": False,
        "message": "a pod was added or removed less than consolidateAfter (2h) ago",
        "until": "2026-11-21T14:00:00Z",
        "allowed": 1,
        "standing": "NotDue",
    }


def test_an_empty_node_would_be_deleted_and_a_budget_of_none_keeps_it(file: pathlib.Path) -> None:
    found = Dump(file, pool(disruption={"consolidateAfter": "0s"}), *existing_node("n")).json("node", "n")
    assert found["state"] == "Candidate"
    assert found["summary"].startswith("Node n would be disrupted now (Empty")
    assert found["methods"][2]["message"] == "it is empty, so no pods have to move"
    closed = pool(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]})
    found = Dump(file, closed, *existing_node("n")).json("node", "n")
    assert found["state"] == "Blocked"
    assert {one["reason"]: one["allowed"] for one in found["methods"]}["Empty"] == 0
    assert "due to blocking budget" in next(one["message"] for one in found["methods"] if one["reason"] == "Empty")


def test_a_node_that_a_budget_leaves_for_later_says_that_others_go_first(file: pathlib.Path) -> None:
    """Its pods, which it has none of, are not what keeps it."""
    eager = pool(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]})
    dump = Dump(file, eager, *existing_node("a"), *existing_node("b"))
    states = {name: dump.json("node", name) for name in "ab"}
    assert [states[name]["state"] for name in "ab"] == ["Candidate", "Blocked"]
    messages = {one["reason"]: one["message"] for one in states["b"]["methods"]}
    assert messages["Empty"] == "1 more node of its NodePool may be disrupted now, and other nodes come first"


def test_a_node_that_the_limit_over_all_pools_leaves_for_later_says_so(file: pathlib.Path) -> None:
    eager = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    other = existing_node("b")
    for one in other:
        one["metadata"]["labels"][names.NODEPOOL_LABEL] = "other"
    dump = Dump(file, pool(disruption=eager), pool("other", disruption=eager), *existing_node("a"), *other)
    states = {name: dump.json("node", name, "--max-disrupting-nodes=1") for name in "ab"}
    assert [states[name]["state"] for name in "ab"] == ["Candidate", "Blocked"]
    messages = {one["reason"]: one["message"] for one in states["b"]["methods"]}
    assert messages["Empty"] == (
        "1 more node of all NodePools (--max-disrupting-nodes) may be disrupted now, and other nodes come first"
    )


def test_every_method_says_what_refuses_the_node(file: pathlib.Path) -> None:
    kept = pool(disruption={"consolidateAfter": "0s"})
    found = Dump(file, kept, *existing_node("n"), wire_pod("web", status__nominatedNodeName="n")).json("node", "n")
    assert found["reasons"][0]["type"] == "Nominated"
    messages = {one["reason"]: one["message"] for one in found["methods"]}
    assert messages["Empty"] == "Node is nominated for a pending pod"


def test_the_limit_over_all_pools_keeps_a_node_while_another_is_away(file: pathlib.Path) -> None:
    eager = pool(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]})
    dump = Dump(file, eager, *existing_node("n"), *existing_node("away", deletionTimestamp=NOON.isoformat()))
    assert dump.json("node", "n")["state"] == "Candidate"
    found = dump.json("node", "n", "--max-disrupting-nodes=1")
    (empty,) = (one for one in found["methods"] if one["reason"] == "Empty")
    assert (empty["disrupts"], empty["allowed"]) == (False, 0)
    assert empty["message"] == (
        "No allowed disruptions for disruption reason Empty because --max-disrupting-nodes is 1, "
        "and 1 node is being disrupted or not Ready"
    )


def test_a_drifted_node_waits_for_pods_that_change_zones_and_is_tied_to_them(file: pathlib.Path) -> None:
    """Of the node that is being deleted nobody knows where its pod goes."""
    over_zones = {"maxSkew": 1, "topologyKey": names.ZONE_LABEL, "whenUnsatisfiable": "DoNotSchedule"}
    tied = {"spec__topologySpreadConstraints": [{**over_zones, "labelSelector": {"matchLabels": {"app": "web"}}}]}
    (mine, other), (going, closed) = existing_node("n"), existing_node("m")
    drifted = {"type": names.DRIFTED, "status": "True", "reason": "NodePoolDrifted"}
    mine["status"]["conditions"].append({**drifted, "lastTransitionTime": NOON.isoformat()})
    going["metadata"] |= {"deletionTimestamp": NOON.isoformat(), "finalizers": [names.TERMINATION_FINALIZER]}
    every = (pool(disruption={"budgets": [{"nodes": "100%"}]}), mine, other, wire_pod("web-1", "3", on="n", **tied))

    def drift(*more: dict[str, Any] | PodDisruptionBudget) -> str:
        found = Dump(file, *every, *more).json("node", "n")
        return str(next(one["message"] for one in found["methods"] if one["reason"] == "Drifted"))

    db = {"metadata__labels": {"app": "db"}}
    assert drift(going, closed, wire_pod("db", "3", on="m", **db)).startswith("replaced by")
    beside = wire_pod("web-2", "3", on="m", **tied)
    assert drift(going, closed, beside).startswith("replaced by"), "without a budget it leaves at once"
    assert drift(going, closed, beside, pod_budget(allowed=1)).endswith("waiting for these nodes")


def test_pods_that_the_cluster_spreads_by_default_are_tied_too(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (mine, other), (going, closed) = existing_node("n"), existing_node("m")
    drifted = {"type": names.DRIFTED, "status": "True", "reason": "NodePoolDrifted"}
    mine["status"]["conditions"].append({**drifted, "lastTransitionTime": NOON.isoformat()})
    going["metadata"] |= {"deletionTimestamp": NOON.isoformat(), "finalizers": [names.TERMINATION_FINALIZER]}
    pods = wire_pod("web-1", "3", on="n"), wire_pod("web-2", "3", on="m")
    dump = Dump(
        file,
        pool(disruption={"budgets": [{"nodes": "100%"}]}), mine, other, going, closed, *pods, pod_budget(allowed=1),
    )  # fmt: skip

    def drift(*flags: str) -> str:
        found = dump.json("node", "n", *flags)
        return str(next(one["message"] for one in found["methods"] if one["reason"] == "Drifted"))

    over_zones = {"maxSkew": 1, "topologyKey": names.ZONE_LABEL, "whenUnsatisfiable": "DoNotSchedule"}
    config = yaml.safe_dump({"podTopologySpread": {"defaultConstraints": [over_zones]}})
    assert drift().startswith("replaced by")
    assert drift("--scheduler-config", config).endswith("waiting for these nodes")


GONE_SOON = {"consolidateAfter": "0s"}


def test_a_pool_that_is_paused_says_so(file: pathlib.Path) -> None:
    paused = pool(disruption=GONE_SOON)
    paused.metadata.annotations[names.PAUSED] = "true"
    found = Dump(file, paused, *existing_node("n")).json("node", "n")
    assert found["state"] == "Blocked"
    assert found["reasons"][0]["type"] == "Paused"
    assert 'paused by the annotation "dovetail.dev/paused" of NodePool "general"' in found["summary"]


def test_a_pause_of_one_activity_is_told_though_others_go_on(file: pathlib.Path) -> None:
    paused = pool(disruption=GONE_SOON)
    paused.metadata.annotations[names.PAUSED] = "drift"
    found = Dump(file, paused, *existing_node("n")).json("node", "n")
    assert found["state"] == "Candidate", "it is empty"
    assert [one["message"] for one in found["reasons"] if one["type"] == "Paused"] == [
        'Drift is paused by the annotation "dovetail.dev/paused" of NodePool "general"'
    ]


def test_a_node_whose_deletion_waits_says_what_confirms_it(file: pathlib.Path) -> None:
    going = {"deletionTimestamp": NOON.isoformat(), "annotations": {names.AWAITS_CONFIRMATION: "installation"}}
    found = Dump(file, *existing_node("n", **going)).json("node", "n")
    assert found["summary"].startswith(
        "Node n is being deleted, and waits: it was deleted before Dovetail was installed"
    )
    assert found["reasons"][0]["type"] == "AwaitsConfirmation"
    assert "dovetail.dev/confirm-deletion=true" in found["reasons"][0]["message"]


def test_a_node_that_waits_by_itself_says_what_confirms_it(file: pathlib.Path) -> None:
    claimed, going = existing_node("n")
    going["metadata"] |= {
        "deletionTimestamp": NOON.isoformat(),
        "annotations": {names.AWAITS_CONFIRMATION: "installation"},
    }
    found = Dump(file, going, claimed).json("node", "n")
    assert found["summary"].startswith(
        "Node n is being deleted, and waits: it was deleted before Dovetail was installed"
    )
    assert "annotate the Node or the ConfigMap" in found["summary"]
    alone = Dump(file, going).json("node", "n")
    assert "annotate the Node or the ConfigMap" in alone["summary"], "a Node of which the NodeClaim is gone"


def test_a_pod_says_who_pauses_launches(file: pathlib.Path) -> None:
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.SETTINGS_CONFIGMAP, "namespace": "dovetail-system"},
        "data": {"paused": "launch"},
    }
    found = Dump(file, settings, wire_pod("web")).json("pod", "web")
    assert [(one["type"], one["message"]) for one in found["reasons"]] == [
        ("LaunchPaused", 'Launching nodes is paused by the key "paused" of ConfigMap "dovetail-settings"')
    ]
    general = pool()
    general.metadata.annotations[names.PAUSED] = "launch"
    found = Dump(file, general, wire_pod("web")).json("pod", "web")
    assert found["state"] == "Unschedulable"
    assert [(one["state"], one["message"]) for one in found["nodePools"]] == [
        ("Paused", 'Launching nodes is paused by the annotation "dovetail.dev/paused" of NodePool "general"')
    ]


@pytest.mark.parametrize(
    ("namespace", "state"), [("dovetail-system", "Blocked"), ("other", "Candidate")], ids=["ours", "somebody else's"]
)
def test_a_pause_of_everything_is_seen_in_its_config_map(file: pathlib.Path, namespace: str, state: str) -> None:
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.SETTINGS_CONFIGMAP, "namespace": namespace},
        "data": {"paused": "true"},
    }
    found = Dump(file, pool(disruption=GONE_SOON), *existing_node("n"), settings).json("node", "n")
    assert found["state"] == state


def test_a_loop_that_node_claims_tell_of_holds_a_node(file: pathlib.Path) -> None:
    times = [int((NOON + timedelta(minutes=minutes)).timestamp()) for minutes in (10, 20, 30)]
    marks = {
        names.PLAN_ANNOTATION: plan_text((short_pod("gone", owner="web"),)),
        names.REMOVALS_ANNOTATION: json.dumps({"web": times}),
    }
    looping = existing_node("n", annotations=marks, creationTimestamp=(NOON + timedelta(minutes=40)).isoformat())
    alive = wire_pod("web")
    found = Dump(file, pool(disruption=GONE_SOON), *looping, alive).json("node", "n")
    assert (found["reasons"][0]["type"], found["reasons"][0]["until"]) == ("Loop", "2026-11-21T13:10:00Z")
    assert "launched and removed 3 times within an hour" in found["summary"]


def test_consolidation_waits_for_a_node_to_be_still(file: pathlib.Path) -> None:
    moved = existing_node("n")
    moved[0]["status"]["lastPodEventTime"] = "2026-11-21T12:59:50Z"
    found = Dump(file, pool(disruption=GONE_SOON), *moved, wire_pod("web", on="n")).json("node", "n")
    under = next(one for one in found["methods"] if one["reason"] == "Underutilized")
    assert under["until"] == "2026-11-21T13:00:05Z"
    assert under["message"] == "a pod was added or removed, or the node was initialized, a moment ago"


def test_the_acceptance_of_the_flag_is_asked(file: pathlib.Path) -> None:
    """Forty pods that are dear to evict would move to a smaller node: that saves money, and not enough."""
    pods = [wire_pod(f"w{number}", "20m", on="n") for number in range(40)]
    for one in pods:
        one["spec"]["containers"][0]["resources"]["requests"]["memory"] = "16Mi"
        one["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": "2147483647"}
    dump = Dump(file, pool(disruption=GONE_SOON), *existing_node("n"), *pods)
    states = {one: dump.json("node", "n", f"--consolidation={one}")["state"] for one in ("saving", "karpenter")}
    assert states == {"saving": "Blocked", "karpenter": "Candidate"}


def test_a_pod_that_is_sized_by_a_recommendation_says_so_and_its_node_too(file: pathlib.Path) -> None:
    one = wire_autoscaler("web", namespace="default", target=("ReplicaSet", "web"), c={"cpu": "3", "memory": "512Mi"})
    dump = Dump(file, pool(disruption=GONE_SOON), *existing_node("n"), wire_pod("w", on="n"), one)
    said = (
        "room elsewhere is planned for pod default/w with cpu 3 instead of 1, as VerticalPodAutoscaler default/web "
        "recommends"
    )
    asked = ("node", "n", "--vpa-predictions")
    assert dump.json(*asked)["predicted"] == [said]
    assert f"  {said}" in dump.ask(*asked).splitlines()
    (reason,) = dump.json("pod", "w", "--vpa-predictions")["reasons"]
    assert (reason["type"], reason["message"]) == ("Predicted", said)
    assert "predicted" not in dump.json("node", "n")
    assert "reasons" not in dump.json("pod", "w")


def test_a_node_whose_pods_need_one_as_dear_says_that_none_is_cheaper(file: pathlib.Path) -> None:
    """One of its two pods would go to the other node, the second to a new one of the same type."""
    same: tuple[dict[str, Any], ...] = (
        {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["c-4x-amd64-linux"]},
        {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]},
    )
    pods = [wire_pod(name, "1500m", on="n") for name in ("a", "b")]
    others = [*existing_node("m"), wire_pod("c", "2100m", on="m")]
    found = Dump(file, pool(disruption=GONE_SOON, requirements=same), *existing_node("n"), *pods, *others).json(
        "node", "n"
    )
    methods = {one["reason"]: one["message"] for one in found["methods"]}
    assert (found["state"], methods["Underutilized"]) == ("Blocked", "Can't replace with a cheaper node")


def test_overlays_change_prices_where_their_gate_is_on(file: pathlib.Path) -> None:
    overlay = {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": "dear", "uid": "u"},
        "spec": {"requirements": [], "price": "7.5"},
    }
    dump = Dump(file, *existing_node("n"), overlay)
    assert "$7.5000 per hour" not in dump.ask("node", "n")
    assert "$7.5000 per hour" in dump.ask("node", "n", "--feature-gates=NodeOverlay=true")


def of_command(*, created: bool = True, paused: bool = False) -> list[Any]:
    """A NodePool and node `n` with a pod; a command replaces the node, and its replacement is ready once it is created."""
    general = pool(disruption={"consolidateAfter": "0s"})
    if paused:
        general.metadata.annotations[names.PAUSED] = "true"
    record = CommandRecord(
        id="0123456789ab",
        reason="Drifted",
        method="drift",
        candidates=(CandidateRecord("n-claim", "uid-n-claim"),),
        replacements=(Replacement("new-claim"),),
    )
    made = existing_node("n", annotations={names.COMMAND_ANNOTATION: encode_command(record)})
    made[0]["metadata"]["uid"] = "uid-n-claim"
    new = existing_node("new", annotations={names.REPLACES_ANNOTATION: record.id}) if created else []
    return [general, *made, *new, wire_pod("web", on="n")]


OF_POOL = 'the annotation "dovetail.dev/paused" of NodePool "general"'
BEGUN = "Node n is being disrupted (Drifted)"


@pytest.mark.parametrize(
    ("things", "summary", "reasons"),
    [
        (of_command(created=False), "; it waits for its replacement new-claim.", {}),
        (of_command(), "; its replacements are ready.", {}),
        (of_command(paused=True), ", which is paused.", {"Paused": OF_POOL}),
        (
            [*of_command(), pod_budget(healthy=1, required=1, allowed=0)],
            "; it waits until its pods can be evicted.",
            {"ImpossiblePodBudget": "PodDisruptionBudget default/guard never allows an eviction"},
        ),
    ],
    ids=["replacement", "ready", "paused", "budget"],
)
def test_what_a_command_that_has_begun_waits_for(
    file: pathlib.Path, things: list[Any], summary: str, reasons: dict[str, str]
) -> None:
    dump = Dump(file, *things)
    found = dump.json("node", "n")
    assert (found["state"], found["summary"]) == ("UnderWay", BEGUN + summary)
    told = {one["type"]: one["message"] for one in found.get("reasons", ())}
    assert told.keys() == reasons.keys()
    for kind, part in reasons.items():
        assert part in told[kind]
        assert part in dump.ask("node", "n")


def test_a_replacement_says_that_it_is_one_and_not_that_it_is_disrupted(file: pathlib.Path) -> None:
    found = Dump(file, *of_command()).json("node", "new")
    assert found["reasons"][0]["type"] == "Replacement"
    methods = {one["reason"]: one["message"] for one in found["methods"]}
    assert methods["Empty"] == "it is a replacement in a disruption that is in progress"


def test_a_blocked_drain_is_explained(file: pathlib.Path) -> None:
    going = existing_node("n", deletionTimestamp=(NOON + timedelta(minutes=30)).isoformat())
    going[0]["spec"]["terminationGracePeriod"] = "1h"
    drained = {"type": names.DRAINED, "status": "Unknown", "reason": names.DRAINING}
    drained |= {
        "message": "PodDisruptionBudget default/guard never allows an eviction",
        "lastTransitionTime": "2026-11-21T12:30:00Z",
    }
    going[0]["status"]["conditions"].append(drained)
    dump = Dump(file, *going, wire_pod("web", on="n"), pod_budget(healthy=1, required=1, allowed=0))
    found = dump.json("node", "n")
    assert found["state"] == "Terminating"
    assert found["drain"]["deadline"] == "2026-11-21T13:30:00Z"
    (blocker,) = found["drain"]["blockers"]
    assert (blocker["cause"], blocker["owner"], blocker["budgets"]) == (
        "impossible-pod-budget",
        "ReplicaSet web",
        ["default/guard"],
    )
    assert blocker["since"] == "2026-11-21T12:30:00Z"
    text = dump.ask("node", "n")
    assert text.count("never allows an eviction") == 1
    assert "\n  Drained=Unknown since 2026-11-21T12:30:00Z: Draining\n" in text
    assert text.splitlines()[0].endswith("All pods will be deleted by 2026-11-21T13:30:00Z.")


def test_a_drain_that_a_limit_holds_names_it(file: pathlib.Path) -> None:
    """One of three was evicted, the PodDisruptionBudget counts its successor as missing, and that has no place."""
    going = existing_node("n", deletionTimestamp=(NOON + timedelta(minutes=30)).isoformat())
    pods = [wire_pod("web-1", on="n"), wire_pod("web-2", on="n"), wire_pod("web-3")]
    guard = pod_budget(healthy=2, required=2, allowed=0)
    guard = msgspec.structs.replace(guard, status=msgspec.structs.replace(guard.status, expected_pods=3))
    dump = Dump(file, *going, *pods, guard, pool(limits={"cpu": "1"}))
    found = dump.json("node", "n")
    assert [one["cause"] for one in found["drain"]["blockers"]] == ["pod-budget", "without-a-place"]
    text = "pod default/web-3 waits for a node: "
    assert text in found["summary"]
    assert "limit on cpu: 1 left, the smallest instance type that fits needs 2" in found["summary"]
    assert text in dump.ask("node", "n")
    with_room = Dump(file, *going, *pods, guard, pool(limits={"cpu": "4"})).json("node", "n")
    assert "limit on cpu" not in with_room["summary"], "the node that goes counts for nobody"


NO_DEADLINE = "Its drain is paused, and its deadline does not apply until it resumes: Disruption is paused by "


@pytest.mark.parametrize(
    ("annotations", "paused"),
    [
        ({names.COMMAND_MEMBER_ANNOTATION: "0123456789ab"}, True),
        ({names.ENDED_FOR: "expired"}, True),
        ({}, False),
        ({names.ENDED_FOR: "expired", names.INTERRUPTION_ANNOTATION: "{}"}, False),
    ],
    ids=["of a command", "that has expired", "that a user deletes", "that is interrupted"],
)
def test_a_paused_drain_has_no_deadline(file: pathlib.Path, annotations: dict[str, str], paused: bool) -> None:
    settings = pool()
    settings.metadata.annotations[names.PAUSED] = "true"
    going = existing_node("n", deletionTimestamp=NOON.isoformat(), annotations=annotations)
    going[0]["spec"]["terminationGracePeriod"] = "1h"
    dump = Dump(file, settings, *going, wire_pod("web", on="n"))
    found = dump.json("node", "n")
    assert found["state"] == "Terminating"
    assert "1 pod has to leave it first" in found["summary"]
    if paused:
        assert (found["drain"]["paused"], found["drain"].get("deadline")) == (
            f"Disruption is paused by {OF_POOL}",
            None,
        )
        assert dump.ask("node", "n").splitlines()[0].endswith(f"{NO_DEADLINE}{OF_POOL}.")
    else:
        assert found["drain"].get("paused", "") == ""
        assert found["summary"].endswith("All pods will be deleted by 2026-11-21T13:00:00Z.")


def test_a_pause_holds_no_node_that_is_drained(file: pathlib.Path) -> None:
    settings = pool()
    settings.metadata.annotations[names.PAUSED] = "true"
    going = existing_node("n", deletionTimestamp=NOON.isoformat(), annotations={names.ENDED_FOR: "expired"})
    found = Dump(file, settings, *going).json("node", "n")
    assert found["summary"] == "Node n is being terminated; it is drained, and its instance is terminated next."


def test_a_drained_node_waits_for_its_volumes_or_for_others_finalizers(file: pathlib.Path) -> None:
    going = existing_node(
        "n", deletionTimestamp=NOON.isoformat(), finalizers=[names.TERMINATION_FINALIZER, "example.com/hold"]
    )
    ended = existing_node("n", deletionTimestamp=NOON.isoformat(), finalizers=["example.com/hold"])
    found = Dump(file, *ended).json("node", "n")
    assert (
        "its instance is terminated, and finalizers of other controllers remain: example.com/hold" in found["summary"]
    )
    attachment = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": "csi-1"},
        "spec": {"nodeName": "n", "source": {"persistentVolumeName": "pv-1"}},
    }
    found = Dump(file, *going, attachment).json("node", "n")
    assert "waits for 1 volume to detach" in found["summary"]
    assert found["drain"]["volumes"] == ["pv-1"]


def test_a_node_of_nobody_and_one_that_is_not_ready_say_so(file: pathlib.Path) -> None:
    assert Dump(file, plain(node("n"))).json("node", "n")["state"] == "Unmanaged"
    young = claim("c", true=(names.LAUNCHED,))
    waits = {"type": "Registered", "status": "Unknown", "reason": "NodeNotFound", "message": "Node not registered"}
    body = plain(young)
    body["status"]["conditions"].append({**waits, "lastTransitionTime": NOON.isoformat()})
    found = Dump(file, body).json("node", "c")
    assert (found["state"], found["summary"]) == (
        "NotInitialized",
        "NodeClaim c is not Registered yet, so it is not disrupted.",
    )


# ------------------------------------------------------------------ what is asked for wrongly


WRONG = {
    "no such pod": (("pod", "default/other"), 1, "there is no pod default/other"),
    "no such node": (("node", "other"), 1, 'no Node or NodeClaim is named "other"'),
    "a flag that nobody knows": (("pod", "web", "--preference-polizy=Ignore"), 2, "--preference-polizy"),
}


@pytest.mark.parametrize(("arguments", "status", "says"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_answered_is_one_sentence(
    file: pathlib.Path, arguments: tuple[str, ...], status: int, says: str
) -> None:
    assert says in Dump(file, wire_pod("web")).ask(*arguments, status=status)


def test_a_file_without_anything_says_how_to_make_one(file: pathlib.Path) -> None:
    file.write_text("kind: ConfigMap\napiVersion: v1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"kubectl get -A -o yaml pods,nodes,nodepools\.karpenter\.sh"):
        CliRunner().invoke(command, ["pod", "web", "-f", str(file)], catch_exceptions=False)


def test_a_dump_that_is_nested_a_hundred_thousand_levels_deep_is_refused_with_its_line(file: pathlib.Path) -> None:
    file.write_text("a: " + "[" * 100_000 + "]" * 100_000, encoding="utf-8")
    with pytest.raises(UserError, match="line 1: is nested deeper than 64 levels"):
        CliRunner().invoke(command, ["pod", "web", "-f", str(file)], catch_exceptions=False)


def test_an_object_that_cannot_be_read_spoils_nothing(file: pathlib.Path) -> None:
    bad = wire_pod("bad")
    bad["spec"]["nodeName"] = 7
    found = Dump(file, bad, wire_pod("web")).json("pod", "web", status=3)
    assert any(one.startswith("Pod default/bad cannot be read") for one in found["missing"])


def test_what_the_user_may_not_list_is_left_out_and_told() -> None:
    def answer(sent: Sent) -> Any:
        if "poddisruptionbudgets" in sent.path:
            return refusal(403, "Forbidden", "no")
        if "nodeclasses" in sent.path or "configmaps" in sent.path:
            return refusal(404, "NotFound")
        return ok({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []})

    api = FakeApi(respond=answer)
    found = from_cluster(Client(api, api.clock), "dovetail-system")
    assert found.missing == ["You may not list poddisruptionbudgets.policy, so the answer assumes that there are none"]
    assert {sent.method for sent in api.sent} == {"GET"}
    assert not [sent.path for sent in api.sent if "verticalpodautoscalers" in sent.path]


def test_recommendations_are_read_where_pods_are_sized_by_them() -> None:
    def answer(sent: Sent) -> Any:
        if "verticalpodautoscalers" in sent.path:
            return refusal(404, "NotFound")
        return ok({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []})

    api = FakeApi(respond=answer)
    found = from_cluster(Client(api, api.clock), "dovetail-system", predictions=True)
    assert found.missing == []
    assert [sent.path for sent in api.sent if "autoscal" in sent.path] == [
        "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers"
    ]


GROUPLESS = {
    "without pods of groups": (403, {}, [], KindKnowledge.UNREADABLE),
    "with a pod of a group": (
        403,
        {"schedulingGroup": {"podGroupName": "train"}},
        ["You may not list podgroups.scheduling.k8s.io, so the answer does not know which groups are complete"],
        KindKnowledge.UNREADABLE,
    ),
    "which the cluster does not have": (
        404,
        {"schedulingGroup": {"podGroupName": "train"}},
        [],
        KindKnowledge.NOT_SERVED,
    ),
}


@pytest.mark.parametrize(("status", "spec", "missing", "known"), GROUPLESS.values(), ids=GROUPLESS)
def test_pod_groups_that_cannot_be_listed_are_told_only_of_pods_that_name_one(
    status: int, spec: dict[str, Any], missing: list[str], known: KindKnowledge
) -> None:
    one = wire_pod("web")

    def answer(sent: Sent) -> Any:
        if "podgroups" in sent.path:
            return refusal(status, "Forbidden" if status == 403 else "NotFound", "no")
        if "nodeclasses" in sent.path or "configmaps" in sent.path:
            return refusal(404, "NotFound")
        items = [{**one, "spec": {**one["spec"], **spec}}] if sent.path.startswith("/api/v1/pods") else []
        return ok({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})

    api = FakeApi(respond=answer)
    found = from_cluster(Client(api, api.clock), "dovetail-system")
    assert (found.missing, set(found.pod_groups.values())) == (missing, {known})


@pytest.mark.parametrize("refused", [False, True])
def test_the_state_of_a_pod_whose_group_cannot_be_read(refused: bool) -> None:
    one = of_a_group() if refused else {**of_a_group(), "status": {"phase": "Pending"}}
    objects = WhyObjects()
    objects.pod_groups[GroupSource.POD_GROUP] = KindKnowledge.UNREADABLE
    objects.add(PODS, (PODS.decode(msgspec.json.encode(one)),))
    found = why_pod(local(objects, Options(), NOON), "default", "web")
    assert found.state == ("Unschedulable" if refused else "GroupUnread")
    assert refused or "and PodGroups cannot be read" in found.summary


def test_without_pods_there_is_no_answer() -> None:
    api = FakeApi(respond=lambda _: refusal(403, "Forbidden", "pods is forbidden"))
    with pytest.raises(UserError, match="could not list pods: pods is forbidden"):
        from_cluster(Client(api, api.clock), "dovetail-system")


CLEARS = "a\x1b[2J\x9b2J\u202eb"


@pytest.mark.parametrize("output", ["text", "json"])
def test_what_tenants_wrote_cannot_write_to_the_terminal(file: pathlib.Path, output: str) -> None:
    terms = [{"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": [CLEARS]}]}]
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": f"{CLEARS}\nforged"}
    web = wire_pod(
        "web",
        spec__affinity={
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        },
        status__conditions=[said],
    )
    # yaml refuses such characters where they are not escaped, the API server's JSON does not
    file.with_suffix(".json").write_text(json.dumps({"kind": "List", "items": [plain(pool()), web]}), encoding="utf-8")
    arguments = ["pod", "default/web", "--from", str(file.with_suffix(".json")), "-o", output, *AT]
    shown = CliRunner().invoke(command, arguments, catch_exceptions=False).output
    assert all(line.isprintable() for line in shown.split("\n")), shown
    assert "2J" in shown
    assert "\nforged" not in shown
