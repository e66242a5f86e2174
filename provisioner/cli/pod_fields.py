"""Fields of pod templates that Kubernetes does not have, as its strict validation finds them: by the models of the official client."""

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from provisioner.apis.openapi import Violation, child, did_you_mean

MOST_TOLD: Final = 20
"""Fields of one input that are named."""
_ROOT: Final = "V1PodTemplateSpec"
_LIST: Final = re.compile(r"list\[(.+)\]")
_VALUES: Final = re.compile(r"dict[\[(]str, (.+)[\])]")


def unknown_pod_fields(template: Mapping[str, Any]) -> list[Violation]:
    """Of a pod template, whatever its values are. The first call takes 0.2 s and 40 MB for the models."""
    return list(_unknown(importlib.import_module("kubernetes.client.models"), _ROOT, template, ""))


def ignored_fields(template: Mapping[str, Any], where: str) -> list[str]:
    """The same as sentences; `where` is the template's place in the input."""
    return [f"{where}.{one.path} {one.message}" for one in unknown_pod_fields(template)]


def _unknown(models: Any, kind: str, value: object, path: str) -> Iterator[Violation]:
    if (inner := _LIST.fullmatch(kind)) is not None:
        for number, one in enumerate(value if isinstance(value, list) else ()):
            yield from _unknown(models, inner[1], one, f"{path}[{number}]")
        return
    if not isinstance(value, Mapping):
        return
    if (inner := _VALUES.fullmatch(kind)) is not None:
        for name, one in value.items():
            yield from _unknown(models, inner[1], one, child(path, str(name)))
        return
    model = getattr(models, kind, None)
    if model is None:
        return  # a text, a number, or anything
    types = {model.attribute_map[name]: text for name, text in model.openapi_types.items()}
    for name, one in value.items():
        if name in types:
            yield from _unknown(models, types[name], one, child(path, name))
        else:
            yield Violation(
                child(path, str(name)), f"is ignored; Kubernetes has no such field{did_you_mean(str(name), types)}"
            )
