"""`dovetail aws check`: whether AWS has and permits what the controllers need, said before anything is launched."""

import itertools
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import botocore.session
import click
import msgspec

from provisioner.apis import ec2
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.cli import flags
from provisioner.cli.documents import InputError, objects_in
from provisioner.ec2.access.client import AwsClients
from provisioner.ec2.cloud import region_of
from provisioner.ec2.preflight.answers import ABOUT
from provisioner.ec2.preflight.check import check
from provisioner.ec2.preflight.findings import CheckFinding, CheckReport, CheckVerdict
from provisioner.ec2.settings import AwsSettings
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ApiError, ConfigError
from provisioner.kube.server_version import server_minor
from provisioner.options import OptionsError, WithSettings
from provisioner.support.clock import SystemClock
from provisioner.values import printable

_WIDTH: Final = max(len(verdict) for verdict in CheckVerdict)


@click.group(help="Inspect AWS resources and permissions.")
def command() -> None:
    """See `dovetail aws --help`."""


@command.command(
    "check",
    cls=WithSettings,
    context_settings={"ignore_unknown_options": True},
    help="""Show what was discovered in AWS for the cluster and its node classes, and which permissions are missing.

    SETTINGS are flags of the provisioner (--cluster-name, --aws-region, --interruption-queue, --kubeconfig, ...); its environment
    variables are read too, so that no flags are needed inside its pod. Without --role-arn, the permissions of the credentials that this
    command runs with are checked, also with dry runs of a launch; as long as the cluster has no launch template, one is created for them and
    deleted again.

    The exit status is 0 if nothing is missing, 1 if something is missing, and 3 if something could not be determined.
    """,
)
@click.option(
    "--role-arn", default="", help="ARN of the controller role, to check its permissions with the IAM policy simulator."
)
@click.option(
    "--file",
    "-f",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="File or directory with EC2NodeClasses to check instead of those in the cluster; - is standard input. Can be repeated.",
)
@flags.cluster
@flags.output("text")
@click.argument("settings", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def check_command(
    ctx: click.Context,
    role_arn: str,
    files: tuple[Path, ...],
    kubeconfig: str,
    context: str,
    output: str,
    settings: tuple[str, ...],
) -> None:
    """See `dovetail aws check --help`."""
    report = run(settings, role_arn, files, kubeconfig, context)
    click.echo(as_json(report) if output == flags.JSON else as_text(report))
    ctx.exit(report.exit_code)


def run(
    given: Sequence[str], role_arn: str, files: Sequence[Path], kubeconfig: str = "", context: str = ""
) -> CheckReport:
    """The report.

    Args:
        given: flags of the provisioner.
        role_arn: of the controller role; "" checks the credentials of this process.
        files: with EC2NodeClasses, instead of those of the cluster.
        kubeconfig: of the cluster; "" leaves it to the flags and the environment.
        context: of the kubeconfig; "" is its current one.

    Raises:
        UsageError: flags or environment cannot be used.
        InputError: a file cannot be read.
    """
    options = flags.settings(given)
    if not options.cluster_name:
        raise click.UsageError("--cluster-name (or CLUSTER_NAME) is required")
    if role_arn and len(role_arn.split(":")) != 6:
        raise click.UsageError(
            f"{role_arn} is not the ARN of a role; use an ARN such as arn:aws:iam::123456789012:role/{options.cluster_name}-karpenter"
        )
    session = botocore.session.Session()
    try:
        found = AwsSettings.of(options, options.aws_region or region_of(session))
    except OptionsError as error:
        raise click.UsageError(str(error)) from None
    clock = SystemClock()
    cluster = (kubeconfig or options.kubeconfig, context)
    classes, why, minor = (classes_in(files), "", 0) if files else classes_of_cluster(*cluster, clock)
    policy = replace(found.policy(), attempts=3, connect_timeout=3.0, read_timeout=20.0)
    with closing(AwsClients(policy, clock, session)) as aws:
        return check(aws, found, clock, classes=classes, why_no_classes=why, server_minor=minor, role_arn=role_arn)


def classes_in(files: Sequence[Path]) -> list[EC2NodeClass]:
    """The EC2NodeClasses in files, in order; other kinds are passed over.

    Raises:
        InputError: a file cannot be read, or a class in it is none.
    """
    found = []
    for name, one in objects_in(files):
        if (one["apiVersion"], one["kind"]) == (ec2.API_VERSION, ec2.KIND):
            try:
                found.append(msgspec.json.decode(msgspec.json.encode(one), type=EC2NodeClass))
            except msgspec.DecodeError as error:
                raise InputError(name, str(error)) from None
    return found


def classes_of_cluster(kubeconfig: str, context: str, clock: SystemClock) -> tuple[list[EC2NodeClass] | None, str, int]:
    """The cluster's classes, why they could not be read, and the minor of its Kubernetes.

    Raises:
        ConfigError: the kubeconfig that was named cannot be used.
    """
    try:
        with closing(connect(kubeconfig or None, user_agent="dovetail-aws-check", context=context)) as connection:
            client = Client(connection, clock)
            minor = server_minor(client)
            return sorted(client.list(resources.EC2NODECLASSES), key=lambda one: one.name), "", minor
    except ConfigError as error:
        if kubeconfig or context:
            raise
        return None, str(error), 0
    except (ApiError, ValueError) as error:
        return None, f"the API server: {error}", 0


def as_json(report: CheckReport) -> str:
    """The report for programs."""
    findings = [
        {"about": one.about, "what": one.what, "verdict": one.verdict, "found": one.found, "advice": one.advice}
        for one in report.findings
    ]
    return json.dumps({"summary": report.summary(), "exitCode": report.exit_code, "findings": findings}, indent=2)


def as_text(report: CheckReport) -> str:
    """The report for people: permissions that are there are counted, everything else is a line, and the same advice is given once."""
    lines: list[str] = []
    for about, inside in itertools.groupby(report.findings, lambda one: one.about):
        lines.append(about)
        told: list[CheckFinding] = []
        fine = 0
        for one in inside:
            if about == ABOUT and one.verdict is CheckVerdict.OK and ":" in one.what:
                fine += 1
            else:
                told.append(one)
        for advice, group in itertools.groupby(told, lambda one: one.advice):
            lines += [f"  {one.verdict:<{_WIDTH}}  {one.what}: {one.found}" for one in group]
            lines += [f"  {'':<{_WIDTH}}  -> {advice}"] if advice else []
        if fine:
            lines.append(f"  {CheckVerdict.OK:<{_WIDTH}}  {fine} permissions are granted")
    return "\n".join(map(printable.one_line, [*lines, report.summary()]))
