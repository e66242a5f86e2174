"""Asking IAM's simulator what a role may do. The simulator carries nothing out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from provisioner.ec2.access.batcher import parts
from provisioner.ec2.access.errors import Failure, FailureKind, classify_exception
from provisioner.ec2.access.permissions import ANY
from provisioner.ec2.preflight.answers import PermissionAnswer, simulated
from provisioner.ec2.preflight.findings import CheckVerdict
from provisioner.ec2.preflight.needs import Need

MOST_RESULTS: Final = 100
"""Pairs of action and resource in one call: a page of answers."""

_LIST_KEYS: Final = frozenset({"aws:TagKeys"})

_DETAILS: Final = ("MatchedStatements", "MissingContextValues", "PermissionsBoundaryDecisionDetail")

Batch = tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]
"""Actions, resources and context of one call."""


class CannotSimulate(Exception):  # noqa: N818  (a state, not a fault)
    """The simulator does not answer us about this role."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return f"iam:SimulatePrincipalPolicy: {self.failure}"


def batches(needs: Iterable[Need]) -> tuple[Batch, ...]:
    """Few calls that ask all: needs with the same resources and context are one, up to a page of answers. Pure."""
    grouped: dict[tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]], list[str]] = {}
    for need in needs:
        for resources in parts(need.resources, MOST_RESULTS):
            actions = grouped.setdefault((tuple(resources), need.context), [])
            if need.row.action not in actions:
                actions.append(need.row.action)
    return tuple(
        (tuple(part), resources, context)
        for (resources, context), actions in grouped.items()
        for part in parts(tuple(actions), MOST_RESULTS // len(resources))
    )


def context_entries(context: Iterable[tuple[str, Sequence[str]]]) -> list[dict[str, Any]]:
    """As SimulatePrincipalPolicy takes the values of condition keys. Pure."""
    return [
        {
            "ContextKeyName": key,
            "ContextKeyValues": list(values),
            "ContextKeyType": "stringList" if key in _LIST_KEYS else _type_of(key),
        }
        for key, values in context
    ]


def _type_of(key: str) -> str:
    return "boolean" if key == "kms:GrantIsForAWSResource" else "string"


def simulate(
    iam: Any, role_arn: str, needs: Iterable[Need], told: frozenset[str] = frozenset()
) -> Mapping[Need, tuple[PermissionAnswer, ...]]:
    """The simulator's answers for each need, one a resource.

    Args:
        iam: boto3's client.
        role_arn: whose policies are asked about.
        needs: the questions; those alike are asked in one call.
        told: condition keys that the questions leave out only where the request will.

    Raises:
        CannotSimulate: the first call was refused; those after it become UNKNOWN answers instead.
    """
    asked = tuple(needs)
    known: dict[tuple[str, str, tuple[tuple[str, tuple[str, ...]], ...]], PermissionAnswer] = {}
    for number, (actions, resources, context) in enumerate(batches(asked)):
        try:
            rows = _rows(iam, role_arn, actions, resources, context)
        except Exception as error:
            failure = classify_exception(error)
            if number == 0 or failure.kind in (FailureKind.DENIED, FailureKind.CREDENTIALS):
                raise CannotSimulate(failure) from error
            continue
        for row in rows:
            for answer in _answers(row, told):
                known[row["EvalActionName"], answer.resource, context] = answer
    return {
        need: tuple(
            known.get((need.row.action, resource, need.context), _unanswered(resource)) for resource in need.resources
        )
        for need in asked
    }


def _unanswered(resource: str) -> PermissionAnswer:
    return PermissionAnswer(CheckVerdict.UNKNOWN, resource, "the IAM policy simulator did not respond")


def _rows(
    iam: Any,
    role_arn: str,
    actions: Sequence[str],
    resources: Sequence[str],
    context: Iterable[tuple[str, Sequence[str]]],
) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    marker: dict[str, str] = {}
    while True:
        page = iam.simulate_principal_policy(
            PolicySourceArn=role_arn,
            ActionNames=list(actions),
            ResourceArns=list(resources),
            ContextEntries=context_entries(context),
            **marker,
        )
        rows += page.get("EvaluationResults", ())
        if not page.get("IsTruncated"):
            return rows
        marker = {"Marker": page["Marker"]}


def _answers(row: Mapping[str, Any], told: frozenset[str]) -> Iterable[PermissionAnswer]:
    """One answer a resource: IAM tells several resources of an action in one row or in rows of their own."""
    inside = row.get("ResourceSpecificResults") or ()
    for one in inside:
        details = {name: one[name] for name in _DETAILS if name in one}
        decision = one.get("EvalResourceDecision", "")
        yield simulated({**row, "EvalDecision": decision, **details}, one["EvalResourceName"], told)
    if not inside:
        yield simulated(row, row.get("EvalResourceName", ANY), told)
