"""The discount ledger: prices that this account pays instead of the list's, as its owner writes them down.

A YAML list, from a file or the key `discounts.yaml` of a ConfigMap; a row is

    - family: m5                # or type: m5.large
      region: us-east-1         # or zone: us-east-1a; neither: everywhere
      os: linux                 # the default
      usd_per_hour: 0.061       # one instance, in the currency of the partition
      count: 20                 # or hourly_commitment: 12.50; neither: any number
      until: 2027-03-31         # a day counts to its end, UTC; a time is exact

The first row that matches an instance decides. Where it is used up, or its time is over, the list price holds: rows further down are not
asked, so that the order is the owner's to choose. Only on-demand instances are discounted. A plan counts the instances that
run when it is made, so a plan of many at once may give more of them the discount than the row pays for. Pure.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from provisioner.apis import names, openapi
from provisioner.values import yamltext
from provisioner.values.message import Said

CONFIG_KEY: Final = "discounts.yaml"
_EPSILON: Final = 1e-9
_LINUX: Final = "linux"
_TEXT: Final[Mapping[str, Any]] = {"type": "string"}
_AMOUNT: Final[Mapping[str, Any]] = {"type": "number", "minimum": 0}
_ROW: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["usd_per_hour"],
    "properties": {
        **dict.fromkeys(("family", "type", "region", "zone", "os"), _TEXT),
        **dict.fromkeys(("usd_per_hour", "hourly_commitment"), _AMOUNT),
        "count": {"type": "integer", "minimum": 0},
        "until": {},
    },
}


@dataclass(frozen=True, slots=True)
class Discount:
    """One row.

    Attributes:
        family: of instance types, "" where `type` is given.
        type: one instance type, "" where `family` is given.
        region: "" for everywhere.
        zone: "" for every zone.
        usd_per_hour: what one instance costs.
        count: for how many instances; None for no such limit.
        hourly_commitment: how much is paid for an hour of all of them; None for no such limit.
        until: no longer valid from then on; None for always.
    """

    usd_per_hour: float
    family: str = ""
    type: str = ""
    region: str = ""
    zone: str = ""
    os: str = _LINUX
    count: int | None = None
    hourly_commitment: float | None = None
    until: datetime | None = None

    def matches(self, instance_type: str, zone: str, os: str, region: str) -> bool:
        """Whether it is about such an instance."""
        return (
            (not self.type or self.type == instance_type)
            and (not self.family or self.family == instance_type.partition(".")[0])
            and (not self.zone or self.zone == zone)
            and (not self.region or self.region == region)
            and self.os == os
        )

    def stale(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.until is not None and now >= self.until

    @property
    def instances(self) -> float:
        """For how many instances it pays; infinity for any number."""
        if self.count is not None:
            return self.count
        if self.hourly_commitment is not None:
            return math.floor(self.hourly_commitment / self.usd_per_hour + _EPSILON)
        return math.inf


@dataclass(frozen=True, slots=True)
class Bought:
    """One running instance, as far as the ledger cares."""

    instance_type: str
    zone: str
    capacity_type: str
    os: str = _LINUX


@dataclass(frozen=True)
class DiscountTable:
    """All rows, in the owner's order."""

    rows: tuple[Discount, ...] = ()

    def used(self, instances: Iterable[Bought], region: str) -> tuple[int, ...]:
        """How many of `instances` fall to each row, row by row; may be more than the row pays for."""
        used = [0] * len(self.rows)
        for instance in instances:
            if instance.capacity_type != names.CAPACITY_ON_DEMAND:
                continue
            index = self.first(instance.instance_type, instance.zone, instance.os, region)
            if index is not None:
                used[index] += 1
        return tuple(used)

    def first(self, instance_type: str, zone: str, os: str, region: str) -> int | None:
        """The number of the row that decides; None without one."""
        return next(
            (index for index, row in enumerate(self.rows) if row.matches(instance_type, zone, os, region)), None
        )


@dataclass(frozen=True)
class LedgerPrices:
    """What is paid by the ledger at one instant."""

    ledger: DiscountTable
    used: tuple[int, ...]
    region: str
    now: datetime

    @property
    def version(self) -> Hashable:
        """Equal while every price that this gives is."""
        taken = (*self.used, *(0 for _ in self.ledger.rows[len(self.used) :]))
        pays = tuple(
            not row.stale(self.now) and count < row.instances
            for row, count in zip(self.ledger.rows, taken, strict=False)
        )
        return self.ledger, pays, self.region

    def adjusted(self, instance_type: str, zone: str, capacity_type: str, price: float) -> float:
        """What one more such instance, with Linux, will cost."""
        index = self.ledger.first(instance_type, zone, _LINUX, self.region)
        if index is None or capacity_type != names.CAPACITY_ON_DEMAND:
            return price
        row = self.ledger.rows[index]
        taken = self.used[index] if index < len(self.used) else 0
        return price if row.stale(self.now) or taken >= row.instances else row.usd_per_hour


def text_of(data: Mapping[str, str], where: str) -> str:
    """The ledger's text in the data of a ConfigMap; "" where that is empty.

    Raises:
        ValueError: there is something, but not under the key `CONFIG_KEY`; `where` and the keys are named.
    """
    if data and CONFIG_KEY not in data:
        raise ValueError(f"discount ledger: {where} has no key {CONFIG_KEY}, only {', '.join(sorted(data))}")
    return data.get(CONFIG_KEY, "")


def parse(text: str) -> tuple[DiscountTable, tuple[str, ...]]:
    """Read a ledger.

    Returns:
        The ledger of the good rows, and one sentence for each that was left out, naming row and field.
    """
    try:
        document = yamltext.only(text.encode())
    except yamltext.YamlDocumentError as error:
        return DiscountTable(), (Said(f"discount ledger: {error}"),)
    if document is None:
        return DiscountTable(), ()
    if not isinstance(document, list):
        return DiscountTable(), (Said("discount ledger: must be a list of rows"),)
    rows, problems = [], []
    for index, fields in enumerate(document):
        try:
            rows.append(_row(fields))
        except ValueError as error:
            problems.append(Said(f"discount ledger: row {index + 1} is ignored: {error}"))
    return DiscountTable(tuple(rows)), tuple(problems)


def _row(fields: Any) -> Discount:
    fields = {str(name): value for name, value in fields.items()} if isinstance(fields, Mapping) else fields
    wrong, unknown = openapi.judged(_ROW, fields)
    if wrong or unknown:
        raise ValueError(str((*unknown, *wrong)[0]))
    row = {name: value for name, value in fields.items() if value is not None}
    if bool(row.get("family")) == bool(row.get("type")):
        raise ValueError("needs exactly one of family and type")
    if row.get("region") and row.get("zone"):
        raise ValueError("takes only one of region and zone")
    if "count" in row and "hourly_commitment" in row:
        raise ValueError("takes only one of count and hourly_commitment")
    if row["usd_per_hour"] == 0 and "hourly_commitment" in row:
        raise ValueError("hourly_commitment needs a usd_per_hour above 0")
    told: dict[str, Any] = {name: value.strip() if isinstance(value, str) else value for name, value in row.items()}
    told |= {"os": told.get("os") or _LINUX, "until": _until(told.get("until"))}
    return Discount(**told)


def _until(value: Any) -> datetime | None:
    """A day counts to its end."""
    if value is None:
        return None
    try:
        if len(value) == len("2027-03-31"):
            day = date.fromisoformat(value)
            return datetime.combine(day + timedelta(days=1), time(), UTC) if day < date.max else None
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"until must be a date or a time such as 2027-03-31 or 2027-03-31T12:00:00Z, not {value!r}"
        ) from None
