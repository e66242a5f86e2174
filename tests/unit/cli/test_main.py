"""The command line: lazily imported commands, errors as one line."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from provisioner.cli.main import COMMANDS, LazyGroup, dovetail


def test_the_help_lists_every_command_without_importing_one() -> None:
    result = CliRunner().invoke(dovetail, ["--help"])
    assert result.exit_code == 0
    for name, (_, text) in COMMANDS.items():
        assert f"  {name}" in result.output
        assert text in result.output


def test_a_command_is_imported_when_it_is_asked_for() -> None:
    group = LazyGroup()
    context = click.Context(group)
    command = group.get_command(context, "dev")
    assert isinstance(command, click.Group)
    assert group.get_command(context, "nothing") is None


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(dovetail, ["nothing"])
    assert result.exit_code == 2
    assert "No such command 'nothing'" in result.output


def test_starting_the_command_loads_nothing_heavy() -> None:
    code = (
        "import sys, provisioner.cli.main;"
        "print([m for m in ('kubernetes','boto3','numpy','flask','cryptography','rich') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["dev", "up", "--name", "A b"], "'A b' is no cluster name. Use at most", id="a bad name"),
        pytest.param(["dev", "status"], "there is no cluster default. Start it with", id="no such cluster"),
        pytest.param(["dev", "logs", "etcd"], "there is no cluster default. Start it with", id="no logs"),
        pytest.param(
            ["dev", "build", "--download", "--base-url", "http://example.com"],
            "is neither https nor on this machine. Give one like",
            id="an unsafe mirror",
        ),
    ],
)
def test_what_a_user_can_cure_is_one_line_and_exit_status_1(
    arguments: list[str], says: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = str(tmp_path_factory.mktemp("home"))
    result = subprocess.run(
        [sys.executable, "-m", "provisioner.cli.main", *arguments],
        env={"HOME": home, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("dovetail: ")
    assert says in line
