"""What is wrong with annotations and labels of Dovetail on any object: keys that are misspelled or stand where nobody reads them, and values.

The webhook's own decision says what it cannot read; the places are those of `apis.keys`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.core import PodTemplateSpec
from provisioner.apis.deletion_cost import read_int32
from provisioner.apis.keys import KeyPlace, places
from provisioner.apis.meta import ObjectMeta, OwnerReference
from provisioner.apis.openapi import Violation
from provisioner.apis.shares import Seat, Side
from provisioner.apis.stamping import PREFIX, Images, StampFacts, decide
from provisioner.values.spelling import closest

_TEMPLATES: Final = ("spec.template", "spec.jobTemplate.spec.template", "template")
_PLACES: Final = places()
_SWITCHES: Final = (names.SURGE, names.RECREATE_UNSCHEDULED, names.TRANSLATE)
"""Annotations whose one value is `true`."""
_ALIKE: Final = 0.8
_CONTROLLER: Final = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="x", uid="x", controller=True)
_KEY: Final = re.compile(r"dovetail\.dev/[a-z0-9-]+")
_DEFAULT: Final = re.compile(r"key ([a-z0-9-]+) of ConfigMap")


@dataclass(frozen=True, slots=True)
class KeyFindings:
    """About one object.

    Attributes:
        looked: whether it is of a kind that such keys are for, or has one.
    """

    errors: tuple[Violation, ...]
    warnings: tuple[Violation, ...]
    looked: bool


@dataclass(frozen=True, slots=True)
class _Spot:
    """Annotations or labels, and where they stand."""

    path: str
    place: KeyPlace
    texts: Mapping[str, str]


def key_findings(document: Mapping[str, Any]) -> KeyFindings:
    """What is wrong with the keys of one object, whatever its kind."""
    kind = str(document.get("kind", ""))
    template = next((path for path in _TEMPLATES if "containers" in _inner(document, f"{path}.spec")), "")
    spots = list(_spots(document, "", kind))
    if kind == "NodePool":
        spots += _spots(document, "spec.template", "NodeClaim")
    elif template:
        spots += _spots(document, template, "Pod")
    errors: list[Violation] = []
    warnings: list[Violation] = []
    for spot in spots:
        for key in spot.texts:
            _judge(key, spot, template, errors, warnings)
    errors += _values(document, spots)
    looked = bool(template or errors or warnings or kind in ("Pod", "Namespace") or _is_defaults(document))
    return KeyFindings(tuple(errors), tuple(warnings), looked or any(map(_own, spots)))


def _own(spot: _Spot) -> bool:
    return any(key.startswith(PREFIX) for key in spot.texts)


def _spots(document: Mapping[str, Any], path: str, kind: str) -> Iterator[_Spot]:
    for field in ("annotation", "label"):
        where = f"{path}{'.' if path else ''}metadata.{field}s"
        found = _inner(document, where)
        yield _Spot(where, KeyPlace(kind, field), {str(key): one for key, one in found.items() if isinstance(one, str)})


def _inner(document: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    value: Any = document
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _judge(key: str, spot: _Spot, template: str, errors: list[Violation], warnings: list[Violation]) -> None:
    domain, _, name = key.partition("/")
    path = f"{spot.path}[{key}]"
    if key in _PLACES:
        if spot.place not in _PLACES[key] and any(one.field in ("annotation", "label") for one in _PLACES[key]):
            warnings.append(Violation(path, _misplaced(key, spot, template)))
    elif domain == names.DOVETAIL:
        here = {one for one, where in _PLACES.items() if spot.place in where}
        close = closest(key, sorted(here), alike=_ALIKE) or closest(key, sorted(_PLACES), alike=_ALIKE)
        text = (
            f'"{key}" is not an {spot.place.field}' if spot.place.field == "annotation" else f'"{key}" is not a label'
        )
        errors.append(Violation(path, f"{text} of Dovetail{f'; did you mean {close}?' if close else ''}"))
    elif f"{PREFIX}{name}" in _PLACES and closest(domain, (names.DOVETAIL,), alike=_ALIKE):
        errors.append(Violation(path, f'"{domain}" is not a domain of Dovetail; did you mean {PREFIX}{name}?'))


def _misplaced(key: str, spot: _Spot, template: str) -> str:
    there = _PLACES[key]
    text = f"has no effect as {'an annotation' if spot.place.field == 'annotation' else 'a label'} of {_a(spot.place.kind)}"
    if template and not spot.path.startswith(template) and KeyPlace("Pod", "annotation") in there:
        return f"{text}; set it in {template}.metadata.annotations"
    if KeyPlace(spot.place.kind, "annotation") in there:
        return f"{text}; set it in {spot.path.removesuffix('labels')}annotations"
    if KeyPlace(spot.place.kind, "label") in there:
        return f"{text}; set it in {spot.path.removesuffix('annotations')}labels"
    return f"{text}; it is {' or '.join(sorted(f'{_a(one.kind)} {one.field}' for one in there))}"


def _a(kind: str) -> str:
    return f"{'an' if kind[:1] in 'AEIOU' else 'a'} {kind}"


def _values(document: Mapping[str, Any], spots: Iterable[_Spot]) -> Iterator[Violation]:
    for spot in spots:
        if spot.place == KeyPlace("Pod", "annotation"):
            yield from _unread(spot.path, StampFacts("x", {}), spot.texts)
            cost = spot.texts.get(names.DISRUPTION_COST, "0")
            if read_int32(cost) is None:
                text = f"{cost[:64]!r} is ignored; use a whole number from -2147483648 to 2147483647"
                yield Violation(f"{spot.path}[{names.DISRUPTION_COST}]", text)
        elif spot.place == KeyPlace("Namespace", "label"):
            yield from _unread(spot.path, StampFacts("x", spot.texts))
        for key in _SWITCHES:
            value = spot.texts.get(key, "true") if spot.place in _PLACES[key] else "true"
            if value not in ("true", "false", ""):
                yield Violation(f"{spot.path}[{key}]", f"{value[:64]!r} is not supported; use true, or remove it")
    if _is_defaults(document):
        data = {str(key): one for key, one in _inner(document, "data").items() if isinstance(one, str)}
        yield from _unread("data", StampFacts("x", {}, data))
        known = {key.removeprefix(PREFIX) for key, there in _PLACES.items() if KeyPlace("Namespace", "label") in there}
        for name in data.keys() - known:
            close = closest(name, sorted(known), alike=_ALIKE)
            yield Violation(f"data[{name}]", f"is not a setting{f'; did you mean {close}?' if close else ''}")


def _is_defaults(document: Mapping[str, Any]) -> bool:
    metadata = _inner(document, "metadata")
    named = metadata.get("name"), metadata.get("namespace", names.OWN_NAMESPACE)
    return document.get("kind") == "ConfigMap" and named == (names.DEFAULTS_CONFIGMAP, names.OWN_NAMESPACE)


def _unread(path: str, facts: StampFacts, annotations: Mapping[str, str] = {}) -> Iterator[Violation]:
    """What the webhook would say about values: of a pod of which nothing else is known, and which it could do everything for."""
    pod = PodTemplateSpec(
        metadata=ObjectMeta(
            labels={"app": "x"},
            annotations={key: value for key, value in annotations.items() if key.startswith(PREFIX)},
            owner_references=(_CONTROLLER,),
        )
    )
    able = StampFacts(
        facts.namespace,
        facts.namespace_labels,
        facts.defaults,
        scheduler_alive=True,
        seat=Seat(Side.SPOT, 1, 1),
        images=Images(),
    )
    for warning in decide(pod, able).warnings:
        text = warning.removeprefix("dovetail: ")
        found = _DEFAULT.search(text) if path == "data" else _KEY.search(text)
        if found is not None:
            key = found[1] if path == "data" else found[0]
            yield Violation(f"{path}[{key}]", text)
