import io
import json
import logging
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.support import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield io.StringIO()
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if getattr(handler, "_dovetail", False)]:
        root.removeHandler(handler)
    logging.getLogger("dovetail").setLevel(logging.NOTSET)


def test_a_text_line_has_a_sentence_and_its_fields(stream: io.StringIO) -> None:
    logs.configure("info", "text", stream)
    logs.get_logger("provisioner.kube.watch").info("listed", resource="pods", objects=3, note="two words")
    line = stream.getvalue()
    assert line.endswith(' INFO kube: listed resource=pods objects=3 note="two words"\n')


def test_a_json_line_is_one_object_even_with_a_trace(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logs.get_logger("x").exception("failed", pod="ns/p", message="a field of the same name")
    entry = json.loads(stream.getvalue())
    assert (entry["level"], entry["logger"], entry["message"], entry["pod"]) == ("error", "x", "failed", "ns/p")
    assert entry["field_message"] == "a field of the same name"
    assert "RuntimeError: broken" in entry["trace"]


def test_fields_may_have_names_that_logging_uses_itself(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    logs.get_logger("x").info("hello", name="n", args=1, extra={"module": "m", "filename": "f"})
    entry = json.loads(stream.getvalue())
    assert (entry["name"], entry["args"], entry["module"], entry["filename"]) == ("n", 1, "m", "f")


def test_bound_fields_are_on_every_line(stream: io.StringIO) -> None:
    logs.configure("info", "text", stream)
    log = logs.get_logger("x").bind(claim="c")
    log.info("one")
    log.warning("two", node="n")
    assert [line.split(" ", 2)[2] for line in stream.getvalue().splitlines()] == [
        "x: one claim=c",
        "x: two claim=c node=n",
    ]


@pytest.mark.parametrize("format_", ["text", "json"])
def test_secrets_are_not_written(stream: io.StringIO, format_: logs.Format) -> None:
    logs.configure("info", format_, stream)
    log = logs.get_logger("x")
    log.info(
        "header Bearer abcdefgh12345",
        token="t0ps3cret",
        password="t0ps3cret",
        error="Authorization: Bearer abcdefgh12345",
    )
    log.info("-----BEGIN EC PRIVATE KEY-----\nabcdefgh12345\n-----END EC PRIVATE KEY-----")
    try:
        raise RuntimeError("sent Bearer abcdefgh12345")
    except RuntimeError:
        log.exception("failed")
    assert "abcdefgh12345" not in stream.getvalue()
    assert "t0ps3cret" not in stream.getvalue()
    assert stream.getvalue().count(logs.REDACTED) >= 5


def test_the_level_holds_for_us_and_libraries_are_quiet(stream: io.StringIO) -> None:
    logs.configure("debug", "text", stream)
    logs.get_logger("x").debug("ours")
    library = logging.getLogger("a_library")  # those that there are may have levels of their own
    library.info("theirs")
    library.warning("their warning")
    assert [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()] == ["ours", "their warning"]


def test_configuring_again_replaces_the_former(stream: io.StringIO) -> None:
    logs.configure("info", "text", io.StringIO())
    logs.configure("info", "text", stream)
    logs.get_logger("x").info("once")
    assert len(stream.getvalue().splitlines()) == 1


BAD = {
    "a level": ("loud", "text", "log level 'loud' is not one of debug, info, warning, error"),
    "a format": ("info", "xml", "log format 'xml' is not one of text, json"),
}


@pytest.mark.parametrize(("level", "format_", "message"), BAD.values(), ids=BAD)
def test_unknown_settings_are_refused(level: str, format_: logs.Format, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        logs.configure(level, format_)


def test_logs_go_to_every_path_and_failures_to_write_are_told_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    logs.configure("info", "text", paths=(str(first), str(second)))
    try:
        logs.get_logger("x").info("twice")
        assert first.read_text() == second.read_text()
        assert first.read_text().endswith("x: twice\n")
        handler = next(one for one in logging.getLogger().handlers if getattr(one, "_dovetail", False))
        handler.handle(logging.LogRecord("dovetail.x", logging.INFO, "x.py", 1, "%d pods", ("many",), None))
        assert "cannot write a log record of x" in capsys.readouterr().err
    finally:
        logs.configure("info", "text")


def test_a_text_line_cannot_write_to_the_terminal(stream: io.StringIO) -> None:
    logs.configure("info", "text", stream)
    try:
        raise RuntimeError("a\x1b[2J\x9b\u202e")
    except RuntimeError:
        logs.get_logger("x").exception("no", pod="a\x1b[2J", node="a\x9b", zone="größe")
    text = stream.getvalue()
    assert all(line.isprintable() for line in text.split("\n"))
    assert r' x: no pod="a\u001b[2J" node="a\u009b" zone=größe' in text
    assert r"RuntimeError: a\u001b[2J\u009b\u202e" in text


CATEGORIES: dict[str, list[str]] = {}
for _point in range(sys.maxunicode + 1):
    _some = CATEGORIES.setdefault(unicodedata.category(chr(_point)), [])
    if len(_some) < 200:
        _some.append(chr(_point))
BIDI = [chr(point) for point in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]


@pytest.mark.parametrize("format_", ["text", "json"])
@pytest.mark.parametrize("category", [*sorted(CATEGORIES), "bidi"])
def test_no_character_of_any_category_steers_a_terminal(
    stream: io.StringIO, category: str, format_: logs.Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        logging.getLogger(), "handlers", []
    )  # half a character in pytest's own record of the log would end its process
    some = "".join(one for one in (BIDI if category == "bidi" else CATEGORIES[category]) if one != "\n")
    logs.configure(format=format_, stream=stream)
    logs.get_logger("x").info(some, extra={"field": some, f"f{some}": 1})
    line = stream.getvalue().removesuffix("\n")
    assert line.isprintable()
    line.encode()
    if format_ == "json":
        said = json.loads(line)
        assert (said["message"], said["field"], said[f"f{some}"]) == (some, some, 1)
