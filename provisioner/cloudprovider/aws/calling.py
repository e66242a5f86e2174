"""What everybody who calls AWS needs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol


class Clients(Protocol):
    """Where clients of AWS come from: `AwsClients`."""

    def client(self, service: str, region: str = "") -> Any:
        """The client of a service."""
        ...


def pages(call: Callable[..., Mapping[str, Any]], **parameters: Any) -> Iterator[Mapping[str, Any]]:
    """The answers of a call until one has no NextToken, or the same one again.

    Raises:
        botocore.exceptions.ClientError: as the call.
    """
    token = ""
    while True:
        answer = call(**parameters, **({"NextToken": token} if token else {}))
        yield answer
        following = answer.get("NextToken", "")
        if not following or following == token:
            return
        token = following
