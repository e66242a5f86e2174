"""`dovetail simulate`: what a day of workloads would cost with these NodePools and settings, and how long its pods would wait."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from provisioner.apis import ec2, kwok
from provisioner.cli import flags
from provisioner.cli.capacity_options import (
    INTERRUPTIONS,
    SHORTAGES,
    CapacityChoice,
    capacity_of,
    capacity_options,
    check_names,
    known_names,
    unknown_name,
)
from provisioner.cli.documents import InputError, inputs, is_shallow
from provisioner.cli.files import check_writable, write_file
from provisioner.cli.plan.catalogues import catalogues_named, chosen
from provisioner.cli.plan.objects import InputProblem, PlanObjects, problem_of
from provisioner.cli.pod_fields import MOST_TOLD, ignored_fields
from provisioner.cli.simulated_day import DayInput, read_day
from provisioner.cli.simulated_variants import Variant, options_of, variants_of, with_fields
from provisioner.kube import resources
from provisioner.kube.resources import Resource
from provisioner.options import Options
from provisioner.scheduling.constraints.filters import FilterError
from provisioner.scheduling.constraints.selectors import read_selector
from provisioner.simulator.cloud import Offer
from provisioner.simulator.comparison import ComparedCase, compared_json, compared_text
from provisioner.simulator.errors import SimulationError
from provisioner.simulator.page import SCRIPT, simulation_page
from provisioner.simulator.policies import Policy
from provisioner.simulator.report import SimulationReport, as_json, as_text
from provisioner.simulator.simulation import RESOURCES, SimulationSetting, simulated
from provisioner.simulator.workload import Apply, Change, Day, Shortage
from provisioner.support import logs
from provisioner.ui.document import alone
from provisioner.values.errors import UserError
from provisioner.values.printable import one_line
from provisioner.values.yamltext import TOO_DEEP

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
_MOST_RUNS: Final = 200
_BOTH: Final = "both"
_TIMES: Final = ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d")
_AMOUNT: Final = re.compile("[0-9]{1,9}%?")


@click.command(
    name="simulate",
    help="""Run a day of workloads in virtual time and show what its nodes cost and how long its pods wait.

    DAY is a YAML or JSON file with the workloads that come, scale and end, or with settings from which each seed makes such a day; or the directory, or a
    file, that `dovetail record` wrote. The controllers are those of the provisioner; API server, kube-scheduler, kubelets and instances are simulated. The
    same input and seed give the same output. Several variants or policies are compared on the same days.
    """,
)
@click.argument("day", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--filename",
    "-f",
    "files",
    multiple=True,
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
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME:SETTING",
    help="A setting, as of --set, of one variant; repeat it with other names to compare variants, and with the same name for more settings of one.",
)
@click.option(
    "--policy",
    type=click.Choice([*(one.value for one in Policy), _BOTH]),
    default=Policy.DOVETAIL.value,
    show_default=True,
    help="Whose rules launch and disrupt nodes: Dovetail's, Karpenter's, or both, one after the other.",
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
    "--pass-interval",
    type=click.FloatRange(0, 3600),
    default=0.0,
    show_default=True,
    help="Minimum time in seconds between two looks at all nodes for disruption; 0 looks as often as the provisioner. Longer is faster and less exact.",
)
@click.option(
    "--since",
    type=click.DateTime(_TIMES),
    help="Of a record: begin with the segment of this time (UTC).",
)
@click.option(
    "--until",
    type=click.DateTime(_TIMES),
    help="Of a record: end with the segment of this time (UTC).",
)
@capacity_options
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
    variants: tuple[str, ...],
    policy: str,
    catalogue: str,
    seeds: tuple[int, ...],
    pass_interval: float,
    since: datetime | None,
    until: datetime | None,
    *,
    extender: bool,
    html: Path | None,
    output: str,
    **capacity: str | None,
) -> None:
    """See `dovetail simulate --help`."""
    logs.configure("error")
    if math.isnan(pass_interval):
        raise click.UsageError("--pass-interval nan: write seconds from 0 to 3600.")
    policies = tuple(Policy) if policy == _BOTH else (Policy(policy),)
    chosen_variants = variants_of(changes, variants)
    if len(set(seeds)) > _MOST_SEEDS:
        raise click.UsageError(f"--seed may be given {_MOST_SEEDS} times at most.")
    if (wanted := len(set(seeds)) * len(policies) * len(chosen_variants)) > _MOST_RUNS:
        raise click.UsageError(f"{wanted} simulations are more than {_MOST_RUNS}; give fewer seeds or variants.")
    if html is not None:
        check_writable(html, "--html")
    found, objects, notes = _read(files)
    if objects.problems:
        raise UserError(str(objects.problems[0]))
    given = read_day(day, _utc(since), _utc(until), found)
    for where, document in given.applied:
        _check_applied(where, document)
    later: tuple[Apply, ...] = ()
    if given.pools and not objects.pools:
        first = {one.object["metadata"]["name"]: one.object for one in reversed(given.pools)}
        found, later = [*found, *first.values()], given.pools
        try:
            for each in later:
                _check_applied(str(day), each.object)
        except UserError as error:
            raise UserError(f"{error}. This is of the record; give NodePools by -f instead") from None
        for one in first.values():
            _take(objects, str(day), one)
        notes.append("The NodePools are those of the record, as they were and as they changed.")
    cloud = capacity_of(given.learned, **capacity)
    days = {seed: _with_changes(given.of_seed(seed), (*later, *cloud.shortages)) for seed in seeds}
    worlds = [
        _world(found, objects, one, catalogue) for one in chosen_variants
    ]  # all that is wrong is told before the first begins
    notes += _check_capacity(day, given, days[seeds[0]], cloud, capacity, objects, worlds[0])
    cases = []
    for variant, world in zip(chosen_variants, worlds, strict=True):
        for rules in policies:
            setting = SimulationSetting(
                days[seeds[0]],
                world.objects,
                world.offer,
                world.options,
                cloud.boot_seconds,
                pass_interval,
                rules,
                cloud.market,
                extender,
            )
            try:
                runs = tuple(simulated(replace(setting, day=one), seed) for seed, one in days.items())
            except SimulationError as error:
                raise UserError(f"{day}: {error}") from None
            of_runs = dict.fromkeys(note for run in runs for note in run.notes)
            told = tuple(map(one_line, (*given.notes, *cloud.notes, *notes, *world.notes, *of_runs)))
            report = SimulationReport(
                setting.day.duration_seconds, world.catalogue, world.currency, pass_interval, runs, told
            )
            cases.append(ComparedCase(variant.name, tuple(one.text for one in variant.settings), rules.value, report))
    several = len(cases) > 1
    if output == flags.JSON:
        click.echo(json.dumps(compared_json(cases) if several else as_json(cases[0].report), indent=2))
    else:
        click.echo(compared_text(cases) if several else as_text(cases[0].report))
    if html is not None:
        named = [(one.title if several else "", one.report) for one in cases]
        write_file(html, alone(simulation_page(one_line(day.name), named), SCRIPT), "--html")


class _World(NamedTuple):
    """What is there when a variant's day begins, and what can be had."""

    objects: tuple[dict[str, Any], ...]
    offer: Offer
    options: Options
    catalogue: str
    currency: str
    notes: tuple[str, ...]


def _world(found: Sequence[dict[str, Any]], objects: PlanObjects, variant: Variant, catalogue: str) -> _World:
    """Raises `UserError` where the variant cannot be simulated."""
    fields = [one for one in variant.settings if one.is_field]
    if fields:
        found, objects = with_fields(found, fields), PlanObjects()
        for document in found:
            _take(objects, ", ".join(map(str, fields)), document)
    if objects.problems:
        raise UserError(str(objects.problems[0]))
    if not objects.pools:
        raise UserError("no NodePool in the input; give a file with at least one by -f")
    table = chosen(catalogue, objects)
    flags_set = [one for one in variant.settings if not one.is_field]
    options = options_of(flags_set, is_kwok=table.name.startswith("kwok"))
    kinds = frozenset({(kwok.GROUP, kwok.KIND), (ec2.GROUP, ec2.KIND)})
    offer = Offer(table.types_of, table.well_known, table.reservation_label, kinds)
    return _World(tuple(found), offer, options, table.name, table.currency, (*objects.notes, *table.notes))


def _check_capacity(
    day: Path,
    given: DayInput,
    first: Day,
    cloud: CapacityChoice,
    said: Mapping[str, str | None],
    objects: PlanObjects,
    world: _World,
) -> list[str]:
    """Names of offerings that mean nothing: an error where the user wrote them, a sentence where a record has them."""
    known = known_names(world.offer.types_of(objects.pools[0]))
    for option, wanted in (
        (INTERRUPTIONS, cloud.market.interruptions_per_hour),
        (SHORTAGES, cloud.market.shortage_share),
    ):
        if said[option[2:].replace("-", "_")] is not None:
            check_names(option, wanted, known, world.catalogue)
    if given.learned is None:
        for number, one in enumerate(first.changes):
            if isinstance(one, Shortage) and (wrong := unknown_name(one, known)) is not None:
                raise UserError(
                    f"{day}: changes[{number}].{wrong[0]}: the catalogue {world.catalogue} does not have {wrong[1]}"
                )
    foreign = sum(unknown_name(one, known) is not None for one in cloud.shortages)
    text = f"Shortages of the record that name what the catalogue {world.catalogue} does not have: {foreign}."
    return [text] if foreign else []


def _with_changes(day: Day, more: Sequence[Change]) -> Day:
    """With more that happens in it."""
    if not more:
        return day
    changes = sorted((*more, *day.changes), key=lambda one: one.at)
    return msgspec.structs.replace(day, changes=tuple(changes))


def _utc(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at is not None else None


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
    notes: list[str] = []
    for file in inputs(paths):
        for document in file.objects():
            if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
                raise InputError(file.name, "contains something that is no Kubernetes object")
            if not is_shallow(document):
                raise InputError(file.name, TOO_DEEP)
            if _kind_of(document) in _KINDS:
                found.append(document)
                _take(objects, file.name, document)
                notes += _strange_fields(file.name, document)
            else:
                name = str(document.get("kind"))[:63]
                ignored[name] = ignored.get(name, 0) + 1
    left_out = [f"Objects of kind {name} were left out: {count}." for name, count in sorted(ignored.items())]
    return found, objects, [*notes[:MOST_TOLD], *left_out]


def _strange_fields(file: str, document: dict[str, Any]) -> list[str]:
    """Fields of the pods of a DaemonSet that nobody reads."""
    spec = document.get("spec")
    template = spec.get("template") if isinstance(spec, dict) and _kind_of(document) is resources.DAEMONSETS else None
    if not isinstance(template, dict):
        return []
    return ignored_fields(template, f"{file}: DaemonSet {document['metadata'].get('name')}: spec.template")


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
