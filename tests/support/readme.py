"""The commands of README and of guides, from an unpacked checkout with a home directory of its own, and what of their output may differ."""

import os
import re
import subprocess
import sys
import tarfile
import textwrap
from io import BytesIO
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
VARYING: Final = (
    (re.compile(r"\d[\d,]*\.\d+ USD/h"), "N USD/h"),
    (re.compile(r"\d[\d,]*\.\d+ USD per month"), "N USD per month"),
    (re.compile(r"\d+\.\d+ %"), "N %"),
    (re.compile(r"on \d+ new nodes"), "on N new nodes"),
    (re.compile(r"\b(?!0 nodes left)(?:[NXPST]|\d[\d,.]*) (nodes|\$/h|%|s)(?=\W|$)"), r"N \1"),
)
"""Figures that depend on how much the planner finds in its seconds, and on the machine; everything else is compared as it is printed."""


def blocks(text: str) -> list[list[str]]:
    """The indented blocks of a page, without the indent."""
    found = re.findall(r"(?:^\n)((?:^    .*\n)+)", text, re.MULTILINE)
    return [[line[4:] for line in one.splitlines()] for one in found]


def fenced(text: str) -> list[list[str]]:
    """The fenced blocks of a page that name no language, without the indent."""
    found = re.findall(r"^( *)```\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block).splitlines() for _, block in found]


def normalised(text: str) -> list[str]:
    """Lines without what varies."""
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    return text.splitlines()


def prints(output: str, block: list[str]) -> bool:
    """Whether the lines of a block stand in an output, one below the other."""
    told, wanted = normalised(output), normalised("\n".join(block))
    return any(told[at : at + len(wanted)] == wanted for at in range(len(told)))


def unpacked(directory: Path) -> Path:
    """The checkout as it is committed, without anything that was built in it."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(directory, filter="data")
    return directory


def stand_in_for_install(checkout: Path) -> None:
    """`.venv/bin/dovetail` of a checkout, with the packages of this environment: what `make install` would download."""
    program = checkout / ".venv" / "bin" / "dovetail"
    program.parent.mkdir(parents=True)
    code = "from provisioner.cli.entry import main; main()"
    program.write_text(f"#!/bin/sh\nPYTHONPATH={checkout} exec {sys.executable} -c '{code}' \"$@\"\n", encoding="utf-8")
    program.chmod(0o755)


def environment(home: Path, **more: str) -> dict[str, str]:
    """Of somebody who has just logged in."""
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **more}
