"""How AWS writes requests and answers: EC2's form and XML, the query services' XML, JSON.

EC2 refuses members that it does not know: UnknownParameter. Source: https://docs.aws.amazon.com/ec2/latest/devguide/errors-overview.html
"""

import functools
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import botocore.session

REQUEST_ID: Final = "5d1b2c3a-0000-4000-8000-2026112100e5"
_EC2_NAMESPACE: Final = "http://ec2.amazonaws.com/doc/2016-11-15/"

_OF_QUERY_PROTOCOL: Final = {
    name: f"AWS.SimpleQueueService.{code}"
    for name, code in {
        "QueueDoesNotExist": "NonExistentQueue",
        "EmptyBatchRequest": "EmptyBatchRequest",
        "TooManyEntriesInBatchRequest": "TooManyEntriesInBatchRequest",
    }.items()
}
"""What SQS called its errors before it spoke JSON, and still does in a header that SDKs read. Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-json-faqs.html"""

Writer = Callable[[str, Any, list[str]], None]


class AwsError(Exception):
    """An error of a service, as it is told to the caller."""

    def __init__(self, code: str, message: str = "", status: int = 400) -> None:
        super().__init__(code, message, status)
        self.code, self.message, self.status = code, message, status

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@functools.cache
def model(service: str) -> Any:
    """botocore's model of a service."""
    return botocore.session.get_session().get_service_model(service)


@functools.cache
def operations(service: str) -> frozenset[str]:
    """Every action that the service knows."""
    return frozenset(model(service).operation_names)


def form_of(body: bytes) -> dict[str, str]:
    """A request of the query and EC2 protocols as it came."""
    return dict(parse_qsl(body.decode(), keep_blank_values=True))


def parse_form(service: str, action: str, form: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of a request in boto3's words; of other services than EC2 unknown members are left out.

    Raises:
        AwsError: EC2 knows no such member, or one is no number.
    """
    tree: dict[str, Any] = {}
    for path, value in form.items():
        node = tree
        parts = path.split(".")
        for part in parts[:-1]:
            inner = node.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = node[part] = {}
            node = inner
        node[parts[-1]] = value
    shape = model(service).operation_model(action).input_shape
    for name in _OF_EVERY_CALL:
        tree.pop(name, None)
    parsed: dict[str, Any] = {} if shape is None else _parsed(tree, shape, ec2=service == "ec2")
    return parsed


_OF_EVERY_CALL: Final = ("Action", "Version")


def _parsed(node: Any, shape: Any, *, ec2: bool, path: str = "") -> Any:
    kind = shape.type_name
    if kind == "structure":
        found = {}
        left = dict.fromkeys(node) if isinstance(node, dict) else {}
        for name, member in shape.members.items():
            key = _form_name(name, member) if ec2 else member.serialization.get("name", name)
            if isinstance(node, dict) and key in node:
                left.pop(key)
                found[name] = _parsed(node[key], member, ec2=ec2, path=f"{path}{key}.")
        if left and ec2:
            raise AwsError("UnknownParameter", f"The parameter {path}{next(iter(left))} is not recognized")
        return found
    if kind == "list":
        if not isinstance(node, dict):
            return []
        if not ec2 and "member" in node:
            node = node["member"]
        return [_parsed(node[key], shape.member, ec2=ec2, path=f"{path}{key}.") for key in sorted(node, key=_position)]
    if kind in {"integer", "long"}:
        return _number(int, node)
    if kind in {"float", "double"}:
        return _number(float, node)
    if kind == "boolean":
        return node == "true"
    return node


def _position(key: str) -> int:
    """Of a list's member in a form.

    Raises:
        AwsError: it is none.
    """
    if not key.isdigit():
        raise AwsError("UnknownParameter", f"The parameter {key} is not recognized")
    return int(key)


def _number(kind: Callable[[str], Any], text: str) -> Any:
    try:
        return kind(text)
    except (TypeError, ValueError):
        raise AwsError("InvalidParameterValue", f"Value ({text}) is not a number") from None


def _form_name(name: str, shape: Any) -> str:
    given = shape.serialization
    if "queryName" in given:
        return str(given["queryName"])
    wire = str(given.get("name", name))
    return wire[:1].upper() + wire[1:]


def ec2_answer(action: str, answer: Mapping[str, Any]) -> bytes:
    """An answer of EC2: `answer` in boto3's words; lists may hold ready XML (bytes) of single items."""
    shape = model("ec2").operation_model(action).output_shape
    parts: list[str] = []
    if shape is not None:
        for name, value in answer.items():
            member = shape.members[name]
            _writer(member)(str(member.serialization.get("name", name)), value, parts)
    if "Return" not in answer and (shape is None or "Return" in shape.members):
        parts.append("<return>true</return>")
    return ec2_page(action, "".join(parts))


def ec2_page(action: str, inside: str) -> bytes:
    """The document of an answer of EC2 around its members."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="{_EC2_NAMESPACE}">'
        f"<requestId>{REQUEST_ID}</requestId>{inside}</{action}Response>"
    ).encode()


def ec2_item(action: str, member: str, value: Any) -> str:
    """One entry of a list of an answer as XML, so that it may be kept and put into many pages."""
    shape = model("ec2").operation_model(action).output_shape.members[member].member
    parts: list[str] = []
    _writer(shape)("item", value, parts)
    return "".join(parts)


def query_answer(service: str, action: str, answer: Mapping[str, Any]) -> bytes:
    """An answer of the query protocol: IAM, STS."""
    described = model(service)
    shape = described.operation_model(action).output_shape
    parts: list[str] = []
    for name, value in answer.items():
        _query(str(shape.members[name].serialization.get("name", name)), shape.members[name], value, parts)
    return (
        f'<{action}Response xmlns="{described.metadata.get("xmlNamespace", "")}"><{action}Result>{"".join(parts)}'
        f"</{action}Result><ResponseMetadata><RequestId>{REQUEST_ID}</RequestId></ResponseMetadata></{action}Response>"
    ).encode()


def _query(tag: str, shape: Any, value: Any, parts: list[str]) -> None:
    parts.append(f"<{tag}>")
    if shape.type_name == "structure":
        for name, inner in value.items():
            _query(str(shape.members[name].serialization.get("name", name)), shape.members[name], inner, parts)
    elif shape.type_name == "list":
        for inner in value:
            _query("member", shape.member, inner, parts)
    else:
        parts.append(_text(value))
    parts.append(f"</{tag}>")


def error_answer(service: str, error: AwsError) -> tuple[bytes, dict[str, str]]:
    """The body and headers of an error."""
    code, message = escape(error.code), escape(error.message)
    if service == "ec2":
        body = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
            f"<RequestID>{REQUEST_ID}</RequestID></Response>"
        )
        return body.encode(), {"Content-Type": "text/xml;charset=UTF-8"}
    if service in {"iam", "sts"}:
        body = (
            f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
            f"<RequestId>{REQUEST_ID}</RequestId></ErrorResponse>"
        )
        return body.encode(), {"Content-Type": "text/xml"}
    told = {"__type": error.code, "message": error.message, "Message": error.message}
    headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-ErrorType": error.code}
    if service == "sqs":
        headers["x-amzn-query-error"] = f"{_OF_QUERY_PROTOCOL.get(error.code, error.code)};Sender"
    return json.dumps(told).encode(), headers


def _text(value: Any) -> str:
    if isinstance(value, str):
        return escape(value) if "&" in value or "<" in value or ">" in value else value
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, datetime):
        return stamp(value)
    return escape(str(value))


def stamp(when: datetime) -> str:
    """A time as AWS writes it, in UTC."""
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"


_WRITERS: Final[dict[int, Writer]] = {}
_KEPT: Final[list[Any]] = []


def _writer(shape: Any) -> Writer:
    """A function that writes a value of this shape; made once per shape, because botocore's shapes are slow to walk."""
    known = _WRITERS.get(id(shape))
    if known is None:
        known = _WRITERS[id(shape)] = _make_writer(shape)
        _KEPT.append(shape)  # so that no other shape ever gets its id
    return known


def _make_writer(shape: Any) -> Writer:
    kind = shape.type_name
    if kind == "structure":
        shapes = shape.members
        members: dict[str, tuple[str, Writer]] = {}

        def structure(tag: str, value: Any, parts: list[str]) -> None:
            parts.append(f"<{tag}>")
            for name, inner in value.items():
                if inner is None:
                    continue
                known = members.get(name)
                if known is None:
                    member = shapes[name]  # what EC2 has no such member for is an error of the emulator's
                    known = members[name] = str(member.serialization.get("name", name)), _writer(member)
                known[1](known[0], inner, parts)
            parts.append(f"</{tag}>")

        return structure
    if kind == "list":
        member = shape.member
        entry = str(member.serialization.get("name", "member"))
        write: Writer | None = None

        def listed(tag: str, value: Any, parts: list[str]) -> None:
            nonlocal write
            parts.append(f"<{tag}>")
            for inner in value:
                if isinstance(inner, bytes):
                    parts.append(inner.decode())
                else:
                    write = write or _writer(member)
                    write(entry, inner, parts)
            parts.append(f"</{tag}>")

        return listed

    def scalar(tag: str, value: Any, parts: list[str]) -> None:
        parts.append(f"<{tag}>{_text(value)}</{tag}>")

    return scalar
