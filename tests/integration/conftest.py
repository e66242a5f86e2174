"""What every integration test may use beside tests/conftest.py."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def calls_in_the_service_model(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a module about AWS asks in this process, and what is read of the answers, is in AWS's own description of its services."""
    if not request.node.name.startswith("test_aws_"):
        yield
        return
    from tests.support.servicemodel import watching

    with watching() as watch:
        yield
    assert list(watch.faults) == []
