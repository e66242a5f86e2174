"""What a dev cluster refuses before anything is built."""

from pathlib import Path

import pytest

from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.errors import BinaryError, StateError


def test_pod_groups_need_a_kubernetes_that_has_them(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), versions.VARIABLE: "1.36"}
    with pytest.raises(
        StateError, match=r"Kubernetes 1\.36 does not serve .* Set DOVETAIL_KUBERNETES to 1\.37, or choose"
    ):
        DevCluster("a", gates="gangs", env=env).up()
    assert list(tmp_path.iterdir()) == []


def test_a_minor_that_is_not_built_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BinaryError, match=r"DOVETAIL_KUBERNETES=1\.99 is not supported"):
        DevCluster("a", env={"HOME": str(tmp_path), versions.VARIABLE: "1.99"})
