"""What is known of other autoscalers, and what follows where it is not known."""

import json
from collections.abc import Collection, Sequence

import pytest

from provisioner.apis.conversion.ownership import SILENT_SECONDS
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.operator.other_autoscalers import KARPENTER_NOT_LOOKED_FOR, LOOK_SECONDS, OtherAutoscalers
from provisioner.options import Options
from provisioner.support.metrics import REGISTRY
from tests.support.clock import FakeClock
from tests.support.kube import FakeAnswer, FakeApi, Sent

KARPENTER = "/namespaces/kube-system/leases/karpenter-leader-election"
AUTOSCALER = "/namespaces/kube-system/leases/cluster-autoscaler"
ELSEWHERE = "/namespaces/scaling/leases/karpenter-leader-election"
HELD = {"metadata": {"name": "x", "namespace": "kube-system"}, "spec": {"holderIdentity": "a", "renewTime": "now"}}


class Cluster:
    """An API server with Leases, and what looks at them."""

    def __init__(self, *held: str, flags: Sequence[str] = ()) -> None:
        self.held: Collection[str] = held
        self.refused: Collection[str] = ()
        self.status = 404
        self.clock = FakeClock()
        client = Client(FakeApi(respond=self.respond), self.clock)
        self.others = OtherAutoscalers(client, self.clock, Options.parse(flags, {}))

    def respond(self, sent: Sent) -> FakeAnswer:
        if not any(sent.path.endswith(one) for one in self.held):
            refused = any(sent.path.endswith(one) for one in self.refused)
            return FakeAnswer(status=403 if refused else self.status, data=b"{}")
        namespace = sent.path.split("/")[5]
        body = {**HELD, "metadata": {"name": "x", "namespace": namespace}}
        return FakeAnswer(data=json.dumps(body).encode())

    def problem(self) -> str:
        assert self.others.poll() == LOOK_SECONDS
        return self.others.problem


def autoscaler_runs() -> float | None:
    return REGISTRY.get_sample_value("dovetail_other_autoscaler_running", {"autoscaler": "cluster-autoscaler"})


def test_nobody_acts_before_it_is_known() -> None:
    cluster = Cluster()
    assert cluster.others.problem == KARPENTER_NOT_LOOKED_FOR
    assert cluster.problem() == ""


def test_a_karpenter_that_leads_holds_everything_up_until_its_lease_is_silent() -> None:
    cluster = Cluster(KARPENTER)
    assert cluster.problem().startswith("Karpenter runs in namespace kube-system")
    cluster.clock.advance(SILENT_SECONDS)
    assert cluster.problem() == ""


def test_cluster_autoscaler_holds_nothing_up_and_runs_until_its_lease_is_silent() -> None:
    cluster = Cluster(AUTOSCALER)
    assert cluster.problem() == ""
    assert autoscaler_runs() == 1
    cluster.clock.advance(SILENT_SECONDS)
    assert cluster.problem() == ""
    assert autoscaler_runs() == 0


def test_a_karpenter_elsewhere_counts_where_the_flag_says_so() -> None:
    assert Cluster(ELSEWHERE).problem() == ""
    assert (
        Cluster(ELSEWHERE, flags=["--karpenter-namespace=scaling"])
        .problem()
        .startswith("Karpenter runs in namespace scaling")
    )


def test_what_was_known_last_holds_while_the_api_server_does_not_answer() -> None:
    cluster = Cluster(KARPENTER)
    known = cluster.problem()
    cluster.held, cluster.status = (), 500
    with pytest.raises(ApiError):
        cluster.others.poll()
    assert cluster.others.problem == known


def test_without_the_permission_nothing_is_held_up() -> None:
    cluster = Cluster()
    cluster.status = 403
    assert cluster.problem() == ""


@pytest.mark.parametrize("refused", [AUTOSCALER, ELSEWHERE, "/namespaces/karpenter/leases/karpenter-leader-election"])
def test_one_lease_that_may_not_be_read_hides_no_karpenter_that_leads(refused: str) -> None:
    cluster = Cluster(KARPENTER, flags=["--karpenter-namespace=scaling"])
    cluster.refused = [refused]
    assert cluster.problem().startswith("Karpenter runs in namespace kube-system")
