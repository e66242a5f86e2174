"""`dovetail manifests`: writes what is made from our own code.

That is: CustomResourceDefinitions, those of old versions, the admission policy, alerts and dashboards, the IAM policies in manifests/aws, the Helm
charts, and the component `namespace`.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Final

import click

from provisioner.apis import names
from provisioner.apis.conversion.definitions import CONVERT_PATH
from provisioner.apis.conversion.definitions import documents as old_versions
from provisioner.apis.crds import OFFERED, Document, documents
from provisioner.cli.documents import plain_yaml
from provisioner.lab.charts.tree import ComponentError
from provisioner.lab.charts.writing import files as charts
from provisioner.lab.charts.writing import left_over
from provisioner.lab.infrastructure import MarksError, cloudformation, permissions_table, spliced, terraform
from provisioner.lab.monitoring import dashboards, rules
from webhook import policy

HEADER: Final = "# Generated from provisioner/apis by `make manifests`; do not edit.\n"
POLICY_HEADER: Final = "# Generated from webhook/policy.py by `make manifests`; do not edit.\n"
RULES_HEADER: Final = "# Generated from provisioner/lab/monitoring/rules.py by `make manifests`; do not edit.\n"
DIRECTORY: Final = pathlib.Path("manifests")
DEFINITIONS: Final = pathlib.Path("crds")
INFRASTRUCTURE: Final = pathlib.Path("aws")
CONVERSION: Final = pathlib.Path("crds-conversion")
REQUESTS: Final = pathlib.Path("crds-provisioning-requests")
SERVICE: Final = "dovetail-webhook"
MONITORING: Final = pathlib.Path("monitoring")
POLICY: Final = pathlib.Path("components") / "admission-policy" / "policy.yaml"


def text_of(*documents: Document, header: str = HEADER) -> str:
    """The YAML of documents; the same documents give the same text."""
    return header + "---\n".join(map(plain_yaml, documents))


def texts(directory: pathlib.Path) -> Mapping[pathlib.Path, str]:
    """What the files are to hold, by path below `directory`. Those with parts written by people keep them.

    Raises:
        MarksError: a file that is written in part by people is missing, or has no place for our part.
    """
    made = {DEFINITIONS / name: text_of(document) for name, document in documents().items()}
    made[REQUESTS / OFFERED.filename] = text_of(OFFERED.document())
    hook = {"service": {"name": SERVICE, "namespace": names.OWN_NAMESPACE, "path": CONVERT_PATH, "port": 443}}
    made |= {CONVERSION / name: text_of(document) for name, document in old_versions(hook).items()}
    made[POLICY] = text_of(policy.policy(), policy.binding(), header=POLICY_HEADER)
    made |= _monitoring()
    made[INFRASTRUCTURE / "terraform" / "policies.tf"] = terraform()
    for name, block in (("cloudformation.yaml", cloudformation()), ("README.md", permissions_table())):
        path = INFRASTRUCTURE / name
        try:
            made[path] = spliced((directory / path).read_text(encoding="utf-8"), block)
        except FileNotFoundError:
            raise MarksError(f"{directory / path} is missing; restore it from the repository") from None
        except MarksError as error:
            raise MarksError(f"{directory / path}: {error}") from None
    made |= charts(directory, made)
    return made


def _monitoring() -> Mapping[pathlib.Path, str]:
    spec = {"groups": rules.groups()}
    named = {"app.kubernetes.io/name": "dovetail"}
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "dovetail", "namespace": names.OWN_NAMESPACE, "labels": named},
        "spec": spec,
    }
    boards = {
        MONITORING / "dashboards" / f"{name}.json": f"{json.dumps(document, indent=2)}\n"
        for name, document in dashboards.documents().items()
    }
    return {
        MONITORING / "rules" / "dovetail.yaml": text_of(spec, header=RULES_HEADER),
        MONITORING / "prometheus-rule.yaml": text_of(resource, header=RULES_HEADER),
        **boards,
    }


def stale(directory: pathlib.Path) -> list[str]:
    """What is wrong with the files in `directory`: missing, different, or a definition of no type."""
    try:
        wanted = texts(directory)
    except (MarksError, ComponentError) as error:
        return [str(error)]
    problems = []
    for name, text in wanted.items():
        path = directory / name
        if not path.is_file():
            problems.append(f"{path} is missing")
        elif path.read_text(encoding="utf-8") != text:
            problems.append(f"{path} differs from its source")
    found = {DEFINITIONS / path.name for path in (directory / DEFINITIONS).glob("*.yaml")}
    extra = found - wanted.keys() - {DEFINITIONS / "kustomization.yaml"}
    problems += [f"{directory / name} belongs to no API type" for name in sorted(extra)]
    return [*problems, *(f"{directory / name} is made from no manifest" for name in left_over(directory, wanted))]


@click.command(
    name="manifests",
    help="Write the CustomResourceDefinitions of our kinds, the admission policy, alerts and dashboards, the IAM policies of the controllers, "
    "and the Helm charts.",
)
@click.option("--check", is_flag=True, help="Write nothing; exit with status 1 if a file is out of date.")
@click.option(
    "--directory",
    type=click.Path(path_type=pathlib.Path, file_okay=False),
    default=DIRECTORY,
    show_default=True,
    help="Directory of the manifests.",
)
def command(check: bool, directory: pathlib.Path) -> None:
    """See `dovetail manifests --help`."""
    if check:
        if problems := stale(directory):
            raise click.ClickException("\n".join([*problems, "run `make manifests` and commit the result"]))
        click.echo(f"{len(texts(directory))} files in {directory} are up to date")
        return
    try:
        made = texts(directory)
    except (MarksError, ComponentError) as error:
        raise click.ClickException(str(error)) from None
    for name in left_over(directory, made):
        (directory / name).unlink()
        click.echo(f"removed {directory / name}")
    for name, text in made.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(f"wrote {path}")
