"""What answers of IAM and of trials mean, in words that say what to do."""

from typing import Any

import pytest

from provisioner.ec2.access.errors import classify
from provisioner.ec2.access.permissions import PERMISSIONS
from provisioner.ec2.preflight.answers import PermissionAnswer, finding, simulated, tried
from provisioner.ec2.preflight.findings import CheckFinding, CheckReport, CheckVerdict
from provisioner.ec2.preflight.needs import Need

SUBNET = "arn:aws:ec2:eu-west-1:123456789012:subnet/subnet-1"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1"

SIMULATED: dict[str, tuple[dict[str, Any], str, CheckVerdict, str]] = {
    "allowed": ({"EvalDecision": "allowed"}, SUBNET, CheckVerdict.OK, ""),
    "no policy": (
        {"EvalDecision": "implicitDeny"},
        SUBNET,
        CheckVerdict.MISSING,
        "no policy of the role allows the action",
    ),
    "a denial, named": (
        {"EvalDecision": "explicitDeny", "MatchedStatements": [{"SourcePolicyId": "lockdown"}]},
        SUBNET,
        CheckVerdict.MISSING,
        "a policy statement denies the action in lockdown",
    ),
    "the boundary": (
        {"EvalDecision": "implicitDeny", "PermissionsBoundaryDecisionDetail": {"AllowedByPermissionsBoundary": False}},
        SUBNET,
        CheckVerdict.MISSING,
        "the permissions boundary of the role does not allow the action",
    ),
    "the organization": (
        {"EvalDecision": "explicitDeny", "OrganizationsDecisionDetail": {"AllowedByOrganizations": False}},
        SUBNET,
        CheckVerdict.MISSING,
        "a service control policy of the organization denies the action",
    ),
    "a condition on something that we cannot know": (
        {"EvalDecision": "implicitDeny", "MissingContextValues": ["aws:SourceVpc"]},
        SUBNET,
        CheckVerdict.UNKNOWN,
        "the policies of the role use the condition keys aws:SourceVpc, which the simulation cannot evaluate",
    ),
    "a key, whose own policy may allow it": (
        {"EvalDecision": "implicitDeny"},
        KEY,
        CheckVerdict.UNKNOWN,
        "no policy of the role allows the action; the key policy may allow it",
    ),
    "a key, denied": (
        {"EvalDecision": "explicitDeny"},
        KEY,
        CheckVerdict.MISSING,
        "a policy statement denies the action",
    ),
}


@pytest.mark.parametrize(("row", "resource", "verdict", "why"), SIMULATED.values(), ids=SIMULATED)
def test_a_simulation(row: dict[str, Any], resource: str, verdict: CheckVerdict, why: str) -> None:
    answer = simulated(row, resource)
    assert (answer.verdict, answer.resource, answer.why) == (verdict, resource, why)


def test_a_condition_on_what_we_know_is_not_unknown() -> None:
    row = {"EvalDecision": "implicitDeny", "MissingContextValues": ["ec2:CreateAction"]}
    assert simulated(row, SUBNET, {"ec2:CreateAction"}).verdict is CheckVerdict.MISSING
    assert simulated(row, SUBNET).verdict is CheckVerdict.UNKNOWN


TRIED = {
    "a dry run that would have worked": ("DryRunOperation", 412, CheckVerdict.OK),
    "the thing is not there, so it was looked for": ("NoSuchEntity", 404, CheckVerdict.OK),
    "the request is wrong, which may come before permissions": ("InvalidParameterValue", 400, CheckVerdict.UNKNOWN),
    "denied": ("UnauthorizedOperation", 403, CheckVerdict.MISSING),
    "denied by IAM": ("AccessDenied", 403, CheckVerdict.MISSING),
    "throttled": ("RequestLimitExceeded", 503, CheckVerdict.UNKNOWN),
    "AWS failed": ("InternalError", 500, CheckVerdict.UNKNOWN),
    "credentials that expired": ("ExpiredToken", 403, CheckVerdict.UNKNOWN),
    "something else": ("Strange", 418, CheckVerdict.UNKNOWN),
}


@pytest.mark.parametrize(("code", "status", "verdict"), TRIED.values(), ids=TRIED)
def test_a_trial(code: str, status: int, verdict: CheckVerdict) -> None:
    assert tried(classify(code, "said so", status)).verdict is verdict


def test_a_trial_that_went_through() -> None:
    assert tried(None) == PermissionAnswer(CheckVerdict.OK)


def need_of(action: str, sid: str = "", *resources: str) -> Need:
    row = next(row for row in PERMISSIONS if row.action == action and row.scope.sid.startswith(sid))
    return Need(row, resources, ())


TAGS = need_of("ec2:CreateTags", "AllowScopedResourceTagging", SUBNET.replace("subnet", "instance"))


def test_a_missing_permission_says_what_is_lost_and_what_to_attach() -> None:
    found = finding(TAGS, [simulated({"EvalDecision": "implicitDeny"}, SUBNET.replace("subnet", "instance"))], "prod")
    assert found.what == "ec2:CreateTags on instance"
    assert found.verdict is CheckVerdict.MISSING
    assert found.found.startswith("no policy of the role allows the action; without it: instances lack the tags")
    assert found.advice == (
        "attach KarpenterControllerNodeLifecyclePolicy-prod of manifests/aws to the role: "
        "statement AllowScopedResourceTagging allows it"
    )


def test_an_optional_policy_is_called_so() -> None:
    row = need_of("ssm:GetParameter", "AllowReadingOwnParameters")
    found = finding(row, [simulated({"EvalDecision": "implicitDeny"}, "arn:aws:ssm:r:1:parameter/x")], "prod")
    assert "KarpenterControllerCustomParametersPolicy-prod, which is optional," in found.advice
    assert found.what == "ssm:GetParameter on parameter/x"


def test_a_denial_is_not_cured_by_another_policy() -> None:
    found = finding(TAGS, [simulated({"EvalDecision": "explicitDeny"}, SUBNET)], "prod")
    assert "attach" not in found.advice
    assert found.advice == "remove the denial; a policy that allows the action does not override it"


def test_only_what_is_missing_is_named_and_missing_outweighs_unknown() -> None:
    row = need_of("ec2:RunInstances")
    answers = [
        PermissionAnswer(CheckVerdict.OK, SUBNET),
        PermissionAnswer(CheckVerdict.UNKNOWN, "arn:aws:ec2:eu-west-1::snapshot/snap-1", "not known"),
        PermissionAnswer(CheckVerdict.MISSING, "arn:aws:ec2:eu-west-1::image/ami-1", "no"),
        PermissionAnswer(CheckVerdict.MISSING, "arn:aws:ec2:eu-west-1::image/ami-2", "no"),
    ]
    found = finding(row, answers, "prod")
    assert (found.what, found.verdict) == ("ec2:RunInstances on image", CheckVerdict.MISSING)
    assert found.found.startswith("no; without it")


def test_unknown_is_not_missing() -> None:
    found = finding(
        TAGS, [PermissionAnswer(CheckVerdict.UNKNOWN, why="the action cannot be tested without performing it")], "prod"
    )
    assert (found.what, found.verdict) == ("ec2:CreateTags on instance", CheckVerdict.UNKNOWN)
    assert "without it:" not in found.found
    assert "--role-arn" in found.advice


def of(*verdicts: CheckVerdict) -> CheckReport:
    return CheckReport.of(CheckFinding("a", str(number), verdict, "") for number, verdict in enumerate(verdicts))


@pytest.mark.parametrize(
    ("report", "code", "summary"),
    [
        pytest.param(of(CheckVerdict.OK, CheckVerdict.OK), 0, "all 2 checks passed", id="all well"),
        pytest.param(of(CheckVerdict.OK, CheckVerdict.MISSING), 1, "1 missing, of 2 checks", id="missing"),
        pytest.param(of(CheckVerdict.UNKNOWN), 3, "1 could not be determined, of 1 checks", id="unknown"),
        pytest.param(
            of(CheckVerdict.UNKNOWN, CheckVerdict.MISSING),
            1,
            "1 missing, 1 could not be determined, of 2 checks",
            id="both",
        ),
        pytest.param(of(), 0, "all 0 checks passed", id="nothing to check"),
    ],
)
def test_the_exit_code(report: CheckReport, code: int, summary: str) -> None:
    assert (report.exit_code, report.summary()) == (code, summary)


def test_findings_are_told_by_what_they_are_about() -> None:
    report = CheckReport.of(
        CheckFinding(about, str(number), CheckVerdict.OK, "") for number, about in enumerate("abab")
    )
    assert [one.about for one in report.findings] == ["a", "a", "b", "b"]
    assert [one.what for one in report.findings] == ["0", "2", "1", "3"]
