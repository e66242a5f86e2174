"""The whole check: look around, ask what is permitted, say what is missing.

From outside (`role_arn`) IAM's simulator is asked about the role. Inside, with the controllers' own credentials, it is asked too where they
may; what it does not answer is tried out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from provisioner.apis.ec2 import EC2NodeClass, EC2NodeClassStatus
from provisioner.ec2.access.client import Clients
from provisioner.ec2.access.errors import FailureKind
from provisioner.ec2.access.permissions import CLUSTER_ARN, PolicyNames
from provisioner.ec2.launch.userdata.inputs import JoinedCluster
from provisioner.ec2.preflight.answers import ABOUT, PermissionAnswer, finding
from provisioner.ec2.preflight.findings import CheckFinding, CheckReport, CheckVerdict
from provisioner.ec2.preflight.needs import AwsAccount, Need, features, keys, needs, parameters, told_keys
from provisioner.ec2.preflight.simulator import CannotSimulate, simulate
from provisioner.ec2.preflight.survey import CLUSTER, Everything, Surveyor, names_of
from provisioner.ec2.preflight.trials import Trials, TrialSample, sample
from provisioner.ec2.settings import AwsSettings
from provisioner.support.clock import Clock

_ASSUMED: Final = re.compile(r"arn:(?P<partition>[\w-]+):sts::(?P<account>\d+):assumed-role/(?P<role>[^/]+)/.*")


def check(
    aws: Clients,
    settings: AwsSettings,
    clock: Clock,
    *,
    classes: Sequence[EC2NodeClass] | None,
    why_no_classes: str = "",
    server_minor: int = 0,
    role_arn: str = "",
) -> CheckReport:
    """Everything that can be told.

    Args:
        aws: with our own credentials.
        settings: of the controllers.
        clock: for discovery.
        classes: that are to work; None where they could not be read.
        why_no_classes: the reason, where they could not.
        server_minor: of the API server's Kubernetes; 0 where it was not asked.
        role_arn: of the controllers' role; "" where our own credentials are those of the controllers.
    """
    surveyor = Surveyor(aws, settings, clock)
    cluster = surveyor.cluster()
    account = _account(role_arn) or cluster.account
    where = names_of(settings, account)
    minor = (cluster.eks.minor if cluster.eks else 0) or server_minor
    vpc = cluster.eks.vpc if cluster.eks else ""
    found = Everything(cluster, {one.name: surveyor.node_class(one, minor, where, vpc) for one in classes or ()})
    told = [*found.findings(), *_about_classes(classes, why_no_classes)]
    if not account:
        said = "the account is not known, so permissions cannot be checked"
        told.append(
            CheckFinding(ABOUT, "all", CheckVerdict.UNKNOWN, said, "check the credentials that this command uses")
        )
        return CheckReport.of(told)
    asked = needs(
        features(settings, classes),
        AwsAccount(where, found.roles(), found.ids(), parameters(classes or ()), keys(classes or (), where)),
    )
    role = role_arn or role_of(cluster.caller)
    if role_arn:
        return CheckReport.of([*told, *_permissions(aws, asked, where, role, None)])
    trials = Trials(aws, settings, rehearsal(classes or (), found, settings, minor), where.fill(CLUSTER_ARN))
    try:
        told += _permissions(aws, asked, where, role, trials)
    finally:
        left = trials.close()
    if left:
        told.append(CheckFinding(ABOUT, "launch template", CheckVerdict.RISK, left, "delete it"))
    return CheckReport.of(told)


def _account(role_arn: str) -> str:
    parts = role_arn.split(":")
    return parts[4] if len(parts) > 5 else ""


def role_of(caller: str) -> str:
    """The ARN that IAM's simulator knows a caller by; of a role with a path the path is not told, so it is not found by it."""
    assumed = _ASSUMED.fullmatch(caller)
    return f"arn:{assumed['partition']}:iam::{assumed['account']}:role/{assumed['role']}" if assumed else caller


def _about_classes(classes: Sequence[EC2NodeClass] | None, why: str) -> Iterable[CheckFinding]:
    if classes is None:
        advice = "set --kubeconfig to a kubeconfig of the cluster, or pass EC2NodeClasses with --file"
        yield CheckFinding(CLUSTER, "EC2NodeClasses", CheckVerdict.UNKNOWN, why or "failed to read them", advice)
    elif not classes:
        yield CheckFinding(CLUSTER, "EC2NodeClasses", CheckVerdict.OK, "none exist yet")


def rehearsal(classes: Iterable[EC2NodeClass], found: Everything, settings: AwsSettings, minor: int) -> TrialSample:
    """What dry runs ask for: the launch of the first class that has an image, a subnet and groups. User data need not work, so what is not known is made up."""
    eks = found.cluster.eks
    cluster = JoinedCluster(
        settings.cluster_name,
        settings.cluster_endpoint or (eks.endpoint if eks else "") or "https://cluster.invalid",
        settings.cluster_ca_bundle or (eks.ca_bundle if eks else ""),
        minor,
        (eks.cidr if eks else "") or "10.100.0.0/16",
    )
    made = [sample(one, found.classes[one.name].status(one), cluster, settings.region) for one in classes]
    made.append(sample(EC2NodeClass(), EC2NodeClassStatus(), cluster, settings.region))
    return next((one for one in made if not one.why_not), made[0])


def _permissions(
    aws: Clients, asked: Sequence[Need], where: PolicyNames, role: str, trials: Trials | None
) -> Iterable[CheckFinding]:
    """What is permitted: `trials` None asks the simulator alone."""
    simulated: Mapping[Need, tuple[PermissionAnswer, ...]] = {}
    try:
        simulated = simulate(aws.client("iam"), role, asked, told_keys(where))
    except CannotSimulate as reason:
        if trials is None:
            yield _not_simulated(role, reason)
            return
    means = "with policy simulation" if simulated else "with dry runs and read-only calls"
    yield CheckFinding(ABOUT, "role", CheckVerdict.OK, f"{role}, checked {means}")
    for need in asked:
        answers = simulated.get(need, ())
        if trials is not None and (not answers or any(one.verdict is CheckVerdict.UNKNOWN for one in answers)):
            answers = trials.answers(need)
        elif trials is not None and trials.probes(
            need
        ):  # a simulation knows the role, and no policy of a session, a resource or an endpoint
            answers += tuple(one for one in trials.answers(need) if one.verdict is CheckVerdict.MISSING)
        yield finding(need, answers, where.cluster)


def _not_simulated(role: str, reason: CannotSimulate) -> CheckFinding:
    failure = reason.failure
    if failure.kind is FailureKind.NOT_FOUND:
        advice = "create it with manifests/aws, or correct --role-arn (including its path)"
        return CheckFinding(ABOUT, "role", CheckVerdict.MISSING, f"role {role} does not exist", advice)
    advice = "use credentials that may call iam:SimulatePrincipalPolicy on the role"
    return CheckFinding(
        ABOUT, "role", CheckVerdict.UNKNOWN, f"failed to simulate the policies of {role}: {reason}", advice
    )
