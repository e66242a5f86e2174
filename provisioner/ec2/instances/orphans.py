"""Which instances belong to which claims, and which to none. Pure.

Source: spec/karpenter-aws.md 6.3.
Differs: an instance is known by the launch it came from and by its tag, so one whose claim has not heard of it yet is taken
over by that claim instead of being terminated.
"""

from collections import defaultdict
from collections.abc import Iterable

from provisioner.apis import ec2
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import SortedOut
from provisioner.ec2.instances.instances import Ec2Instance, instance_id_of
from provisioner.ec2.launch.launch_marks import BATCH_TAG, mark_of


def sort_out(instances: Iterable[Ec2Instance], claims: Iterable[NodeClaim]) -> SortedOut[Ec2Instance]:
    """Deal instances to claims. Cost: O(instances + claims)."""
    owned: set[str] = set()
    waiting: set[str] = set()
    launches: defaultdict[str, list[str]] = defaultdict(list)
    for claim in claims:
        if claim.status.provider_id:
            owned.add(instance_id_of(claim.status.provider_id))
            continue
        waiting.add(claim.name)
        if (mark := mark_of(claim)) is not None:
            launches[mark.tag].append(claim.name)
    awaited: set[str] = set()
    orphans: list[Ec2Instance] = []
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
