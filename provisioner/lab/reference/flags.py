"""Flags and environment variables of the three programs."""

import click

from extender.server import command as extender
from provisioner.lab.reference.markdown import code, page, table
from provisioner.options import command as provisioner
from webhook.server import command as webhook

_COLUMNS = ("flag", "environment variable", "default", "meaning")


def text() -> str:
    """docs/reference/flags.md."""
    return page(
        "Flags and environment variables",
        "A flag takes precedence over its environment variable, which takes precedence over the default.\n",
        "## dovetail provisioner\n",
        _of(provisioner()),
        "These are accepted too, but have no effect, or go with the next release; a warning in the log says so.\n",
        _of(provisioner(), hidden=True),
        "## dovetail webhook\n",
        _of(webhook),
        "## dovetail extender\n",
        _of(extender),
    )


def _of(command: click.Command, *, hidden: bool = False) -> str:
    rows = []
    for option in command.params:
        if isinstance(option, click.Option) and option.hidden is hidden:
            shown = option.show_default if isinstance(option.show_default, str) else option.to_info_dict()["default"]
            default = "" if shown in (None, "") else str(shown).lower() if option.is_flag else str(shown)
            variable = option.envvar if isinstance(option.envvar, str) else ""
            rows.append((code(option.opts[0]), code(variable), code(default), option.help or _choices(option)))
    return table(_COLUMNS, rows)


def _choices(option: click.Option) -> str:
    return ", ".join(option.type.choices) if isinstance(option.type, click.Choice) else ""
