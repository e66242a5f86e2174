"""`dovetail uninstall` against an API server in memory: what goes, what stays, and what is left to the user."""

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.reports import LEASE_NAME
from provisioner.leaving import gathering
from provisioner.leaving.belongings import Keep, QueuedJob
from provisioner.support.errors import UserError
from tests.support.leavingcluster import SPACE, LeavingCluster


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
        "pods without a controller wait for dovetail-scheduler, and nobody creates them again: shop/bare",
        "pods wait for dovetail-scheduler because their own manifests name it: shop/named",
        "pods of Jobs wait for dovetail-scheduler, and deleting them would use up the backoffLimit: shop/job",
    ]
    assert cluster.objects["mutatingwebhookconfigurations"] == {}
    assert "pod/web deleted, ReplicaSet web creates it again in namespace shop" in cluster.said


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
def test_a_dry_run_writes_nothing_and_says_every_step(cluster: LeavingCluster, keep: Keep) -> None:
    cluster.node("a")
    cluster.pod("web")
    before = cluster.outcome()
    cluster.uninstall(keep, dry_run=True)
    assert (cluster.writes, cluster.outcome()) == ([], before)
    assert all(one.endswith("(dry run)") for one in cluster.said)
    dry = {one.removesuffix(" (dry run)") for one in cluster.said}
    cluster.said.clear()
    cluster.uninstall(keep)
    assert {*cluster.said} - dry == ({"nodeclaim/a deleted"} if keep is Keep.FOR_NOBODY else set())


@pytest.mark.parametrize("key", ["argocd.argoproj.io/instance", "kustomize.toolkit.fluxcd.io/name"])
def test_a_deployment_that_somebody_else_keeps_is_not_scaled(key: str) -> None:
    cluster = LeavingCluster()
    cluster.install(owner=key)
    cluster.node("a")
    with pytest.raises(UserError, match=r"is managed by .*Set its replicas to 0 there"):
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
    with pytest.raises(UserError, match="me still renews Lease"):
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
    with pytest.raises(UserError, match="started again: me holds"):
        departure.keep_nodes(Keep.FOR_NOBODY)
    assert all("finalizers" in one["metadata"] for one in cluster.all("nodes"))


def test_karpenter_is_not_given_what_it_would_end(cluster: LeavingCluster) -> None:
    cluster.node("a")
    cluster.remove("nodeclaims", "a")
    with pytest.raises(UserError, match=r"being deleted: a\. Karpenter would terminate"):
        cluster.departure().keep_nodes(Keep.FOR_KARPENTER)
    assert cluster.writes == []


@pytest.mark.parametrize("keep", Keep)
def test_nobody_is_given_what_is_being_launched(cluster: LeavingCluster, keep: Keep) -> None:
    cluster.node("a", annotations={names.LAUNCH_ANNOTATION: "b/1/0"})
    cluster.change("nodeclaims", "a", {"status": {"providerID": ""}})
    with pytest.raises(UserError, match="are being launched: a"):
        cluster.departure().keep_nodes(keep)
    assert cluster.writes == []


def test_a_node_that_is_being_deleted_stays_and_is_told(cluster: LeavingCluster) -> None:
    cluster.node("a", going=True)
    (problem,) = cluster.uninstall(Keep.FOR_NOBODY)
    assert problem.startswith("Nodes are being deleted, which Kubernetes cannot take back: a.")
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
