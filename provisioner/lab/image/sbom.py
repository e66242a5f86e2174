"""What is in the image, as a bill of materials in CycloneDX: Python's distributions by cyclonedx-py, Debian's packages from base.json."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from provisioner.lab.image.debian import DebianPackage, packages

_FIELD: Final = re.compile(
    r"^License: *(\w\S*(?: \S+){0,4})$", re.MULTILINE
)  # a name, or two with "or" between; some packages put the text itself there


def bill_of_materials(
    architecture: str, image: Path, site: Path, project: Path, environment: Mapping[str, str]
) -> bytes:
    """The document, with licences, the same for the same image.

    Args:
        architecture: of the image, as Go calls it.
        image: the unpacked base, with the licences of its packages.
        site: the image's distributions, all of them.
        project: pyproject.toml.
        environment: with cyclonedx-bom in PYTHONPATH.

    Raises:
        subprocess.CalledProcessError: cyclonedx-py failed; its output says why.
    """
    asked = site.parent / "python"  # cyclonedx-py asks an interpreter where its distributions are
    asked.write_text(f"#!/bin/sh\necho '{json.dumps([str(site)])}'\n", encoding="utf-8")
    asked.chmod(0o755)
    command = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        "environment",
        "--output-reproducible",
        "--pyproject",
        str(project),
        "--mc-type",
        "application",
        str(asked),
    ]
    document = json.loads(subprocess.run(command, env=dict(environment), check=True, capture_output=True).stdout)
    components = [_component(package, architecture, image) for package, _ in packages(architecture)]
    document["components"] = [*document.get("components", []), *components]
    document["dependencies"] = [*document.get("dependencies", []), *({"ref": one["bom-ref"]} for one in components)]
    return json.dumps(document, indent=1, sort_keys=True).encode()


def _component(package: DebianPackage, architecture: str, image: Path) -> dict[str, Any]:
    owner = "all" if package.path.endswith("_all.deb") else architecture
    reference = f"pkg:deb/debian/{package.name.replace('+', '%2B')}@{package.version.replace('+', '%2B')}?arch={owner}&distro=debian-12"
    return {
        "type": "library",
        "bom-ref": reference,
        "purl": reference,
        "name": package.name,
        "version": package.version,
        "hashes": [{"alg": "SHA-256", "content": package.sha256}],
        "licenses": [{"license": {"name": name}} for name in licences(image, package.name)],
    }


def licences(image: Path, name: str) -> list[str]:
    """The licences that a package's copyright file names, sorted; the file's own path where it names none in fields."""
    path = image / "usr/share/doc" / name / "copyright"
    found = sorted({one.strip() for one in _FIELD.findall(path.read_text(encoding="utf-8", errors="replace"))})
    return found or [f"see /{path.relative_to(image)}"]
