"""Structured logs on the standard library: a sentence and key=value fields, as text or as JSON lines.

    log = get_logger(__name__)
    log.info("launched", nodeclaim="general-x7k2p", usd_per_hour=0.34)

Fields may also be given as `extra={...}`, under any name. A field whose name says that it is a secret is
never written, and neither is a bearer token or a private key inside a message.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

Format = Literal["text", "json"]

FORMATS: tuple[Format, ...] = ("json", "text")
LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
REDACTED = "[redacted]"

_ROOT = "dovetail"
_LOGGING_ARGUMENTS = frozenset({"exc_info", "stack_info", "stacklevel", "extra"})
_SECRET_NAME = re.compile(
    r"token|passwd|password|secret_?(key|data|value|access_?key)|^secret$|authorization|private_?key|credential|user_?data(?!_?(bytes|size))",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    r"(?i:bearer)\s+[A-Za-z0-9._~+/=-]{8,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # key ids of AWS
    r"|(?i:x-amz-(?:security-token|signature|credential))[\"']?\s*[=:]\s*[\"']?[^\s&\"',]+"
    r"|(?i:secret_?access_?key|session_?token)[\"']?\s*[=:]\s*[\"']?[^\s&\"',]+"
    r"|(?i:user_?data)[\"']?\s*[=:]\s*[\"']?[A-Za-z0-9+/=%]{16,}|<(?i:user_?data)>.*?(?:</(?i:user_?data)>|$)",
    re.DOTALL,
)
_PLAIN_TEXT = re.compile(r"[^\s\"=]+")
_UNUSUAL = re.compile(r"[^\n\x20-\x7e]")


class Log(logging.LoggerAdapter[logging.Logger]):
    """A standard logger whose methods take fields as keywords: `log.info("bound", pod=key, node=name)`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Fold every keyword that logging does not know into one mapping, so that no name can collide."""
        fields: dict[str, Any] = dict(self.extra or {})
        fields.update(kwargs.pop("extra", None) or {})
        for name in [name for name in kwargs if name not in _LOGGING_ARGUMENTS]:
            fields[name] = kwargs.pop(name)
        kwargs["extra"] = {"fields": fields}
        return msg, kwargs

    def bind(self, **fields: object) -> "Log":
        """The same logger with fields that every later record carries."""
        return Log(self.logger, {**(self.extra or {}), **fields})


def get_logger(module: str) -> Log:
    """The logger of the room that a module is in, whose name does not change when the room is cut anew; pass `__name__`.

    Cheap, may be called before `configure`.
    """
    return Log(logging.getLogger(f"{_ROOT}.{module.removeprefix('provisioner.').partition('.')[0]}"), {})


def configure(
    level: str = "info",
    format: Format = "text",  # noqa: A002 - as the flag is called
    stream: TextIO | None = None,
    paths: Sequence[str] = ("stderr",),
) -> None:
    """Set up this process's logs; call once at the start, calling again replaces the former set-up.

    Args:
        level: debug, info, warning or error; "" is info.
        format: "text" (logfmt) or "json" (one object a line).
        stream: where to; None is `paths`.
        paths: where to: stdout, stderr, or files, which are appended to.

    Raises:
        ValueError: for another level or format.
        OSError: a file cannot be opened.
    """
    if (level or "info") not in LEVELS:
        raise ValueError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    if format not in FORMATS:
        raise ValueError(f"log format {format!r} is not one of text, json")
    handlers: list[logging.Handler]
    handlers = [logging.StreamHandler(stream)] if stream is not None else [_handler(path) for path in paths]
    failures = [_handler("stderr")]  # which say that a record could not be written, as on a full disk
    root = logging.getLogger()
    for former in [handler for handler in root.handlers if getattr(handler, "_dovetail", False)]:
        root.removeHandler(former)
        for each in (former, *getattr(former, "_failures", ())):
            each.close()
    for handler in handlers:
        handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
        handler._dovetail, handler._failures = True, failures  # type: ignore[attr-defined]  # noqa: SLF001 - how our own handlers are known
        handler.handleError = _told_by(failures)  # type: ignore[method-assign,assignment]
        root.addHandler(handler)
    root.setLevel(logging.WARNING)  # what libraries say
    logging.getLogger(_ROOT).setLevel(LEVELS[level or "info"])


class TextFormatter(logging.Formatter):
    """`2026-11-21T10:00:00.123Z INFO kube: synced resource=pods objects=1000`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_as_text(value)}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {_name(record)}: {redact(record.getMessage())}{fields}"
        # what others wrote may be in it, and somebody reads it in a terminal; the lines of a trace stay
        return _UNUSUAL.sub(_escaped, line + _trace(self, record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": _name(record),
            "message": redact(record.getMessage()),
        }
        for name, value in _fields(record).items():
            entry[f"field_{name}" if name in entry else name] = value
        trace = _trace(self, record)
        if trace:
            entry["trace"] = trace.lstrip("\n")
        return _UNUSUAL.sub(_escaped, json.dumps(entry, default=lambda value: redact(str(value)), ensure_ascii=False))


def _handler(path: str) -> logging.Handler:
    match path:
        case "stdout":
            return logging.StreamHandler(sys.stdout)
        case "stderr":
            return logging.StreamHandler(sys.stderr)
        case _:
            return logging.FileHandler(path, encoding="utf-8")


def _told_by(failures: Sequence[logging.Handler]) -> Callable[[logging.LogRecord], None]:
    """What a handler does that cannot write a record: one line of the failure to every one of `failures`."""
    for handler in failures:
        handler.handleError = lambda _: None  # type: ignore[method-assign,assignment]  # nobody is left to tell

    def tell(record: logging.LogRecord) -> None:
        text = f"cannot write a log record of {_name(record)}: {sys.exc_info()[1]!r}"
        for handler in failures:
            handler.handle(logging.LogRecord(_ROOT, logging.ERROR, record.pathname, record.lineno, text, None, None))

    return tell


def redact(text: str) -> str:
    """`text` without bearer tokens and private keys."""
    return _SECRET_TEXT.sub(REDACTED, text)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return {
        name: REDACTED if _SECRET_NAME.search(name) else redact(value) if isinstance(value, str) else value
        for name, value in fields.items()
    }


def _as_text(value: object) -> str:
    text = redact(str(value))
    return text if text.isprintable() and _PLAIN_TEXT.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _escaped(unusual: re.Match[str]) -> str:
    """A character as it is, or, where it may steer a terminal or the order of the text, as JSON writes it."""
    return unusual[0] if unusual[0].isprintable() else json.dumps(unusual[0])[1:-1]


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{record.msecs:03.0f}Z"


def _name(record: logging.LogRecord) -> str:
    return record.name.removeprefix(f"{_ROOT}.")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    return "\n" + redact(formatter.formatException(record.exc_info))
