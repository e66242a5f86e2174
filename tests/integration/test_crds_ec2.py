"""The definition of EC2NodeClass on a real API server: one row a rule, what it admits, what it refuses, with what words.

Rows are dry-run requests, as in test_crds.py.
"""

import pathlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.ec2_hash import nodeclass_hash
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import EC2NODECLASSES
from provisioner.lab.devcluster.cluster import DevCluster
from tests.support.definitions import GONE, Body, changed, send, with_definitions

pytestmark = pytest.mark.plane

EXAMPLE: Final = pathlib.Path(__file__).parents[2] / "manifests" / "examples" / "ec2.yaml"
CLASSES: Final = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
TAGS: Final = {"karpenter.sh/discovery": "c"}
BASE: Final[Body] = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "crd-test"},
    "spec": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": TAGS}],
        "securityGroupSelectorTerms": [{"tags": TAGS}],
        "role": "node-role",
    },
}

Row = tuple[dict[str, Any], tuple[str, ...]]


def row(name: str, value: Any, *words: str) -> Row:
    """The base with one field of its spec changed; refused when there are `words`."""
    return {f"spec.{name}": value}, words


def rows(changes: dict[str, Any], *words: str) -> Row:
    return {f"spec.{name}": value for name, value in changes.items()}, words


def images(*terms: Body, family: Any = GONE, words: tuple[str, ...] = ()) -> Row:
    return {"spec.amiSelectorTerms": list(terms), "spec.amiFamily": family}, words


def ebs(device: Body, *words: str) -> Row:
    return row("blockDeviceMappings", [{"deviceName": "/dev/xvda", "ebs": device}], *words)


def size(text: Any, *words: str) -> Row:
    return ebs({"volumeSize": text}, *words)


def interface(card: int, device: int, kind: str = "interface") -> Body:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind}


SUBNETS: Final = "subnetSelectorTerms"
GROUPS: Final = "securityGroupSelectorTerms"
RESERVATIONS: Final = "capacityReservationSelectorTerms"
BLOCKS: Final = "blockDeviceMappings"
ONE: Final = {"volumeSize": "20Gi"}

ROWS: Final[dict[str, Row]] = {
    "the least that is needed": ({}, ()),
    # --- subnets
    "subnets are required": row(SUBNETS, GONE, f"spec.{SUBNETS}", "Required"),
    "subnets: none": row(SUBNETS, [], f"spec.{SUBNETS}", "must not be empty"),
    "subnets: by id": row(SUBNETS, [{"id": "subnet-0123456789abcdef0"}]),
    "subnets: an id of something else": row(SUBNETS, [{"id": "vpc-0123"}], f"spec.{SUBNETS}[0].id"),
    "subnets: thirty terms": row(SUBNETS, [{"id": f"subnet-{i}"} for i in range(30)]),
    "subnets: thirty-one terms": row(SUBNETS, [{"id": f"subnet-{i}"} for i in range(31)], f"spec.{SUBNETS}", "30"),
    "subnets: a term of nothing": row(SUBNETS, [{}], f"spec.{SUBNETS}[0]", "at least one of 'tags' and 'id'"),
    "subnets: a term of nothing among others": row(
        SUBNETS, [{"tags": TAGS}, {}], f"spec.{SUBNETS}[1]", "at least one of 'tags' and 'id'"
    ),
    "subnets: every term with id and tags": row(
        SUBNETS, [{"id": "subnet-1", "tags": TAGS}], f"spec.{SUBNETS}", "'id' cannot be combined with 'tags'"
    ),
    "subnets: one of two terms with id and tags is admitted, as by Karpenter": row(
        SUBNETS, [{"id": "subnet-1", "tags": TAGS}, {"tags": TAGS}]
    ),
    "subnets: any value of a tag": row(SUBNETS, [{"tags": {"a": "*"}}]),
    "subnets: a tag without key": row(SUBNETS, [{"tags": {"": "a"}}], f"spec.{SUBNETS}[0].tags", "empty key or value"),
    "subnets: a tag without value": row(
        SUBNETS, [{"tags": {"a": ""}}], f"spec.{SUBNETS}[0].tags", "empty key or value"
    ),
    "subnets: twenty tags": row(SUBNETS, [{"tags": {f"t{i}": "v" for i in range(20)}}]),
    "subnets: twenty-one tags": row(
        SUBNETS, [{"tags": {f"t{i}": "v" for i in range(21)}}], f"spec.{SUBNETS}[0].tags", "20"
    ),
    # --- security groups
    "groups are required": row(GROUPS, GONE, f"spec.{GROUPS}", "Required"),
    "groups: none": row(GROUPS, [], f"spec.{GROUPS}", "must not be empty"),
    "groups: by id": row(GROUPS, [{"id": "sg-0123456789abcdef0"}]),
    "groups: by name": row(GROUPS, [{"name": "nodes"}]),
    "groups: an id of something else": row(GROUPS, [{"id": "x"}], f"spec.{GROUPS}[0].id"),
    "groups: a term of nothing": row(GROUPS, [{}], f"spec.{GROUPS}[0]", "at least one of 'tags', 'id' and 'name'"),
    "groups: id and tags": row(GROUPS, [{"id": "sg-1", "tags": TAGS}], f"spec.{GROUPS}", "'id' cannot be combined"),
    "groups: id and name": row(
        GROUPS, [{"id": "sg-1", "name": "a"}], f"spec.{GROUPS}", "'id' cannot be combined", "'name' cannot be combined"
    ),
    "groups: name and tags": row(
        GROUPS, [{"name": "a", "tags": TAGS}], f"spec.{GROUPS}", "'name' cannot be combined with 'tags' or 'id'"
    ),
    "groups: one of two terms with name and tags is admitted, as by Karpenter": row(
        GROUPS, [{"name": "a", "tags": TAGS}, {"tags": TAGS}]
    ),
    "groups: a tag without value": row(GROUPS, [{"tags": {"a": ""}}], f"spec.{GROUPS}[0].tags", "empty key or value"),
    "groups: thirty-one terms": row(GROUPS, [{"id": f"sg-{i}"} for i in range(31)], f"spec.{GROUPS}", "30"),
    # --- capacity reservations
    "reservations: by id": row(RESERVATIONS, [{"id": "cr-0123456789abcdef0"}]),
    "reservations: by tags and owner": row(RESERVATIONS, [{"tags": TAGS, "ownerID": "012345678901"}]),
    "reservations: by match criteria": row(RESERVATIONS, [{"instanceMatchCriteria": "targeted"}]),
    "reservations: other match criteria": row(
        RESERVATIONS, [{"instanceMatchCriteria": "any"}], f"spec.{RESERVATIONS}[0].instanceMatchCriteria"
    ),
    "reservations: an explicit empty list": row(RESERVATIONS, [], f"spec.{RESERVATIONS}"),
    "reservations: an owner alone": row(
        RESERVATIONS, [{"ownerID": "012345678901"}], f"spec.{RESERVATIONS}[0]", "at least one of"
    ),
    "reservations: an owner of eleven digits": row(
        RESERVATIONS, [{"tags": TAGS, "ownerID": "01234567890"}], f"spec.{RESERVATIONS}[0].ownerID"
    ),
    "reservations: id and tags": row(
        RESERVATIONS, [{"id": "cr-1", "tags": TAGS}], f"spec.{RESERVATIONS}", "'id' cannot be combined"
    ),
    "reservations: id and owner": row(
        RESERVATIONS, [{"id": "cr-1", "ownerID": "012345678901"}], f"spec.{RESERVATIONS}", "'id' cannot be combined"
    ),
    "reservations: id and match criteria": row(
        RESERVATIONS,
        [{"id": "cr-1", "instanceMatchCriteria": "open"}],
        f"spec.{RESERVATIONS}",
        "'id' cannot be combined",
    ),
    "reservations: text behind the id": row(RESERVATIONS, [{"id": "cr-1!"}], f"spec.{RESERVATIONS}[0].id"),
    "reservations: a tag without key": row(
        RESERVATIONS, [{"tags": {"": "a"}}], f"spec.{RESERVATIONS}[0].tags", "empty key or value"
    ),
    "reservations: thirty-one terms": row(
        RESERVATIONS, [{"id": f"cr-{i}"} for i in range(31)], f"spec.{RESERVATIONS}", "30"
    ),
    # --- placement group
    "placement group: by name": row("placementGroupSelector", {"name": "a"}),
    "placement group: by id": row("placementGroupSelector", {"id": "pg-0123456789abcdef0"}),
    "placement group: by both": row(
        "placementGroupSelector", {"name": "a", "id": "pg-1"}, "spec.placementGroupSelector", "exactly one"
    ),
    "placement group: by nothing": row("placementGroupSelector", {}, "spec.placementGroupSelector", "exactly one"),
    "placement group: an empty name": row("placementGroupSelector", {"name": ""}, "spec.placementGroupSelector.name"),
    "placement group: another id": row("placementGroupSelector", {"id": "pg_1"}, "spec.placementGroupSelector.id"),
    # --- images
    "images are required": row("amiSelectorTerms", GONE, "spec.amiSelectorTerms", "Required"),
    "images: none": images(family="AL2023", words=("spec.amiSelectorTerms", "must not be empty")),
    "images: thirty-one terms": images(
        *({"id": f"ami-{i}"} for i in range(31)), family="AL2023", words=("spec.amiSelectorTerms", "30")
    ),
    "images: by id": images({"id": "ami-0123456789abcdef0"}, family="AL2023"),
    "images: another id": images({"id": "img-1"}, family="AL2023", words=("spec.amiSelectorTerms[0].id",)),
    "images: by name and owner": images({"name": "a*", "owner": "self"}, family="AL2023"),
    "images: by tags": images({"tags": TAGS}, family="Custom"),
    "images: by SSM parameter": images({"ssmParameter": "/my/ami"}, family="AL2023"),
    "images: several": images({"tags": TAGS}, {"id": "ami-1"}, family="AL2023"),
    "images: an owner alone": images(
        {"owner": "self"}, family="AL2023", words=("spec.amiSelectorTerms[0]", "at least")
    ),
    "images: a tag without value": images(
        {"tags": {"a": ""}}, family="AL2023", words=("spec.amiSelectorTerms[0].tags", "empty key or value")
    ),
    **{
        f"images: id and {name}": images(
            {"id": "ami-1", name: value}, family="AL2023", words=("spec.amiSelectorTerms", "'id' cannot be combined")
        )
        for name, value in {"tags": TAGS, "name": "a", "owner": "self", "alias": "al2023@latest"}.items()
    },
    "images: id and name in one term of two": images(
        {"tags": TAGS}, {"id": "ami-1", "name": "a"}, family="AL2023", words=("'id' cannot be combined",)
    ),
    "images: id and SSM parameter is admitted, as by Karpenter": images(
        {"id": "ami-1", "ssmParameter": "/a"}, family="AL2023"
    ),
    **{
        f"images: alias and {name}": images(
            {"alias": "al2023@latest", name: value}, words=("spec.amiSelectorTerms", "'alias' cannot be combined")
        )
        for name, value in {"tags": TAGS, "name": "a", "owner": "self"}.items()
    },
    "images: an alias beside another term": images(
        {"alias": "al2023@latest"}, {"id": "ami-1"}, words=("spec.amiSelectorTerms", "must be the only term")
    ),
    # --- aliases
    **{
        f"alias {alias}": images({"alias": alias})
        for alias in (
            "al2@latest",
            "al2@v20240807",
            "al2023@v20260101",
            "bottlerocket@latest",
            "bottlerocket@v1.20.4",
            "bottlerocket@1.20.4",
            "windows2019@latest",
            "windows2022@latest",
            "windows2025@latest",
        )
    },
    "alias without version": images({"alias": "al2023"}, words=("spec.amiSelectorTerms[0].alias", "family@version")),
    "alias with an empty version": images({"alias": "al2023@"}, words=("family@version",)),
    "alias of an unknown family": images({"alias": "ubuntu@latest"}, words=("the family of 'alias' must be one of",)),
    "alias in capitals": images({"alias": "AL2023@latest"}, words=("the family of 'alias' must be one of",)),
    "alias of Windows with a version": images({"alias": "windows2022@v1"}, words=("no version but 'latest'",)),
    "alias of 31 characters": images({"alias": "al2023@" + "v" * 24}, words=("spec.amiSelectorTerms[0].alias", "30")),
    # --- family
    "family: that of the alias": images({"alias": "al2023@latest"}, family="AL2023"),
    "family: Custom with an alias": images({"alias": "al2023@latest"}, family="Custom"),
    "family: that of a Windows alias": images({"alias": "windows2025@latest"}, family="Windows2025"),
    "family: another than that of the alias": images(
        {"alias": "al2023@latest"}, family="Bottlerocket", words=("'amiFamily' must be the family of the 'alias'",)
    ),
    "family: AL2 with an alias of AL2023": images(
        {"alias": "al2023@latest"}, family="AL2", words=("'amiFamily' must be the family of the 'alias'",)
    ),
    "family: none without alias": images({"id": "ami-1"}, words=("'amiFamily' must be set",)),
    "family: Ubuntu": images({"id": "ami-1"}, family="Ubuntu", words=("spec.amiFamily",)),
    **{
        f"family: {family}": images({"id": "ami-1"}, family=family)
        for family in ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025")
    },
    # --- role and profile
    "an instance profile": rows({"role": GONE, "instanceProfile": "p"}),
    "role and instance profile": row("instanceProfile", "p", "spec", "exactly one of 'role' and 'instanceProfile'"),
    "neither role nor instance profile": row("role", GONE, "spec", "exactly one of 'role' and 'instanceProfile'"),
    "an empty role": row("role", "", "spec.role", "must not be empty"),
    "an empty instance profile": rows(
        {"role": GONE, "instanceProfile": ""}, "spec.instanceProfile", "must not be empty"
    ),
    # --- tags
    "tags": row("tags", {"Name": "a", "team": "", "karpenter.sh/other": "b"}),
    "tags: no key": row("tags", {"": "a"}, "spec.tags", "empty key"),
    **{
        f"tags: {key}": row("tags", {key: "a"}, "spec.tags", "restricted")
        for key in (
            "eks:eks-cluster-name",
            "kubernetes.io/cluster/c",
            "kubernetes.io/cluster",
            "karpenter.sh/nodepool",
            "karpenter.sh/nodeclaim",
            "karpenter.k8s.aws/ec2nodeclass",
        )
    },
    # --- kubelet
    "kubelet: anything": row("kubelet", {"maxPods": 42, "featureGates": {"A": True}, "own": [1, {"b": None}]}),
    "kubelet: an expression": row("kubelet", {"maxPods": "min(110, vcpus * 8)"}),
    "kubelet: nothing": row("kubelet", {}),
    "kubelet: a text": row("kubelet", "maxPods: 42", "spec.kubelet"),
    # --- volumes
    **{
        f"volume of {text}": size(text)
        for text in ("1Gi", "20Gi", "59000Gi", "1G", "64000G", "1Ti", "18Ti", "29Ti", "58Ti", "1T", "19T", "64T")
    },
    **{
        f"volume of {text or 'no size'}": size(text, "ebs.volumeSize")
        for text in ("0Gi", "59001Gi", "64001G", "59Ti", "65T", "Ti", "T", "20", "20Mi", "1.5Gi", "-1Gi", "")
    },
    "volume of a number": size(20, "ebs.volumeSize"),
    "volume of a snapshot": ebs({"snapshotID": "snap-1"}),
    "volume of nothing": ebs({"volumeType": "gp3"}, f"spec.{BLOCKS}[0].ebs", "snapshotID or volumeSize"),
    "volume: initialization rate of a snapshot": ebs({"snapshotID": "snap-1", "volumeInitializationRate": 100}),
    "volume: initialization rate without snapshot": ebs(
        ONE | {"volumeInitializationRate": 100}, f"spec.{BLOCKS}[0].ebs", "snapshotID must be set"
    ),
    "volume: initialization rate of an empty snapshot": ebs(
        ONE | {"snapshotID": "", "volumeInitializationRate": 100}, "snapshotID must be set"
    ),
    "volume: initialization rate 99": ebs(
        {"snapshotID": "snap-1", "volumeInitializationRate": 99}, "ebs.volumeInitializationRate"
    ),
    "volume: initialization rate 300": ebs({"snapshotID": "snap-1", "volumeInitializationRate": 300}),
    "volume: initialization rate 301": ebs(
        {"snapshotID": "snap-1", "volumeInitializationRate": 301}, "ebs.volumeInitializationRate"
    ),
    **{
        f"volume type {kind}": ebs(ONE | {"volumeType": kind})
        for kind in ("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")
    },
    "volume type unknown": ebs(ONE | {"volumeType": "gp4"}, "ebs.volumeType"),
    "volume: every field": ebs(
        ONE
        | {
            "deleteOnTermination": False,
            "encrypted": True,
            "iops": 3000,
            "kmsKeyID": "alias/k",
            "snapshotID": "snap-1",
            "throughput": 125,
            "volumeType": "gp3",
        }
    ),
    "volumes: one is the root": row(BLOCKS, [{"ebs": ONE, "rootVolume": True}, {"ebs": ONE, "rootVolume": False}]),
    "volumes: two are the root": row(BLOCKS, [{"ebs": ONE, "rootVolume": True}] * 2, f"spec.{BLOCKS}", "at most one"),
    "volumes: fifty": row(BLOCKS, [{"deviceName": f"/dev/{i}", "ebs": ONE} for i in range(50)]),
    "volumes: fifty-one": row(
        BLOCKS, [{"deviceName": f"/dev/{i}", "ebs": ONE} for i in range(51)], f"spec.{BLOCKS}", "50"
    ),
    "volumes: none": row(BLOCKS, []),
    "instance store RAID0": row("instanceStorePolicy", "RAID0"),
    "instance store RAID1": row("instanceStorePolicy", "RAID1", "spec.instanceStorePolicy"),
    # --- network
    "interfaces: none": row("networkInterfaces", []),
    "interfaces: the primary one": row("networkInterfaces", [interface(0, 0)]),
    "interfaces: with efa-only on two cards": row(
        "networkInterfaces", [interface(0, 0), interface(0, 1, "efa-only"), interface(1, 1, "efa-only")]
    ),
    "interfaces: without a primary one": row("networkInterfaces", [interface(0, 1)], "primary interface"),
    "interfaces: the primary one is efa-only": row("networkInterfaces", [interface(0, 0, "efa-only")], "primary"),
    "interfaces: two in one place": row(
        "networkInterfaces", [interface(0, 0), interface(0, 1), interface(0, 1)], "same networkCardIndex"
    ),
    "interfaces: two efa-only on one card": row(
        "networkInterfaces",
        [interface(0, 0), interface(1, 0, "efa-only"), interface(1, 1, "efa-only")],
        "at most one interface of type 'efa-only'",
    ),
    "interfaces: of type efa": row("networkInterfaces", [interface(0, 0, "efa")], "networkInterfaces[0].interfaceType"),
    "interfaces: a negative card": row(
        "networkInterfaces", [interface(0, 0), interface(-1, 0)], "networkInterfaces[1].networkCardIndex"
    ),
    "interfaces: a negative place": row(
        "networkInterfaces", [interface(0, 0), interface(0, -1)], "networkInterfaces[1].deviceIndex"
    ),
    **{
        f"interfaces: {name} is required": row(
            "networkInterfaces",
            [interface(0, 0), {key: value for key, value in interface(0, 1).items() if key != name}],
            f"networkInterfaces[1].{name}",
            "Required",
        )
        for name in interface(0, 1)
    },
    "interfaces: 150": row("networkInterfaces", [interface(i, 0) for i in range(150)]),
    "interfaces: 151": row("networkInterfaces", [interface(i, 0) for i in range(151)], "spec.networkInterfaces", "150"),
    "a public address": row("associatePublicIPAddress", True),
    "no public address": row("associatePublicIPAddress", False),
    "prefixes: none": row("ipPrefixCount", 0),
    "prefixes: fewer than none": row("ipPrefixCount", -1, "spec.ipPrefixCount"),
    # --- the rest
    "metadata: hop limit 64": row("metadataOptions", {"httpPutResponseHopLimit": 64}),
    "metadata: hop limit 65": row("metadataOptions", {"httpPutResponseHopLimit": 65}, "httpPutResponseHopLimit"),
    "metadata: hop limit 0": row("metadataOptions", {"httpPutResponseHopLimit": 0}, "httpPutResponseHopLimit"),
    "metadata: tokens optional": row("metadataOptions", {"httpTokens": "optional"}),
    "metadata: tokens forbidden": row("metadataOptions", {"httpTokens": "forbidden"}, "metadataOptions.httpTokens"),
    "metadata: endpoint off": row("metadataOptions", {"httpEndpoint": "off"}, "metadataOptions.httpEndpoint"),
    "metadata: IPv6 on": row("metadataOptions", {"httpProtocolIPv6": "on"}, "metadataOptions.httpProtocolIPv6"),
    "metadata: endpoint disabled, IPv6 enabled": row(
        "metadataOptions", {"httpEndpoint": "disabled", "httpProtocolIPv6": "enabled"}
    ),
    "tracking: nothing": row("connectionTracking", {}, "spec.connectionTracking", "at least one"),
    **{
        f"tracking: {name} of {value}": row("connectionTracking", {name: value}, *words)
        for name, low, high in (
            ("tcpEstablishedTimeout", 60, 432000),
            ("udpStreamTimeout", 60, 180),
            ("udpTimeout", 30, 60),
        )
        for value, words in (
            (low - 1, (f"connectionTracking.{name}",)),
            (low, ()),
            (high, ()),
            (high + 1, (f"connectionTracking.{name}",)),
        )
    },
    "enclaves enabled": row("enclaveOptions", {"enabled": True}),
    "enclaves disabled": row("enclaveOptions", {"enabled": False}),
    "enclaves without a word": row("enclaveOptions", {}, "enclaveOptions.enabled"),
    "enclaves on": row("enclaveOptions", {"enabled": "on"}, "enclaveOptions.enabled"),
    "nested virtualization enabled": row("cpuOptions", {"nestedVirtualization": "enabled"}),
    "nested virtualization on": row("cpuOptions", {"nestedVirtualization": "on"}, "cpuOptions.nestedVirtualization"),
    "user data, context and monitoring": rows({"userData": "#!/bin/sh\n", "context": "c", "detailedMonitoring": True}),
}


@pytest.fixture(scope="module")
def client(plane: DevCluster) -> Client:
    """Of a cluster that has the definitions."""
    return with_definitions(plane)


@pytest.mark.parametrize("name", ROWS)
def test_a_rule(client: Client, name: str) -> None:
    changes, words = ROWS[name]
    body = changed(BASE, changes)
    if not words:
        send(client, "POST", CLASSES, body)
        return
    with pytest.raises(ApiError) as refused:
        send(client, "POST", CLASSES, body)
    for word in words:
        assert word in refused.value.message


@pytest.fixture
def kept(client: Client) -> Iterator[Body]:
    """A class that is really there."""
    created = send(
        client,
        "POST",
        CLASSES,
        changed(BASE, {"metadata.generateName": "crd-test-", "metadata.name": GONE}),
        dry=False,
    )
    try:
        yield created
    finally:
        client.raw("DELETE", at(created))


def at(body: Body) -> str:
    return f"{CLASSES}/{body['metadata']['name']}"


METADATA: Final = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 1,
    "httpTokens": "required",
}


def test_metadata_options_are_the_only_default_of_the_spec(client: Client) -> None:
    answer = send(client, "POST", CLASSES, BASE)
    assert answer["spec"] == BASE["spec"] | {"metadataOptions": METADATA}


def test_each_metadata_option_has_its_default(client: Client) -> None:
    answer = send(client, "POST", CLASSES, changed(BASE, {"spec.metadataOptions": {"httpPutResponseHopLimit": 2}}))
    assert answer["spec"]["metadataOptions"] == METADATA | {"httpPutResponseHopLimit": 2}


KUBELET: Final = {"maxPods": "vcpus > 4 && true ? 110 : 58", "z": {"b": 1, "a": [True, None, 0.5]}, "big": 12345678901}


def test_the_kubelet_comes_back_as_it_was_and_so_does_every_hash(client: Client) -> None:
    body = changed(BASE, {"spec.kubelet": KUBELET, "spec.tags": {}, "spec.blockDeviceMappings": []})
    body["spec"]["metadataOptions"] = METADATA
    answer = send(client, "POST", CLASSES, body)
    assert answer["spec"] == body["spec"]
    want = nodeclass_hash(msgspec.convert(body, EC2NodeClass).spec)
    assert nodeclass_hash(msgspec.json.decode(msgspec.json.encode(answer), type=EC2NodeClass).spec) == want


def test_a_class_is_read_as_it_was_written(client: Client, kept: Body) -> None:
    found = client.get(EC2NODECLASSES, kept["metadata"]["name"])
    assert (found.name, found.family, found.spec.role) == (kept["metadata"]["name"], "AL2023", "node-role")
    assert found.spec.subnet_selector_terms[0].tags == TAGS


def test_role_and_images_may_be_changed(client: Client, kept: Body) -> None:
    spec = {"role": "other", "amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}
    answer = send(client, "PATCH", at(kept), {"spec": spec})
    assert spec.items() <= answer["spec"].items()


CONDITION: Final = {
    "type": "Ready",
    "status": "True",
    "lastTransitionTime": "2026-11-21T10:00:00Z",
    "reason": "Ready",
    "message": "",
}
RESERVATION: Final = {
    "availabilityZone": "us-east-1a",
    "id": "cr-1",
    "instanceMatchCriteria": "targeted",
    "instanceType": "m5.large",
    "ownerID": "012345678901",
}
STATUS: Final = {
    "subnets": [{"id": "subnet-1", "zone": "us-east-1a", "zoneID": "use1-az1"}],
    "securityGroups": [{"id": "sg-1", "name": "nodes"}],
    "amis": [
        {
            "id": "ami-1",
            "name": "one",
            "deprecated": True,
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
        }
    ],
    "capacityReservations": [RESERVATION | {"endTime": "2026-12-01T00:00:00Z", "interruptible": True}],
    "instanceProfile": "p",
    "conditions": [CONDITION],
}
STATUSES: Final[dict[str, tuple[Body, str]]] = {
    "every field": (STATUS, ""),
    "a reservation of another type": ({"capacityReservations": [RESERVATION | {"reservationType": "x"}]}, "Type"),
    "a reservation in another state": ({"capacityReservations": [RESERVATION | {"state": "gone"}]}, "[0].state"),
    "a reservation of a short account": ({"capacityReservations": [RESERVATION | {"ownerID": "1"}]}, "[0].ownerID"),
    "a subnet without zone": ({"subnets": [{"id": "subnet-1"}]}, "subnets[0].zone"),
    "an image without requirements": ({"amis": [{"id": "ami-1"}]}, "amis[0].requirements"),
    "a group without id": ({"securityGroups": [{"name": "a"}]}, "securityGroups[0].id"),
    "a condition without reason": (
        {"conditions": [{key: value for key, value in CONDITION.items() if key != "reason"}]},
        "conditions[0].reason",
    ),
}


@pytest.mark.parametrize("name", STATUSES)
def test_a_status(client: Client, kept: Body, name: str) -> None:
    status, words = STATUSES[name]
    url = f"{at(kept)}/status"
    if words:
        with pytest.raises(ApiError) as refused:
            send(client, "PATCH", url, {"status": status})
        assert words in refused.value.message
        return
    answer = send(client, "PATCH", url, {"status": status})["status"]
    (reservation,) = answer.pop("capacityReservations")
    (wanted,) = status["capacityReservations"]
    assert reservation == wanted | {"reservationType": "default", "state": "active"}
    assert answer == {key: value for key, value in status.items() if key != "capacityReservations"}


def test_a_status_of_ours_is_admitted_and_read_back(client: Client, kept: Body) -> None:
    ours = msgspec.convert({"status": STATUS}, EC2NodeClass).status
    answer = send(client, "PATCH", f"{at(kept)}/status", {"status": msgspec.to_builtins(ours)})
    assert msgspec.convert(answer, EC2NodeClass).status == ours


def test_a_status_is_not_written_with_the_object(client: Client, kept: Body) -> None:
    answer = send(client, "PATCH", at(kept), {"status": {"instanceProfile": "p"}})
    assert "status" not in answer


@pytest.mark.parametrize("resource", ["ec2nodeclasses", "ec2nodeclass", "ec2nc", "ec2ncs"])
def test_its_names_and_columns(plane: DevCluster, client: Client, kept: Body, resource: str) -> None:
    url = f"{at(kept)}/status"
    send(client, "PATCH", url, {"status": {"conditions": [CONDITION]}}, dry=False)
    lines = plane.kubectl("get", resource, kept["metadata"]["name"]).splitlines()
    assert lines[0].split() == ["NAME", "READY", "AGE"]
    wide = plane.kubectl("get", resource, kept["metadata"]["name"], "-o", "wide").splitlines()
    assert wide[0].split() == ["NAME", "READY", "AGE", "ROLE"]
    assert (wide[1].split()[1], wide[1].split()[3]) == ("True", "node-role")


@pytest.mark.usefixtures("client")
def test_the_example_is_admitted(plane: DevCluster) -> None:
    answer = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(EXAMPLE), "-o", "json")
    kinds = [one["kind"] for one in msgspec.json.decode(answer)["items"]]
    assert kinds == ["EC2NodeClass", "EC2NodeClass", "NodePool", "NodePool"]


def test_it_is_in_the_category(plane: DevCluster, kept: Body, tmp_path: pathlib.Path) -> None:
    # kubectl remembers the categories of a server for hours, also those of a time before the CRDs
    listed = plane.kubectl("get", "karpenter", "-o", "name", "--cache-dir", str(tmp_path))
    assert kept["metadata"]["name"] in listed
