"""Fixtures that many unit tests use."""

from collections.abc import Iterator

import pytest

from provisioner.support.workers import WorkerPool, pool
from tests.support.disrupting import Make, staged


@pytest.fixture
def stages() -> Iterator[Make]:
    """What makes nodes under disruption; their queues end with the test."""
    with staged() as make:
        yield make


@pytest.fixture
def workers() -> Iterator[WorkerPool]:
    """One thread."""
    with pool(1) as threads:
        yield threads
