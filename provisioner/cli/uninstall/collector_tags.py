"""The tags by which collectors of Dovetail and of Karpenter find instances, taken off so that neither ends an instance any more."""

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

from provisioner.apis import ec2
from provisioner.ec2.access.batcher import parts
from provisioner.ec2.access.client import FILTER_VALUES, pages
from provisioner.ec2.instances.instances import LIVING, instance_id_of
from provisioner.ec2.launch.launch_marks import BATCH_TAG
from provisioner.values.errors import RefusedError, UndeterminedError
from provisioner.values.printable import listed

TAGS: Final = (ec2.NODEPOOL_TAG, ec2.NODECLASS_TAG, ec2.NODECLAIM_TAG, ec2.CLUSTER_NAME_TAG, BATCH_TAG)
"""Each collector demands the first two and the cluster's; `kubernetes.io/cluster/NAME` stays, which load balancers go by."""
_IS_LIVING: Final = {"Name": "instance-state-name", "Values": list(LIVING)}
_REGION: Final = re.compile(r"aws:///(?P<region>[a-z]{2}(?:-[a-z]+)+-\d)")


class CollectorTags:
    """Tags of EC2's instances, read and removed with the caller's credentials.

    Args:
        client: EC2's client of a region.
    """

    def __init__(self, client: Callable[[str], Any] | None = None) -> None:
        self._client = client if client is not None else functools.cache(_client)

    def found(self, provider_ids: Iterable[str]) -> tuple[str, ...]:
        """See `leaving.gathering.CloudTags`; each is "REGION/ID".

        Cost: one call for every 200 instances, and a list for each cluster that these name.

        Raises:
            UndeterminedError: EC2 does not answer, or denies it.
            RefusedError: the instances belong to several clusters, or one of them does not name its zone.
        """
        known: defaultdict[str, list[str]] = defaultdict(list)
        for provider_id in provider_ids:
            place, instance = _REGION.match(provider_id), instance_id_of(provider_id)
            if instance and place is None:
                raise RefusedError(
                    f"the provider ID {provider_id} does not name a zone, so tags cannot be removed from its instance"
                )
            if place is not None and instance:
                known[place["region"]].append(instance)
        there = {region: self._living(region, ids) for region, ids in known.items()}
        _require_one_cluster(there.values())
        found = ((region, one) for region, some in there.items() for one in self._all_of(region, some))
        return tuple(sorted(f"{region}/{one}" for region, one in found))

    def remove(self, instances: Iterable[str]) -> None:
        """Remove the tags from instances of `found`; twice changes nothing.

        Raises:
            UndeterminedError: EC2 does not answer, or denies it.
        """
        by_region: defaultdict[str, list[str]] = defaultdict(list)
        for one in instances:
            region, _, instance = one.partition("/")
            by_region[region].append(instance)
        tags: list[Mapping[str, str]] = [{"Key": key} for key in TAGS]
        for region, ids in by_region.items():
            _asked(region, functools.partial(_untag, ids, tags), self._client)

    def _living(self, region: str, ids: list[str]) -> dict[str, Mapping[str, str]]:
        """The tags of these, by ID."""
        found: dict[str, Mapping[str, str]] = {}
        for some in parts(tuple(ids), FILTER_VALUES):
            found |= self._described(region, [{"Name": "instance-id", "Values": list(some)}, _IS_LIVING])
        return found

    def _all_of(self, region: str, known: Mapping[str, Mapping[str, str]]) -> set[str]:
        """Those of them that carry tags to remove, and others of the same cluster that do."""
        found = dict(known)
        clusters = {key for tags in known.values() for key in _owners(tags)}
        names = {tags[ec2.CLUSTER_NAME_TAG] for tags in known.values() if ec2.CLUSTER_NAME_TAG in tags}
        made = {"Name": "tag-key", "Values": [ec2.NODEPOOL_TAG]}
        for key in sorted(clusters):
            found |= self._described(region, [made, {"Name": f"tag:{key}", "Values": ["owned"]}, _IS_LIVING])
        for name in sorted(names):
            found |= self._described(
                region, [made, {"Name": f"tag:{ec2.CLUSTER_NAME_TAG}", "Values": [name]}, _IS_LIVING]
            )
        return {instance for instance, tags in found.items() if not tags.keys().isdisjoint(TAGS)}

    def _described(self, region: str, filters: list[Any]) -> dict[str, Mapping[str, str]]:
        answers = _asked(region, lambda client: list(pages(client.describe_instances, Filters=filters)), self._client)
        return {
            instance["InstanceId"]: {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
            for answer in answers
            for reservation in answer["Reservations"]
            for instance in reservation["Instances"]
        }


def _owners(tags: Mapping[str, str]) -> list[str]:
    return [key for key, value in tags.items() if key.startswith(ec2.CLUSTER_TAG_PREFIX) and value == "owned"]


def _require_one_cluster(instances: Iterable[Mapping[str, Mapping[str, str]]]) -> None:
    """A kubelet writes the provider ID of its own Node: one that names an instance of another cluster is not to have that cluster's tags removed.

    Raises:
        RefusedError: they belong to several.
    """
    clusters: defaultdict[str, list[str]] = defaultdict(list)
    for some in instances:
        for instance, tags in some.items():
            named = {key.removeprefix(ec2.CLUSTER_TAG_PREFIX) for key in _owners(tags)}
            for name in named | ({tags[ec2.CLUSTER_NAME_TAG]} if ec2.CLUSTER_NAME_TAG in tags else set()):
                clusters[name].append(instance)
    if len(clusters) > 1:
        where = ", ".join(f"{listed(sorted(ids), 1, ' ')} in {name}" for name, ids in sorted(clusters.items()))
        raise RefusedError(
            f"the provider IDs of Nodes and NodeClaims name instances of several clusters: {where}. Find the Nodes that name instances of another "
            "cluster (kubectl get nodes -o custom-columns=NAME:.metadata.name,ID:.spec.providerID), delete them, and run this command again"
        )


def _untag(ids: list[str], tags: list[Mapping[str, str]], client: Any) -> None:
    client.delete_tags(Resources=ids, Tags=tags)


def _client(region: str) -> Any:
    return botocore.session.Session().create_client("ec2", region_name=region)


def _asked(region: str, call: Callable[[Any], Any], client: Callable[[str], Any]) -> Any:
    try:
        return call(client(region))
    except (BotoCoreError, ClientError) as error:
        raise UndeterminedError(
            f"could not read the instances in {region}: {error}. Use credentials with ec2:DescribeInstances and ec2:DeleteTags"
        ) from None
