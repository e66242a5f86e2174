"""NodePool, NodeClaim and EC2NodeClass between v1beta1 and v1, without loss in either direction. Pure.

A kind is a few `ConversionPart`s, each a place in either version with a function up and one down; everything else stays as it is. What a part cannot say
in the other version is kept there in an annotation, and comes back as long as the part still reads what it was written as: so a field
that was edited wins over what was kept, and nothing has to be remembered about who edited what.

Nothing may be missed in an object that is not whole: the API server converts fragments too, for server-side apply.

Source: karpenter v1.0 `pkg/apis/v1/*_conversion.go` for what becomes what.
Differs: that one forgets `terminationGracePeriod`, `consolidateAfter` of WhenEmptyOrUnderutilized and the policy of an object that goes down.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from provisioner.apis import ec2, karpenter, kwok, names
from provisioner.apis.conversion.definitions import (
    BETA,
    EC2_BETA,
    NODE_CLAIM_LATER,
    NODE_CLASS_LATER,
    NODE_POOL_BEFORE,
    NODE_POOL_LATER,
    V1,
)
from provisioner.apis.openapi import MISSING, name_of, violations
from provisioner.values import jsontext

Document = dict[str, Any]
Path = tuple[str, ...]
Values = dict[str, Any]
"""What stands at the places of a part, by the last word of the place; what is absent is left out."""

KEPT_V1: Final = names.KEPT_V1
KEPT_BETA: Final = names.KEPT_V1BETA1
"""What the other version says of an object; JSON by the name of the part."""

_LATEST: Final = {family: f"{family.lower()}@latest" for family in ec2.FAMILIES if family != ec2.CUSTOM}
_DEFAULT_GROUPS: Final = {kwok.KWOKNodeClass.__name__: kwok.API_VERSION.partition("/")[0]}
_VERSIONS: Final = {ec2.GROUP: EC2_BETA, kwok.API_VERSION.partition("/")[0]: kwok.API_VERSION}
_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = jsontext.decoder(object)


class ConversionError(ValueError):
    """An object that cannot be converted; the text names object and field, and says what to do."""


@dataclass(frozen=True, slots=True)
class ConversionPart:
    """A part of an object that the two versions say differently.

    Attributes:
        name: of what is kept of it.
        beta: its places at v1beta1.
        v1: its places at v1.
        up: its values at v1, given those at v1beta1; neither raises nor changes its argument.
        down: the other way.
    """

    name: str
    beta: tuple[Path, ...]
    v1: tuple[Path, ...]
    up: Callable[[Values], Values]
    down: Callable[[Values], Values]


def to_v1(source: Mapping[str, Any]) -> Document:
    """The v1 object of one at v1beta1, defaulted as the API server does.

    Raises:
        ConversionError: what was kept of v1 no longer goes with the rest.
    """
    kind, parts = _kind_of(source, BETA)
    converted = _converted(source, parts, KEPT_V1, KEPT_BETA, up=True)
    converted["apiVersion"] = V1[kind].api_version
    if KEPT_V1 in _annotations(source):
        _check(kind, converted, source, parts)
    return converted


def to_beta(source: Mapping[str, Any]) -> Document:
    """The v1beta1 object of one at v1, defaulted as the API server does.

    Raises:
        ConversionError: it is no object of such a kind.
    """
    kind, parts = _kind_of(source, V1)
    converted = _converted(source, parts, KEPT_BETA, KEPT_V1, up=False)
    converted["apiVersion"] = BETA[kind].api_version
    return converted


def convert(source: Mapping[str, Any], api_version: str) -> Document:
    """The object at another version, as a ConversionReview asks for it.

    Raises:
        ConversionError: it cannot be converted.
    """
    kind, given = str(source.get("kind")), source.get("apiVersion")
    if kind in V1 and given == BETA[kind].api_version and api_version == V1[kind].api_version:
        return to_v1(source)
    if kind in V1 and given == V1[kind].api_version and api_version == BETA[kind].api_version:
        return to_beta(source)
    if kind in V1 and given == api_version:
        return dict(source)
    raise ConversionError(f"{_name(source)}: {given} {kind} cannot be converted to {api_version}")


def kept_kubelet(annotations: Mapping[str, str]) -> Mapping[str, Any] | None:
    """The kubelet's settings that an object had at v1beta1; None without, or where the annotation cannot be read."""
    text = annotations.get(names.KUBELET_ANNOTATION)
    return None if text is None else _object(text)


# --- the frame ------------------------------------------------------------------------------------------------------


def _kind_of(source: Mapping[str, Any], versions: Mapping[str, Any]) -> tuple[str, tuple[ConversionPart, ...]]:
    kind = source.get("kind")
    if not isinstance(kind, str) or kind not in versions or source.get("apiVersion") != versions[kind].api_version:
        raise ConversionError(f"{_name(source)}: {source.get('apiVersion')} {kind} has no other version")
    return kind, PARTS[kind]


def _name(source: Mapping[str, Any]) -> str:
    return f'{source.get("kind", "object")} "{name_of(source)}"'


def _converted(
    source: Mapping[str, Any], parts: Sequence[ConversionPart], read: str, write: str, *, up: bool
) -> Document:
    """The object with its parts in the other version's words.

    Args:
        source: not changed.
        parts: of its kind.
        read: the annotation with what is kept of the other version; it ends here.
        write: the annotation for what the other version cannot say.
        up: whether v1 is the other version.
    """
    out: Document = dict(source)
    known = _read(_annotations(source).get(read))
    _put(out, _annotation(read), None)
    _put(out, _annotation(write), None)  # of this very version: nothing that we wrote
    kept: dict[str, Values] = {}
    placed: list[tuple[tuple[Path, ...], Values]] = []
    for part in parts:
        here, there = (part.beta, part.v1) if up else (part.v1, part.beta)
        go, back = (part.up, part.down) if up else (part.down, part.up)
        values = _taken(out, here)
        before = known.get(part.name)
        result = before if before is not None and _fits(before, there) and back(before) == values else go(values)
        if back(result) != values:
            kept[part.name] = values
        placed.append((there, result))
    for places, result in placed:
        for place in places:
            if place[-1] in result:
                _put(out, place, result[place[-1]])
    if kept:
        _put(out, _annotation(write), _encode(kept).decode())
    return out


def _fits(values: Values, places: Iterable[Path]) -> bool:
    return values.keys() <= {place[-1] for place in places}


def _annotation(key: str) -> Path:
    return ("metadata", "annotations", key)


def _annotations(source: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = source.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _read(text: object) -> dict[str, Values]:
    """What was kept; nothing where somebody damaged it."""
    found = _object(text) if isinstance(text, str) else None
    return {name: one for name, one in (found or {}).items() if isinstance(one, dict)}


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = _decode(text)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def _taken(out: Document, places: Iterable[Path]) -> Values:
    """What stands at the places, which are emptied; an object that is empty then goes too."""
    values = {}
    for place in places:
        found: Any = out
        for name in place:
            found = found.get(name) if isinstance(found, dict) else None
        if found is not None:
            values[place[-1]] = found
            _put(out, place, None)
    return values


def _put(out: Document, place: Path, value: Any) -> None:
    """Set a place, or empty it with None. Objects on the way are copied first, as `out` shares them with its source."""
    here, *rest = place
    if not rest:
        if value is None:
            out.pop(here, None)
        else:
            out[here] = value
        return
    inner = out.get(here)
    if not isinstance(inner, dict):
        if value is None or inner is not None:
            return
        inner = {}
    before = len(inner)
    inner = dict(inner)
    _put(inner, tuple(rest), value)
    if inner or not before or value is not None:
        out[here] = inner
    else:
        out.pop(here)


def _check(kind: str, converted: Document, source: Mapping[str, Any], parts: Sequence[ConversionPart]) -> None:
    """Whether what was kept of v1 still goes with what was edited since, and is what v1 admits.

    Raises:
        ConversionError: it does not. Only what the kept part makes wrong counts, and nothing that is missing: it may be a fragment.
    """
    wrong = {str(one) for one in violations(V1[kind], converted) if one.message != MISSING}
    if not wrong:
        return
    plain = dict(source)
    _put(plain, _annotation(KEPT_V1), None)
    bare = {"spec": {}, **_converted(plain, parts, KEPT_V1, KEPT_BETA, up=True), "apiVersion": V1[kind].api_version}
    new = sorted(wrong - {str(one) for one in violations(V1[kind], bare)})
    if new:
        raise ConversionError(
            f"{_name(source)}: {'; '.join(new)}: the annotation {KEPT_V1} keeps fields of {V1[kind].api_version} that "
            f"do not match the rest; edit the object at {V1[kind].api_version}, or remove the annotation"
        )


# --- the parts ------------------------------------------------------------------------------------------------------


def _same(values: Values) -> Values:
    return values


def _nothing(_: Values) -> Values:
    return {}


def _never(_: Values) -> Values:
    return {"expireAfter": karpenter.NEVER}


def _kubelet_up(values: Values) -> Values:
    return {names.KUBELET_ANNOTATION: _encode(values["kubelet"]).decode()} if "kubelet" in values else {}


def _kubelet_down(values: Values) -> Values:
    text = values.get(names.KUBELET_ANNOTATION)
    found = _object(text) if isinstance(text, str) else None
    return {} if found is None else {"kubelet": found}


def _reference_up(values: Values) -> Values:
    found = values.get("nodeClassRef")
    if not isinstance(found, dict):
        return values
    kind = found.get("kind") or ec2.KIND
    group = str(found.get("apiVersion") or "").partition("/")[0] or _DEFAULT_GROUPS.get(str(kind), ec2.GROUP)
    name = {"name": found["name"]} if "name" in found else {}
    return {"nodeClassRef": {"group": group, "kind": kind, **name}}


def _reference_down(values: Values) -> Values:
    found = values.get("nodeClassRef")
    if not isinstance(found, dict):
        return values
    out = {name: found[name] for name in ("kind", "name") if name in found}
    if group := found.get("group"):
        out["apiVersion"] = _VERSIONS.get(str(group), f"{group}/v1")
    return {"nodeClassRef": out}


def _consolidation_up(values: Values) -> Values:
    policy, after = values.get("consolidationPolicy"), values.get("consolidateAfter")
    if policy == "WhenUnderutilized":
        return {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s" if after is None else after}
    return values


def _consolidation_down(values: Values) -> Values:
    policy, after = values.get("consolidationPolicy"), values.get("consolidateAfter")
    if policy is None or policy == "WhenEmpty":
        return values
    if after == karpenter.NEVER:
        return {"consolidationPolicy": "WhenEmpty", "consolidateAfter": after}  # nothing is consolidated
    return {"consolidationPolicy": "WhenUnderutilized"}


def _images_up(values: Values) -> Values:
    family = values.get("amiFamily")
    if values.get("amiSelectorTerms") or not isinstance(family, str) or family not in _LATEST:
        return values
    return {"amiFamily": family, "amiSelectorTerms": [{"alias": _LATEST[family]}]}


def _images_down(values: Values) -> Values:
    terms = values.get("amiSelectorTerms")
    alias = (
        next((one["alias"] for one in terms if isinstance(one, dict) and "alias" in one), None)
        if isinstance(terms, list)
        else None
    )
    if alias is None:
        return values
    family = next(
        (one for one, latest in _LATEST.items() if str(alias).partition("@")[0] == latest.partition("@")[0]), None
    )
    return {} if family is None else {"amiFamily": family}


def _later(places: tuple[Path, ...], up: Callable[[Values], Values] = _nothing) -> ConversionPart:
    return ConversionPart("later", (), places, up, _nothing)


def _kubelet(*place: str) -> ConversionPart:
    return ConversionPart(
        "kubelet", ((*place, "kubelet"),), (_annotation(names.KUBELET_ANNOTATION),), _kubelet_up, _kubelet_down
    )


def _reference(*place: str) -> ConversionPart:
    where = ((*place, "nodeClassRef"),)
    return ConversionPart("nodeClassRef", where, where, _reference_up, _reference_down)


_TEMPLATE: Final = ("spec", "template", "spec")
_CONSOLIDATION: Final = (("spec", "disruption", "consolidationPolicy"), ("spec", "disruption", "consolidateAfter"))
_IMAGES: Final = (("spec", "amiFamily"), ("spec", "amiSelectorTerms"))

PARTS: Final[Mapping[str, tuple[ConversionPart, ...]]] = {
    "NodePool": (
        _kubelet(*_TEMPLATE),
        _reference(*_TEMPLATE),
        ConversionPart(
            "expireAfter", (("spec", "disruption", "expireAfter"),), ((*_TEMPLATE, "expireAfter"),), _same, _same
        ),
        ConversionPart("consolidation", _CONSOLIDATION, _CONSOLIDATION, _consolidation_up, _consolidation_down),
        ConversionPart("before", NODE_POOL_BEFORE, (), _nothing, _nothing),
        _later(NODE_POOL_LATER),
    ),
    "NodeClaim": (_kubelet("spec"), _reference("spec"), _later(NODE_CLAIM_LATER, _never)),
    "EC2NodeClass": (ConversionPart("images", _IMAGES, _IMAGES, _images_up, _images_down), _later(NODE_CLASS_LATER)),
}
