import pickle

import pytest

from provisioner.cloudprovider.errors import (
    CloudError,
    CreateError,
    InstanceNotFoundError,
    InsufficientCapacityError,
    NodeClassNotReadyError,
)

ERRORS: dict[str, tuple[CloudError, str]] = {
    "no capacity: plan again": (
        InsufficientCapacityError("general-abcde", "all are sold out"),
        "no capacity for NodeClaim general-abcde: all are sold out",
    ),
    "no node class: plan again": (
        NodeClassNotReadyError("KWOKNodeClass", "default", "it is missing"),
        "KWOKNodeClass default is not ready: it is missing",
    ),
    "no instance: that was it": (InstanceNotFoundError("kwok://a"), "instance kwok://a does not exist"),
    "no instance ever": (InstanceNotFoundError(""), "the NodeClaim has no instance"),
    "a failed launch: later": (
        CreateError("LaunchFailed", "the API is away"),
        "LaunchFailed: the API is away",
    ),
}


@pytest.mark.parametrize(("error", "sentence"), ERRORS.values(), ids=ERRORS)
def test_what_an_error_says(error: CloudError, sentence: str) -> None:
    assert str(error) == sentence
    assert str(pickle.loads(pickle.dumps(error))) == sentence
