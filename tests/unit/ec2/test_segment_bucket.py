"""Segments in a bucket, as S3 keeps them."""

from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from moto import mock_aws

from provisioner.ec2.access.client import AwsClients, CallPolicy
from provisioner.ec2.segment_bucket import BucketFolder
from provisioner.history.keeper import HistoryBounds
from provisioner.history.segments import SegmentHead, SegmentWriter
from provisioner.history.stores import FolderError, StoredSegments
from provisioner.support.clock import SystemClock


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsClients]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        made = AwsClients(CallPolicy("us-east-1"), SystemClock(), botocore.session.Session())
        s3: Any = made.client("s3")
        s3.create_bucket(Bucket="records")
        s3.put_object(Bucket="records", Key="other/file", Body=b"of somebody else")
        yield made
        s3.close()


def segment(began: float) -> bytes:
    return SegmentWriter(SegmentHead(f"{round(began):016x}", "record", began, began, 0), ()).to_bytes()


def test_segments_are_kept_below_a_prefix_and_the_oldest_go(clients: AwsClients) -> None:
    bounds = HistoryBounds(100.0, 1 << 20)
    StoredSegments(BucketFolder(clients, "records", "east/"), bounds).keep(segment(1000.0), 1000.0, 1010.0)
    store = StoredSegments(BucketFolder(clients, "records", "east/"), bounds)
    store.keep(segment(1050.0), 1050.0, 1060.0)
    assert store.since(0.0) == 1000.0
    store.trim(1140.0, 0)
    assert list(BucketFolder(clients, "records", "east/").sizes()) == [
        "0000001050000-0000001060000-000000000000041a.history"
    ]
    assert list(BucketFolder(clients, "records", "other/").sizes()) == ["file"]


def test_a_bucket_that_is_not_there_is_an_error(clients: AwsClients) -> None:
    with pytest.raises(FolderError, match="s3://nowhere/"):
        StoredSegments(BucketFolder(clients, "nowhere", ""), HistoryBounds(100.0, 1 << 20))
