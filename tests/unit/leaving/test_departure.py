"""`dovetail uninstall` against an API server in memory: what goes, what stays, and what is left to the user."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.reports import LEASE_NAME
from provisioner.leaving import decisions, departure, gathering
from provisioner.leaving.belongings import Belongings, Keep, QueuedJob, QueuedPod
from provisioner.simulator import api_server
from provisioner.values.errors import RefusedError, UndeterminedError
from tests.support.kube import FakeAnswer, Sent, refusal
from tests.support.leavingcluster import OURS, SPACE, STAMPED, LeavingCluster


@pytest.fixture
def cluster() -> LeavingCluster:
    made = LeavingCluster()
    made.install()
    return made


def schedulers(cluster: LeavingCluster) -> dict[str, str]:
    return {one["metadata"]["name"]: one["spec"]["schedulerName"] for one in cluster.all("pods")}


def test_pods_that_wait_for_our_scheduler_are_made_anew_and_the_others_are_named(cluster: LeavingCluster) -> None:
    cluster.pod("web")
    cluster.pod("job", owner="Job")
    cluster.pod("bare", owner="")
    cluster.pod("named", stamped=False)
    cluster.pod("foreign", stamped=False, scheduler="other")
    problems = cluster.uninstall(None)
    assert schedulers(cluster) == {
        "web-1": names.DEFAULT_SCHEDULER_NAME,
        "job": names.SCHEDULER_NAME,
        "bare": names.SCHEDULER_NAME,
        "named": names.SCHEDULER_NAME,
        "foreign": "other",
    }
    assert [one.split(";")[0] for one in problems] == [
        "pods without a controller wait for dovetail-scheduler and are not created again: shop/bare",
        "pods wait for dovetail-scheduler because their own manifests name it: shop/named",
        "pods of Jobs wait for dovetail-scheduler, and deleting them would use up the backoffLimit: shop/job",
    ]
    assert cluster.objects["mutatingwebhookconfigurations"] == {}
    assert "pod/web deleted, ReplicaSet web creates it again in namespace shop" in cluster.said


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_admission_policies_go_at_the_version_that_is_served(
    cluster: LeavingCluster, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    plurals = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
    served = {(f"admissionregistration.k8s.io/{version}", one) for one in plurals}
    monkeypatch.setattr(api_server, "SERVED", api_server.SERVED | served)
    for kind in plurals:
        cluster.store(kind, {"metadata": {"name": "dovetail-stamping", "labels": OURS}})
    assert cluster.uninstall(None) == ()
    assert [cluster.all(kind) for kind in plurals] == [[], []]
    suffix = "" if version == "v1" else ".v1beta1.admissionregistration.k8s.io"
    assert f"mutatingadmissionpolicy{suffix}/dovetail-stamping deleted" in cluster.said


@pytest.mark.parametrize(
    ("key", "who"), [("argocd.argoproj.io/instance", "Argo CD"), ("kustomize.toolkit.fluxcd.io/name", "Flux")]
)
def test_whoever_creates_the_webhook_again_is_named(key: str, who: str) -> None:
    cluster = LeavingCluster()
    cluster.install(owner=key)
    problems = cluster.uninstall(None)
    assert cluster.objects["mutatingwebhookconfigurations"] == {}
    assert (
        f"mutatingwebhookconfigurations dovetail-webhook is managed by {who}, which creates it again; remove it there"
        in problems
    )


def test_pods_that_run_and_name_our_scheduler_themselves_are_told(cluster: LeavingCluster) -> None:
    """When they are created again, nobody binds them."""
    for name, stamped in (("named", False), ("stamped", True), ("ended", False)):
        cluster.pod(name, stamped=stamped)
        phase = "Succeeded" if name == "ended" else "Running"
        cluster.change("pods", name, {"spec": {"nodeName": "a"}, "status": {"phase": phase}}, "shop")
    (problem,) = cluster.uninstall(None)
    assert problem == (
        "running pods name dovetail-scheduler in their own manifests, and no scheduler will bind them when they are created again: shop/named; "
        "remove spec.schedulerName there"
    )
    assert set(schedulers(cluster)) == {"named", "stamped", "ended"}


def test_pods_that_an_api_server_stamps_after_the_webhook_is_gone_are_made_anew(cluster: LeavingCluster) -> None:
    """It hears of the deletion a moment later; of an admission policy's up to a second."""
    sleep = cluster.clock.sleep

    def slept(seconds: float) -> None:
        if cluster.clock.monotonic() < 2 and seconds >= 1:
            cluster.pod("late")
        sleep(seconds)

    cluster.clock.sleep = slept  # type: ignore[method-assign]
    began = cluster.clock.monotonic()
    assert cluster.uninstall(None) == ()
    assert cluster.clock.monotonic() - began >= 3
    assert schedulers(cluster) == {"late-1": names.DEFAULT_SCHEDULER_NAME}
    cluster.uninstall(None)
    assert cluster.clock.monotonic() - began < 6, "only where something was stamping"


def test_a_cluster_in_which_nothing_stamps_is_read_once(
    cluster: LeavingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, once = list[Belongings](), gathering.gathered

    def counted(*args: Any) -> Belongings:
        looks.append(once(*args))
        return looks[-1]

    monkeypatch.setattr(departure, "gathered", counted)
    cluster.uninstall(None)
    assert len(looks) == 3, "before, after the deletions, and once API servers have heard of them"
    looks.clear()
    cluster.uninstall(None)
    assert len(looks) == 1


def test_a_job_gives_as_many_pods_as_its_backoff_limit_allows(
    cluster: LeavingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        cluster.pod(f"job{number}", owner="Job")
    assert QueuedJob().spare == 6
    job = msgspec.convert(
        {"metadata": {"uid": "Job-web"}, "spec": {"backoffLimit": 3}, "status": {"failed": 1}}, QueuedJob
    )
    monkeypatch.setattr(gathering, "_jobs", lambda *_: {"Job-web": job})
    (problem,) = cluster.departure(dry_run=True).stop_stamping()
    assert problem.startswith("pods of Jobs wait")
    assert "shop/job2" in problem
    assert sum("Job web creates it again" in one for one in cluster.said) == 2


def test_pods_that_the_job_has_not_counted_yet_count_against_its_backoff_limit() -> None:
    """The Job controller counts a deleted pod a moment later: the next look must not take as many again, else the Job fails."""

    def pod(name: str, **meta: object) -> QueuedPod:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "web", "uid": "Job-web", "controller": True}
        metadata = {"name": name, "uid": name, "annotations": {names.STAMPED_ANNOTATION: STAMPED}, **meta}
        wire = {"metadata": {"ownerReferences": [owner], **metadata}, "spec": {"schedulerName": names.SCHEDULER_NAME}}
        return msgspec.convert(wire, QueuedPod, strict=False)

    status = {"failed": 1, "uncountedTerminatedPods": {"failed": ["gone-1", "gone-2"]}}
    job = msgspec.convert({"metadata": {"uid": "Job-web"}, "spec": {"backoffLimit": 6}, "status": status}, QueuedJob)
    going = [pod(f"going-{number}", deletionTimestamp="2026-01-01T00:00:00Z") for number in range(2)]
    found = Belongings(SPACE, pods=(*going, pod("a"), pod("b")), jobs={"Job-web": job})
    assert [step.name for stage in decisions.stamping(found).stages for step in stage] == ["a"]


def test_gates_go_and_other_gates_stay(cluster: LeavingCluster) -> None:
    cluster.pod("held", owner="", stamped=False, gated=True, scheduler=names.DEFAULT_SCHEDULER_NAME)
    assert cluster.uninstall(None) == ()
    (pod,) = cluster.all("pods")
    assert pod["spec"]["schedulingGates"] == [{"name": "other"}]
    assert pod["metadata"]["labels"] == {}


def test_nobody_finds_the_instances_that_are_kept_for_nobody(cluster: LeavingCluster) -> None:
    cluster.node("a")
    cluster.node("b", joined=False)
    assert cluster.uninstall(Keep.FOR_NOBODY) == ()
    assert (cluster.tagged, cluster.ended, cluster.objects["nodeclaims"]) == (set(), set(), {})
    (node,) = cluster.all("nodes")
    meta = node["metadata"]
    assert not {"finalizers", "ownerReferences"} & meta.keys()
    assert (meta["labels"], meta["annotations"]) == ({names.NODEPOOL_LABEL: "general"}, {})
    assert "finalizers" not in cluster.all("ec2nodeclasses")[0]["metadata"]
    assert list(cluster.objects["configmaps"]) == [f"{SPACE}/{names.SETTINGS_CONFIGMAP}"], "the user's own"
    assert cluster.all("deployments")[0]["spec"]["replicas"] == 0
    order = [one.split("/")[0] for one in cluster.writes]
    assert (
        order.index("UNTAG instances")
        < order.index("PATCH nodes")
        < order.index("PATCH nodeclaims")
        < order.index("DELETE nodeclaims")
    )


def test_karpenter_gets_everything_but_what_is_ours(cluster: LeavingCluster) -> None:
    cluster.node("a")
    before = cluster.outcome()
    assert cluster.uninstall(Keep.FOR_KARPENTER) == ()
    (claim,), (node,) = cluster.all("nodeclaims"), cluster.all("nodes")
    assert claim["metadata"]["annotations"] == {"mine": "kept"}
    assert node["metadata"]["annotations"] == {}
    after = cluster.outcome()
    for one in (before["nodeclaims"]["a"], before["nodes"]["a"], after["nodeclaims"]["a"], after["nodes"]["a"]):
        del one["annotations"]
    assert {kind: after[kind] for kind in ("nodeclaims", "nodes", "tagged", "ec2nodeclasses", "nodepools")} == {
        kind: before[kind] for kind in ("nodeclaims", "nodes", "tagged", "ec2nodeclasses", "nodepools")
    }


@pytest.mark.parametrize("keep", Keep)
def test_deletion_costs_of_ours_are_taken_back_and_those_of_users_stay(cluster: LeavingCluster, keep: Keep) -> None:
    cost, mark = names.POD_DELETION_COST, names.OWN_DELETION_COST
    said = {"ours": {cost: "-5", mark: "-5"}, "theirs": {cost: "-5"}, "over": {cost: "7", mark: "-5"}}
    for name, annotations in said.items():
        cluster.pod(name, stamped=False, scheduler="default-scheduler")
        cluster.change("pods", name, {"metadata": {"annotations": annotations}}, "shop")
    cluster.uninstall(keep, dry_run=True)
    assert [one for one in cluster.said if "deletion cost" in one] == [
        "pod/ours deletion cost removed in namespace shop (dry run)",
        "pod/over deletion cost removed in namespace shop (dry run)",
    ]
    assert cluster.writes == []
    cluster.uninstall(keep)
    after = {one["metadata"]["name"]: one["metadata"]["annotations"] for one in cluster.all("pods")}
    assert after == {"ours": {}, "theirs": {cost: "-5"}, "over": {cost: "7"}}


@pytest.mark.parametrize("keep", Keep)
def test_a_dry_run_writes_nothing_and_says_every_step(cluster: LeavingCluster, keep: Keep) -> None:
    cluster.node("a")
    cluster.pod("web")
    before = cluster.outcome()
    cluster.uninstall(keep, dry_run=True)
    assert (cluster.writes, cluster.outcome()) == ([], before)
    assert all(one.endswith("(dry run)") for one in cluster.said)
    dry = {one.removesuffix(" (dry run)") for one in cluster.said}
    assert len(dry) == len(cluster.said), "each once"
    cluster.said.clear()
    cluster.uninstall(keep)
    assert {*cluster.said} == dry
    assert ("nodeclaim/a deleted" in dry) is (keep is Keep.FOR_NOBODY)


@pytest.mark.parametrize("key", ["argocd.argoproj.io/instance", "helm.toolkit.fluxcd.io/name"])
def test_a_chart_that_gitops_renders_is_not_taken_for_helms(key: str) -> None:
    cluster = LeavingCluster()
    cluster.install(owner=key)
    for kind, namespace in (("deployments", SPACE), ("mutatingwebhookconfigurations", "")):
        labels = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}
        cluster.change(kind, cluster.all(kind)[0]["metadata"]["name"], labels, namespace)
    with pytest.raises(RefusedError, match="is managed by"):
        cluster.departure().keep_nodes(Keep.FOR_NOBODY)
    assert cluster.writes == []
    assert any("mutatingwebhookconfigurations dovetail-webhook is managed by" in one for one in cluster.uninstall(None))


@pytest.mark.parametrize("replicas", [0, 2])
def test_a_provisioner_in_another_namespace_is_found(replicas: int) -> None:
    """`-n` is easily forgotten: in the wrong namespace there is neither a Lease nor a Deployment, and a leader would end what is let go."""
    cluster = LeavingCluster()
    cluster.install(replicas=replicas, namespace="fleet")
    cluster.node("a")
    with pytest.raises(RefusedError, match=r"Deployment fleet/dovetail-provisioner .* with -n fleet"):
        cluster.departure().keep_nodes(Keep.FOR_NOBODY)
    assert cluster.writes == []


@pytest.mark.parametrize("key", ["argocd.argoproj.io/instance", "kustomize.toolkit.fluxcd.io/name"])
def test_a_deployment_that_somebody_else_keeps_is_not_scaled(key: str) -> None:
    cluster = LeavingCluster()
    cluster.install(owner=key)
    cluster.node("a")
    with pytest.raises(RefusedError, match=r"is managed by .*Set its replicas to 0 there"):
        cluster.departure().keep_nodes(Keep.FOR_NOBODY)
    assert cluster.writes == []
    cluster.change("deployments", "dovetail-provisioner", {"spec": {"replicas": 0}}, SPACE)
    cluster.departure().keep_nodes(Keep.FOR_NOBODY)
    assert cluster.tagged == set()


def test_nothing_is_let_go_while_a_provisioner_renews_its_lease(cluster: LeavingCluster) -> None:
    cluster.node("a")
    number = iter(range(10_000))
    lease = f"{SPACE}/{LEASE_NAME}"

    def renews(seconds: float) -> None:
        cluster.clock.advance(seconds)
        spec = {"holderIdentity": "me", "renewTime": str(next(number)), "leaseDurationSeconds": 15}
        cluster.objects["leases"][lease]["spec"] = spec

    cluster.clock.sleep = renews  # type: ignore[method-assign]
    renews(0)
    with pytest.raises(RefusedError, match="me still renews Lease"):
        cluster.departure().keep_nodes(Keep.FOR_NOBODY)
    assert cluster.writes == ["PATCH deployments/dovetail-provisioner"]
    assert cluster.said[-1] == f"waiting until me no longer renews Lease {lease}", "else it is silent for a minute"
    del cluster.clock.sleep
    began = cluster.clock.monotonic()
    cluster.departure().keep_nodes(Keep.FOR_NOBODY)
    assert cluster.clock.monotonic() - began > 15, "it might only be slow"
    assert cluster.tagged == set()


def test_a_provisioner_that_starts_again_stops_it(cluster: LeavingCluster) -> None:
    cluster.node("a")
    cluster.node("b")
    departure = cluster.departure()
    departure._say = lambda text: (
        cluster.change("leases", LEASE_NAME, {"spec": {"holderIdentity": "me", "renewTime": "2"}}, SPACE)
        if "tags removed" in text
        else None
    )
    with pytest.raises(RefusedError, match="started again: me holds"):
        departure.keep_nodes(Keep.FOR_NOBODY)
    assert all("finalizers" in one["metadata"] for one in cluster.all("nodes"))


def test_a_lease_that_somebody_removes_does_not_stop_it(cluster: LeavingCluster) -> None:
    cluster.node("a")
    cluster.store("leases", {"metadata": {"name": LEASE_NAME, "namespace": SPACE}, "spec": {"holderIdentity": "me"}})
    departure = cluster.departure()
    departure._say = lambda text: (
        cluster.change("leases", LEASE_NAME, {"spec": {"holderIdentity": ""}}, SPACE)
        if "tags removed" in text
        else None
    )
    departure.keep_nodes(Keep.FOR_NOBODY)
    assert not any("finalizers" in one["metadata"] for one in cluster.all("nodes"))


def test_a_claim_that_got_its_finalizer_again_meanwhile_is_not_deleted(cluster: LeavingCluster) -> None:
    """By a provisioner that starts again while many NodeClaims are written: it would drain what is deleted under it."""
    for name in ("a", "b"):
        cluster.node(name)
    departure = cluster.departure()

    def starts(text: str) -> None:
        if text == "nodeclaim/a deleted":
            cluster.change("leases", LEASE_NAME, {"spec": {"holderIdentity": "me", "renewTime": "2"}}, SPACE)
            cluster.change("nodeclaims", "b", {"metadata": {"finalizers": [names.TERMINATION_FINALIZER]}})

    departure._say = starts
    with pytest.raises(RefusedError, match="started again: me holds"):
        departure.keep_nodes(Keep.FOR_NOBODY)
    assert [one["metadata"]["name"] for one in cluster.all("nodeclaims")] == ["b"]
    assert "deletionTimestamp" not in cluster.all("nodeclaims")[0]["metadata"]


@pytest.mark.parametrize("keep", Keep)
def test_a_takeover_is_over_when_dovetail_leaves(cluster: LeavingCluster, keep: Keep) -> None:
    """Else the next one would be complete before it has held anything."""
    metadata = {"name": names.TAKEOVER_CONFIGMAP, "namespace": SPACE}
    cluster.store("configmaps", {"metadata": metadata, "data": {"phase": "done", "formerPause": "drift"}})
    cluster.uninstall(keep)
    found = cluster.get("configmaps", names.TAKEOVER_CONFIGMAP, SPACE)
    assert found is not None
    assert found["data"] == {"phase": "back", "formerPause": "drift"}
    cluster.writes.clear()
    cluster.uninstall(keep)
    assert cluster.writes == []


@pytest.mark.parametrize("keep", Keep)
def test_nodes_that_a_takeover_cordoned_can_still_be_found(cluster: LeavingCluster, keep: Keep) -> None:
    """`takeover back --from cluster-autoscaler` makes those schedulable that carry the annotation, and would leave them cordoned without it."""
    marks = {names.TAKEOVER_CORDONED: "web", names.HOLD_RELEASED_ANNOTATION: "now"}
    cluster.store("nodes", {"metadata": {"name": "group-1", "annotations": marks}, "spec": {"unschedulable": True}})
    cluster.uninstall(keep)
    (node,) = cluster.all("nodes")
    assert node["metadata"]["annotations"] == {names.TAKEOVER_CORDONED: "web"}


def test_what_an_admission_policy_refuses_is_said(cluster: LeavingCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """ValidatingAdmissionPolicies refuse with 422, as a patch does whose test fails: nobody undoes anything."""
    cluster.node("a")
    answer = cluster.answer

    def refused(sent: Sent, by: object) -> FakeAnswer:
        if sent.method == "PATCH" and "/nodes/" in sent.path:
            return refusal(422, "Invalid", "ValidatingAdmissionPolicy 'frozen' denied request: no changes today")
        return answer(sent, by)

    monkeypatch.setattr(cluster, "answer", refused)
    with pytest.raises(UndeterminedError, match=r"nodes a: .*'frozen' denied request: no changes today"):
        cluster.departure().keep_nodes(Keep.FOR_NOBODY)


def test_karpenter_is_not_given_what_it_would_end(cluster: LeavingCluster) -> None:
    cluster.node("a")
    cluster.remove("nodeclaims", "a")
    with pytest.raises(RefusedError, match=r"being deleted: a\. Karpenter would terminate"):
        cluster.departure().keep_nodes(Keep.FOR_KARPENTER)
    assert cluster.writes == []


@pytest.mark.parametrize("keep", Keep)
def test_nobody_is_given_what_is_being_launched(cluster: LeavingCluster, keep: Keep) -> None:
    cluster.node("a", annotations={names.LAUNCH_ANNOTATION: "b/1/0"})
    cluster.change("nodeclaims", "a", {"status": {"providerID": ""}})
    with pytest.raises(RefusedError, match="are being launched: a"):
        cluster.departure().keep_nodes(keep)
    assert cluster.writes == []


def test_a_node_that_is_being_deleted_stays_and_is_told(cluster: LeavingCluster) -> None:
    cluster.node("a", going=True)
    (problem,) = cluster.uninstall(Keep.FOR_NOBODY)
    assert problem.startswith("Nodes are being deleted, which cannot be undone: a.")
    meta = cluster.all("nodes")[0]["metadata"]
    assert meta["finalizers"] == [names.TERMINATION_FINALIZER]
    assert meta["labels"] == {names.NODEPOOL_LABEL: "general"}, "nobody takes it for a node of theirs"
    assert cluster.tagged == set()


def test_definitions_are_converted_by_our_webhook_no_more(cluster: LeavingCluster) -> None:
    def converted(namespace: str) -> dict[str, object]:
        service = {"name": "dovetail-webhook", "namespace": namespace, "path": "/convert"}
        return {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": service}}}}

    cluster.store("customresourcedefinitions", {"metadata": {"name": "ours"}, "spec": converted(SPACE)})
    cluster.store("customresourcedefinitions", {"metadata": {"name": "theirs"}, "spec": converted("other")})
    cluster.uninstall(Keep.FOR_KARPENTER)
    ours, theirs = cluster.all("customresourcedefinitions")
    assert ours["spec"] == {"conversion": {"strategy": "None"}}
    assert theirs["spec"] == converted("other")


def test_a_template_that_is_stamped_by_its_author_holds_up_nobody(cluster: LeavingCluster) -> None:
    cluster.node("a")
    cluster.pod("web")
    cluster.pod("forged")
    made_anew = cluster.remove

    def remove(plural: str, name: str, namespace: str = "", by: object = None) -> None:
        if plural == "pods" and name.startswith("forged"):
            cluster.drop(plural, name, namespace)
            cluster.pod(f"forged-{len(cluster.writes)}")  # the annotation and the scheduler are the template's
        else:
            made_anew(plural, name, namespace, by)

    cluster.remove = remove  # type: ignore[method-assign]
    (problem,) = cluster.uninstall(Keep.FOR_NOBODY)
    assert problem.startswith("something undoes the changes of this command (20 times: pod/forged-")
    assert cluster.tagged == set()
    assert cluster.objects["nodeclaims"] == {}
