"""The certificates, tokens and kubeconfigs of one cluster, made once and kept in its directory.

Its own users have tokens: the API server verifies a client certificate anew at every request, a tenth of its CPU time.
"""

import base64
import csv
import io
import json
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from certs.authority import Authority, CertificateError, Pair, parse_certificate, signing_keys
from certs.serving import write_atomically
from provisioner.lab.devcluster.components import SERVICE_ADDRESS, Layout
from provisioner.lab.devcluster.errors import StateError
from provisioner.lab.devcluster.metrics import SERVER_NAME
from provisioner.lab.devcluster.ports import LOOPBACK
from provisioner.lab.devcluster.versions import METRICS_SERVER

DAYS: Final = 365
USERS: Final = {  # kubeconfig name -> user, groups
    "admin": ("dovetail-admin", ("system:masters",)),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kwok": ("kwok-admin", ("system:masters",)),
}
FRONT_PROXY: Final = "front-proxy-client"
_SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


def ensure_pki(layout: Layout, now: datetime) -> Authority:
    """The cluster's CA; makes it and everything it signs, unless they are there and good for another week.

    Raises:
        StateError: the directory holds a damaged CA.
    """
    complete = layout.pki / "complete"
    if not complete.exists() or _ends_soon(layout, now):
        return _make(layout, now, complete)
    return load_authority(layout)


def write_metrics_pki(layout: Layout, authority: Authority, now: datetime) -> None:
    """What metrics-server serves with, what it calls the API server with, and what the API server calls it with."""
    serving = authority.issue_server((SERVER_NAME, "localhost"), (LOOPBACK,), now, DAYS)
    proxy = authority.issue_client(FRONT_PROXY, (), now, DAYS)
    _write_pair(layout, METRICS_SERVER, serving)
    _write_pair(layout, FRONT_PROXY, proxy)
    path = layout.kubeconfig(METRICS_SERVER)
    write_client_kubeconfig(layout, authority, path, f"system:{METRICS_SERVER}", ("system:masters",), now)


def load_authority(layout: Layout) -> Authority:
    """The cluster's CA, from its directory.

    Raises:
        StateError: it is missing or damaged.
    """
    try:
        return Authority.load((layout.pki / "ca.crt").read_bytes(), (layout.pki / "ca.key").read_bytes())
    except (OSError, CertificateError) as error:
        raise StateError(
            f"the certificates in {layout.pki} cannot be used ({error})",
            "Start with empty data: `dovetail dev up --fresh`",
        ) from error


def write_client_kubeconfig(
    layout: Layout,
    authority: Authority,
    path: Path,
    common_name: str,
    organizations: Sequence[str],
    now: datetime,
) -> Path:
    """Issue a client certificate and write a kubeconfig with it; returns the path.

    Raises:
        CertificateError: a name that does not fit in a certificate.
    """
    pair = authority.issue_client(common_name, organizations, now, DAYS)
    user = {
        "client-certificate-data": _base64(pair.cert_pem),
        "client-key-data": _base64(pair.key_pem),
    }
    return write_kubeconfig(layout, authority, path, user)


def write_kubeconfig(layout: Layout, authority: Authority, path: Path, user: dict[str, str]) -> Path:
    """Write a kubeconfig for a user of this cluster, as {"token": ...} or client certificate data, readable by the owner only; returns the path."""
    name, server = f"dovetail-{layout.directory.name}", layout.url("kube-apiserver", "https")
    cluster = {"server": server, "certificate-authority-data": _base64(authority.certificate_pem)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "user"}}],
        "current-context": name,
    }
    write_private(path, json.dumps(document, indent=2).encode())
    return path


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, content)


def _write_pair(layout: Layout, name: str, pair: Pair) -> None:
    write_private(layout.pki / f"{name}.crt", pair.cert_pem)
    write_private(layout.pki / f"{name}.key", pair.key_pem)


def _make(layout: Layout, now: datetime, complete: Path) -> Authority:
    pki = layout.pki
    complete.unlink(missing_ok=True)
    authority = Authority.create(f"dovetail dev {layout.directory.name}", now, DAYS)
    _write_pair(layout, "ca", Pair(authority.certificate_pem, authority.key_pem))
    for name, names, addresses in (
        ("kube-apiserver", _SERVER_NAMES, (LOOPBACK, SERVICE_ADDRESS)),
        ("components", ("localhost",), (LOOPBACK,)),
    ):
        _write_pair(layout, name, authority.issue_server(names, addresses, now, DAYS))
    if not (pki / "service-accounts.key").exists():  # tokens handed out stay good over a renewal
        keys = signing_keys()
        write_private(pki / "service-accounts.pub", keys.public_pem)
        write_private(pki / "service-accounts.key", keys.private_pem)
    tokens = {name: secrets.token_urlsafe(32) for name in USERS}
    rows = [[tokens[name], user, name, ",".join(groups)] for name, (user, groups) in USERS.items()]
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    write_private(layout.tokens, text.getvalue().encode())
    for name, token in tokens.items():
        write_kubeconfig(layout, authority, layout.kubeconfig(name), {"token": token})
    _write_pair(layout, "admin", authority.issue_client(*USERS["admin"], now, DAYS))
    complete.touch()
    return authority


def _ends_soon(layout: Layout, now: datetime) -> bool:
    try:
        ca = parse_certificate((layout.pki / "ca.crt").read_bytes())
        return ca.not_valid_after_utc < now + timedelta(days=7)
    except (OSError, CertificateError):
        return False  # reading it properly will say what is wrong


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
