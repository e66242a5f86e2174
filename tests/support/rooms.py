"""The modules of rooms, for tests that read their source."""

import tomllib
from pathlib import Path
from typing import Final

import provisioner

_ROOT: Final = Path(provisioner.__file__).parents[1]
_OF_EC2: Final = frozenset({"cloud", "controllers"})
_OF_COMMANDS: Final = ("provisioner.leaving.", "provisioner.takeover.")
"""Rooms whose shells act for a user with the user's rights, in no program."""


def shells() -> list[str]:
    """The modules of rooms that are not pure, as the contract in pyproject.toml names them."""
    said = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = (one for one in said["contracts"] if one["type"] == "pure_but_shells")
    found: list[str] = contract["shells"]
    return found


def controllers() -> list[Path]:
    """What acts in the provisioner, whichever room it is in: shells, the process around them, and EC2's own."""
    around = [
        Path("provisioner/clouds.py"),
        *_under("provisioner/operator"),
        *(path for path in _under("provisioner/ec2") if _acts(path)),
    ]
    ours = (one for one in shells() if not one.startswith(_OF_COMMANDS))
    return sorted([*(Path(*one.split(".")).with_suffix(".py") for one in ours), *around])


def aws() -> list[Path]:
    """What speaks to EC2, without its controllers."""
    return [path for path in _under("provisioner/ec2") if not _acts(path)]


def _under(folder: str) -> list[Path]:
    return sorted(path.relative_to(_ROOT) for path in (_ROOT / folder).rglob("*.py"))


def _acts(path: Path) -> bool:
    return path.stem in _OF_EC2 or path.stem.endswith("controller")
