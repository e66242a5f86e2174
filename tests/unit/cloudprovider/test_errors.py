import pickle

import pytest

from provisioner.cloudprovider.errors import (
    CloudError,
    CreateError,
    InstanceNotFoundError,
    InsufficientCapacityError,
    NodeClassNotReadyError,
    Retry,
)

ERRORS: dict[str, tuple[CloudError, Retry, str]] = {
    "no capacity: plan again": (
        InsufficientCapacityError("general-abcde", "all are sold out"),
        Retry.OTHER_OFFERING,
        "no capacity for NodeClaim general-abcde: all are sold out",
    ),
    "no node class: plan again": (
        NodeClassNotReadyError("KWOKNodeClass", "default", "it is missing"),
        Retry.OTHER_OFFERING,
        "KWOKNodeClass default is not ready: it is missing",
    ),
    "no instance: that was it": (InstanceNotFoundError("kwok://a"), Retry.NEVER, "instance kwok://a does not exist"),
    "no instance ever": (InstanceNotFoundError(""), Retry.NEVER, "the NodeClaim has no instance"),
    "a failed launch: later": (
        CreateError("LaunchFailed", "the API is away"),
        Retry.LATER,
        "LaunchFailed: the API is away",
    ),
}


@pytest.mark.parametrize(("error", "retry", "sentence"), ERRORS.values(), ids=ERRORS)
def test_an_error_says_what_to_do(error: CloudError, retry: Retry, sentence: str) -> None:
    assert (error.retry, str(error)) == (retry, sentence)
    assert str(pickle.loads(pickle.dumps(error))) == sentence
