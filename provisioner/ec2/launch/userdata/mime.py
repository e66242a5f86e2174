"""Multipart user data, as cloud-init reads it. Pure; parts are copied byte by byte, but for carriage returns."""

from collections.abc import Iterable
from dataclasses import dataclass
from email.errors import HeaderParseError
from email.message import Message
from email.parser import HeaderParser
from typing import Final

from provisioner.ec2.launch.userdata.inputs import UserDataError
from provisioner.values.message import Said

SHELL_SCRIPT: Final = 'text/x-shellscript; charset="us-ascii"'
NODE_CONFIG: Final = "application/node.eks.aws"
BOUNDARY: Final = "//"
_OPENINGS: Final = ("MIME-Version:", "Content-Type:")
_LONGEST_HEADER: Final = 4096


@dataclass(frozen=True, slots=True)
class MimePart:
    """One part: its headers in their order, and its text without the newline before the next delimiter."""

    headers: tuple[tuple[str, str], ...]
    text: str

    @classmethod
    def of(cls, content_type: str, text: str) -> "MimePart":
        """A part with nothing but a type."""
        return cls((("Content-Type", content_type),), text)

    @property
    def media_type(self) -> str:
        """Its type without parameters, in lower case; text/plain when it has none."""
        return _message(self.headers).get_content_type()


def is_mime(text: str) -> bool:
    """Whether user data is multipart; anything else is of the family's own form."""
    return text.strip().startswith(_OPENINGS)


def read(text: str) -> tuple[MimePart, ...]:
    """The parts of multipart user data.

    Raises:
        UserDataError: there is no content type, it is not multipart, or the parts have no end.
    """
    return tuple(MimePart(*_split(part)) for part in _between(*_opened(text))[0])


def rest(text: str) -> str:
    """What comes behind the end of the parts, which nobody reads; raises as `read`."""
    return _between(*_opened(text))[1]


def write(parts: Iterable[MimePart]) -> str:
    """One multipart document of `parts`, in their order."""
    found = tuple(parts)
    boundary = _boundary(found)
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{boundary}"', ""]
    for part in found:
        lines += [f"--{boundary}", *(f"{name}: {value}" for name, value in part.headers), "", part.text]
    return "\n".join([*lines, f"--{boundary}--", ""]).replace("\r", "")


def _boundary(parts: tuple[MimePart, ...]) -> str:
    """The usual one, unless a line of a part would end the part early."""
    boundary = BOUNDARY
    lines = {line.rstrip() for part in parts for line in part.text.splitlines()}
    while {f"--{boundary}", f"--{boundary}--"} & lines:
        boundary += "/"
    return boundary


def _message(headers: Iterable[tuple[str, str]]) -> Message:
    message = Message()
    for name, value in headers:
        message[name] = value
    return message


def _mime_headers_unreadable(error: object) -> str:
    return Said(f"the headers of the MIME document cannot be read: {error}")


def _split(text: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """Headers and what comes behind the blank line."""
    if text.startswith("\n"):
        return (), text[1:]
    head, _, body = text.partition("\n\n")
    try:
        message = HeaderParser().parsestr(head)
    except HeaderParseError as error:
        raise UserDataError(_mime_headers_unreadable(error)) from None
    headers = tuple((name, str(value)) for name, value in message.items())
    if any(len(value) > _LONGEST_HEADER for _, value in headers):  # parameters are read in quadratic time
        raise UserDataError(_mime_headers_unreadable(Said(f"a header is longer than {_LONGEST_HEADER} characters")))
    return headers, body


def _opened(text: str) -> tuple[str, str]:
    """Body and boundary."""
    head, body = _split(text.replace("\r", "").strip() + "\n")
    if "content-type" not in (name.lower() for name, _ in head):
        raise UserDataError("the MIME document has no Content-Type")
    message = _message(head)
    if message.get_content_maintype() != "multipart":
        raise UserDataError(f"the MIME document is {message.get_content_type()}, not multipart")
    try:
        boundary = message.get_boundary()
    except (TypeError, ValueError):  # parts that do not go together, or a text that is not in the charset it names
        raise UserDataError(_mime_headers_unreadable(Said("the boundary parameter is malformed"))) from None
    if not boundary:
        raise UserDataError("the multipart MIME document has no boundary")
    return body, boundary


def _between(body: str, boundary: str) -> tuple[list[str], str]:
    """The texts between delimiters, and what is behind the last."""
    parts: list[str] = []
    part: list[str] | None = None
    lines = body.split("\n")
    for position, line in enumerate(lines):
        mark = line.rstrip()
        if mark in (f"--{boundary}", f"--{boundary}--"):
            if part is not None:
                parts.append("\n".join(part))
            if mark != f"--{boundary}":
                return parts, "\n".join(lines[position + 1 :])
            part = []
        elif part is not None:
            part.append(line)
    raise UserDataError(f"the multipart MIME document does not end with --{boundary}--")
