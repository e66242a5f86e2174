"""The cluster that instances of the EC2 emulator join."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from provisioner.kube.errors import ConnectionFailed, ServerError
from tests.support.ec2.nodes import Nodes


def test_an_instance_joins_once_the_api_server_is_back() -> None:
    later: list[Callable[[], None]] = []
    timing = SimpleNamespace(after=lambda _, action: later.append(action))
    nodes = Nodes(cast("Any", None))
    nodes.watch(cast("Any", SimpleNamespace(timing=timing)), lambda _: None)
    answers: list[Exception | None] = [
        ConnectionFailed("refused"),
        ServerError(503, "ServiceUnavailable", "it is gone"),
        None,
    ]

    def join(_: object) -> None:
        if error := answers.pop(0):
            raise error

    nodes._guarded(join, cast("Any", None))
    nodes._later = nodes._guarded  # type: ignore[method-assign]
    for action in later:
        action()
    assert not answers
    assert len(later) == 2
