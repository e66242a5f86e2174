"""The steps from hashes to files: what `make image` does for both architectures, and the Dockerfile for the one that it is asked for."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from provisioner import __version__
from provisioner.lab.image import debian, wheels
from provisioner.lab.image.contents import PACKAGES, SITE, is_kept, services_called
from provisioner.lab.image.layout import ImageLayout, Origin
from provisioner.lab.image.sbom import bill_of_materials

LAYERS: Final = {  # directory -> what is in it; the lowest first, because it changes least
    "base": "Debian's interpreter and libraries",
    "dependencies": "what the project needs",
    "program": "the project",
}
ARCHITECTURES: Final = tuple(wheels.MACHINES)
REQUIREMENTS: Final = "requirements.txt"
BUILDING: Final = Path(__file__).with_name("building.txt")
SBOM: Final = Path(__file__).with_name("sbom.txt")
SOURCES: Final = ("README.md", "pyproject.toml", *PACKAGES)


def build(architecture: str, source: Path, there: Path) -> None:
    """Write the files of the image for one architecture, each layer into a directory of its own.

    Args:
        architecture: as Go calls it.
        source: a checkout, or what the Dockerfile copies of it.
        there: gets a directory for each of `LAYERS`.

    Raises:
        RuntimeError: another Python than the image's runs this, whose bytecode would be of no use there.
        FetchError: a file of Debian was not to be had.
        subprocess.CalledProcessError: pip or the compiler failed.
    """
    if sys.version_info[:2] != (3, 11):
        raise RuntimeError(f"The image is built by Python 3.11, and this is {sys.version.split()[0]}")
    services = services_called(source)
    base, dependencies, program = (there / name for name in LAYERS)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        _run(wheels.tools(BUILDING, work / "tools"))
        debian.install(architecture, base, lambda path: is_kept(path, services))
        requirements = work / REQUIREMENTS
        requirements.write_text(wheels.required((source / REQUIREMENTS).read_text(encoding="utf-8")), encoding="utf-8")
        _run(wheels.dependencies(architecture, requirements, dependencies / SITE), work / "tools")
        wheels.link_twins(dependencies / SITE)
        _run(wheels.own_wheel(_copied(source, work / "source"), work), work / "tools")
        (wheel,) = work.glob("dovetail-*.whl")
        _run(wheels.own(wheel, program / SITE), work / "tools")
        wheels.write_launchers(program / SITE, program / "usr/local/bin")
        for installed in (dependencies, program):
            _remove_omitted(installed, services)
    for layer in (base, dependencies, program):
        _compile(layer)


def write_image(source: Path, there: Path, origin: Origin, architectures: Sequence[str] = ARCHITECTURES) -> str:
    """Write the OCI image layout `there`/image, and beside it the bill of materials of each architecture.

    Returns:
        The digest of the image.
    """
    shutil.rmtree(there / "image", ignore_errors=True)
    layout = ImageLayout(there / "image", origin)
    for architecture in architectures:
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary)
            build(architecture, source, work)
            image = layout.add_image(architecture, [(title, work / name) for name, title in LAYERS.items()])
            _run(wheels.tools(SBOM, work / "tools"))
            site = work / "distributions"
            for layer in ("dependencies", "program"):
                shutil.copytree(work / layer / SITE, site, symlinks=True, dirs_exist_ok=True)
            bom = bill_of_materials(
                architecture, work / "base", site, source / "pyproject.toml", _environment(work / "tools")
            )
        layout.attach(image, bom)
        (there / f"dovetail-{__version__}-{architecture}.cdx.json").write_bytes(bom)
    return layout.finish(__version__)


def _copied(source: Path, there: Path) -> Path:
    """A copy of what is built from: setuptools writes beside it, and takes what else lies there."""
    there.mkdir()
    for name in SOURCES:
        if (source / name).is_dir():
            shutil.copytree(source / name, there / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source / name, there)
    return there


def _remove_omitted(root: Path, services: frozenset[str]) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif not is_kept(path.relative_to(root).as_posix(), services):
            path.unlink()


def _compile(root: Path) -> None:
    """Compile ahead, for nothing can be written in a container: as it is deployed (-OO), by a seed, and never compared with its source again."""
    _run(
        [
            sys.executable,
            "-m",
            "compileall",
            "-q",
            "-o",
            "2",
            "--invalidation-mode",
            "unchecked-hash",
            "-s",
            str(root),
            "-p",
            "/",
            str(root / "usr"),
        ]
    )


def _environment(tools: Path | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {
        **kept,
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": "315532800",
        **({"PYTHONPATH": str(tools)} if tools else {}),
    }


def _run(command: Sequence[str], tools: Path | None = None) -> None:
    subprocess.run(command, env=_environment(tools), check=True)
