"""What the check finds in a cluster that Karpenter runs."""

import base64
import dataclasses
import gzip
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.kube import resources
from provisioner.takeover.checking import OUR_DEFINITIONS, report_on
from provisioner.takeover.findings import TakeoverFinding, TakeoverReport, TakeoverVerdict
from provisioner.takeover.helm_release import ReleaseError, latest, release_of
from tests.support import takeover
from tests.support.takeover import Wire, deployment, given, lease, node_claim, node_class, node_pool, release_secret

KEPT = takeover.definition(keep=True)
FINE = (deployment(), lease("karpenter-1"), KEPT, release_secret([KEPT]), node_pool(), node_class())


def about(report: TakeoverReport, name: str) -> list[TakeoverFinding]:
    return [one for one in report.findings if one.about == name]


def said(report: TakeoverReport, verdict: TakeoverVerdict = TakeoverVerdict.FINDING) -> str:
    return "\n".join(one.text for one in report.having(verdict))


def test_a_cluster_that_can_be_taken_over_has_no_findings() -> None:
    claims = [node_claim(name, node_pool(), node_class()) for name in ("a", "b")]
    report = report_on(given(*FINE, *claims))
    assert (report.exit_status, said(report)) == (0, "")
    assert [one.text for one in about(report, "NodeClaims")] == ["0 of 2 NodeClaims would drift"]
    told = said(report, TakeoverVerdict.NOTE)
    assert 'Deployment "kube-system/karpenter" runs Karpenter with 2 replicas and holds its Lease' in told
    assert 'cluster "prod" with the interruption queue "prod"' in told


def test_a_dovetail_in_another_namespace_blocks_since_it_would_not_hear_of_the_pause() -> None:
    here, there = (deployment("dovetail-provisioner", where, image="d") for where in ("dovetail-system", "fleet"))
    (found,) = report_on(given(*FINE, there)).blocking
    assert found.text == 'Dovetail is installed in namespace "fleet", not in namespace "dovetail-system"'
    assert "-n fleet" in found.advice
    assert report_on(given(*FINE, there, here)).blocking == ()


FOUND: dict[str, tuple[list[Wire], str]] = {
    "Argo CD starts it again": (
        [deployment(annotations={"argocd.argoproj.io/tracking-id": "x"})],
        "Argo CD would start Karpenter again",
    ),
    "Flux starts it again, though Helm rendered it": (
        [deployment(labels={"helm.toolkit.fluxcd.io/name": "x", "app.kubernetes.io/managed-by": "Helm"})],
        "Flux would start Karpenter again",
    ),
    "a flag that we do not know": ([deployment(args=["--burst-mode=3"])], "does not know flag --burst-mode"),
    "a variable that we do not know": ([deployment(env={"BURST_MODE": "3"})], "does not know variable BURST_MODE"),
    "a value that we cannot use": (
        [deployment(env={"BATCH_MAX_DURATION": "soon"})],
        "must be a duration such as",
    ),
    "a field that we do not know": (
        [node_pool(burst=3)],
        'does not know spec.template.spec.burst of NodePool "default"',
    ),
    "a release that would delete a definition": (
        [takeover.definition(), release_secret([takeover.definition()])],
        'Helm release "karpenter-crd" in namespace "kube-system" would delete nodepools.karpenter.sh',
    ),
    "an object that says keep, of a release that does not": (
        [KEPT, release_secret([takeover.definition()])],
        "would delete nodepools.karpenter.sh when it is uninstalled",
    ),
    "the newest revision counts": (
        [KEPT, release_secret([KEPT], version=9), release_secret([takeover.definition()], version=10)],
        "would delete nodepools.karpenter.sh",
    ),
    "definitions that Karpenter converts": (
        [
            {
                **takeover.definition(release=""),
                "spec": {
                    "conversion": {
                        "strategy": "Webhook",
                        "webhook": {"clientConfig": {"service": {"namespace": "kube-system", "name": "karpenter"}}},
                    }
                },
            }
        ],
        'asks Service "kube-system/karpenter" to convert objects',
    ),
    "a Lease that nobody's Deployment holds": (
        [lease("x", "karpenter")],
        'Karpenter holds its Lease in namespace "karpenter"',
    ),
    "a webhook of Karpenter": (
        [
            deployment(),
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "validation.webhook.karpenter.sh"},
                "webhooks": [
                    {"name": "x", "clientConfig": {"service": {"namespace": "kube-system", "name": "karpenter"}}}
                ],
            },
        ],
        'asks Service "kube-system/karpenter" of Karpenter',
    ),
}


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_findings(case: tuple[list[Wire], str]) -> None:
    documents, want = case
    report = report_on(given(*documents))
    assert want in said(report)
    assert report.exit_status == 1


def test_only_what_would_lose_objects_blocks_the_start() -> None:
    report = report_on(
        given(deployment(args=["--burst-mode=3"]), takeover.definition(), release_secret([takeover.definition()]))
    )
    assert [one.objects for one in report.blocking] == [("nodepools.karpenter.sh",)]
    report = report_on(given(*FINE))
    assert report.blocking == ()


NOT_DETERMINED: dict[str, list[Any]] = {
    "a release that was not read": [KEPT],
    "a Secret that is not a release": [{**release_secret([]), "data": {"release": "eHg="}}],
    "an object that cannot be decoded": [{**node_pool(), "spec": 3}],
    "something else": ["text"],
    "classes by an unknown authority": [
        node_claim("a", node_pool(), node_class(userData="x")),
        node_pool(),
        node_class(userData="x"),
    ],
}


@pytest.mark.parametrize("documents", NOT_DETERMINED.values(), ids=NOT_DETERMINED)
def test_what_is_not_known_is_not_called_fine(documents: list[Any]) -> None:
    report = report_on(given(*documents, authority=None))
    assert report.exit_status == 3
    assert report.for_programs()["exitCode"] == 3


def test_what_could_not_be_read_is_not_said_to_be_absent() -> None:
    nothing = given()
    told = said(report_on(nothing), TakeoverVerdict.OK) + said(report_on(nothing), TakeoverVerdict.NOTE)
    assert "no Deployment or Lease" in told
    assert "no CustomResourceDefinition" in told
    denied = report_on(dataclasses.replace(nothing, unread=("deployments.apps may not be read",)))
    told = said(denied, TakeoverVerdict.OK) + said(denied, TakeoverVerdict.NOTE)
    assert "no Deployment or Lease" not in told
    assert "no CustomResourceDefinition" not in told


def test_a_definition_that_our_own_chart_installed_is_owned_by_its_release() -> None:
    ours = takeover.definition(keep=True)
    ours["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "dovetail-crd-0.1.0"}
    ours["metadata"]["annotations"] |= {"meta.helm.sh/release-name": "dovetail-crd"}
    (one,) = about(report_on(given(ours)), "CustomResourceDefinitions")
    assert (one.verdict, one.text) == (
        TakeoverVerdict.OK,
        'nodepools.karpenter.sh is owned by Dovetail\'s Helm release "dovetail-crd"',
    )


def test_other_namespaces_hold_no_lease_that_counts() -> None:
    assert "holds its Lease" not in said(report_on(given(lease("x", "tenant"))))
    assert "holds its Lease" in said(report_on(given(lease("x", "tenant"), other="tenant")))


def test_a_karpenter_whose_lease_is_not_looked_for_blocks_the_start() -> None:
    elsewhere = deployment(namespace="scaling")
    report = report_on(given(elsewhere))
    assert report.exit_status == 3
    assert [one.advice for one in report.blocking] == [
        "specify --other-namespace scaling and set --karpenter-namespace=scaling of Dovetail"
    ]
    assert report_on(given(elsewhere, other="scaling")).blocking == ()
    assert report_on(given(deployment(namespace="scaling", replicas=0))).blocking == ()


def test_pods_without_a_budget_and_without_a_controller_are_noted() -> None:
    bare = {**takeover.pod("bare"), "metadata": {"name": "bare", "uid": "b", "labels": {"app": "web"}}}
    report = report_on(given(takeover.pod("a"), takeover.pod("b", app="api"), bare, takeover.budget("web")))
    notes = about(report, "pods")
    assert [one.objects for one in notes] == [("default/b",), ("default/bare",)]
    assert report.exit_status == 0


def test_deletion_costs_that_karpenter_may_have_left_are_noted() -> None:
    def costed(name: str, cost: str, **more: str) -> dict[str, Any]:
        one = takeover.pod(name)
        one["metadata"]["annotations"] = {names.POD_DELETION_COST: cost, **more}
        return one

    ours = costed("ours", "-4", **{names.OWN_DELETION_COST: "-4"})
    report = report_on(given(costed("a", "-2147483648"), costed("b", "-3"), costed("mine", "5"), ours))
    (note,) = (one for one in about(report, "pods") if "deletion cost" in one.text)
    assert note.objects == ("default/a", "default/b")
    assert "nothing to do" in note.advice
    assert report.exit_status == 0


def test_reboots_that_karpenter_has_begun_are_noted() -> None:
    pool, its_class = node_pool(), node_class()

    def claimed(name: str, *conditions: dict[str, str], **annotations: str) -> dict[str, Any]:
        one = node_claim(name, pool, its_class, **annotations)
        one["status"]["conditions"] = [*one["status"]["conditions"], *conditions]
        return one

    def told(status: str) -> dict[str, str]:
        return {"type": names.REBOOTING, "status": status, "lastTransitionTime": "2026-07-20T12:00:00Z"}

    closed = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-tainted"},
        "spec": {
            "providerID": "aws:///us-east-1a/i-tainted",
            "taints": [{"key": names.REBOOTING_TAINT.key, "effect": "NoSchedule"}],
        },
    }
    documents = [
        claimed("asked", told("True")),
        claimed("done", told("False")),
        claimed("left", **{names.REBOOT_PRE_BOOT_ID: "b"}),
        claimed("ours", told("True"), **{names.REBOOT_ANNOTATION: "{}"}),
        claimed("tainted"),
        claimed("plain"),
        closed,
    ]
    (note,) = (
        one for one in about(report_on(given(pool, its_class, *documents)), "NodeClaims") if "reboot" in one.text
    )
    assert note.objects == ("asked", "left", "tainted")
    assert note.verdict is TakeoverVerdict.NOTE


def test_every_definition_of_ours_is_asked_for() -> None:
    assert "ec2nodeclasses.karpenter.k8s.aws" in OUR_DEFINITIONS


# --- releases


def released(data: dict[str, Any]) -> Any:
    return release_of(resources.SECRETS.decode(msgspec.json.encode(data)))


def test_nothing_but_definitions_is_kept_of_a_release() -> None:
    found = released(
        release_secret([takeover.definition("a.karpenter.sh"), takeover.definition("b.karpenter.sh", keep=True)])
    )
    assert (found.kept, found.unkept) == (("b.karpenter.sh",), ("a.karpenter.sh",))
    assert "secret" not in repr(found)


def test_a_release_that_unfolds_to_too_much_is_refused() -> None:
    bomb = base64.b64encode(base64.b64encode(gzip.compress(b"0" * (65 * 2**20), 1))).decode()
    with pytest.raises(ReleaseError, match="more than 64 MiB"):
        released({**release_secret([]), "data": {"release": bomb}})


def test_uninstalled_releases_delete_nothing_more() -> None:
    one = released(release_secret([takeover.definition()], version=2, status="uninstalled"))
    two = released(release_secret([takeover.definition()], version=1, status="superseded"))
    assert latest([two, one]) == ()
