"""Which instances belong to which claims, and which to none. Pure.

Source: spec/karpenter-aws.md 6.3.
Differs: an instance is known by the launch it came from and by its tag, so one whose claim has not heard of it yet is taken
over by that claim instead of being terminated.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from provisioner.apis import ec2, names
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.aws.instances.instances import Instance, instance_id_of
from provisioner.cloudprovider.aws.launch.launch_marks import BATCH_TAG, Mark, MarkError


@dataclass(frozen=True, slots=True)
class SortedOut:
    """Instances that no claim has by its provider ID.

    Attributes:
        awaited: names of the claims that wait for an instance which is there, sorted.
        orphans: instances of no claim, in order of id; those that end already are left out.
    """

    awaited: tuple[str, ...] = ()
    orphans: tuple[Instance, ...] = ()


def sort_out(instances: Iterable[Instance], claims: Iterable[NodeClaim]) -> SortedOut:
    """Deal instances to claims. Cost: O(instances + claims)."""
    owned: set[str] = set()
    waiting: set[str] = set()
    launches: defaultdict[str, list[str]] = defaultdict(list)
    for claim in claims:
        if claim.status.provider_id:
            owned.add(instance_id_of(claim.status.provider_id))
            continue
        waiting.add(claim.name)
        if tag := _launch_of(claim):
            launches[tag].append(claim.name)
    awaited: set[str] = set()
    orphans: list[Instance] = []
    for one in instances:
        if one.ending or one.id in owned:
            continue
        owner = one.tags.get(ec2.NODECLAIM_TAG, "")
        fellows = launches.get(one.tags.get(BATCH_TAG, ""), ())
        if owner in waiting:
            awaited.add(owner)
        elif fellows and not owner:
            awaited.update(fellows)
        else:
            orphans.append(one)
    return SortedOut(tuple(sorted(awaited)), tuple(sorted(orphans, key=lambda one: one.id)))


def _launch_of(claim: NodeClaim) -> str:
    """The tag that the instances of the claim's launch carry; "" without a launch."""
    try:
        return Mark.parse(claim.metadata.annotations.get(names.LAUNCH_ANNOTATION, "")).tag
    except MarkError:
        return ""
