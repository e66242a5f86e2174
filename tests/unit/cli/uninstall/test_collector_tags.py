"""The tags by which collectors find instances, of EC2 in all regions that NodeClaims name."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from provisioner.apis import ec2
from provisioner.cli.uninstall.collector_tags import TAGS, CollectorTags
from provisioner.values.errors import RefusedError, UndeterminedError

OURS = {ec2.NODEPOOL_TAG: "general", ec2.NODECLASS_TAG: "default", "kubernetes.io/cluster/blue": "owned", "Name": "n"}


class Region:
    """EC2 of one region, as far as it is asked: instances by ID with their tags."""

    def __init__(self, **instances: dict[str, str]) -> None:
        self.instances = {name.replace("_", "-"): dict(tags) for name, tags in instances.items()}
        self.denied = False

    def describe_instances(self, Filters: list[dict[str, Any]], **_: Any) -> dict[str, Any]:  # noqa: N803
        wanted = {one["Name"]: one["Values"] for one in Filters}
        found = []
        for name, tags in self.instances.items():
            ids, keys = wanted.get("instance-id"), wanted.get("tag-key", ())
            values = [(key[4:], some) for key, some in wanted.items() if key.startswith("tag:")]
            if (
                (ids is None or name in ids)
                and all(key in tags for key in keys)
                and all(tags.get(k) in v for k, v in values)
            ):
                found.append({"InstanceId": name, "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]})
        return {"Reservations": [{"Instances": found}]}

    def delete_tags(self, Resources: list[str], Tags: list[dict[str, str]]) -> None:  # noqa: N803
        if self.denied:
            raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}, "DeleteTags")
        for name in Resources:
            for tag in Tags:
                self.instances[name].pop(tag["Key"], None)


def provider_id(region: str, instance: str) -> str:
    return f"aws:///{region}a/{instance}"


def test_whatever_a_collector_would_find_is_untagged_also_what_no_claim_names() -> None:
    others = {ec2.NODEPOOL_TAG: "general", "kubernetes.io/cluster/green": "owned"}
    one = Region(i_00000001=OURS, i_00000002=OURS, i_00000003=others, i_00000004={"Name": "x"})
    two = Region(i_00000005={ec2.NODECLAIM_TAG: "c", ec2.CLUSTER_NAME_TAG: "blue"})
    regions = {"eu-west-1": one, "us-west-2": two}
    tags = CollectorTags(regions.__getitem__)
    asked = [provider_id("eu-west-1", "i-00000001"), provider_id("us-west-2", "i-00000005"), "kwok://n"]
    found = tags.found(asked)
    assert found == ("eu-west-1/i-00000001", "eu-west-1/i-00000002", "us-west-2/i-00000005")
    tags.remove(found)
    assert tags.found(asked) == ()
    left = {"kubernetes.io/cluster/blue": "owned", "Name": "n"}
    assert one.instances == {"i-00000001": left, "i-00000002": left, "i-00000003": others, "i-00000004": {"Name": "x"}}
    assert two.instances == {"i-00000005": {}}
    assert {ec2.NODEPOOL_TAG, ec2.NODECLASS_TAG} <= {*TAGS}


def test_an_instance_of_which_the_region_is_not_known_stops_it() -> None:
    """It would keep its tags, and end after its NodeClaim is gone."""
    with pytest.raises(RefusedError, match="aws:////i-00000001"):
        CollectorTags(lambda _: None).found(["aws:////i-00000001"])


def test_what_ec2_denies_is_said_with_the_permissions() -> None:
    region = Region(i_00000001=OURS)
    region.denied = True
    with pytest.raises(UndeterminedError, match="Use credentials with ec2:DescribeInstances and ec2:DeleteTags"):
        CollectorTags({"eu-west-1": region}.__getitem__).remove(["eu-west-1/i-00000001"])


def test_a_node_that_claims_an_instance_of_another_cluster_takes_no_tags_from_there() -> None:
    others = {ec2.NODEPOOL_TAG: "general", "kubernetes.io/cluster/green": "owned"}
    region = Region(i_00000001=OURS, i_00000002=OURS, i_00000003=others, i_00000004=others)
    tags = CollectorTags({"eu-west-1": region}.__getitem__)
    asked = [provider_id("eu-west-1", name) for name in ("i-00000001", "i-00000002", "i-00000003")]
    with pytest.raises(RefusedError, match=r"several clusters: i-00000001 and 1 more in blue, i-00000003 in green\. "):
        tags.found(asked)
