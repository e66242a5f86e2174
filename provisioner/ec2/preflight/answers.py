"""What was answered about one permission, by IAM's simulator or by a trial, and the finding that people read. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.ec2.access.errors import Failure, FailureKind
from provisioner.ec2.access.permissions import Permission, policy_name
from provisioner.ec2.preflight.findings import CheckFinding, CheckVerdict
from provisioner.ec2.preflight.needs import EXAMPLE, Need

ABOUT: Final = "permissions"
_ALLOWED: Final = "allowed"
_EXPLICIT: Final = "explicitDeny"


@dataclass(frozen=True, slots=True)
class PermissionAnswer:
    """Whether one resource may be touched.

    Attributes:
        resource: its ARN; "*" where there is none, "" where it does not matter.
        why: the reason, unless all is well.
        advice: what to do; "" means: give the permission.
    """

    verdict: CheckVerdict
    resource: str = ""
    why: str = ""
    advice: str = ""


def simulated(result: Mapping[str, Any], resource: str, told: Collection[str] = ()) -> PermissionAnswer:
    """What one row of SimulatePrincipalPolicy's answer means for one resource; `told` are the condition keys that we know all about.

    The simulator sees the role's policies, its permissions boundary and the organization's, but no policy of a resource: a key that its own policy
    opens is not missing.
    """
    decision = result.get("EvalDecision", "")
    if decision == _ALLOWED:
        return PermissionAnswer(CheckVerdict.OK, resource)
    if result.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations") is False:
        return PermissionAnswer(
            CheckVerdict.MISSING,
            resource,
            "a service control policy of the organization denies the action",
            "contact the administrator of the organization; a policy of the role is not sufficient",
        )
    if result.get("PermissionsBoundaryDecisionDetail", {}).get("AllowedByPermissionsBoundary") is False:
        return PermissionAnswer(
            CheckVerdict.MISSING,
            resource,
            "the permissions boundary of the role does not allow the action",
            "add the action to the boundary; a policy of the role is not sufficient",
        )
    if decision == _EXPLICIT:
        sources = [one.get("SourcePolicyId", "") for one in result.get("MatchedStatements", ())]
        named = ", ".join(sorted({source for source in sources if source}))
        return PermissionAnswer(
            CheckVerdict.MISSING,
            resource,
            "a policy statement denies the action" + (f" in {named}" if named else ""),
            "remove the denial; a policy that allows the action does not override it",
        )
    unset = sorted(set(result.get("MissingContextValues", ())) - set(told))
    if unset:
        return PermissionAnswer(
            CheckVerdict.UNKNOWN,
            resource,
            f"the policies of the role use the condition keys {', '.join(unset)}, which the simulation cannot evaluate",
        )
    if ":kms:" in resource:
        return PermissionAnswer(
            CheckVerdict.UNKNOWN,
            resource,
            "no policy of the role allows the action; the key policy may allow it",
            "make sure that the key policy lets the role use the key through EC2, or attach the policy VolumeEncryption",
        )
    return PermissionAnswer(CheckVerdict.MISSING, resource, "no policy of the role allows the action")


def tried(failure: Failure | None, resource: str = "") -> PermissionAnswer:
    """What a trial means: a dry run, or a call that changes nothing; None is a call that went through."""
    if failure is None:
        return PermissionAnswer(CheckVerdict.OK, resource)
    match failure.kind:
        case FailureKind.DRY_RUN | FailureKind.NOT_FOUND | FailureKind.EXISTS:
            return PermissionAnswer(CheckVerdict.OK, resource)  # whoever may not look is not told what is there
        case FailureKind.INVALID:  # AWS may look at the request before it looks at permissions
            return PermissionAnswer(
                CheckVerdict.UNKNOWN,
                resource,
                f"AWS rejected the test call itself, so the permission could not be determined: {failure}",
            )
        case FailureKind.DENIED:
            return PermissionAnswer(CheckVerdict.MISSING, resource, failure.message or failure.code, failure.advice)
        case _:
            return PermissionAnswer(CheckVerdict.UNKNOWN, resource, str(failure))


def finding(need: Need, answers: Iterable[PermissionAnswer], cluster: str) -> CheckFinding:
    """The finding for one permission: the worst of its answers, in words that say what to do."""
    given, row = (
        tuple(answers)
        or (PermissionAnswer(CheckVerdict.UNKNOWN, why="nothing of the kind is there to check it with"),),
        need.row,
    )
    for verdict in (CheckVerdict.MISSING, CheckVerdict.UNKNOWN):
        bad = [answer for answer in given if answer.verdict is verdict]
        if bad:
            whys = "; ".join(dict.fromkeys(answer.why for answer in bad if answer.why))
            said = f"{whys}; without it: {row.without}" if verdict is CheckVerdict.MISSING else whys
            advices = "; ".join(dict.fromkeys(answer.advice for answer in bad if answer.advice))
            what = _what(row, [answer.resource for answer in bad if answer.resource] or need.resources)
            return CheckFinding(ABOUT, what, verdict, said, advices or _give(row, verdict, cluster))
    return CheckFinding(ABOUT, _what(row, need.resources), CheckVerdict.OK, row.why)


def _give(row: Permission, verdict: CheckVerdict, cluster: str) -> str:
    if verdict is CheckVerdict.UNKNOWN:
        return (
            "run `dovetail aws check --role-arn` with the role of the controllers, with credentials that may call IAM"
        )
    optional = ", which is optional," if row.scope.policy.optional else ""
    return (
        f"attach {policy_name(row.scope.policy, cluster)}{optional} of manifests/aws to the role: "
        f"statement {row.scope.sid} allows it"
    )


def _what(row: Permission, resources: Iterable[str]) -> str:
    """The action with what it is done to: kinds of EC2's resources, names of the others."""
    said = tuple(dict.fromkeys(name for name in map(_short, resources) if name))
    return f"{row.action} on {', '.join(said)}" if said else row.action


def _short(arn: str) -> str:
    if not arn.startswith("arn:"):
        return ""
    last = arn.split(":", 5)[5].removesuffix(f"/{EXAMPLE}")
    return last.partition("/")[0] if ":ec2:" in arn else last
