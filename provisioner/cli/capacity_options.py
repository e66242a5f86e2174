"""The options of `dovetail simulate` that say how instances boot, how often they are interrupted and what cannot be had, and EC2's manners with that."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

import click

from provisioner.apis.interruption import Interruption
from provisioner.apis.names import CAPACITY_ON_DEMAND, CAPACITY_RESERVED, CAPACITY_TYPES
from provisioner.cloudprovider.types import InstanceType
from provisioner.ec2.interruption import notices
from provisioner.ec2.interruption.messages import Notice, NoticeKind
from provisioner.ec2.launch.pace import LONGEST_WAIT, SHORT_WAIT
from provisioner.ec2.market.unavailable_offerings import OfferingKey, Shortages
from provisioner.ec2.settings import AwsSettings
from provisioner.simulator.market import MOST_PER_HOUR, ByOffering, CloudManners, Market
from provisioner.simulator.workload import MOST_SECONDS, Shortage
from provisioner.simulator.workloads.learned import LONGEST_BOOT, LearnedMarket
from provisioner.values.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])
_BOOT_SECONDS: Final[tuple[float, ...]] = (30.0, 35.0, 40.0, 45.0, 60.0)
_SHORTAGE_SECONDS: Final[tuple[float, ...]] = (600.0, 1800.0, 3600.0)
_MOST_NAMES: Final = 1000
INTERRUPTIONS: Final = "--interruptions-per-hour"
SHORTAGES: Final = "--shortage-share"
_NAME: Final = re.compile(r"[a-zA-Z0-9][-.a-zA-Z0-9]{0,62}")
_SETTINGS: Final = AwsSettings(cluster_name="simulated", region="")


@dataclass(frozen=True, slots=True)
class CapacityChoice:
    """What options and record say together.

    Attributes:
        shortages: to be put among the changes of the day.
        notes: what is learned from the record, as sentences.
    """

    boot_seconds: tuple[float, ...]
    market: Market
    shortages: tuple[Shortage, ...] = ()
    notes: tuple[str, ...] = ()


def capacity_options(command: F) -> F:
    """Add the options that `capacity_of` takes."""
    for option in (
        click.option(
            "--shortage-seconds",
            metavar="SECONDS,...",
            help="How long shortages of --shortage-share last; each is drawn with the same probability.  [default: 600,1800,3600]",
        ),
        click.option(
            SHORTAGES,
            metavar="SHARE,NAME=SHARE,...",
            help="Share of the time, 0 to 1, in which an offering cannot be had; separately for a capacity type, zone or instance type, as in 0.01,spot=0.1."
            "  [default: 0, or the shortages of the record]",
        ),
        click.option(
            INTERRUPTIONS,
            metavar="RATE,NAME=RATE,...",
            help="Interruptions of a spot instance per hour that it runs; separately for a zone or instance type, as in 0.01,us-east-1a=0.05."
            "  [default: 0, or as in the record]",
        ),
        click.option(
            "--boot-seconds",
            metavar="SECONDS,...",
            help="Times from the launch of an instance to its ready node; each is drawn with the same probability."
            "  [default: 30,35,40,45,60, or those of the record]",
        ),
    ):
        command = option(command)
    return command


def capacity_of(
    learned: LearnedMarket | None,
    *,
    boot_seconds: str | None,
    interruptions_per_hour: str | None,
    shortage_share: str | None,
    shortage_seconds: str | None,
) -> CapacityChoice:
    """What the options say, and where they say nothing, what the record says; with the manners of EC2.

    Args:
        learned: from the record; None where the day is none.
        boot_seconds: the option of this name; None where it is not given.
        interruptions_per_hour: likewise.
        shortage_share: likewise.
        shortage_seconds: likewise.

    Raises:
        UserError: an option is wrong.
    """
    boots, rates, share, lengths = _BOOT_SECONDS, ByOffering(), ByOffering(), _SHORTAGE_SECONDS
    shortages: tuple[Shortage, ...] = ()
    notes = []
    if boot_seconds is not None:
        boots = read_seconds("--boot-seconds", boot_seconds, LONGEST_BOOT)
    elif learned is not None and learned.boot_seconds:
        boots = learned.boot_seconds
        notes.append(learned.boot_note)
    if interruptions_per_hour is not None:
        rates = by_offering(INTERRUPTIONS, interruptions_per_hour, MOST_PER_HOUR)
    elif learned is not None and learned.interruptions_per_hour is not None:
        rates = learned.interruptions_per_hour
        notes.append(learned.interruption_note)
    if shortage_share is not None:
        share = by_offering(SHORTAGES, shortage_share, 1.0)
    elif learned is not None and learned.shortages:
        shortages = learned.shortages
        notes.append(learned.shortage_note)
    if shortage_seconds is not None:
        lengths = read_seconds("--shortage-seconds", shortage_seconds, int(MOST_SECONDS))
    return CapacityChoice(boots, Market(ec2_manners(), rates, share, lengths), shortages, tuple(notes))


class KnownNames(NamedTuple):
    """What offerings of a catalogue can be named by, in the words of `Shortage`."""

    instance_types: frozenset[str]
    zones: frozenset[str]
    capacity_types: frozenset[str]


def known_names(types: Iterable[InstanceType]) -> KnownNames:
    """Cost: the offerings."""
    types = tuple(types)
    zones = frozenset(each.zone for one in types for each in one.offerings)
    return KnownNames(frozenset(one.name for one in types), zones, CAPACITY_TYPES)


def check_names(option: str, numbers: ByOffering, known: KnownNames, catalogue: str) -> None:
    """Raises `UserError` where an option names what the catalogue does not have, or what is never interrupted."""
    for name in sorted(numbers.named):
        if option == INTERRUPTIONS and name in (CAPACITY_ON_DEMAND, CAPACITY_RESERVED):
            raise UserError(f"{option} {name}=...: only spot instances are interrupted; leave it out")
        if not any(name in some for some in known):
            raise UserError(
                f"{option} {name}=...: the catalogue {catalogue} has no instance type, zone or capacity type of that name"
            )


def unknown_name(one: Shortage, known: KnownNames) -> tuple[str, str] | None:
    """The first field of a shortage, and the name in it, that the catalogue does not have; None where it has them all."""
    said = (("instanceTypes", one.instance_types), ("zones", one.zones), ("capacityTypes", one.capacity_types))
    unknown = ((f, name) for (f, some), mine in zip(said, known, strict=True) for name in some if name not in mine)
    return next(unknown, None)


def ec2_manners() -> CloudManners:
    """Two minutes' notice, and the table of unavailable offerings of a provisioner that has just started."""
    return CloudManners(
        notices.NOTICE.total_seconds(),
        _notice,
        OfferingKey,
        Shortages,
        shortest_wait=SHORT_WAIT,
        longest_wait=LONGEST_WAIT,
    )


def _notice(at: datetime) -> Interruption | None:
    return notices.interruption(Notice(NoticeKind.SPOT_INTERRUPTED, at=at), _SETTINGS, at)


def by_offering(option: str, text: str, most: float) -> ByOffering:
    """Numbers from 0 to `most`: of all offerings, and NAME=NUMBER for some.

    Raises:
        UserError: the text does not say that.
    """
    found: dict[str, float] = {}  # "": of all
    for part in text.split(",")[: _MOST_NAMES + 1]:
        name, equals, number = part.strip().rpartition("=")
        value = _number(number)
        if not 0 <= value <= most or bool(equals) != bool(_NAME.fullmatch(name)) or len(found) == _MOST_NAMES:
            raise UserError(
                f"{option} {part[:80]!r}: write numbers from 0 to {most:g}, one for all and NAME=NUMBER for some, as in 0.01,m5.large=0.1"
            )
        if name in found:
            raise UserError(f"{option} {part[:80]!r}: {name or 'the number for all'} is there twice; leave one out")
        found[name] = value
    return ByOffering(found.pop("", 0.0), found)


def read_seconds(option: str, text: str, most: int) -> tuple[float, ...]:
    """Seconds, separated by commas.

    Raises:
        UserError: one of them is none, or is not from 1 to `most`.
    """
    found = tuple(_number(one) for one in text.split(","))
    if not all(1 <= one <= most for one in found):
        raise UserError(f"{option} {text[:80]}: write seconds from 1 to {most}, separated by commas, as in 40,50,60")
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
