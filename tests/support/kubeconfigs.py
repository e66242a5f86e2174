"""Kubeconfigs of users and service accounts of a dev cluster, who may do what RBAC says."""

from collections.abc import Sequence
from pathlib import Path

from provisioner.lab.devcluster import pki
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock


def user_kubeconfig(cluster: DevCluster, common_name: str, groups: Sequence[str] = ()) -> Path:
    """Of a user with a client certificate, in these groups beside system:authenticated."""
    path = cluster.dir / "users" / f"{_file_name(common_name, *groups)}.kubeconfig"
    return pki.write_client_kubeconfig(cluster._layout, cluster.ca, path, common_name, groups, SystemClock().now())


def service_account_kubeconfig(cluster: DevCluster, namespace: str, name: str) -> Path:
    """Of a service account, with a token for two hours.

    Raises:
        StateError: there is no such service account.
    """
    token = cluster.kubectl("-n", namespace, "create", "token", name, "--duration=2h").strip()
    path = cluster.dir / "users" / f"{_file_name('sa', namespace, name)}.kubeconfig"
    return pki.write_kubeconfig(cluster._layout, cluster.ca, path, {"token": token})


def _file_name(*parts: str) -> str:
    return "_".join("".join(c if c.isalnum() or c in "-." else "-" for c in part) for part in parts)
