"""The steps of a takeover from Karpenter, and of the way back, as commands for people. Pure; nothing runs them."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from provisioner.apis.conversion.ownership import RELEASE_NAME, RELEASE_NAMESPACE, owner_of, reconciler_of
from provisioner.takeover.checking import unkept
from provisioner.takeover.node_groups import ManagedNodeGroup
from provisioner.takeover.takeover_input import PROVISIONER, ProgramDeployment, ProgramKind, TakeoverInput

CRD_CHART: Final = "oci://public.ecr.aws/karpenter/karpenter-crd"
"""Source: karpenter.sh, getting started with Karpenter; the value additionalAnnotations is in the chart's README."""
OWN_CHARTS: Final = "manifests/charts"
_TAKING: Final = "--take-ownership --force-conflicts"
"""The second for fields that somebody applied with kubectl, as Karpenter's upgrade guide says: Helm 4 applies on the server, where these are conflicts."""
_KEEPING: Final = r"--set-string 'additionalAnnotations.helm\.sh/resource-policy=keep'"
_VERSION: Final = re.compile(r":v?(\d+\.\d+\.\d+)")
_USUAL_NAMESPACE: Final = "kube-system"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step.

    Attributes:
        text: what it does, and why it comes here.
        commands: for a shell, in which each name of an object is one word; none where somebody does it elsewhere.
    """

    text: str
    commands: tuple[str, ...] = ()

    def for_programs(self) -> dict[str, Any]:
        """As JSON."""
        return {"text": self.text, "commands": list(self.commands)}


def forward(given: TakeoverInput) -> tuple[Instruction, ...]:
    """From Karpenter to Dovetail, those left out that this cluster does not need."""
    return (*_keep_definitions(given), *_take_definitions(given), *_takeover(given), *_cleanup(given))


def backward(given: TakeoverInput) -> tuple[Instruction, ...]:
    """From Dovetail to Karpenter."""
    own = given.namespace
    steps = [
        Instruction(
            "Stop Dovetail and remove what it added. NodeClaims, nodes and instances stay, and Karpenter finds them as its own.",
            (f"dovetail takeover back --namespace {own}",),
        )
    ]
    release, namespace = _definitions_release(given)
    if release:
        steps.append(
            Instruction(
                "Let Karpenter's chart own the CRDs again. The policy keep stays, so that no chart deletes them.",
                (
                    f"helm upgrade --install {_word(release)} {CRD_CHART}{_version_of(given)} --namespace {_word(namespace)} {_KEEPING} {_TAKING}",
                    f"helm uninstall dovetail-crd --namespace {own}",
                ),
            )
        )
    steps += [
        Instruction("Start Karpenter.", (scale(one, max(1, one.replicas)),))
        for one in given.programs_of(ProgramKind.KARPENTER)
    ]
    return tuple(steps)


def scale(program: ProgramDeployment, replicas: int) -> str:
    """The command that gives a Deployment so many replicas."""
    return (
        f"kubectl -n {_word(program.namespace)} scale deployment {_word(program.metadata.name)} --replicas={replicas}"
    )


def _word(text: str) -> str:
    """As one word of a shell: whoever may write a Deployment or a dump is to write no commands."""
    return shlex.quote(text)


def _setting(name: str, value: str) -> str:
    """A value of Dovetail's chart; a comma in it would begin another one."""
    escaped = value.replace("\\", "\\\\").replace(",", "\\,")
    return f"--set {_word(f'settings.{name}={escaped}')}"


def suspension(program: ProgramDeployment) -> Instruction | None:
    """What keeps the owner of a Deployment from starting it again; None where nobody would."""
    labels, annotations = program.metadata.labels, program.metadata.annotations
    reconciler, owner = reconciler_of(labels, annotations), owner_of(labels, annotations)
    if reconciler is not None and reconciler.name == "Argo CD":
        text = f"Argo CD manages Deployment {program.named}. Set its replicas to 0 in Git, or turn off automated sync of its Application."
        return Instruction(text, ("argocd app set APPLICATION --sync-policy none",))
    if reconciler is not None:
        kind = "helmrelease" if reconciler.key.startswith("helm.") else "kustomization"
        name = labels.get(reconciler.key) or annotations.get(reconciler.key, "NAME")
        text = f"Flux manages Deployment {program.named}. Set its replicas to 0 in Git, or suspend it."
        return Instruction(text, (f"flux suspend {kind} {_word(name)}",))
    if owner is not None and RELEASE_NAME in annotations:
        return Instruction(
            f'Do not upgrade Helm release "{annotations[RELEASE_NAME]}" until the takeover is done: an upgrade starts Deployment {program.named} again.'
        )
    return None


def install_dovetail(given: TakeoverInput) -> Instruction:
    """How the provisioner comes, with the settings of the Karpenter that it follows."""
    told = next(iter(given.settings.values()), None)
    values = [_setting("clusterName", told.cluster)] if told is not None and told.cluster else []
    values += [_setting("interruptionQueue", told.queue)] if told is not None and told.queue else []
    command = f"helm upgrade --install dovetail {OWN_CHARTS}/dovetail --namespace {given.namespace} --create-namespace {' '.join(values)}".rstrip()
    return Instruction(
        "Install Dovetail, with the chart or with kustomize (docs/guides/install.md). It is paused, so it only watches.",
        (command,),
    )


def _keep_definitions(given: TakeoverInput) -> Iterator[Instruction]:
    for release, lost in unkept(given.releases):
        chart = CRD_CHART if release.name.endswith("crd") else "CHART"
        yield Instruction(
            f"Make Helm keep {', '.join(lost)}: otherwise `helm uninstall {release.name}` deletes every NodePool and terminates every node.",
            (
                f"helm upgrade {_word(release.name)} {chart}{_version_of(given)} --namespace {_word(release.namespace)} --reuse-values {_KEEPING}",
            ),
        )


def _take_definitions(given: TakeoverInput) -> Iterator[Instruction]:
    crds = f"helm upgrade --install dovetail-crd {OWN_CHARTS}/dovetail-crd --namespace {given.namespace} --create-namespace"
    if any(owner_of(one.metadata.labels, one.metadata.annotations) is not None for one in given.definitions):
        yield Instruction(
            "Hand the CRDs over to Dovetail's chart. They are changed in place; no object is deleted.",
            (f"{crds} {_TAKING}",),
        )
    elif given.definitions:
        yield Instruction(
            "Bring the CRDs to Dovetail's version, with the chart or with kubectl.",
            (f"{crds} {_TAKING}", "kubectl apply --server-side --force-conflicts -k manifests/crds"),
        )
    else:
        yield Instruction("Install the CRDs.", (crds,))


def _takeover(given: TakeoverInput) -> Iterator[Instruction]:
    own = given.namespace
    yield Instruction(
        "Pause Dovetail before it runs for the first time. The command then waits until Karpenter has stopped and Dovetail leads: leave it running, "
        "and do the next steps in another terminal.",
        (f"dovetail takeover start --namespace {own}",),
    )
    for program in given.programs_of(ProgramKind.KARPENTER):
        if (held := suspension(program)) is not None:
            yield held
        if program.replicas:
            yield Instruction("Stop Karpenter. Its nodes and NodeClaims stay.", (scale(program, 0),))
    if not any(one.metadata.name == PROVISIONER for one in given.programs):
        yield install_dovetail(given)
    yield Instruction(
        "Look at what was taken over, then release one activity at a time: launch, repair, expiration, consolidation and drift.",
        (f"dovetail takeover status --namespace {own}", f"dovetail takeover start --namespace {own}"),
    )


def _cleanup(given: TakeoverInput) -> Iterator[Instruction]:
    commands = []
    for program in given.programs_of(ProgramKind.KARPENTER):
        release = program.metadata.annotations.get(RELEASE_NAME, "")
        commands += (
            [f"helm uninstall {_word(release)} --namespace {_word(program.namespace)}"]
            if release
            else [f"kubectl -n {_word(program.namespace)} delete deployment {_word(program.metadata.name)}"]
        )
    release, namespace = _definitions_release(given)
    commands += [f"helm uninstall {_word(release)} --namespace {_word(namespace)}"] if release else []
    if commands:
        yield Instruction(
            "When you are sure that you will not go back, remove Karpenter. The CRDs are kept.", tuple(commands)
        )


def _definitions_release(given: TakeoverInput) -> tuple[str, str]:
    """Name and namespace of the Helm release of Karpenter that has, or had, the CRDs; "" where there is none."""
    for one in given.releases:
        if (one.kept or one.unkept) and not one.name.startswith("dovetail"):
            return one.name, one.namespace
    for found in given.definitions:
        name = found.metadata.annotations.get(RELEASE_NAME, "")
        if name and not name.startswith("dovetail"):
            return name, found.metadata.annotations.get(RELEASE_NAMESPACE, _USUAL_NAMESPACE)
    return "", ""


def _version_of(given: TakeoverInput) -> str:
    """The option that keeps the version of the running Karpenter; "" where its image does not say it."""
    for program in given.programs_of(ProgramKind.KARPENTER):
        found = _VERSION.search(program.controller.image.partition("@")[0])
        if found is not None:
            return f" --version {found[1]}"
    return ""


# --- from Cluster Autoscaler ----------------------------------------------------------------------------------------


def groups_forward(given: TakeoverInput, groups: Sequence[ManagedNodeGroup]) -> tuple[Instruction, ...]:
    """From Cluster Autoscaler and managed node groups to Dovetail."""
    cluster = groups[0].cluster_name if groups else "CLUSTER"
    options = f"--from cluster-autoscaler --cluster-name {cluster}"
    steps = [
        Instruction(
            "Install the CRDs and Dovetail (docs/guides/install.md).",
            (
                f"helm upgrade --install dovetail-crd {OWN_CHARTS}/dovetail-crd --namespace {given.namespace} --create-namespace",
                f"helm upgrade --install dovetail {OWN_CHARTS}/dovetail --namespace {given.namespace} --set settings.clusterName={cluster}",
            ),
        ),
        Instruction(
            "Create the NodePools and EC2NodeClasses, after you have read them.",
            (f"dovetail takeover plan {options} -o yaml > node-pools.yaml", "kubectl apply -f node-pools.yaml"),
        ),
    ]
    for program in given.programs_of(ProgramKind.CLUSTER_AUTOSCALER):
        if (held := suspension(program)) is not None:
            steps.append(held)
        if program.replicas:
            steps.append(
                Instruction(
                    "Stop Cluster Autoscaler, or exclude one group after the other from it.", (scale(program, 0),)
                )
            )
    steps += [
        Instruction(
            "Move the pods, group by group. The command that reduces an empty group is printed; with --apply-aws it is run with your credentials.",
            tuple(f"dovetail takeover start {options} --group {one.name}" for one in groups)
            or (f"dovetail takeover start {options}",),
        ),
        Instruction(
            "When you are sure that you will not go back, delete the groups.",
            tuple(f"aws eks delete-nodegroup {_named(one)}" for one in groups),
        ),
    ]
    return tuple(steps)


def groups_backward(given: TakeoverInput, groups: Sequence[ManagedNodeGroup]) -> tuple[Instruction, ...]:
    """From Dovetail to managed node groups."""
    sizes = tuple(
        f"aws eks update-nodegroup-config {_named(one)} --scaling-config desiredSize={one.scaling_config.desired_size}"
        for one in groups
    )
    steps = [
        Instruction(
            "Make the nodes of the groups schedulable again.", ("dovetail takeover back --from cluster-autoscaler",)
        ),
        Instruction("Give the groups the sizes that they have now.", sizes),
    ]
    steps += [
        Instruction("Start Cluster Autoscaler.", (scale(one, max(1, one.replicas)),))
        for one in given.programs_of(ProgramKind.CLUSTER_AUTOSCALER)
    ]
    steps.append(
        Instruction(
            "Delete the NodePools. Their nodes are drained, and the pods return to the groups.",
            (f"kubectl delete nodepool {' '.join(one.pool_name for one in groups)}".rstrip(),),
        )
    )
    return tuple(steps)


def _named(group: ManagedNodeGroup) -> str:
    """The options that name a group."""
    return f"--cluster-name {group.cluster_name} --nodegroup-name {group.name}"
