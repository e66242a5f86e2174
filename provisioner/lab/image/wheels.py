"""What is installed from PyPI: the commands, and what is done to their result. Each names its files with hashes, or asks no index."""

import configparser
import filecmp
import itertools
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from provisioner.lab.image.contents import NOT_INSTALLED

MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBC: Final = (
    "2_36",
    "2_34",
    "2_31",
    "2_28",
    "2_27",
    "2_24",
    "2_17",
)  # what wheels for Debian 12 may ask for, newest first
_HASHED: Final = ("--require-hashes", "--no-deps", "--only-binary=:all:", "--no-compile")
_LARGE_BYTES: Final = 1 << 16


def pip(*arguments: str) -> list[str]:
    """The command line of the pip that is in PYTHONPATH, or of the interpreter's own."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]


def tools(requirements: Path, there: Path) -> list[str]:
    """Install what builds, for the machine that builds."""
    return pip("install", *_HASHED, "--target", str(there), "--requirement", str(requirements))


def dependencies(architecture: str, requirements: Path, site: Path) -> list[str]:
    """Install what the project needs, for the machine that will run it."""
    machine = MACHINES[architecture]
    platforms = [f"--platform=manylinux_{glibc}_{machine}" for glibc in _GLIBC] + [
        f"--platform=manylinux2014_{machine}"
    ]
    target = [
        "--python-version=3.11",
        "--implementation=cp",
        *(f"--abi={abi}" for abi in ("cp311", "abi3", "none")),
        *platforms,
    ]
    return pip("install", *_HASHED, *target, "--target", str(site), "--requirement", str(requirements))


def own_wheel(source: Path, there: Path) -> list[str]:
    """Build the project's own wheel by the setuptools in PYTHONPATH; no index is asked."""
    return pip("wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(there), str(source))


def own(wheel: Path, site: Path) -> list[str]:
    """Install the project's own wheel; no index is asked."""
    return pip("install", "--no-index", "--no-deps", "--no-compile", "--target", str(site), str(wheel))


def required(text: str) -> str:
    """The file of requirements without what is not installed; pure."""
    blocks = re.split(r"\n(?=\S)", text)
    return "\n".join(block for block in blocks if re.split(r"[=\s]", block, maxsplit=1)[0] not in NOT_INSTALLED)


def link_twins(site: Path) -> None:
    """Make a library that a wheel holds under two names, because a wheel has no links, one file again."""
    for folder in sorted({path.parent for path in site.rglob("*.so.*")}):
        large = sorted(
            path for path in folder.glob("*.so*") if path.stat().st_size >= _LARGE_BYTES and not path.is_symlink()
        )
        for shorter, longer in itertools.pairwise(large):
            if longer.name.startswith(f"{shorter.name}.") and filecmp.cmp(shorter, longer, shallow=False):
                shorter.unlink()
                shorter.symlink_to(longer.name)


def write_launchers(site: Path, there: Path) -> None:
    """Write the programs that the project's own wheel names, for the image's interpreter: pip's would name the one that builds."""
    (entries,) = site.glob("dovetail-*.dist-info/entry_points.txt")
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read_string(entries.read_text(encoding="utf-8"))
    there.mkdir(parents=True)
    for name, target in _programs(parser):
        module, _, function = target.partition(":")
        (there / name).write_text(
            f"#!/usr/bin/python3.11\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n",
            encoding="utf-8",
        )
        (there / name).chmod(0o755)


def _programs(parser: configparser.ConfigParser) -> Iterable[tuple[str, str]]:
    return sorted(parser["console_scripts"].items())
