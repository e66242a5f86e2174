"""The dev cluster itself, up and down, crashed and taken, on this machine."""

from provisioner.devcluster.cluster import DevCluster


def test_the_shared_plane_answers_kubectl(plane: DevCluster) -> None:
    assert "default" in plane.kubectl("get", "namespaces", "-o", "name")
