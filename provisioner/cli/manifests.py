"""`dovetail manifests`: writes the CustomResourceDefinitions that are made from the types."""

import pathlib

import click
import yaml

from provisioner.apis.crds import Document, documents

HEADER = "# Generated from provisioner/apis by `make manifests`; do not edit.\n"
DIRECTORY = pathlib.Path("manifests/crds")


class _Dumper(yaml.SafeDumper):
    """Without anchors, and with lists indented under their key, as manifests usually are."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - yaml's signature
        super().increase_indent(flow=flow, indentless=False)


def text_of(document: Document) -> str:
    """The YAML of one document; the same document gives the same text."""
    return HEADER + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def stale(directory: pathlib.Path) -> list[str]:
    """What is wrong with the files in `directory`: missing, different, or not of any definition."""
    wanted = {name: text_of(document) for name, document in documents().items()}
    problems = []
    for name, text in wanted.items():
        path = directory / name
        if not path.is_file():
            problems.append(f"{path} is missing")
        elif path.read_text(encoding="utf-8") != text:
            problems.append(f"{path} differs from the types")
    found = {path.name for path in directory.glob("*.yaml")} - {"kustomization.yaml"}
    problems += [f"{directory / name} belongs to no type" for name in sorted(found - wanted.keys())]
    return problems


@click.command(name="manifests")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 when a file is not what the types say.")
@click.option(
    "--directory",
    type=click.Path(path_type=pathlib.Path, file_okay=False),
    default=DIRECTORY,
    show_default=True,
    help="Where the definitions are.",
)
def command(check: bool, directory: pathlib.Path) -> None:
    """Write the CustomResourceDefinitions of our kinds."""
    if check:
        if problems := stale(directory):
            raise click.ClickException("\n".join([*problems, "run `make manifests` and commit the result"]))
        click.echo(f"{len(documents())} definitions in {directory} are up to date")
        return
    directory.mkdir(parents=True, exist_ok=True)
    for name, document in documents().items():
        (directory / name).write_text(text_of(document), encoding="utf-8")
        click.echo(f"wrote {directory / name}")
