"""What becomes of each value of Karpenter's chart: taken, accepted without effect, renamed, or refused with the reason.

The keys of two of its versions, and what we say of each, are tables in tests/data. Whoever gives the chart a value that was renamed or refused is told so,
unless it is the default of Karpenter's chart. What is accepted without effect is told by NOTES.txt of the chart.
"""

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from provisioner.lab.harness.workload import REPOSITORY

DATA: Final = REPOSITORY / "tests" / "data"
VERSIONS: Final = ("1.14", "1.15")


class Verdict(NamedTuple):
    """What becomes of one value.

    Attributes:
        key: of Karpenter's chart, with dots.
        defaults: what it is there, in each version that has it; no refusal where it is given with one of these.
        status: whether the value is ours too.
        now: the key of ours, for a renamed one.
        reason: of a refusal, or why it has no effect.
    """

    key: str
    defaults: tuple[Any, ...]
    status: Literal["taken", "accepted", "renamed", "refused"]
    now: str
    reason: str


def keys(version: str) -> Mapping[str, Any]:
    """The default of each value of one version of Karpenter's chart."""
    found: Mapping[str, Any] = _read(DATA / f"karpenter-chart-{version}.json")["values"]
    return found


def verdicts() -> tuple[Verdict, ...]:
    """Of every value that either version has, sorted by key."""
    tables = [keys(version) for version in VERSIONS]
    said = _read(DATA / "karpenter-chart-verdicts.json")["values"]
    return tuple(
        Verdict(
            key,
            tuple(one[key] for one in tables if key in one),
            said[key]["status"],
            said[key].get("now", ""),
            said[key].get("reason", ""),
        )
        for key in sorted({key for one in tables for key in one})
    )


def _read(path: pathlib.Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def accepted(found: Iterable[Verdict]) -> tuple[str, ...]:
    """Keys that values.schema.json lets pass, so that the template can say what became of them."""
    return tuple(one.key for one in found if one.status != "taken")


def refusals(found: Iterable[Verdict]) -> str:
    """The template that fails with a sentence where such a value is given."""
    text = "{{- /* Generated from tests/data/karpenter-chart-verdicts.json by `make manifests`; do not edit. */ -}}\n"
    text += "{{- $values := .Values.AsMap -}}\n"
    for one in found:
        if one.status in ("taken", "accepted"):
            continue
        path = " ".join(json.dumps(word) for word in one.key.split("."))
        said = f"{one.key}: " + (f"this chart calls it {one.now}" if one.status == "renamed" else one.reason)
        known = " ".join(dict.fromkeys(f"`{json.dumps(value, separators=(',', ':'))}`" for value in one.defaults))
        text += (
            f"{{{{- $given := dig {path} nil $values -}}}}\n"
            f'{{{{- if not (or (kindIs "invalid" $given) (has (toJson $given) (list {known}))) }}}}{{{{ fail {json.dumps(said)} }}}}{{{{ end -}}}}\n'
        )
    return text
