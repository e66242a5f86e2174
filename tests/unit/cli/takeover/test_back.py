"""The way back is what leaves a cluster, and the takeover is over after it."""

import pytest

from provisioner.apis import names
from provisioner.cli.takeover.back import give_back
from provisioner.cli.takeover.texts import status_lines
from provisioner.takeover.progress import TakeoverFacts, TakeoverPhase, TakeoverRecord
from provisioner.values.errors import RefusedError
from tests.support.leavingcluster import LeavingCluster


def cluster(owner: str = "") -> LeavingCluster:
    made = LeavingCluster()
    made.install(owner=owner)
    made.node("a")
    metadata = {"name": names.TAKEOVER_CONFIGMAP, "namespace": names.OWN_NAMESPACE}
    made.store("configmaps", {"metadata": metadata, "data": {"phase": "done", "started": "x"}})
    return made


def phase(there: LeavingCluster) -> str:
    found = there.get("configmaps", names.TAKEOVER_CONFIGMAP, names.OWN_NAMESPACE)
    assert found is not None
    text: str = found["data"]["phase"]
    return text


def run(there: LeavingCluster, *, dry_run: bool = False) -> int:
    return give_back(there.departure(dry_run=dry_run))


def test_nodes_are_left_to_karpenter_and_the_takeover_is_over() -> None:
    there = cluster()
    assert (run(there), phase(there)) == (0, "back")
    (claim,) = there.all("nodeclaims")
    assert claim["metadata"]["finalizers"] == [names.TERMINATION_FINALIZER]
    assert set(claim["metadata"]["annotations"]) == {"mine"}
    assert there.tagged
    assert there.all("mutatingwebhookconfigurations") == []


def test_what_is_left_to_the_user_is_a_finding() -> None:
    there = cluster()
    there.pod("bare", owner="")
    assert (run(there), phase(there)) == (1, "back")


def test_a_dry_run_ends_nothing() -> None:
    there = cluster()
    before = there.all("nodeclaims")
    assert (run(there, dry_run=True), phase(there)) == (0, "done")
    assert there.all("nodeclaims") == before


def test_a_refusal_ends_nothing() -> None:
    there = cluster(owner="kustomize.toolkit.fluxcd.io/name")
    with pytest.raises(RefusedError, match="Flux"):
        run(there)
    assert phase(there) == "done"


def test_nothing_is_said_to_follow_the_way_back() -> None:
    told = {
        one: status_lines(TakeoverFacts(record=TakeoverRecord(one), settings={}))
        for one in (TakeoverPhase.BEGUN, TakeoverPhase.BACK)
    }
    assert any(line.startswith("Next:") for line in told[TakeoverPhase.BEGUN])
    assert not any(line.startswith("Next:") for line in told[TakeoverPhase.BACK])
