"""What every integration test may use beside tests/conftest.py."""

from collections.abc import Iterator

import pytest

from provisioner.lab.devcluster.cluster import DevCluster


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


SHARED = ("plane", "gang_plane", "cluster", "kept")
"""Fixtures of clusters that several tests share."""


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> None:
    """A shared cluster is whole when a test begins: what lost its Lease on a crowded machine, or in an earlier test, has ended itself, and no kubelet starts it again."""
    for name in SHARED:
        if name in request.fixturenames and isinstance(shared := request.getfixturevalue(name), DevCluster):
            shared.heal()
