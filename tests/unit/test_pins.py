"""What is installed is what the project needs: two packages disagree about a third, and pip gives way silently."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)

WANTED = {
    "boto3 that is current, which pip leaves for 0.0.3 where kubernetes 37 comes in": ("boto3", (1, 44), (2, 0)),
    "botocore beside it": ("botocore", (1, 44), (2, 0)),
    "kubernetes before it demanded dateutil 3": ("kubernetes", (36, 0), (37, 0)),
    "gunicorn whose Worker ours extends": ("gunicorn", (27, 0), (28, 0)),
    "h11 whose states our server asks for": ("h11", (0, 16), (0, 17)),
}


@pytest.mark.parametrize(("package", "least", "below"), WANTED.values(), ids=WANTED.keys())
def test_installed_is(package: str, least: tuple[int, int], below: tuple[int, int]) -> None:
    major, minor = importlib.metadata.version(package).split(".")[:2]
    assert least <= (int(major), int(minor)) < below


def pinned(name: str) -> dict[str, str]:
    """Version by normalized name in a file of requirements."""
    found = PINNED.findall((ROOT / name).read_text(encoding="utf-8"))
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in found}


def test_the_image_installs_the_versions_that_are_tested_and_checks_their_hashes() -> None:
    image, tested = pinned("requirements.txt"), pinned("constraints.txt")
    assert {name: tested.get(name) for name in image} == image, "run `make lock`"
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    for block in re.split(r"\n(?=\S)", text.partition("\n")[2].strip()):
        assert "--hash=sha256:" in block, block


def test_the_image_installs_every_dependency_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", one)[0]).lower() for one in project["dependencies"]}  # type: ignore[index]
    assert names <= pinned("requirements.txt").keys(), "run `make lock`"
