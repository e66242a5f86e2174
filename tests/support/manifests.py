"""Files for the loader of commands."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from provisioner.cli.documents import InputFile
from provisioner.cli.lint import LintItem, items_of
from provisioner.cli.plan.objects import PlanObjects


@contextmanager
def input_file(text: str | bytes, name: str = "f.yaml") -> Iterator[InputFile]:
    """A file of this content and name, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="dovetail-test-") as directory:
        path = Path(directory, name)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        yield InputFile(path)


def lint_items(text: str | bytes) -> list[LintItem]:
    """What `dovetail lint` makes of a file of this content."""
    with input_file(text) as file:
        return list(items_of(file))


def plan_objects(text: str | bytes, name: str = "some.yaml", into: PlanObjects | None = None) -> PlanObjects:
    """What `dovetail plan` takes from a file of this content; problems name it without its directory."""
    found = PlanObjects() if into is None else into
    with input_file(text, name) as file:
        found.read(file.path)
        found.problems = [replace(one, file=one.file.removeprefix(f"{file.path.parent}/")) for one in found.problems]
    return found
