"""`dovetail reference`: writes docs/reference and the table of controllers from the code, or says what is out of date there."""

import pathlib
from collections.abc import Mapping
from typing import Final

import click

from provisioner.lab.reference import annotations, controllers, flags, messages, metrics, rights

DIRECTORY: Final = pathlib.Path("docs") / "reference"
MANIFESTS: Final = pathlib.Path("manifests")


def pages(manifests: pathlib.Path) -> Mapping[str, str]:
    """Every generated page, by file name."""
    return {
        "flags.md": flags.text(),
        "messages.md": messages.text(),
        "metrics.md": metrics.text(),
        "annotations-and-labels.md": annotations.text(),
        "rbac.md": rights.text(manifests),
    }


def stale(directory: pathlib.Path, manifests: pathlib.Path) -> list[str]:
    """Pages in `directory` that are missing or differ from the code."""
    return [
        str(directory / name)
        for name, text in pages(manifests).items()
        if not (directory / name).is_file() or (directory / name).read_text(encoding="utf-8") != text
    ]


@click.command(
    name="reference",
    help="Write the reference pages of flags, messages, metrics, annotations, labels and permissions, and the table of controllers; run it in the repository.",
)
@click.option("--check", is_flag=True, help="Write nothing; exit with status 1 if a page is out of date.")
def command(check: bool) -> None:
    """See `dovetail reference --help`."""
    known = controllers.DOCUMENT.read_text(encoding="utf-8")
    told = controllers.written(known)
    if check:
        if old := [*stale(DIRECTORY, MANIFESTS), *([str(controllers.DOCUMENT)] if told != known else ())]:
            raise click.ClickException(f"out of date: {', '.join(old)}; run `make docs` and commit the result")
        return
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name, text in pages(MANIFESTS).items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")
        click.echo(f"wrote {DIRECTORY / name}")
    controllers.DOCUMENT.write_text(told, encoding="utf-8")
    click.echo(f"wrote {controllers.DOCUMENT}")
