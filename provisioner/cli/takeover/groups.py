"""The takeover from Cluster Autoscaler with managed node groups: what is read, planned, and done."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import botocore.session
import click
import msgspec

from provisioner.apis import ec2
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodePool
from provisioner.cli.documents import plain_yaml
from provisioner.cli.plan.objects import PlanObjects
from provisioner.cli.plan.planning import PlanSettings
from provisioner.cli.takeover.inputs import cluster_of, say
from provisioner.cli.takeover.saving import saving_of
from provisioner.cli.takeover.texts import instruction_lines, text_of
from provisioner.ec2.access.client import AwsClients, CallPolicy
from provisioner.ec2.cloud import region_of
from provisioner.support.clock import Clock, SystemClock
from provisioner.takeover.eks_groups import EksGroups
from provisioner.takeover.group_draining import GroupDrain, GroupOutcome
from provisioner.takeover.group_moves import MoveKind, in_order
from provisioner.takeover.instructions import groups_backward, groups_forward
from provisioner.takeover.node_groups import (
    GROUP_LABEL,
    ManagedNodeGroup,
    NodeGroupError,
    WrittenGroup,
    group_of,
    written,
)
from provisioner.takeover.takeover_input import TakeoverInput
from provisioner.values.errors import ExitStatus, UndeterminedError, UserError
from provisioner.values.printable import counted, one_line


@contextmanager
def eks(cluster: str, region: str) -> Iterator[EksGroups]:
    """The groups of a cluster, with the caller's credentials.

    Raises:
        UndeterminedError: a group cannot be read.
        ClientError, BotoCoreError: AWS refused or did not answer.
    """
    session = botocore.session.Session()
    policy = CallPolicy(region or region_of(session), attempts=3, read_timeout=20.0, user_agent="dovetail-takeover")
    try:
        with closing(AwsClients(policy, SystemClock(), session)) as clients:
            yield EksGroups(clients, cluster)
    except NodeGroupError as error:
        raise UndeterminedError(str(error)) from None


def groups_of(
    given: Sequence[ManagedNodeGroup], cluster: str, region: str, chosen: Sequence[str]
) -> tuple[ManagedNodeGroup, ...]:
    """The groups that files describe, or those of AWS, as they are chosen.

    Raises:
        UserError: there is none, or not one of a chosen name; AWS refused.
    """
    found = tuple(given)
    if not found and cluster:
        with eks(cluster, region) as groups:
            found = tuple(groups.all())
    if not found:
        raise UserError(
            "no node group was found; specify --cluster-name, or files with the output of `aws eks describe-nodegroup`",
        )
    try:
        return in_order(found, chosen)
    except KeyError as error:
        names = ", ".join(one.name for one in found)
        raise UserError(f"node group {error} does not exist; the node groups are {names}") from None


def groups_in(files: Mapping[str, Sequence[object]]) -> list[ManagedNodeGroup]:
    """The node groups in files; everything else is passed over.

    Raises:
        UserError: a node group cannot be read.
    """
    found = []
    for path, documents in files.items():
        for document in documents:
            for one in document if isinstance(document, list) else [document]:
                try:
                    group = group_of(one)
                except NodeGroupError as error:
                    raise UserError(f"{path}: {error}") from None
                found += [group] if group is not None else []
    return found


def written_groups(groups: Sequence[ManagedNodeGroup], given: TakeoverInput) -> list[WrittenGroup]:
    """What becomes of each; of two whose NodePools would have one name, only the first is written."""
    seen: set[str] = set()
    found = []
    for group in groups:
        one = written(group, given.nodes)
        if group.pool_name in seen:
            one = WrittenGroup(
                group, (), (), f'another group becomes NodePool "{group.pool_name}"; write its NodePool by hand'
            )
        seen.add(group.pool_name)
        found.append(one)
    return found


def plan_groups(
    given: TakeoverInput,
    groups: Sequence[ManagedNodeGroup],
    objects: PlanObjects,
    catalogue: str,
    settings: PlanSettings,
    clock: Clock,
    output: str,
) -> int:
    """Print what becomes of the groups, the saving and the steps; the exit status."""
    made = written_groups(groups, given)
    refused = [one for one in made if one.refusal]
    if output == "yaml":
        click.echo(manifests(made), nl=False)
        return ExitStatus.FOUND if refused else ExitStatus.DONE
    saved = saving_of(_as_planned(objects, made), catalogue, settings, clock)
    there, back = groups_forward(given, groups), groups_backward(given, groups)
    if output == "json":
        body = {
            "version": 1,
            "nodeGroups": [
                {
                    "name": one.group.name,
                    "nodePool": one.group.pool_name if one.documents else "",
                    "refused": one.refusal,
                    "notes": list(one.notes),
                    "objects": list(one.documents),
                }
                for one in made
            ],
            "saving": saved.for_programs(),
            "steps": [one.for_programs() for one in there],
            "back": [one.for_programs() for one in back],
        }
        click.echo(json.dumps(body, indent=2))
    else:
        text = [line for one in made for line in _group_lines(one)]
        text += ["", *saved.lines(), "", "Steps:", *instruction_lines(there), "", "Back:", *instruction_lines(back)]
        click.echo(text_of(text))
    return ExitStatus.FOUND if refused else ExitStatus.DONE


def manifests(made: Sequence[WrittenGroup]) -> str:
    """The objects as YAML, with what is to be known of them as comments."""
    parts = []
    for one in made:
        notes = [f"# {one_line(note)}\n" for note in ([one.refusal] if one.refusal else one.notes)]
        head = f"# Node group {one.group.name}\n" + "".join(notes)
        parts.append(head + "---\n".join(plain_yaml(dict(document)) for document in one.documents))
    return "---\n".join(parts)


def drain_groups(
    files: Mapping[str, Sequence[object]],
    kubeconfig: str,
    context: str,
    namespace: str,
    other_namespace: str,
    *,
    cluster: str,
    region: str,
    chosen: Sequence[str],
    apply_aws: bool,
    at_once: int,
    timeout: float,
) -> int:
    """Empty group after group; the exit status."""
    groups = groups_of(groups_in(files), cluster, region, chosen)
    clock = SystemClock()
    with cluster_of(kubeconfig, context, clock) as (client, _):
        drain = GroupDrain(client, clock, say, namespace, other_namespace, None, at_once, timeout)
        with eks(cluster or groups[0].cluster_name, region) if apply_aws else nullcontext() as drain.cloud:
            return max(_told(drain.run(group)) for group in groups)


def groups_status(kubeconfig: str, context: str, namespace: str, other_namespace: str, output: str) -> int:
    """Print how far each group is; the exit status."""
    with cluster_of(kubeconfig, context, SystemClock()) as (client, _):
        found = GroupDrain(client, SystemClock(), say, namespace, other_namespace).standings()
    if output == "json":
        click.echo(json.dumps({"version": 1, "nodeGroups": [dataclasses.asdict(one) for one in found]}, indent=2))
    else:
        for one in found:
            head = f'Node group "{one.group}": {one.cordoned} of {counted(one.nodes, "node")} cordoned'
            say(f"{head}, {counted(one.pods, 'pod')} remaining on {counted(one.occupied, 'node')}")
            say("\n".join(f"    not evicted: {text}" for text in one.kept)) if one.kept else None
        if not found:
            say("No takeover has begun: none of the nodes of managed node groups was cordoned by it.")
    return ExitStatus.DONE if found and not any(one.kept for one in found) else ExitStatus.FOUND


def groups_back(kubeconfig: str, context: str, namespace: str, *, dry_run: bool) -> int:
    """Make the nodes of the groups schedulable again; the exit status."""
    with cluster_of(kubeconfig, context, SystemClock()) as (client, _):
        count = GroupDrain(client, SystemClock(), say, namespace).uncordon(dry_run=dry_run)
    done = "would be made" if dry_run else "made"
    say(
        f"{counted(count, 'node')} {done} schedulable. `dovetail takeover plan --from cluster-autoscaler` prints the next steps."
    )
    return ExitStatus.DONE


def _told(outcome: GroupOutcome) -> int:
    """What came of a group, for people; 1 where it is not done."""
    head = f'Node group "{outcome.group}"'
    if outcome.is_late:
        say(f"{head}: gave up {outcome.move.text}; run the command again to continue.")
        return ExitStatus.FOUND
    if outcome.move.kind is MoveKind.REFUSE:
        say(f"{head}: {outcome.move.text}.")
        return ExitStatus.FOUND
    if outcome.command:
        say(f"{head} is empty. Reduce it to its minimum:\n    {outcome.command}")
    else:
        say(f"{head} is empty{' and was reduced to its minimum' if outcome.move.kind is MoveKind.REDUCE else ''}.")
    return ExitStatus.DONE


def _as_planned(objects: PlanObjects, made: Sequence[WrittenGroup]) -> PlanObjects:
    """The nodes of the groups, and the NodePools that they become."""
    pools, classes = [], {}
    for one in made:
        for document in one.documents:
            if document["kind"] == ec2.KIND:
                classes[one.group.pool_name] = msgspec.convert(document, EC2NodeClass)
            else:
                pools.append(msgspec.convert(document, NodePool))
    groups = {one.group.name for one in made}
    nodes = [one for one in objects.nodes if one.metadata.labels.get(GROUP_LABEL) in groups]
    return dataclasses.replace(objects, pools=pools, classes=classes, nodes=nodes)


def _group_lines(one: WrittenGroup) -> list[str]:
    scaling: Any = one.group.scaling_config
    size = f"{scaling.min_size} to {counted(scaling.max_size, 'node')}"
    if one.refusal:
        return [f'Node group "{one.group.name}" ({size}) is not taken over: {one.refusal}']
    head = f'Node group "{one.group.name}" ({size}) becomes NodePool and EC2NodeClass "{one.group.pool_name}"'
    return [head, *(f"    {note}" for note in one.notes)]
