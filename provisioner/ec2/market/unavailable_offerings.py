"""What EC2 has none of just now: one table for all pools and classes, that forgets in time and survives restarts.

An offering that failed is closed, for longer each time. When its time is up it is not simply open again: one instance may be asked of it
(a probe) while everybody else still goes elsewhere; each instance it gives admits four times as many, until it is trusted again. An offering whose
family has just failed in the same zone, capacity type and placement group is doubted: open, but after the others, and one instance at a time first. Nothing is
inferred about other zones and other capacity types.

The table has no clock and no I/O: callers pass `now` (aware) and keep `to_config` in a ConfigMap. Thread-safe.
"""

import dataclasses
import enum
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from provisioner.ec2.access.errors import FailureScope, quota_class
from provisioner.ec2.market import persistence
from provisioner.support.backoff import doubled
from provisioner.values.bounded import forget_oldest, put_newest

BASE: Final = timedelta(seconds=45)
LONGEST: Final = timedelta(minutes=4)
FORGET: Final = timedelta(minutes=30)
DOUBT: Final = timedelta(minutes=3)
TAKEN_BACK: Final = timedelta(minutes=3)
"""How long an offering is closed at least whose instance EC2 has just taken back. Source: spec/karpenter-aws.md 4.10."""

PROBE_LEASE: Final = timedelta(seconds=60)
FULL_TRUST: Final = 64
MAX_ENTRIES: Final = 8192

CONFIG_MAP: Final = "dovetail-aws-shortage"
CONFIG_KEY: Final = "shortage.json"
_GROWTH: Final = 4
_JITTER: Final = 0.1
_FLEET: Final = ("fleet",)
_SUBNET, _PREFIXES, _RESERVATION = "subnet", "prefixes", "reservation"
_Key = tuple[str, ...]
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, order=True)
class OfferingKey:
    """One thing that EC2 may have or not; group and partition are "" outside placement groups."""

    capacity_type: str
    instance_type: str
    zone: str
    group: str = ""
    partition: str = ""

    @property
    def family(self) -> str:
        """Of the instance type: "m5" of "m5.large"."""
        return self.instance_type.partition(".")[0]


class OfferingStanding(enum.IntEnum):
    """How much may be expected of an offering; the smaller the better."""

    OPEN = 0
    """Nothing speaks against it."""
    DOUBTED = 1
    """Open, a few instances at a time: it, or its family, failed lately."""
    PROBED = 2
    """Somebody is trying it; wait for the outcome."""
    CLOSED = 3
    """It failed lately."""

    @property
    def available(self) -> bool:
        """Whether a launch may be planned on it."""
        return self <= OfferingStanding.DOUBTED


@dataclass(slots=True)
class _Entry:
    """What is known of one key.

    Attributes:
        failures: in a row.
        failed: when it last failed.
        until: closed before this.
        code: AWS's word for it.
        allowance: how many instances may be asked at once after `until`.
        asked: how many are being asked.
        lease: until when those count.
        firm: before that a success opens nothing: it is the answer to an order that was under way.
    """

    failures: int
    failed: datetime
    until: datetime
    code: str = ""
    allowance: int = 1
    asked: int = 0
    lease: datetime = _NEVER
    firm: datetime = _NEVER

    def free(self, now: datetime) -> int:
        """How many instances may be asked of it now."""
        if now < self.until:
            return 0
        return max(0, self.allowance - (self.asked if now < self.lease else 0))


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """One entry as it is kept."""

    key: tuple[str, ...]
    failures: int
    failed: int
    until: int
    code: str


class Shortages:
    """The table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[_Key, _Entry] = {}
        self._families: dict[_Key, dict[OfferingKey, datetime]] = {}
        self._proved: dict[OfferingKey, datetime] = {}
        self._doubt_probes: dict[OfferingKey, _Entry] = {}
        self._version = 0
        self._seen = _NEVER
        self._next_turn: datetime | None = None
        self._stale = False

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<Shortages {', '.join('/'.join(key) for key in sorted(self._entries)) or 'none'}>"

    def taken_back(self, offer: OfferingKey, now: datetime, code: str) -> None:
        """EC2 takes an instance of `offer` back: it is closed for three minutes at least, whatever comes of orders that are under way."""
        with self._lock:
            self._close(_offer_key(offer), now, code)
            entry = self._entries.get(_offer_key(offer))
            if entry is not None:  # None: the table is full of newer ones
                entry.firm = max(entry.firm, now + TAKEN_BACK)
                entry.until = max(entry.until, entry.firm)
            self._doubt_family(offer, now)

    def failed(
        self, offer: OfferingKey, now: datetime, code: str = "", scope: FailureScope = FailureScope.OFFERING
    ) -> None:
        """EC2 could not give `offer`, and `scope` says how much that closes.

        Failures that come in while it is closed count once: they are answers to calls that were under way. `FailureScope.SUBNET`,
        `FailureScope.PREFIXES` and `FailureScope.RESERVATION` are told otherwise (`subnet_failed`, `reservation_failed`) and change nothing here.
        """
        with self._lock:
            match scope:
                case FailureScope.OFFERING:
                    self._close(_offer_key(offer), now, code)
                    self._doubt_family(offer, now)
                case FailureScope.ZONE_OF_GROUP:
                    self._close(("group", offer.group, offer.zone), now, code)
                case FailureScope.CAPACITY_TYPE:
                    self._close(("type", offer.capacity_type), now, code)
                case FailureScope.VCPU_QUOTA:
                    self._close(_quota_key(offer), now, code)
                case FailureScope.FLEET_QUOTA:
                    self._close(_FLEET, now, code)
                case FailureScope.SUBNET | FailureScope.PREFIXES | FailureScope.RESERVATION | FailureScope.NOTHING:
                    pass

    def succeeded(self, offer: OfferingKey, now: datetime, instances: int = 1) -> None:
        """EC2 gave `instances` of `offer`."""
        with self._lock:
            put_newest(self._proved, offer, now, MAX_ENTRIES)
            for key in (*_keys(offer), _FLEET):
                entry = self._entries.get(key)
                if entry is None:
                    continue
                entry.asked = max(0, entry.asked - instances)
                if now < entry.firm:
                    continue
                entry.until = min(entry.until, now)
                entry.allowance *= _GROWTH
                if entry.allowance > FULL_TRUST:
                    del self._entries[key]
                self._changed()
            probe = self._doubt_probes.get(offer)
            if probe is not None:
                probe.asked = max(0, probe.asked - instances)
                probe.allowance *= _GROWTH

    def subnet_failed(self, subnet: str, now: datetime, code: str = "", *, prefixes: bool = False) -> None:
        """The subnet had no free addresses, or none together for prefixes."""
        with self._lock:
            self._close((_PREFIXES if prefixes else _SUBNET, subnet), now, code)

    def subnet_open(self, subnet: str, now: datetime, *, prefixes: bool = False) -> bool:
        """Whether launches into the subnet may be tried, of instances with prefixes or without."""
        with self._lock:
            entries = (self._live((kind, subnet), now) for kind in ((_SUBNET, _PREFIXES) if prefixes else (_SUBNET,)))
            return all(entry is None or now >= entry.until for entry in entries)

    def reservation_failed(self, reservation: str, now: datetime, code: str = "") -> None:
        """EC2 gave nothing of the reservation, or takes its instances back, though it is not full; other ways to buy its type stay open."""
        with self._lock:
            self._close((_RESERVATION, reservation), now, code)

    def reservation_open(self, reservation: str, now: datetime) -> bool:
        """Whether launches into the reservation may be tried, if anything is left of it."""
        with self._lock:
            entry = self._live((_RESERVATION, reservation), now)
            return entry is None or now >= entry.until

    def fleet_open_at(self, now: datetime) -> datetime:
        """When the next CreateFleet may be sent, for the quota of fleets; `now` where nothing speaks against it."""
        with self._lock:
            entry = self._live(_FLEET, now)
            return now if entry is None else max(now, entry.until)

    def standing(self, offer: OfferingKey, now: datetime) -> OfferingStanding:
        """How much may be expected of `offer`. Costs a few look-ups."""
        with self._lock:
            return self._standing(offer, now)

    def opens_at(self, offers: Iterable[OfferingKey], now: datetime) -> datetime | None:
        """When the first of these that are not available becomes so by time alone; None where all are, or there are none."""
        with self._lock:
            return min((turn for offer in offers if (turn := self._turn(offer, now)) is not None), default=None)

    def grant(self, offer: OfferingKey, wanted: int, now: datetime) -> int:
        """How many instances may be asked of `offer` in one call now: `wanted`, fewer of a doubted one, 0 of a closed one.

        What is granted of a doubted offering is lent until `succeeded`, `failed` or `release`, at most a minute.
        """
        with self._lock:
            limits = [entry for key in _keys(offer) if (entry := self._live(key, now)) is not None]
            if self._doubted(offer, now):
                limits.append(self._probe_of_doubt(offer, now))
            granted = min([max(0, wanted), *(entry.free(now) for entry in limits)])
            if granted:
                for entry in limits:
                    entry.asked = (entry.asked if now < entry.lease else 0) + granted
                    entry.lease = now + PROBE_LEASE
                if limits:
                    self._changed()
            return granted

    def release(self, offer: OfferingKey, instances: int, now: datetime) -> None:
        """Give back what `grant` lent, when the call said nothing about `offer`."""
        with self._lock:
            limits = [entry for key in _keys(offer) if (entry := self._live(key, now)) is not None]
            probe = self._doubt_probes.get(offer)
            for entry in (*limits, *(() if probe is None else (probe,))):
                entry.asked = max(0, entry.asked - instances)
                self._changed()

    def version(self, now: datetime) -> int:
        """A number that differs whenever some offering may have become available, or stopped to be, since an earlier call."""
        with self._lock:
            if self._stale:
                self._next_turn, self._stale = self._first_turn(self._seen), False
            self._seen = max(self._seen, now)
            if self._next_turn is not None and now >= self._next_turn:
                self._version += 1
                self._next_turn = self._first_turn(self._seen)
            return self._version

    def to_config(self, now: datetime) -> dict[str, str]:
        """The data of the ConfigMap that keeps the table, newest failures first, at most 900 KiB."""
        with self._lock:
            live = [(key, entry) for key, entry in self._entries.items() if not _forgotten(entry, now)]
        live.sort(key=lambda pair: (-pair[1].failed.timestamp(), pair[0]))
        rows = (
            _Row(key, entry.failures, int(entry.failed.timestamp()), int(entry.until.timestamp()), entry.code[:128])
            for key, entry in live
        )
        return {CONFIG_KEY: next(persistence.write(rows))}

    def restore(self, data: Mapping[str, str], now: datetime) -> int:
        """Take over what an earlier process kept; what is known already stays where it is stricter.

        Times that cannot be (a clock that was ahead) are cut to what a failure right now would give.

        Returns:
            How many rows could not be read; the others are taken over.
        """
        text = data.get(CONFIG_KEY)
        if text is None:
            return 0
        rows, bad = persistence.read(text, _Row)
        for row in rows:
            try:
                failed, until = datetime.fromtimestamp(row.failed, UTC), datetime.fromtimestamp(row.until, UTC)
            except (ValueError, OverflowError, OSError):
                bad += 1
                continue
            if not row.key or row.failures < 1:
                bad += 1
                continue
            entry = _Entry(row.failures, min(failed, now), min(until, now + LONGEST * (1 + _JITTER)), row.code)
            if not _forgotten(entry, now):
                self._take_over(row.key, entry)
        return bad

    def _take_over(self, key: _Key, entry: _Entry) -> None:
        with self._lock:
            known = self._entries.get(key)
            if known is not None and known.until >= entry.until:
                return
            self._entries[key] = entry
            offer = _offer_of(key)
            if offer is not None:
                self._families.setdefault(_family_key(offer), {})[offer] = entry.failed
            self._bound()
            self._changed()

    def _close(self, key: _Key, now: datetime, code: str) -> None:
        entry = self._live(key, now)
        if entry is None:
            entry = self._entries[key] = _Entry(0, now, now)
        if now >= entry.until:
            entry.failures += 1
            entry.until = now + delay(key, entry.failures)
        entry.failed, entry.code, entry.allowance, entry.asked = now, code or entry.code, 1, 0
        self._bound()
        self._changed()

    def _doubt_family(self, offer: OfferingKey, now: datetime) -> None:
        self._families.setdefault(_family_key(offer), {})[offer] = now
        self._doubt_probes.pop(offer, None)

    def _standing(self, offer: OfferingKey, now: datetime) -> OfferingStanding:
        worst = OfferingStanding.OPEN
        if self._entries:
            for key in _keys(offer):
                entry = self._live(key, now)
                if entry is None:
                    continue
                if now < entry.until:
                    return OfferingStanding.CLOSED
                worst = max(worst, OfferingStanding.DOUBTED if entry.free(now) else OfferingStanding.PROBED)
        if worst is OfferingStanding.OPEN and self._doubted(offer, now):
            probe = self._doubt_probes.get(offer)
            return OfferingStanding.PROBED if probe is not None and not probe.free(now) else OfferingStanding.DOUBTED
        return worst

    def _turn(self, offer: OfferingKey, now: datetime) -> datetime | None:
        if self._standing(offer, now).available:
            return None
        entries = [entry for key in _keys(offer) if (entry := self._live(key, now)) is not None]
        probe = self._doubt_probes.get(offer)
        if probe is not None:
            entries.append(probe)
        shut = (max(entry.until, now if entry.free(now) else entry.lease) for entry in entries)
        return max(shut, default=now)

    def _doubted(self, offer: OfferingKey, now: datetime) -> bool:
        """Whether a sibling failed lately, and since this one last gave an instance."""
        group = _family_key(offer)
        siblings = self._families.get(group)
        if not siblings:
            return False
        proved = self._proved.get(offer)
        for sibling, failed in list(siblings.items()):
            if now - failed > DOUBT:
                del siblings[sibling]
                self._doubt_probes.pop(sibling, None)
            elif sibling != offer and (proved is None or failed > proved):
                return True
        if not siblings:
            del self._families[group]
        self._doubt_probes.pop(offer, None)
        return False

    def _probe_of_doubt(self, offer: OfferingKey, now: datetime) -> _Entry:
        probe = self._doubt_probes.get(offer)
        if probe is None:
            forget_oldest(self._doubt_probes, MAX_ENTRIES - 1)
            probe = self._doubt_probes[offer] = _Entry(0, now, now)
        return probe

    def _live(self, key: _Key, now: datetime) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is not None and _forgotten(entry, now):
            del self._entries[key]
            return None
        return entry

    def _bound(self) -> None:
        surplus = len(self._entries) - MAX_ENTRIES
        if surplus > 0:  # some more than that, so that a full table is not sorted at every failure
            oldest = sorted(self._entries, key=lambda key: (self._entries[key].failed, key))
            for key in oldest[: surplus + MAX_ENTRIES // 16]:
                del self._entries[key]
        forget_oldest(self._families, MAX_ENTRIES)

    def _changed(self) -> None:
        self._version += 1
        self._stale = True

    def _first_turn(self, after: datetime) -> datetime | None:
        """When time alone next changes something."""
        entries = (*self._entries.values(), *self._doubt_probes.values())
        return min((turn for entry in entries for turn in (entry.until, entry.lease) if turn > after), default=None)


def delay(key: tuple[str, ...], failures: int) -> timedelta:
    """How long something is closed after so many failures in a row: doubling, bounded, spread by 10 % so that probes do not meet.

    The spread depends on the key alone, so every process waits as long.
    """
    plain = doubled(failures, base=BASE.total_seconds(), cap=LONGEST.total_seconds())
    share = zlib.crc32("/".join(key).encode()) / 2**32
    return timedelta(seconds=plain * (1 - _JITTER + 2 * _JITTER * share))


def _forgotten(entry: _Entry, now: datetime) -> bool:
    return now - entry.failed > FORGET


def _offer_key(offer: OfferingKey) -> _Key:
    parts = ("offer", *dataclasses.astuple(offer))
    return parts if offer.partition else parts[:5] if offer.group else parts[:4]


def _offer_of(key: _Key) -> OfferingKey | None:
    return OfferingKey(*key[1:]) if key[0] == "offer" and 4 <= len(key) <= 6 else None


def _family_key(offer: OfferingKey) -> _Key:
    return offer.capacity_type, offer.family, offer.zone, offer.group


def _quota_key(offer: OfferingKey) -> _Key:
    # spot has its own quotas, per class as well
    return "quota", offer.capacity_type, quota_class(offer.instance_type)


def _keys(offer: OfferingKey) -> Iterator[_Key]:
    """Every key that decides about an offering."""
    kind, name, zone = offer.capacity_type, offer.instance_type, offer.zone
    yield "offer", kind, name, zone
    if offer.group:
        yield "offer", kind, name, zone, offer.group
        if offer.partition:
            yield "offer", kind, name, zone, offer.group, offer.partition
        yield "group", offer.group, zone
    yield "type", kind
    yield _quota_key(offer)
