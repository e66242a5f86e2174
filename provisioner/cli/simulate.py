"""`dovetail simulate`: what a day of workloads would cost with these NodePools and settings, and how long its pods would wait."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from provisioner.apis import ec2, kwok
from provisioner.cli import flags
from provisioner.cli.capacity_options import market_of, market_options, read_seconds
from provisioner.cli.documents import InputError, documents, inputs, is_shallow
from provisioner.cli.files import write_file
from provisioner.cli.plan.catalogues import catalogues_named, chosen
from provisioner.cli.plan.objects import InputProblem, PlanObjects, problem_of
from provisioner.kube import resources
from provisioner.kube.resources import Resource
from provisioner.options import HelpRequested, Options, OptionsError
from provisioner.scheduling.constraints.filters import FilterError
from provisioner.scheduling.constraints.selectors import read_selector
from provisioner.simulator.cloud import Offer
from provisioner.simulator.errors import SimulationError
from provisioner.simulator.page import SCRIPT, simulation_page
from provisioner.simulator.report import SimulationReport, as_json, as_text
from provisioner.simulator.simulation import RESOURCES, SimulationSetting, simulated
from provisioner.simulator.workload import Apply, Day, day_of
from provisioner.simulator.workloads.generator import generate, settings_of
from provisioner.support import logs
from provisioner.ui.document import alone
from provisioner.values.errors import UserError
from provisioner.values.yamltext import TOO_DEEP

_BOOT_SECONDS: Final = "30,35,40,45,60"
_KINDS: Final[frozenset[Resource[Any]]] = frozenset(
    {
        resources.NODEPOOLS,
        resources.NODEOVERLAYS,
        resources.EC2NODECLASSES,
        resources.KWOKNODECLASSES,
        resources.DAEMONSETS,
        resources.PDBS,
        resources.PRIORITYCLASSES,
        resources.RUNTIMECLASSES,
        resources.LIMITRANGES,
    }
)
"""What may be there when a day begins."""
_MOST_SEEDS: Final = 100
_AMOUNT: Final = re.compile("[0-9]{1,9}%?")


@click.command(
    name="simulate",
    help="""Run a day of workloads in virtual time and show what its nodes cost and how long its pods wait.

    DAY is a YAML or JSON file with the workloads that come, scale and end, or with settings from which each seed makes such a day. The controllers are those
    of the provisioner; API server, kube-scheduler, kubelets and instances are simulated. The same input and seed give the same output.
    """,
)
@click.argument("day", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--filename",
    "-f",
    "files",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="File or directory with NodePools, NodeClasses, NodeOverlays, DaemonSets and PodDisruptionBudgets; can be repeated.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="A flag of the provisioner, as in batch-idle-duration=5s, or a field of a NodePool, as in nodepool/default.spec.weight=10; can be repeated.",
)
@click.option(
    "--catalogue",
    default="auto",
    show_default=True,
    shell_complete=catalogues_named,
    help="Instance types and prices: kwok, kwok:FILE (as in INSTANCE_TYPES_FILE_PATH), or ec2:REGION. auto follows the NodePools.",
)
@click.option(
    "--seed",
    "seeds",
    multiple=True,
    type=click.IntRange(0, 2**32 - 1),
    default=(1,),
    show_default=True,
    help="Seed of the random choices; can be repeated to see how far the results lie apart.",
)
@click.option(
    "--boot-seconds",
    default=_BOOT_SECONDS,
    show_default=True,
    metavar="SECONDS,...",
    help="Times from the launch of an instance to its ready node; each is drawn with the same probability.",
)
@click.option(
    "--pass-interval",
    type=click.FloatRange(0, 3600),
    default=0.0,
    show_default=True,
    help="Minimum time in seconds between two looks at all nodes for disruption; 0 looks as often as the provisioner. Longer is faster and less exact.",
)
@market_options
@click.option(
    "--extender",
    is_flag=True,
    help="Install the scheduler extender, which holds room for planned pods, besides nominated nodes.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page of the figures and of every run to this file.",
)
@flags.output("table")
def command(
    day: Path,
    files: tuple[Path, ...],
    changes: tuple[str, ...],
    catalogue: str,
    seeds: tuple[int, ...],
    boot_seconds: str,
    pass_interval: float,
    *,
    extender: bool,
    html: Path | None,
    output: str,
    **traded: str,
) -> None:
    """See `dovetail simulate --help`."""
    logs.configure("error")
    if len(set(seeds)) > _MOST_SEEDS:
        raise click.UsageError(f"--seed may be given {_MOST_SEEDS} times at most.")
    found, objects, notes = _read(files)
    fields = [one for one in changes if _names_object(one)]
    for one in fields:
        _set_field(found, one)
    if fields:
        objects = PlanObjects()
        for document in found:
            _take(objects, "--set", document)
    if objects.problems:
        raise UserError(str(objects.problems[0]))
    if not objects.pools:
        raise UserError("no NodePool in the input; give a file with at least one by -f")
    table = chosen(catalogue, objects)
    is_kwok = table.name.startswith("kwok")
    options = _options([one for one in changes if one not in fields], is_kwok=is_kwok)
    kinds = frozenset({(kwok.GROUP, kwok.KIND), (ec2.GROUP, ec2.KIND)})
    offer = Offer(table.types_of, table.well_known, table.reservation_label, kinds)
    day_for, boots, market = _days(day), _boot(boot_seconds), market_of(**traded)
    days = {seed: day_for(seed) for seed in seeds}
    try:
        runs = tuple(
            simulated(
                SimulationSetting(one, tuple(found), offer, options, boots, pass_interval, market, extender), seed
            )
            for seed, one in days.items()
        )
    except SimulationError as error:
        raise UserError(f"{day}: {error}") from None
    report = SimulationReport(
        days[seeds[0]].duration_seconds,
        table.name,
        table.currency,
        pass_interval,
        runs,
        (*notes, *objects.notes, *table.notes),
    )
    if output == flags.JSON:
        click.echo(json.dumps(as_json(report), indent=2))
    else:
        click.echo(as_text(report))
    if html is not None:
        write_file(html, alone(simulation_page(day.name, [("", report)]), SCRIPT), "--html")


def _days(path: Path) -> Callable[[int], Day]:
    """The day of a seed: always the one of the file, or made of the settings that the file has."""
    if path.is_dir():
        raise InputError(str(path), "is a directory; give the file of the day")
    file = next(iter(inputs([path])))
    found = list(file.documents())
    if len(found) != 1:
        raise InputError(file.name, "must contain exactly one document, the day")
    if not is_shallow(found[0]):
        raise InputError(file.name, TOO_DEEP)
    if isinstance(found[0], dict) and {"changes", "durationSeconds"} & found[0].keys():
        day = day_of(found[0], file.name)
        for number, change in enumerate(day.changes):
            if isinstance(change, Apply):
                _check_applied(f"{file.name}: changes[{number}].object", change.object)
        return lambda _: day
    return partial(generate, settings_of(found[0], file.name))


def _check_applied(where: str, document: dict[str, Any]) -> None:
    """Raises `UserError` where the object could not be there at the beginning either."""
    if _kind_of(document) not in _KINDS:
        known = ", ".join(sorted(one.kind for one in _KINDS))
        raise UserError(
            f"{where}: {document.get('apiVersion')} {document.get('kind')} cannot be applied; use one of {known}"
        )
    objects = PlanObjects()
    _take(objects, where, document)
    if objects.problems:
        raise UserError(str(objects.problems[0]))


def _read(paths: Iterable[Path]) -> tuple[list[dict[str, Any]], PlanObjects, list[str]]:
    """The objects that count, as they are written and as `dovetail plan` reads them, and what is left out.

    Raises:
        InputError: a file cannot be read.
    """
    found: list[dict[str, Any]] = []
    objects = PlanObjects()
    ignored: dict[str, int] = {}
    for file in inputs(paths):
        for document in file.objects():
            if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
                raise InputError(file.name, "contains something that is no Kubernetes object")
            if not is_shallow(document):
                raise InputError(file.name, TOO_DEEP)
            if _kind_of(document) in _KINDS:
                found.append(document)
                _take(objects, file.name, document)
            else:
                name = str(document.get("kind"))[:63]
                ignored[name] = ignored.get(name, 0) + 1
    notes = [f"Objects of kind {name} were left out: {count}." for name, count in sorted(ignored.items())]
    return found, objects, notes


def _kind_of(document: dict[str, Any]) -> Resource[Any] | None:
    return RESOURCES.get((str(document.get("apiVersion")), str(document.get("kind"))))


def _take(objects: PlanObjects, file: str, document: dict[str, Any]) -> None:
    """As `PlanObjects.take`, with PodDisruptionBudgets, on which a plan does not depend."""
    objects.take(file, document)
    if _kind_of(document) is not resources.PDBS:
        return
    named = f"PodDisruptionBudget {document['metadata'].get('name')}"
    try:
        spec = resources.PDBS.decode(msgspec.json.encode(document)).spec
        read_selector(spec.selector, "spec.selector")
    except (msgspec.MsgspecError, FilterError) as error:
        objects.complain(problem_of(file, named, error))
        return
    for field, amount in (("minAvailable", spec.min_available), ("maxUnavailable", spec.max_unavailable)):
        if amount is not None and not _AMOUNT.fullmatch(str(amount)):
            text = f"{amount!r} is neither a number of pods nor a percentage; write for example 1 or 10%"
            objects.complain(InputProblem(file, named, f"spec.{field}", text))


def _names_object(change: str) -> bool:
    return change.partition("=")[0].startswith("nodepool/")


def _set_field(found: list[dict[str, Any]], change: str) -> None:
    """Carry out nodepool/NAME.path=VALUE.

    Raises:
        UserError: it does not say that, or there is no such NodePool.
    """
    place, equals, text = change.partition("=")
    name, _, path = place.removeprefix("nodepool/").partition(".")
    parts = path.split(".")
    if not equals or not all(parts):
        raise UserError(f"--set {change}: write nodepool/NAME.spec.FIELD=VALUE")
    values = list(documents(text.encode(), is_yaml=True))
    number = next(
        (at for at, one in enumerate(found) if one.get("kind") == "NodePool" and one["metadata"].get("name") == name),
        None,
    )
    if number is None:
        raise UserError(f"--set {change}: there is no NodePool {name}; name one of those in -f")
    found[number] = _with(found[number], parts, values[0] if values else "", change)


def _with(value: Any, parts: Sequence[str], wanted: object, change: str) -> Any:
    """The same with another value at a path."""
    if not parts:
        return wanted
    if not isinstance(value, dict):
        raise UserError(
            f"--set {change}: {parts[0]} is not a field of what stands before it; only fields of objects can be set"
        )
    return {**value, parts[0]: _with(value.get(parts[0], {}), parts[1:], wanted, change)}


def _options(changes: Iterable[str], *, is_kwok: bool) -> Options:
    own = ["--provider=kwok"] if is_kwok else ["--provider=aws", "--cluster-name=simulated"]
    try:
        return Options.parse([*(f"--{one}" for one in changes), "--history-duration=0s", *own], {})
    except (HelpRequested, OptionsError) as error:
        raise UserError(f"--set: {error}") from None


def _boot(text: str) -> tuple[float, ...]:
    return read_seconds("--boot-seconds", text, 3600)
