from pathlib import Path

import botocore.session
import pytest

from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import ObjectMeta
from provisioner.ec2 import labels
from provisioner.ec2.cloud import AwsCloud, is_in_zone, region_of
from provisioner.ec2.controllers import classes_concerned
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.options import Options
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import Change, NodeClaimChanged, NodeClassChanged, NodePoolChanged
from tests.support.clock import FakeClock
from tests.support.cluster import claim, pool
from tests.unit.kube.test_sending import kubeconfig

CLASS = EC2NodeClass(metadata=ObjectMeta(name="blue"))
POOL = pool("general")
CLAIM = claim("one")


def generation(of: NodePool, number: int) -> NodePool:
    return NodePool(metadata=ObjectMeta(name=of.name, generation=number), spec=of.spec)


CONCERNED: dict[str, tuple[Change, tuple[str, ...]]] = {
    "a class that is new": (NodeClassChanged(None, CLASS), ("blue",)),
    "a class that changed": (NodeClassChanged(CLASS, CLASS), ("blue",)),
    "a class that is gone": (NodeClassChanged(CLASS, None), ()),
    "a pool that is new": (NodePoolChanged(None, POOL), ("default",)),
    "a pool that is gone": (NodePoolChanged(POOL, None), ("default",)),
    "a pool that changed": (NodePoolChanged(generation(POOL, 1), generation(POOL, 2)), ("default",)),
    "a pool whose status changed": (NodePoolChanged(generation(POOL, 1), generation(POOL, 1)), ()),
    "a claim that is new": (NodeClaimChanged(None, CLAIM), ()),
    "a claim that is gone": (NodeClaimChanged(CLAIM, None), ("default",)),
}


@pytest.mark.parametrize(("change", "want"), CONCERNED.values(), ids=CONCERNED)
def test_classes_that_an_event_concerns(change: Change, want: tuple[str, ...]) -> None:
    assert classes_concerned(change) == want


def test_a_claim_in_a_zone_that_is_shifted_away_from_is_uncertain() -> None:
    one = claim("a", labels={labels.ZONE_ID: "use1-az1"})
    assert is_in_zone(one, frozenset({"use1-az1"}))
    assert not is_in_zone(one, frozenset({"use1-az2"}))


def test_a_region_that_is_named_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    clock, api = FakeClock(), connect(kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9"))
    found = []
    for flags in (["--aws-region=eu-west-3"], []):
        options = Options.parse(["--provider=aws", "--cluster-name=c", *flags], {})
        cloud = AwsCloud(options, api, Client(api, clock), Caches(api, options, clock), clock)
        found.append((cloud.settings.region, cloud.aws.client("ec2").meta.region_name))
        cloud.aws.close()
    api.close()
    assert found == [("eu-west-3", "eu-west-3"), ("us-east-1", "us-east-1")]


def test_the_region_is_that_of_every_sdk() -> None:
    session = botocore.session.Session()
    session.set_config_variable("region", "eu-west-1")
    assert region_of(session) == "eu-west-1"
