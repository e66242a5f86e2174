"""The command line: lazily imported commands, errors as one line."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from provisioner import __version__
from provisioner.cli.entry import main
from provisioner.cli.main import COMMANDS, LazyGroup, dovetail
from provisioner.lab.devcluster.ports import PORT_NAMES
from provisioner.lab.devcluster.saved import Saved
from provisioner.values.errors import UserError


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


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"provisioner"}))  # that one ends the process
def test_the_help_of_a_command_shows_no_markup(name: str) -> None:
    """`\\b` keeps the lines of a paragraph apart only as the one character, not as two."""
    result = CliRunner().invoke(dovetail, [name, "--help"])
    assert result.exit_code == 0
    assert "\\" not in result.output
    assert "\b" not in result.output


ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is installed of the wheel that is built from what the Dockerfile copies."""
    source, there = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("image")
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    for package in re.findall(r"^COPY (\w+) \1$", text, re.MULTILINE):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in re.findall(r"^COPY ([\w.]+) \./$", text, re.MULTILINE):
        shutil.copy(ROOT / name, source)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "-w",
        str(source),
        str(source),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = source.glob("*.whl")
    shutil.unpack_archive(wheel, there, "zip")
    return there


def run_image(image: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """What a container of the image would run."""
    return python_of(image, "from provisioner.cli.main import main; main()", *arguments)


def python_of(image: Path, code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Python with the packages of the image; -S keeps the checkout that is installed here out of the path."""
    packages = str(Path(click.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = [{str(image)!r}, {packages!r}]; {code}", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=image,
        env={"PATH": os.environ["PATH"]},
    )


def test_the_image_has_what_its_commands_import(image: Path) -> None:
    """In one process, but for the command that ends it: nothing here depends on which was imported first."""
    code = (
        "from click.testing import CliRunner; from provisioner.cli.main import dovetail;"
        "print(*(CliRunner().invoke(dovetail, [one, '--help'], catch_exceptions=False).exit_code for one in sys.argv[1:]))"
    )
    result = python_of(image, code, "webhook", "extender", "aws", "plan", "lint", "why", "convert")
    assert (result.returncode, result.stdout.split()) == (0, ["0"] * 7), result.stderr
    result = run_image(image, "provisioner", "--help")
    assert result.returncode == 0, result.stderr


OURS = re.compile(r"^\s*(?:from|import) ((?:certs|extender|provisioner|webhook)\b[\w.]*)", re.MULTILINE)


def test_the_image_has_no_module_that_imports_what_it_does_not_have(image: Path) -> None:
    asked = {
        (str(path.relative_to(image)), image.joinpath(*module.split(".")))
        for path in image.rglob("*.py")
        for module in OURS.findall(path.read_text(encoding="utf-8"))
    }
    assert len(asked) > 1000
    assert not [
        (by, str(module)) for by, module in asked if not module.is_dir() and not module.with_suffix(".py").is_file()
    ]


def test_the_image_offers_no_command_that_it_does_not_have(image: Path) -> None:
    result = run_image(image, "--help")
    assert {"provisioner", "webhook", "extender"} < set(result.stdout.split())
    assert not {"dev", "demo", "bench-cluster", "manifests", "reference"} & set(
        re.findall(r"^  ([a-z-]+)", result.stdout, re.MULTILINE)
    )
    assert "No such command 'demo'" in run_image(image, "demo").stderr


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(dovetail, ["nothing"])
    assert result.exit_code == 2
    assert "No such command 'nothing'" in result.output
    assert "Did you mean 'why'?" in CliRunner().invoke(dovetail, ["wyh"]).output


def test_starting_the_command_loads_nothing_heavy() -> None:
    code = (
        "import sys, provisioner.cli.main;"
        "print([m for m in ('kubernetes','boto3','numpy','flask','cryptography','rich') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_version_is_answered_before_anything_is_imported() -> None:
    """Counted, because a time would depend on the machine: 120 modules, and four times the processor time, are click and the reading of metadata."""
    code = (
        "import sys; before = {*sys.modules}; sys.argv = ['dovetail', '--version'];"
        "from provisioner.cli.entry import main; main();"
        "print(*sorted(sys.modules.keys() - before - set(sys.builtin_module_names)))"
    )
    result = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    version, modules = result.stdout.splitlines()
    assert version == f"dovetail, version {__version__}"
    assert set(modules.split()) <= {
        "importlib",
        "importlib._bootstrap",
        "importlib._bootstrap_external",
        "warnings",
        "provisioner",
        "provisioner.cli",
        "provisioner.cli.entry",
    }
    assert CliRunner().invoke(dovetail, ["--version"]).output == result.stdout.splitlines(keepends=True)[0]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        pytest.param(
            ["dev", "up", "--name", "A b"], 2, "'A b' is not a valid cluster name. Use at most", id="a bad name"
        ),
        pytest.param(["dev", "status"], 1, "cluster default does not exist. Start it with", id="no such cluster"),
        pytest.param(["dev", "logs", "etcd"], 1, "cluster default does not exist. Start it with", id="no logs"),
        pytest.param(
            ["dev", "build", "--download", "--base-url", "http://example.com"],
            2,
            "is neither https nor on this machine. Give one like",
            id="an unsafe mirror",
        ),
    ],
)
def test_what_a_user_can_cure_is_one_line_and_its_exit_status(
    arguments: list[str], status: int, says: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = str(tmp_path_factory.mktemp("home"))
    result = subprocess.run(
        [sys.executable, "-m", "provisioner.cli.main", *arguments],
        env={"HOME": home, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (status, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("dovetail: ")
    assert says in line


def test_errors_cannot_write_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("stdout", "stderr"):  # which the command replaces
        monkeypatch.setattr(sys, name, getattr(sys, name))

    def refused(*_: object, **__: object) -> None:
        raise UserError("pod \x1b[2J says no\nand why")

    monkeypatch.setattr(LazyGroup, "main", refused)
    with pytest.raises(SystemExit):
        main()
    assert capfd.readouterr().err == "dovetail: pod ?[2J says no\nand why\n"


def test_a_component_s_log_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    there = tmp_path / "state" / "dovetail" / "dev" / "default"
    (there / "logs").mkdir(parents=True)
    Saved(dict.fromkeys(PORT_NAMES, 1), extender=True, owner=None).write(there)
    (there / "logs" / "etcd.log").write_text("\tpod \x1b[2J\n", encoding="utf-8")
    result = CliRunner().invoke(dovetail, ["dev", "logs", "etcd"], env={"XDG_STATE_HOME": str(tmp_path / "state")})
    assert result.output == "        pod ?[2J\n"


HELP = """
import json

import click
from click.testing import CliRunner

from provisioner.cli.main import dovetail
from provisioner.options import HelpRequested, Options


def walked(command, path):
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from walked(command.get_command(context, name), (*path, name))


def shown(path):
    if path == ("provisioner",):  # which ends its process
        try:
            Options.parse(("--help",), {})
        except HelpRequested as text:
            return str(text)
    return CliRunner().invoke(dovetail, [*path, "--help"]).output


print(json.dumps({" ".join(path): shown(path) for path in walked(dovetail, ())}))
"""


def test_optimized_as_it_is_deployed_every_command_has_the_same_help() -> None:
    plain, optimized = (
        json.loads(subprocess.run([sys.executable, *flags, "-c", HELP], capture_output=True, check=True).stdout)
        for flags in ((), ("-OO",))
    )
    assert len(plain) >= len(COMMANDS) + 8
    assert "Show why node NAME" in plain["why"]
    assert optimized == plain
