"""The three programs take the same log levels and formats, and write the same JSON."""

import io
import json
import logging

import click
import pytest

from extender.server import command as extender
from provisioner.options import Options, OptionsError
from provisioner.support import logs
from webhook.server import command as webhook


def choices(command: click.Command, name: str) -> list[str]:
    (option,) = (one for one in command.params if one.name == name)
    assert isinstance(option.type, click.Choice)
    return list(option.type.choices)


@pytest.mark.parametrize("program", [webhook, extender], ids=["webhook", "extender"])
def test_levels_and_formats_are_those_of_the_provisioner(program: click.Command) -> None:
    for level in choices(program, "log_level"):
        assert Options.parse([f"--log-level={level}"], {}).log_level == level
        assert Options.parse([], {"LOG_LEVEL": level}).log_level == level
    for one in choices(program, "log_format"):
        assert Options.parse([f"--log-format={one}"], {}).log_format == one
        assert Options.parse([], {"DOVETAIL_LOG_FORMAT": one}).log_format == one
    variables = {one.name: one.envvar for one in program.params}
    assert (variables["log_level"], variables["log_format"]) == ("LOG_LEVEL", "DOVETAIL_LOG_FORMAT")
    assert (choices(program, "log_level"), choices(program, "log_format")) == (list(logs.LEVELS), list(logs.FORMATS))
    with pytest.raises(OptionsError, match="must be one of debug, info, warning, error"):
        Options.parse(["--log-level=loud"], {})


@pytest.mark.parametrize("name", ["provisioner.operator.main", "webhook.server", "extender.server"])
def test_lines_of_all_three_have_the_same_keys(name: str) -> None:
    stream, level = io.StringIO(), logging.getLogger().level
    try:
        logs.configure("warning", "json", stream)
        logs.get_logger(name).info("Not written")
        logs.get_logger(name).warning("Written", pod="a/b")
    finally:
        logs.configure("info", "text", io.StringIO())
        logging.getLogger().setLevel(level)
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert list(entry) == ["time", "level", "logger", "message", "pod"]
    assert (entry["level"], entry["message"], entry["pod"]) == ("warning", "Written", "a/b")
