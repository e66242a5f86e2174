"""Whatever a cluster looks like, and wherever `dovetail uninstall` is killed: run again, it comes to the same end, and no instance or Node goes on the way."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from provisioner.leaving.belongings import Keep
from tests.support.leavingcluster import UID_MARK, Killed, LeavingCluster

MOST_WRITES = 60


@dataclass(frozen=True)
class Life:
    """A cluster before it is left.

    Attributes:
        nodes: cloud, whether the Node has joined, and whether it is being deleted, of each.
        pods: owner, whether it was stamped, and whether it is gated, of each.
        removed: after so many writes of the command its manifests are deleted; None for never.
        kills: after how many more writes each run ends.
    """

    nodes: tuple[tuple[str, bool, bool], ...]
    pods: tuple[tuple[str, bool, bool], ...]
    removed: int | None
    kills: tuple[int, ...]

    def cluster(self) -> LeavingCluster:
        made = LeavingCluster()
        made.install(holder="somebody")
        for number, (cloud, joined, going) in enumerate(self.nodes):
            made.node(f"n{number}", cloud=cloud, joined=joined, going=joined and going)
        for number, (owner, stamped, gated) in enumerate(self.pods):
            made.pod(f"p{number}", owner=owner, stamped=stamped, gated=gated)
        if self.removed == 0:
            made.kubectl_delete_k()
        return made


clouds, flags = st.sampled_from(("aws", "kwok")), st.booleans()
rarely = st.sampled_from((False, False, False, True))
lives = st.builds(
    Life,
    st.lists(st.tuples(clouds, flags, rarely), max_size=3).map(tuple),
    st.lists(st.tuples(st.sampled_from(("", "ReplicaSet", "Job")), flags, flags), max_size=3).map(tuple),
    st.sampled_from((None, 0, 1, 3, 5, 8)),
    st.lists(st.integers(0, 12), max_size=4).map(tuple),
)


def left(life: Life, keep: Keep, kills: tuple[int, ...]) -> tuple[LeavingCluster, tuple[str, ...]]:
    """The cluster after the command was killed so often, and run once more."""
    cluster = life.cluster()
    removed = bool(life.removed == 0 or life.removed is None)
    for kill in (*kills, MOST_WRITES):
        while True:
            cluster.dies_after = min(len(cluster.writes) + kill, 10**9 if removed else (life.removed or 0))
            try:
                return cluster, cluster.uninstall(keep)
            except Killed:
                if not removed and len(cluster.writes) >= (life.removed or 0):
                    removed = True
                    cluster.kubectl_delete_k()
                    continue
                break
    raise AssertionError("the last run has writes to spare")


def shown(cluster: LeavingCluster) -> object:
    """The outcome, without objects of the programs that `kubectl delete -k` may or may not have met."""
    return {
        kind: one
        for kind, one in cluster.outcome().items()
        if kind not in ("leases", "deployments", "configmaps", "nodepools")
    }


@given(lives)
def test_wherever_it_is_killed_it_comes_to_the_same_end(life: Life) -> None:
    whole, problems = left(life, Keep.FOR_NOBODY, ())
    cluster, others = left(life, Keep.FOR_NOBODY, life.kills)
    assert shown(cluster) == shown(whole)
    assert others == problems
    writes = len(cluster.writes)
    assert cluster.uninstall(Keep.FOR_NOBODY) == problems
    assert len(cluster.writes) == writes, "a command that has come to its end does nothing"


@given(lives)
def test_no_collector_finds_an_instance_afterwards_and_none_has_gone(life: Life) -> None:
    cluster, _ = left(life, Keep.FOR_NOBODY, life.kills)
    assert cluster.ended == set()
    assert cluster.tagged == set()
    assert cluster.objects["nodeclaims"] == {}
    for node in cluster.all("nodes"):
        assert UID_MARK not in node["metadata"].get("annotations", {})
        assert not node["metadata"].get("ownerReferences")
        assert ("deletionTimestamp" in node["metadata"]) == bool(node["metadata"].get("finalizers"))
    joined = [one for one in life.nodes if one[1]]
    assert len(cluster.all("nodes")) == len(joined)


@given(lives, st.sampled_from(Keep))
def test_pods_wait_for_us_only_where_the_user_is_told(life: Life, keep: Keep) -> None:
    cluster = life.cluster()
    problems = " ".join(cluster.departure().stop_stamping())
    for pod in cluster.all("pods"):
        if pod["spec"]["schedulerName"] != "default-scheduler":
            assert f"shop/{pod['metadata']['name']}" in problems
        assert all(one["name"] == "other" for one in pod["spec"].get("schedulingGates", ()))
