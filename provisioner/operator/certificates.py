"""What keeps certificates in Secrets for connections between programs: the extender's reports, and kube-scheduler's questions to the extender."""

from datetime import timedelta
from typing import Final

from provisioner.operator.report_server import CLIENT_NAME
from provisioner.runtime.base import Base
from provisioner.runtime.controller import Controller

REPORT_SERVER_SECRET: Final = "dovetail-report-server-tls"
REPORT_CLIENT_SECRET: Final = "dovetail-report-client-tls"
REPORT_SERVER_NAME: Final = "dovetail-provisioner"
"""As a Service's, though no Service leads here: what extenders expect in the certificate (`--reports-server-name`)."""
EXTENDER_SERVER_SECRET: Final = "dovetail-extender-server-tls"
EXTENDER_CLIENT_SECRET: Final = "dovetail-extender-client-tls"
EXTENDER_SERVER_NAME: Final = "dovetail-extender"
"""The Service of an extender that is not in kube-scheduler's Pod; also its `tlsConfig.serverName` where it is dialled by an address."""
EXTENDER_CLIENT_NAME: Final = "kube-scheduler"
EXTENDER_STAGED_FOR: Final = timedelta(days=15)
"""Users are told 14. kube-scheduler reads its certificate and key at every connection to an extender, but the CA only when it starts (makeTransport in its
pkg/scheduler/extender.go, 1.36): so long before the extender serves a leaf of a new CA, that CA is in the Secret."""


def controllers(base: Base) -> list[Controller]:
    """One for each connection; none where reports are taken without certificates, or over files that no Secret brings.

    The Secrets for the extender are optional: where they are not there, nothing is made.
    """
    options = base.options
    if not options.report_cert_dir:
        return []
    from certs.authority import CertificateError  # noqa: PLC0415 - cryptography is five megabytes that only issuing needs
    from certs.mutual import MutualPeers, MutualRotation, Peer  # noqa: PLC0415 - likewise
    from certs.store import SecretNames  # noqa: PLC0415 - likewise

    namespace = options.system_namespace
    reports = MutualPeers(
        Peer(REPORT_SERVER_SECRET, SecretNames.of_service(REPORT_SERVER_NAME, namespace)),
        Peer(REPORT_CLIENT_SECRET, SecretNames((CLIENT_NAME,))),
        "dovetail-report-ca",
    )
    extender = MutualPeers(
        Peer(EXTENDER_SERVER_SECRET, SecretNames.of_service(EXTENDER_SERVER_NAME, namespace)),
        Peer(EXTENDER_CLIENT_SECRET, SecretNames((EXTENDER_CLIENT_NAME,))),
        "dovetail-extender-ca",
        EXTENDER_STAGED_FOR,
    )
    return [
        Controller(
            name=name, poll=MutualRotation(base.client, base.clock, namespace, ends).poll, expected=(CertificateError,)
        )
        for name, ends in (("report-certificates", reports), ("extender-certificates", extender))
    ]
