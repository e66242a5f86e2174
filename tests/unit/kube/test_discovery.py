"""Which kinds the API server says that it serves."""

import pytest

from provisioner.kube.client import Client
from provisioner.kube.discovery import serves
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import AUTOSCALERS, PODGROUPS
from tests.support.kube import FakeAnswer, FakeApi, ok, refusal

PRIORITIES = {"kind": "APIResourceList", "resources": [{"name": "workloads"}]}
GROUPS = {"kind": "APIResourceList", "resources": [{"name": "workloads"}, {"name": "podgroups"}]}
ANSWERS = {
    "the version is not served": (refusal(404, "NotFound"), False),
    "the version has other kinds": (ok(PRIORITIES), False),
    "they are served": (ok(GROUPS), True),
}
BAD: dict[str, tuple[FakeAnswer, type[Exception]]] = {
    "no list": (ok({"kind": "Status"}), ValueError),
    "no object": (ok([]), ValueError),
    "no JSON": (FakeAnswer(data=b"<html>"), ValueError),
    "forbidden": (refusal(403, "Forbidden"), ApiError),
}


def client(*answers: FakeAnswer) -> tuple[Client, FakeApi]:
    api = FakeApi(*answers)
    return Client(api, api.clock), api


@pytest.mark.parametrize(("answer", "want"), ANSWERS.values(), ids=ANSWERS)
def test_the_api_server_says_whether_there_are_pod_groups(answer: FakeAnswer, want: bool) -> None:
    asking, api = client(answer)
    assert serves(asking, PODGROUPS) is want
    assert [(one.method, one.path) for one in api.sent] == [("GET", "/apis/scheduling.k8s.io/v1beta1")]


@pytest.mark.parametrize(("answer", "error"), BAD.values(), ids=BAD)
def test_an_answer_that_says_neither_is_an_error(answer: FakeAnswer, error: type[Exception]) -> None:
    with pytest.raises(error):
        serves(client(answer)[0], PODGROUPS)


def test_of_a_version_only_the_kind_itself_counts() -> None:
    listed = {"kind": "APIResourceList", "resources": [{"name": "verticalpodautoscalercheckpoints"}]}
    asking, api = client(ok(listed), ok({"resources": [{"name": "verticalpodautoscalers"}]}))
    assert [serves(asking, AUTOSCALERS) for _ in range(2)] == [False, True]
    assert api.sent[0].path == "/apis/autoscaling.k8s.io/v1"
