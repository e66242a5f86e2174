"""Keys of ConfigMaps are written until nobody is faster, and not for ever."""

import pytest

from provisioner.kube.client import Client
from provisioner.kube.config_maps import change_config_map
from provisioner.kube.errors import Conflict, NotFound
from tests.support.clock import FakeClock
from tests.support.kube import FakeAnswer, FakeApi, Sent, ok, refusal


@pytest.mark.parametrize(
    ("is_there", "write", "answer", "raised", "writes"),
    [
        (True, "PATCH", refusal(409, "Conflict", "changed"), Conflict, 10),
        (True, "PATCH", refusal(404, "NotFound", "deleted"), NotFound, 10),
        (False, "POST", refusal(404, "NotFound", "no such namespace"), NotFound, 1),
    ],
    ids=["somebody is always faster", "it is deleted over and over", "no namespace"],
)
def test_it_gives_up(is_there: bool, write: str, answer: FakeAnswer, raised: type[Exception], writes: int) -> None:
    sent = list[str]()

    def respond(asked: Sent) -> FakeAnswer:
        sent.append(asked.method)
        if asked.method != "GET":
            return answer
        return ok({"metadata": {"name": "a"}}) if is_there else refusal(404, "NotFound", "not there")

    clock = FakeClock()
    with pytest.raises(raised):
        change_config_map(Client(FakeApi(respond=respond, clock=clock), clock), "a", "b", lambda _: {"key": "value"})
    assert sent.count(write) == writes
