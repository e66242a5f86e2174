"""What stands in the way of a takeover, and what is good to know before it. Pure: a frozen input to findings."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from provisioner.apis import names
from provisioner.apis.conversion.ownership import KEEP, RELEASE_NAME, RELEASE_NAMESPACE, owner_of, reconciler_of
from provisioner.apis.crds import DEFINITIONS
from provisioner.apis.deletion_cost import may_be_karpenters
from provisioner.apis.meta import is_true, selects
from provisioner.apis.pods import is_active, is_daemon, is_mirror
from provisioner.takeover.claim_drift import drift_of
from provisioner.takeover.findings import TakeoverFinding, TakeoverReport, TakeoverVerdict
from provisioner.takeover.helm_release import HelmRelease, latest
from provisioner.takeover.takeover_input import FoundDefinition, ProgramDeployment, ProgramKind, TakeoverInput
from provisioner.values.printable import counted, listed

_OK, _NOTE = TakeoverVerdict.OK, TakeoverVerdict.NOTE
_FINDING, _UNKNOWN = TakeoverVerdict.FINDING, TakeoverVerdict.UNKNOWN
AUTOSCALERS: Final = "autoscalers"
DEFINITIONS_ABOUT: Final = "CustomResourceDefinitions"
SETTINGS: Final = "settings"
FIELDS: Final = "fields"
NODECLAIMS: Final = "NodeClaims"
WEBHOOKS: Final = "webhooks"
AWS: Final = "AWS"
PODS: Final = "pods"
_NAMED: Final = 5
OUR_DEFINITIONS: Final = tuple(f"{one.plural}.{one.group}" for one in DEFINITIONS)
"""Names of the CustomResourceDefinitions that Dovetail serves."""
_SUSPEND: Final = {
    "Argo CD": "disable automated sync of its Application (`argocd app set NAME --sync-policy none`), or set replicas to 0 in Git",
    "Flux": "suspend it (`flux suspend kustomization NAME` or `flux suspend helmrelease NAME`), or set replicas to 0 in Git",
}


def report_on(given: TakeoverInput) -> TakeoverReport:
    """Everything that is to be said."""
    findings = (
        *(TakeoverFinding("input", _UNKNOWN, one, blocks=True) for one in given.unread),
        *_autoscalers(given),
        *_namespace(given),
        *_definitions(given),
        *_settings(given),
        *_fields(given),
        *claim_findings(given),
        *_reboots(given),
        *_webhooks(given),
        *_aws(given),
        *_pods(given),
    )
    return TakeoverReport(given.source, findings)


# --- who else scales ------------------------------------------------------------------------------------------------


def _autoscalers(given: TakeoverInput) -> Iterator[TakeoverFinding]:
    others = (ProgramKind.KARPENTER, ProgramKind.CLUSTER_AUTOSCALER)
    for kind in others:
        for program in given.programs_of(kind):
            yield from _program(kind, program, given.leads.get(kind, ""))
            if program.replicas and program.namespace not in given.watched.get(kind, ()):
                text = f'it is not known whether {kind} leads in namespace "{program.namespace}", where its Lease is not checked'
                own = (
                    f" and set --karpenter-namespace={program.namespace} of Dovetail"
                    if kind is ProgramKind.KARPENTER
                    else ""
                )
                advice = f"specify --other-namespace {program.namespace}{own}"
                yield TakeoverFinding(AUTOSCALERS, _UNKNOWN, text, advice, blocks=True, objects=(program.named,))
        where = given.leads.get(kind, "")
        if where and not any(one.namespace == where for one in given.programs_of(kind)):
            text = f'{kind} holds its Lease in namespace "{where}", and no Deployment of it was found there'
            yield TakeoverFinding(
                AUTOSCALERS,
                _FINDING,
                text,
                "find out what renews the Lease, and stop it before `dovetail takeover start`",
            )
    if not given.unread and not any(given.programs_of(kind) or given.leads.get(kind) for kind in others):
        yield TakeoverFinding(AUTOSCALERS, _OK, "no Deployment or Lease of Karpenter or Cluster Autoscaler was found")


def _namespace(given: TakeoverInput) -> Iterator[TakeoverFinding]:
    """Where Dovetail is: in another namespace than is meant, it would not hear of the pause."""
    places = [one.namespace for one in given.programs_of(ProgramKind.DOVETAIL)]
    if places and given.namespace not in places:
        text = f'Dovetail is installed in namespace "{places[0]}", not in namespace "{given.namespace}"'
        yield TakeoverFinding(AUTOSCALERS, _FINDING, text, f"run the command with -n {places[0]}", blocks=True)


def _program(kind: ProgramKind, program: ProgramDeployment, leads: str) -> Iterator[TakeoverFinding]:
    state = "holds its Lease" if leads == program.namespace else "does not hold its Lease"
    text = f'Deployment "{program.named}" runs {kind} with {counted(program.replicas, "replica")} and {state}'
    yield TakeoverFinding(AUTOSCALERS, _NOTE, text, objects=(program.named,))
    labels, annotations = program.metadata.labels, program.metadata.annotations
    reconciler, owner = reconciler_of(labels, annotations), owner_of(labels, annotations)
    if reconciler is not None:
        text = f'{reconciler.name} would start {kind} again: Deployment "{program.named}" carries {reconciler.key}'
        yield TakeoverFinding(AUTOSCALERS, _FINDING, text, _SUSPEND[reconciler.name], objects=(program.named,))
    elif owner is not None and RELEASE_NAME not in annotations:
        text = f'Deployment "{program.named}" was rendered from a chart by another program than Helm, which may start {kind} again'
        yield TakeoverFinding(AUTOSCALERS, _NOTE, text, "check whether Argo CD or another tool applies it")
    elif owner is not None:
        text = f'the next `helm upgrade` of release "{annotations[RELEASE_NAME]}" would start {kind} again'
        yield TakeoverFinding(AUTOSCALERS, _NOTE, text, "set replicas to 0 in its values before the next upgrade")


# --- who owns the definitions ---------------------------------------------------------------------------------------


def unkept(releases: Iterable[HelmRelease]) -> Iterator[tuple[HelmRelease, tuple[str, ...]]]:
    """Releases whose removal would delete definitions of ours, and with them every NodePool and NodeClaim; and which."""
    for release in latest(releases):
        lost = tuple(one for one in release.unkept if one in OUR_DEFINITIONS)
        if lost:
            yield release, lost


def _definitions(given: TakeoverInput) -> Iterator[TakeoverFinding]:
    told = set[str]()
    for release, lost in unkept(given.releases):
        told |= set(lost)
        text = f"{release.named} would delete {listed(lost, _NAMED)} when it is uninstalled, and with them all their objects and nodes"
        advice = f"add the annotation {KEEP}: keep to its CRDs first: see `dovetail takeover plan`"
        yield TakeoverFinding(DEFINITIONS_ABOUT, _FINDING, text, advice, blocks=True, objects=lost)
    known = {(one.namespace, one.name) for one in given.releases}
    for found in given.definitions:
        yield _definition(found, known, told)
        if found.converter:
            text = (
                f'CustomResourceDefinition "{found.metadata.name}" asks Service "{found.converter}" to convert objects'
            )
            advice = "upgrade Karpenter to 1.1 or later, whose CRDs have no conversion webhook, before it is removed"
            yield TakeoverFinding(DEFINITIONS_ABOUT, _FINDING, text, advice, objects=(found.metadata.name,))
    if not given.definitions and not given.unread:
        yield TakeoverFinding(DEFINITIONS_ABOUT, _NOTE, "no CustomResourceDefinition of Karpenter was found")


def _definition(found: FoundDefinition, known: set[tuple[str, str]], told: set[str]) -> TakeoverFinding:
    """Who owns one, and whether it outlives its owner."""
    name, annotations = found.metadata.name, found.metadata.annotations
    owner = owner_of(found.metadata.labels, annotations)
    release = annotations.get(RELEASE_NAMESPACE, ""), annotations.get(RELEASE_NAME, "")
    kept = "kept" if annotations.get(KEEP) == "keep" else "not kept"
    if owner is None:
        held = f'is owned by Dovetail\'s Helm release "{release[1]}"' if release[1] else "has no owner"
        return TakeoverFinding(DEFINITIONS_ABOUT, _OK, f"{name} {held}", objects=(name,))
    if not release[1]:
        return TakeoverFinding(
            DEFINITIONS_ABOUT, _NOTE, f"{name} is owned by {owner.name} ({owner.key})", objects=(name,)
        )
    text = f'{name} is owned by Helm release "{release[1]}" in namespace "{release[0]}", {kept} when the release is removed'
    if release not in known:
        advice = "allow this user to read its Secret (kubectl auth can-i get secrets), or add the Secret to the files"
        return TakeoverFinding(
            DEFINITIONS_ABOUT,
            _UNKNOWN,
            f"{text} by what the object says; the release itself was not found",
            advice,
            blocks=True,
            objects=(name,),
        )
    return TakeoverFinding(DEFINITIONS_ABOUT, _NOTE if name not in told else _FINDING, text, objects=(name,))


# --- what we do not know --------------------------------------------------------------------------------------------


def _settings(given: TakeoverInput) -> Iterator[TakeoverFinding]:
    for program in given.programs_of(ProgramKind.KARPENTER):
        told = given.settings.get(program.named)
        if told is None:
            continue
        for one in told.unknown:
            yield TakeoverFinding(
                SETTINGS,
                _FINDING,
                f'Dovetail does not know {one} of Deployment "{program.named}"',
                "check what it does, and whether you need it",
            )
        for one in told.said:
            yield TakeoverFinding(SETTINGS, _FINDING, f'settings of Deployment "{program.named}": {one}')
        if not told.unknown and not told.said:
            yield TakeoverFinding(SETTINGS, _OK, f'Dovetail knows all settings of Deployment "{program.named}"')
        if told.ca_bundle:
            text = f'Deployment "{program.named}" sets CLUSTER_CA_BUNDLE, which hashes of EC2NodeClasses contain'
            yield TakeoverFinding(SETTINGS, _NOTE, text, "set CLUSTER_CA_BUNDLE of Dovetail to the same value")


def _fields(given: TakeoverInput) -> Iterator[TakeoverFinding]:
    for one in given.strange:
        yield TakeoverFinding(
            FIELDS,
            _FINDING,
            f"this version does not know {one.path} of {one.object}",
            "upgrade Dovetail, or remove the field",
            objects=(one.object,),
        )
    if not given.strange:
        count = sum(map(len, (given.pools, given.claims, given.classes, given.overlays)))
        yield TakeoverFinding(FIELDS, _OK, f"this version knows all fields of {counted(count, 'object')}")


def claim_findings(given: TakeoverInput) -> Iterator[TakeoverFinding]:
    """Whose nodes would be replaced."""
    bundles = tuple(one.ca_bundle for one in given.settings.values() if one.ca_bundle)
    verdict = drift_of(given.claims, given.pools, given.classes, (*bundles, given.authority))
    head = f"{len(verdict.drifts)} of {counted(verdict.judged, 'NodeClaim')} would drift"
    if not verdict.drifts and not verdict.undetermined:
        yield TakeoverFinding(NODECLAIMS, _OK, head)
        return
    reasons = Counter(one.reason for one in verdict.drifts)
    named = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    here = len(verdict.only_here)
    text = (
        f"{head}: {named}; {here} only with Dovetail, {len(verdict.drifts) - here} with Karpenter as well"
        if named
        else head
    )
    advice = (
        "do not release drift before their NodePools and EC2NodeClasses are as when the nodes were launched"
        if here
        else ""
    )
    claims = tuple(f"{one.claim}: {one.reason}" for one in verdict.drifts)
    yield TakeoverFinding(NODECLAIMS, _FINDING if here else _NOTE, text, advice, objects=claims)
    if verdict.undetermined:
        why = sorted({reason for _, reason in verdict.undetermined})
        text = f"it could not be determined whether {counted(len(verdict.undetermined), 'NodeClaim')} would drift: {'; '.join(why)}"
        advice = "run the check on the cluster itself instead of files" if given.authority is None else ""
        yield TakeoverFinding(
            NODECLAIMS, _UNKNOWN, text, advice, objects=tuple(name for name, _ in verdict.undetermined)
        )


# --- what is around -------------------------------------------------------------------------------------------------


def _reboots(given: TakeoverInput) -> Iterator[TakeoverFinding]:
    """Nodes that Karpenter has begun to reboot, or on which it left its marks. Source: core spec 1.15, node repair by reboot."""
    ours = {one.name for one in given.claims if names.REBOOT_ANNOTATION in one.metadata.annotations}
    closed = {
        one.spec.provider_id for one in given.nodes if any(t.key == names.REBOOTING_TAINT.key for t in one.spec.taints)
    }
    begun = sorted(
        one.name
        for one in given.claims
        if one.name not in ours
        and (
            is_true(one.status.conditions, names.REBOOTING)
            or names.REBOOT_PRE_BOOT_ID in one.metadata.annotations
            or one.status.provider_id in closed - {""}
        )
    )
    if begun:
        text = f"Karpenter has begun to reboot the {'node' if len(begun) == 1 else 'nodes'} of {listed(begun, _NAMED)}"
        advice = (
            "nothing to do: Dovetail waits for the reboots that were requested, and removes what is left of the others"
        )
        yield TakeoverFinding(NODECLAIMS, _NOTE, text, advice, objects=tuple(begun))


def _webhooks(given: TakeoverInput) -> Iterator[TakeoverFinding]:
    namespaces = {one.namespace for one in given.programs_of(ProgramKind.KARPENTER)}
    for one in given.webhooks:
        asked = sorted(s for s in one.services if s.partition("/")[0] in namespaces and "karpenter" in s)
        if asked:
            text = f'{one.kind} "{one.metadata.name}" asks Service "{asked[0]}" of Karpenter'
            advice = f"delete it when Karpenter is stopped: kubectl delete {one.kind.lower()} {one.metadata.name}"
            yield TakeoverFinding(WEBHOOKS, _FINDING, text, advice, objects=(one.metadata.name,))


def _aws(given: TakeoverInput) -> Iterator[TakeoverFinding]:
    roles = sorted({one.spec.role for one in given.classes if isinstance(one.spec.role, str) and one.spec.role})
    profiles = sorted(
        {
            one.spec.instance_profile
            for one in given.classes
            if isinstance(one.spec.instance_profile, str) and one.spec.instance_profile
        }
    )
    made = sorted({one.status.instance_profile for one in given.classes if one.status.instance_profile} - set(profiles))
    if roles:
        yield TakeoverFinding(
            AWS, _NOTE, f"EC2NodeClasses name the IAM roles {listed(roles, _NAMED)}: keep them", objects=tuple(roles)
        )
    if profiles:
        yield TakeoverFinding(
            AWS,
            _NOTE,
            f"EC2NodeClasses name the instance profiles {listed(profiles, _NAMED)}: keep them",
            objects=tuple(profiles),
        )
    if made:
        yield TakeoverFinding(
            AWS,
            _NOTE,
            f"Karpenter made the instance profiles {listed(made, _NAMED)}; Dovetail uses them on",
            objects=tuple(made),
        )
    for program in given.programs_of(ProgramKind.KARPENTER):
        told = given.settings.get(program.named)
        if told is not None and told.cluster:
            queue = f'with the interruption queue "{told.queue}"' if told.queue else "without an interruption queue"
            text = f'Karpenter manages cluster "{told.cluster}" {queue}'
            advice = f"give Dovetail the same: CLUSTER_NAME={told.cluster}{f', INTERRUPTION_QUEUE={told.queue}' if told.queue else ''}"
            yield TakeoverFinding(AWS, _NOTE, text, advice)


def _pods(given: TakeoverInput) -> Iterator[TakeoverFinding]:
    running = [
        one for one in given.pods if one.node_name and is_active(one) and not is_daemon(one) and not is_mirror(one)
    ]
    by_namespace: dict[str, list[object]] = {}
    for budget in given.budgets:
        by_namespace.setdefault(budget.metadata.namespace, []).append(budget.spec.selector)
    bare = [one.key for one in running if one.owner is None]
    free = [
        one.key
        for one in running
        if not any(selects(selector, one.labels) for selector in by_namespace.get(one.namespace, ()))  # type: ignore[arg-type]
    ]
    if free:
        are = f"{counted(len(free), 'pod')} of {len(running):,} {'is' if len(free) == 1 else 'are'}"
        text = f"{are} not covered by a PodDisruptionBudget: {listed(free, _NAMED)}"
        yield TakeoverFinding(PODS, _NOTE, text, "add budgets before disruption is released", objects=tuple(free))
    elif running:
        yield TakeoverFinding(PODS, _OK, f"all of {counted(len(running), 'pod')} are covered by a PodDisruptionBudget")
    ranked = [one.key for one in running if may_be_karpenters(one)]
    if ranked:
        have = f"{counted(len(ranked), 'pod')} of ReplicaSets {'has' if len(ranked) == 1 else 'have'}"
        text = f"{have} a negative pod deletion cost, as Karpenter writes with PodDeletionCostManagement: {listed(ranked, _NAMED)}"
        advice = "nothing to do: the provisioner removes the values that Karpenter wrote, and keeps yours"
        yield TakeoverFinding(PODS, _NOTE, text, advice, objects=tuple(ranked))
    if bare:
        text = f"{counted(len(bare), 'pod')} without a controller {'is' if len(bare) == 1 else 'are'} lost when evicted: {listed(bare, _NAMED)}"
        yield TakeoverFinding(PODS, _NOTE, text, objects=tuple(bare))
