"""The steps that `takeover plan` prints."""

import shlex

import pytest

from provisioner.takeover.instructions import backward, forward
from tests.support import takeover
from tests.support.takeover import Wire, deployment, given, release_secret

UNKEPT, KEPT = takeover.definition(), takeover.definition(keep=True)
HELM: Wire = {
    "annotations": {"meta.helm.sh/release-name": "karpenter", "meta.helm.sh/release-namespace": "kube-system"},
    "labels": {"app.kubernetes.io/managed-by": "Helm"},
}


def commands(*documents: object, back: bool = False) -> list[str]:
    steps = (backward if back else forward)(given(*documents))
    return [command for step in steps for command in step.commands]


def test_definitions_are_kept_then_handed_over_before_anything_is_stopped() -> None:
    found = commands(deployment(**HELM), UNKEPT, release_secret([UNKEPT]))
    assert [one.split(" --")[0] for one in found] == [
        "helm upgrade karpenter-crd oci://public.ecr.aws/karpenter/karpenter-crd",
        "helm upgrade",
        "dovetail takeover start",
        "kubectl -n kube-system scale deployment karpenter",
        "helm upgrade",
        "dovetail takeover status",
        "dovetail takeover start",
        "helm uninstall karpenter",
        "helm uninstall karpenter-crd",
    ]
    assert "--version 1.14.0 --namespace kube-system" in found[0]
    assert r"'additionalAnnotations.helm\.sh/resource-policy=keep'" in found[0]
    assert found[1].endswith("--take-ownership --force-conflicts")
    assert "--set settings.clusterName=prod --set settings.interruptionQueue=prod" in found[4]


def test_what_is_kept_already_is_not_upgraded() -> None:
    assert not any("resource-policy" in one for one in commands(deployment(**HELM), KEPT, release_secret([KEPT])))


def test_a_reconciler_is_suspended_before_karpenter_is_stopped() -> None:
    flux: Wire = {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}
    found = commands(deployment(**flux))
    assert found.index("flux suspend kustomization apps") < found.index(
        "kubectl -n kube-system scale deployment karpenter --replicas=0"
    )
    argo: Wire = {"annotations": {"argocd.argoproj.io/tracking-id": "x"}}
    assert "argocd app set APPLICATION --sync-policy none" in commands(deployment(**argo))


def test_the_way_back_hands_the_definitions_over_before_karpenter_starts() -> None:
    found = commands(deployment(replicas=0, **HELM), KEPT, release_secret([KEPT]), back=True)
    assert [one.split(" --")[0] for one in found] == [
        "dovetail takeover back",
        "helm upgrade",
        "helm uninstall dovetail-crd",
        "kubectl -n kube-system scale deployment karpenter",
    ]
    assert "--take-ownership --force-conflicts" in found[1]
    assert "resource-policy=keep" in found[1]


@pytest.mark.parametrize("back", [False, True])
def test_what_objects_say_is_one_word_of_a_command(back: bool) -> None:
    evil = "x,image.repository=y; `run`\nnext"
    marks = {"meta.helm.sh/release-name": evil, "meta.helm.sh/release-namespace": evil}
    env = {"CLUSTER_NAME": evil, "INTERRUPTION_QUEUE": evil}
    there = deployment(evil, evil, annotations=marks, env=env)
    flux = deployment("karpenter", labels={"kustomize.toolkit.fluxcd.io/name": evil}, env=env)
    found = commands(there, flux, takeover.definition(release=evil), back=back)
    words = [word for command in found for word in shlex.split(command)]
    assert evil in words
    assert {"`run`", "next", "y;"}.isdisjoint(words)
    values = [word for word in words if word.startswith("settings.")]
    assert all(r"x\,image" in one for one in values), "a comma would begin another value of the chart"
    assert bool(values) is not back
