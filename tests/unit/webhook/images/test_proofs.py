"""What is learned from containers that run."""

from typing import Any

import pytest

from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from tests.support.clock import FakeClock
from tests.support.kube import FakeAnswer, FakeApi, Sent, page, refusal
from webhook.images import proofs as module
from webhook.images.proofs import Proofs

SHA, OTHER = (f"sha256:{letter * 64}" for letter in "ab")


def node(name: str, arch: str, os: str = "linux") -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/arch": arch, "kubernetes.io/os": os}}}


def pod(on: str, *image_ids: str, ready: bool = True, namespace: str = "shop") -> dict[str, Any]:
    statuses = [{"name": "c", "imageID": one, "ready": ready} for one in image_ids]
    return {
        "metadata": {"name": "p", "namespace": namespace},
        "spec": {"nodeName": on},
        "status": {"containerStatuses": statuses},
    }


def surveyed(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> tuple[Proofs, FakeApi]:
    def respond(sent: Sent) -> FakeAnswer:
        return page(1, *(nodes if sent.path.endswith("/nodes") else pods))

    api = FakeApi(respond=respond)
    found = Proofs(Client(api, FakeClock()))
    found.survey()
    return found, api


def test_a_container_that_is_ready_proves_the_architecture_of_its_node() -> None:
    nodes = [node("a", "arm64"), node("b", "amd64")]
    found, api = surveyed(
        nodes, [pod("a", f"docker.io/x@{SHA}"), pod("b", f"docker-pullable://y@{OTHER}"), pod("b", f"z@{SHA}")]
    )
    assert found.of("shop", SHA) == {"arm64", "amd64"}
    assert found.of("shop", OTHER) == {"amd64"}
    assert api.sent[1].query["fieldSelector"] == "status.phase=Running"
    assert int(api.sent[1].query["limit"]) * 2 * 1.5e6 < 100e6, "a page of the largest pods that there can be"


def test_what_a_tenant_runs_proves_nothing_to_another() -> None:
    """Whoever owns a pod can run a program of their own under any image, or an emulator."""
    found, _ = surveyed([node("a", "arm64")], [pod("a", f"docker.io/x@{SHA}", namespace="evil")])
    assert found.of("evil", SHA) == {"arm64"}
    assert found.of("shop", SHA) == frozenset()


NOTHING = {
    "a container that is not ready": ([node("a", "arm64")], [pod("a", f"x@{SHA}", ready=False)]),
    "an unknown node": ([], [pod("a", f"x@{SHA}")]),
    "a node of Windows": ([node("a", "arm64", "windows")], [pod("a", f"x@{SHA}")]),
    "a node of an architecture that is none": ([node("a", "vax")], [pod("a", f"x@{SHA}")]),
    "an image without a digest": ([node("a", "arm64")], [pod("a", "x", "", "sha256:12", "a" * 10_000)]),
    "a pod that is no pod": ([node("a", "arm64")], [{"metadata": {"name": "p"}, "status": 3}]),
}


@pytest.mark.parametrize(("nodes", "pods"), NOTHING.values(), ids=NOTHING)
def test_what_proves_nothing(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> None:
    assert len(surveyed(nodes, pods)[0]) == 0


def test_digests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN", 10)
    many = [pod("a", f"x@sha256:{number:064x}") for number in range(30)]
    assert len(surveyed([node("a", "arm64")], many)[0]) == 10


def test_a_list_that_is_refused_is_an_error_for_the_caller() -> None:
    with pytest.raises(ApiError):
        Proofs(Client(FakeApi(respond=lambda _: refusal(403, "Forbidden")), FakeClock())).survey()
