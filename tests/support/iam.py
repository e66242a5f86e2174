"""Judging calls by IAM policies as AWS does, as far as our own policies go: actions, resources, conditions; a deny wins over every allow.

A call touches several resources, each with what is known of it (its tags, the tags asked for); it may be made when every one of them may be
touched. What a policy says that this judge does not know (an operator, a NotAction, an explicit Principal) is an error, never an answer.
"""

import enum
import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Context = Mapping[str, str | Sequence[str]]


class Decision(enum.Enum):
    """What AWS answers."""

    ALLOWED = "allowed"
    NOT_ALLOWED = "no statement allows it"
    DENIED = "a statement denies it"


@dataclass(frozen=True)
class Touched:
    """One resource that a call touches, and the condition keys that are known when it does."""

    arn: str
    context: Context = field(default_factory=dict)


def judge(documents: Iterable[Mapping[str, Any]], action: str, touched: Iterable[Touched]) -> Decision:
    """Whether the policies together let the action be done to all of these resources."""
    statements = [statement for document in documents for statement in document["Statement"]]
    decisions = {_judge_one(statements, action, one) for one in touched}
    if Decision.DENIED in decisions:
        return Decision.DENIED
    return Decision.ALLOWED if decisions == {Decision.ALLOWED} else Decision.NOT_ALLOWED


def _judge_one(statements: Iterable[Mapping[str, Any]], action: str, touched: Touched) -> Decision:
    effects = {statement["Effect"] for statement in statements if _applies(statement, action, touched)}
    if "Deny" in effects:
        return Decision.DENIED
    return Decision.ALLOWED if "Allow" in effects else Decision.NOT_ALLOWED


def _applies(statement: Mapping[str, Any], action: str, touched: Touched) -> bool:
    unknown = statement.keys() - {"Sid", "Effect", "Action", "Resource", "Condition"}
    if unknown:
        raise NotImplementedError(f"{sorted(unknown)} of a statement")
    return (
        any(_like(pattern.lower(), action.lower()) for pattern in _listed(statement["Action"]))
        and any(_like(pattern, touched.arn) for pattern in _listed(statement["Resource"]))
        and _conditions_hold(statement.get("Condition", {}), touched.context)
    )


def _conditions_hold(conditions: Mapping[str, Mapping[str, Any]], context: Context) -> bool:
    known = {key.lower(): value for key, value in context.items()}  # names of keys have no case
    return all(
        _holds(operator, _listed(wanted), known.get(key.lower()))
        for operator, tests in conditions.items()
        for key, wanted in tests.items()
    )


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda pattern, value: pattern == value,
    "StringLike": lambda pattern, value: _like(pattern, value),
    "ArnEquals": lambda pattern, value: _like(pattern, value),
    "Bool": lambda pattern, value: pattern.lower() == value.lower(),
}


def _holds(operator: str, patterns: Sequence[str], value: str | Sequence[str] | None) -> bool:
    quantifier, _, plain = operator.rpartition(":")
    if_exists = plain.endswith("IfExists")
    matches = _OPERATORS.get(plain.removesuffix("IfExists"))
    if matches is None or quantifier not in ("", "ForAllValues"):
        raise NotImplementedError(f"the operator {operator}")
    if value is None:  # a key that is not there fails every test but these
        return if_exists or quantifier == "ForAllValues"
    values = _listed(value)
    if quantifier == "" and len(values) != 1:
        raise NotImplementedError(f"{operator} over {len(values)} values")
    return all(any(matches(pattern, one) for pattern in patterns) for one in values)


def _like(pattern: str, value: str) -> bool:
    return fnmatch.fnmatchcase(value, pattern.replace("[", "[[]"))


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    return (value,) if isinstance(value, str) else value


def request_tags(tags: Iterable[Mapping[str, str]] | Mapping[str, str]) -> dict[str, str | Sequence[str]]:
    """The condition keys of tags that a request asks for; as a mapping, or as EC2 lists them."""
    pairs = tags if isinstance(tags, Mapping) else {tag["Key"]: tag["Value"] for tag in tags}
    return {**{f"aws:RequestTag/{key}": value for key, value in pairs.items()}, "aws:TagKeys": tuple(pairs)}


def resource_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The condition keys of tags that a resource has."""
    return {f"aws:ResourceTag/{key}": value for key, value in tags.items()}


def size(text: str) -> int:
    """Characters of a policy as IAM counts them: without whitespace."""
    return sum(not character.isspace() for character in text)
