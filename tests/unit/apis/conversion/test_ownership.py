"""When a Karpenter counts as running beside us, whatever its clock says."""

from provisioner.apis.conversion.ownership import KARPENTER_LEASE, SILENT_SECONDS, KarpenterLeases
from provisioner.apis.core import Lease, LeaseSpec
from provisioner.apis.meta import ObjectMeta

LONG_AGO = "2001-01-01T00:00:00Z"


def lease(namespace: str = "kube-system", renewed: str = LONG_AGO, holder: str = "karpenter-0") -> Lease:
    return Lease(
        metadata=ObjectMeta(name=KARPENTER_LEASE, namespace=namespace),
        spec=LeaseSpec(holder_identity=holder, renew_time=renewed),
    )


def test_a_lease_counts_from_first_sight_whatever_its_clock_says() -> None:
    leases = KarpenterLeases("dovetail-system")
    assert leases.beside([lease()], 0.0) == "kube-system"
    assert leases.beside([lease()], SILENT_SECONDS - 1) == "kube-system"
    assert leases.beside([lease()], SILENT_SECONDS) == ""


def test_each_renewal_counts_anew_and_so_does_another_holder() -> None:
    leases = KarpenterLeases("dovetail-system")
    leases.beside([lease()], 0.0)
    assert leases.beside([lease(renewed="2001-01-01T00:00:02Z")], SILENT_SECONDS) == "kube-system"
    assert leases.beside([lease(renewed="2001-01-01T00:00:02Z")], 2 * SILENT_SECONDS) == ""
    assert leases.beside([lease(renewed="2001-01-01T00:00:02Z", holder="karpenter-1")], 2 * SILENT_SECONDS)


def test_a_lease_that_was_released_or_deleted_counts_at_once_no_more() -> None:
    leases = KarpenterLeases("dovetail-system")
    assert leases.beside([lease()], 0.0)
    assert leases.beside([lease(holder="")], 1.0) == ""
    assert leases.beside([lease()], 2.0)
    assert leases.beside([], 3.0) == ""


def test_only_namespaces_in_which_karpenter_is_installed_count() -> None:
    assert KarpenterLeases("dovetail-system").beside([lease("tenant"), lease("dovetail-system")], 0.0) == ""
    assert KarpenterLeases("kube-system").beside([lease("kube-system")], 0.0) == "", "our own"
    assert KarpenterLeases("dovetail-system", "autoscaling").beside([lease("autoscaling")], 0.0) == "autoscaling"
    assert KarpenterLeases("dovetail-system", "autoscaling").namespaces == ("autoscaling", "karpenter", "kube-system")
