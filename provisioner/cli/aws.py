"""`dovetail aws check`: whether AWS has and permits what the controllers need, said before anything is launched."""

import itertools
import json
import os
import sys
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
from provisioner.cli.documents import content, documents
from provisioner.ec2.access.client import AwsClients
from provisioner.ec2.cloud import region_of
from provisioner.ec2.preflight.answers import ABOUT
from provisioner.ec2.preflight.check import check
from provisioner.ec2.preflight.findings import EXIT_UNKNOWN, CheckFinding, CheckReport, CheckVerdict
from provisioner.ec2.settings import AwsSettings
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ApiError, ConfigError
from provisioner.kube.server_version import server_minor
from provisioner.options import HelpRequested, Options, OptionsError
from provisioner.support.clock import SystemClock
from provisioner.values import printable
from provisioner.values.yamltext import YamlDocumentError

_WIDTH: Final = max(len(verdict) for verdict in CheckVerdict)


class Unusable(click.UsageError):
    """What was given cannot be used: exit 2."""


@click.group(help="What AWS has and permits.")
def command() -> None:
    """See `dovetail aws --help`."""


@command.command(
    "check",
    context_settings={"ignore_unknown_options": True},
    help="""Show what was discovered in AWS for the cluster and its node classes, and which permissions are missing.

    SETTINGS are flags of the provisioner (--cluster-name, --aws-region, --interruption-queue, --kubeconfig, ...); its environment
    variables are read too, so that no flags are needed inside its pod. Without --role-arn, the permissions of the credentials that this
    command runs with are checked.

    The exit status is 0 if nothing is missing, 1 if something is missing, and 2 if something could not be determined or the usage is wrong.
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
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with EC2NodeClasses to check instead of those in the cluster; can be repeated.",
)
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.argument("settings", nargs=-1, type=click.UNPROCESSED)
def check_command(role_arn: str, files: tuple[Path, ...], output: str, settings: tuple[str, ...]) -> None:
    """See `dovetail aws check --help`."""
    try:
        report = run(settings, role_arn, files)
    except (Unusable, HelpRequested) as error:
        raise click.UsageError(str(error)) from None
    except Exception as error:  # noqa: BLE001 - a bug of ours must not look like something missing
        click.echo(printable.lines(f"the check failed: {type(error).__name__}: {error}"), err=True)
        sys.exit(EXIT_UNKNOWN)
    click.echo(as_json(report) if output == "json" else as_text(report))
    sys.exit(report.exit_code)


def run(flags: Sequence[str], role_arn: str, files: Sequence[Path]) -> CheckReport:
    """The report.

    Raises:
        Unusable: flags, environment or files.
    """
    try:
        options = Options.parse(flags, os.environ)
    except OptionsError as error:
        raise Unusable(str(error)) from None
    if not options.cluster_name:
        raise Unusable("--cluster-name (or CLUSTER_NAME) is required")
    if role_arn and len(role_arn.split(":")) != 6:
        raise Unusable(
            f"{role_arn} is not the ARN of a role; use an ARN such as arn:aws:iam::123456789012:role/{options.cluster_name}-karpenter"
        )
    session = botocore.session.Session()
    try:
        found = AwsSettings.of(options, options.aws_region or region_of(session))
    except OptionsError as error:
        raise Unusable(str(error)) from None
    clock = SystemClock()
    classes, why, minor = (classes_in(files), "", 0) if files else classes_of_cluster(options, clock)
    policy = replace(found.policy(), attempts=3, connect_timeout=3.0, read_timeout=20.0)
    with closing(AwsClients(policy, clock, session)) as aws:
        return check(aws, found, clock, classes=classes, why_no_classes=why, server_minor=minor, role_arn=role_arn)


def classes_in(files: Sequence[Path]) -> list[EC2NodeClass]:
    """The EC2NodeClasses in YAML files, in order; other kinds are passed over.

    Raises:
        Unusable: a file is no YAML, or a class in it is none.
    """
    found = []
    for path in files:
        try:
            given = list(documents(path, content(path)))
        except (OSError, YamlDocumentError) as error:
            raise Unusable(f"{path}: {error}") from None
        for document in given:
            if isinstance(document, dict) and (document.get("apiVersion"), document.get("kind")) == (
                ec2.API_VERSION,
                ec2.KIND,
            ):
                try:
                    found.append(msgspec.json.decode(msgspec.json.encode(document), type=EC2NodeClass))
                except msgspec.DecodeError as error:
                    raise Unusable(f"{path}: {error}") from None
    return found


def classes_of_cluster(options: Options, clock: SystemClock) -> tuple[list[EC2NodeClass] | None, str, int]:
    """The cluster's classes, why they could not be read, and the minor of its Kubernetes."""
    try:
        with closing(connect(options.kubeconfig or None, user_agent="dovetail-aws-check")) as connection:
            client = Client(connection, clock)
            minor = server_minor(client)
            return sorted(client.list(resources.EC2NODECLASSES), key=lambda one: one.name), "", minor
    except ConfigError as error:
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
