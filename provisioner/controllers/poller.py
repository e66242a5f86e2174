"""Polls the API server or a cloud: what these answer is said without a trace."""

from collections.abc import Callable

from provisioner.cloudprovider.errors import CloudError
from provisioner.kube.errors import ApiError
from provisioner.support import poller


class Poller(poller.Poller):
    """As in `support`, and ApiError and CloudError are always expected."""

    def __init__(
        self,
        name: str,
        poll: Callable[[], float],
        retry: float = 10.0,
        *,
        expected: tuple[type[Exception], ...] = (),
        first: float = 0.0,
    ) -> None:
        super().__init__(name, poll, retry, expected=(ApiError, CloudError, *expected), first=first)
