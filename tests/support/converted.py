"""What every file of tests/data/seed-manifests becomes at v1, as tests/golden/converted has it: offline and on the control plane alike."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILES = Path(__file__).parents[1] / "data" / "seed-manifests"
GOLDEN = Path(__file__).parents[1] / "golden" / "converted"
CLUSTER = "blue"
"""The name of the cluster, which Provisioners without selectors are converted with."""


@dataclass(frozen=True)
class Expected:
    """What becomes of one file.

    Attributes:
        objects: at v1, in order; none where there are errors.
        decisions: a line each, KIND/NAME: path: text.
        errors: the same, where the file cannot be converted.
    """

    objects: tuple[dict[str, Any], ...]
    decisions: tuple[str, ...]
    errors: tuple[str, ...]

    def of(self, kind: str) -> dict[str, Any]:
        """The one object of this kind."""
        (found,) = (one for one in self.objects if one["kind"] == kind)
        return found


def expected(name: str) -> Expected:
    """Of the file of this name; an object that is not of an old version stays as it is."""
    golden = yaml.safe_load((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8"))
    objects = golden.get("objects", ())
    if objects == "unchanged":
        objects = yaml.safe_load_all((FILES / f"{name}.yaml").read_text(encoding="utf-8"))
    return Expected(tuple(objects), tuple(golden.get("decisions", ())), tuple(golden.get("errors", ())))
