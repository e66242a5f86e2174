"""Fixtures with a real control plane. It never skips: what is missing is built first, with progress on standard error.

`plane` is shared by the whole run, so a test uses a namespace of its own and cleans up what has none. `fresh_plane` is
for a test that stops components or needs an empty cluster, `env` for one that starts and stops clusters of its own.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.lab.devcluster.cluster import DevCluster, list_clusters
from provisioner.lab.devcluster.components import Gates
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from tests.support.provisioner import prepare


@pytest.fixture(scope="session")
def plane() -> Iterator[DevCluster]:
    """One dev cluster for all tests of this run; kube-scheduler asks no extender, the API server writes an audit log, pods take their time to end."""
    yield from _cluster(extender=False, audit=True, ending_seed=1)


@pytest.fixture
def fresh_plane() -> Iterator[DevCluster]:
    """A dev cluster for one test alone; kube-scheduler asks the extender at its reserved port."""
    yield from _cluster(extender=True)


@pytest.fixture(scope="module")
def client(plane: DevCluster) -> Iterator[Client]:
    """A client of `plane`, on which the CRDs and our system namespace are."""
    yield from _client(plane)


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment whose clusters are kept apart from the user's; whatever is left of them is stopped."""
    variables = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    yield variables
    for name in list_clusters(variables):
        DevCluster(name, env=variables).down(delete=True)


@pytest.fixture(scope="module")
def gang_plane() -> Iterator[DevCluster]:
    """A dev cluster with PodGroups for one module; kube-scheduler asks no extender."""
    yield from _cluster(extender=False, gates="gangs")


@pytest.fixture(scope="module")
def gang_client(gang_plane: DevCluster) -> Iterator[Client]:
    """As `client`, of `gang_plane`."""
    yield from _client(gang_plane)


def _client(cluster: DevCluster) -> Iterator[Client]:
    connection = connect(str(cluster.kubeconfig), user_agent="dovetail-test")
    found = Client(connection, SystemClock())
    prepare(found)
    yield found
    connection.close()


def _cluster(
    *, extender: bool, audit: bool = False, ending_seed: int | None = None, gates: Gates = "default"
) -> Iterator[DevCluster]:
    progress = progress_for(sys.__stderr__)
    cluster = DevCluster(
        temporary=True, extender=extender, audit=audit, ending_seed=ending_seed, gates=gates, progress=progress
    )
    cluster.up()
    try:
        yield cluster
    finally:
        cluster.down()
