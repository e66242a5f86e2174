"""Whether IAM policy documents allow a call: the part of the policy language that controllers' policies use.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

Context = Mapping[str, Sequence[str]]


def _like(value: str, pattern: str) -> bool:
    return re.fullmatch(fnmatch.translate(pattern.replace("[", "[[]")), value) is not None


_COMPARE: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "StringEquals": lambda value, wanted: value == wanted,
    "StringEqualsIgnoreCase": lambda value, wanted: value.lower() == wanted.lower(),
    "StringLike": _like,
    "ArnEquals": _like,
    "ArnLike": _like,
    "Bool": lambda value, wanted: value.lower() == wanted.lower(),
}
_NEGATED: Final = {
    "StringNotEquals": "StringEquals",
    "StringNotLike": "StringLike",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
}


def decide(policies: Iterable[Mapping[str, Any]], action: str, resource: str, context: Context) -> str:
    """allowed, explicitDeny or implicitDeny, as the policy simulator says it."""
    decision = "implicitDeny"
    for policy in policies:
        for statement in _listed(policy.get("Statement", ())):
            if not _applies(statement, action, resource, context):
                continue
            if statement.get("Effect") == "Deny":
                return "explicitDeny"
            decision = "allowed"
    return decision


def missing(policies: Iterable[Mapping[str, Any]], action: str, resource: str) -> list[str]:
    """Condition keys that statements about this call read."""
    keys = {
        key
        for policy in policies
        for statement in _listed(policy.get("Statement", ()))
        if _named(statement, "Action", action, fold=True) and _named(statement, "Resource", resource)
        for tests in (statement.get("Condition") or {}).values()
        for key in tests
    }
    return sorted(keys)


def _applies(statement: Mapping[str, Any], action: str, resource: str, context: Context) -> bool:
    return (
        _named(statement, "Action", action, fold=True)
        and _named(statement, "Resource", resource)
        and all(
            _holds(operator, key, [str(one) for one in _listed(wanted)], context)
            for operator, tests in (statement.get("Condition") or {}).items()
            for key, wanted in tests.items()
        )
    )


def _named(statement: Mapping[str, Any], member: str, value: str, *, fold: bool = False) -> bool:
    if f"Not{member}" in statement:
        return not _any_like(_listed(statement[f"Not{member}"]), value, fold=fold)
    if member == "Resource" and member not in statement:
        return True
    return _any_like(_listed(statement.get(member, ())), value, fold=fold)


def _any_like(patterns: Iterable[Any], value: str, *, fold: bool) -> bool:
    if value == "*":
        return any(str(pattern) == "*" for pattern in patterns)
    if fold:
        return any(_like(value.lower(), str(pattern).lower()) for pattern in patterns)
    return any(_like(value, str(pattern)) for pattern in patterns)


def _holds(operator: str, key: str, wanted: Sequence[str], context: Context) -> bool:
    quantifier, colon, plain = operator.rpartition(":")
    plain = plain if colon else operator
    held = next((values for name, values in context.items() if name.lower() == key.lower()), None)
    if plain == "Null":
        return (held is None) == (wanted[0].lower() == "true")
    if plain.endswith("IfExists"):
        if held is None:
            return True
        plain = plain.removesuffix("IfExists")
    negated = plain in _NEGATED
    compare = _COMPARE[_NEGATED.get(plain, plain)]

    def passes(value: str) -> bool:
        return any(compare(value, one) for one in wanted) != negated

    if quantifier == "ForAllValues":
        return all(passes(value) for value in held or ())
    if held is None:
        return negated
    if quantifier == "ForAnyValue":
        return any(passes(value) for value in held)
    return all(passes(value) for value in held)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]
