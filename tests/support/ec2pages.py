"""EC2's XML pages, written from botocore's own model, so that the readers in `ec2.access.wire` see what comes over HTTP."""

import functools
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any
from xml.sax.saxutils import escape

import botocore.session

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


def described_types() -> dict[str, dict[str, Any]]:
    """What DescribeInstanceTypes tells of every type; moto's copy of the real answers, as data."""
    types: dict[str, dict[str, Any]] = _moto("instance_types.json.gz")
    return types


def offered_zones(region: str) -> list[dict[str, str]]:
    """Rows of DescribeInstanceTypeOfferings by availability zone; moto's copy of the real answers."""
    rows: list[dict[str, str]] = _moto("instance_type_offerings", "availability-zone", f"{region}.json.gz")
    return rows


def page(operation: str, answer: Mapping[str, Any]) -> bytes:
    """`answer`, in boto3's words, as the XML that EC2 sends."""
    shape = _model().operation_model(operation).output_shape
    body = "".join(_xml(shape.members[name], _tag(shape.members[name], name), answer[name]) for name in answer)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{operation}Response xmlns="{NAMESPACE}"><requestId>x</requestId>{body}</{operation}Response>'.encode()


def type_pages(types: Iterable[Mapping[str, Any]], size: int = 100) -> list[bytes]:
    """DescribeInstanceTypes in pages of `size`, each but the last with the token of the next."""
    return _paged("DescribeInstanceTypes", "InstanceTypes", list(types), size)


def offering_pages(rows: Sequence[Mapping[str, Any]], size: int = 1000) -> list[bytes]:
    """DescribeInstanceTypeOfferings in pages of `size`."""
    return _paged("DescribeInstanceTypeOfferings", "InstanceTypeOfferings", list(rows), size)


def _paged(operation: str, member: str, rows: list[Mapping[str, Any]], size: int) -> list[bytes]:
    pages = []
    for start in range(0, len(rows), size):
        token = {"NextToken": str(start + size)} if start + size < len(rows) else {}
        pages.append(page(operation, {member: rows[start : start + size], **token}))
    return pages


def _xml(shape: Any, tag: str, value: Any) -> str:
    if value is None:
        return ""
    if shape.type_name == "structure":
        inner = "".join(
            _xml(shape.members[name], _tag(shape.members[name], name), value[name])
            for name in value
            if name in shape.members
        )
    elif shape.type_name == "list":
        inner = "".join(_xml(shape.member, _tag(shape.member, "member"), item) for item in value)
    elif shape.type_name == "boolean":
        inner = "true" if value else "false"
    else:
        inner = escape(str(value))
    return f"<{tag}>{inner}</{tag}>"


def _tag(shape: Any, name: str) -> str:
    return str(shape.serialization.get("name", name))


@functools.cache
def _model() -> Any:
    return botocore.session.get_session().get_service_model("ec2")


@functools.cache
def _moto(*path: str) -> Any:
    packed = resources.files("moto").joinpath("ec2", "resources", *path).read_bytes()
    return json.loads(gzip.decompress(packed))
