"""Asks AWS what the selectors of classes find; everything that it knows is in the modules beside it.

Equal questions of several classes are one call, and answers are kept for a minute (spec/karpenter-aws.md 6.8). Nothing here changes anything at AWS.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from provisioner.apis.ec2 import AMI, AMISelectorTerm, EC2NodeClass
from provisioner.cloudprovider.errors import CloudError
from provisioner.ec2.access.client import Clients
from provisioner.ec2.access.errors import Failure, FailureKind, classify_exception
from provisioner.ec2.market.instance_types import PlacementGroup
from provisioner.ec2.nodeclass import groups, images, parameters, placement_groups, reservations, subnets
from provisioner.ec2.nodeclass.answer_cache import CachedAnswer, Remembered
from provisioner.ec2.nodeclass.cluster import NotKnownYet
from provisioner.ec2.nodeclass.parameters import Parameters, Reading
from provisioner.ec2.nodeclass.queries import Query
from provisioner.ec2.nodeclass.reservations import ReservationBook
from provisioner.ec2.nodeclass.subnets import Subnet, SubnetBook
from provisioner.support.clock import Clock
from provisioner.values.message import Said

Row = Mapping[str, Any]

KEEP: Final = timedelta(seconds=55)
"""A little less than the minute after which a class is looked at again."""

_UNKNOWN_GROUP: Final = ".Unknown"


class DiscoveryError(CloudError):
    """A call of discovery failed.

    Attributes:
        action: in IAM's words, e.g. "ec2:DescribeSubnets".
    """

    def __init__(self, action: str, failure: Failure) -> None:
        super().__init__(action, failure)
        self.action, self.failure = action, failure

    def __str__(self) -> str:
        return f"{self.action}: {self.failure}"


@dataclass(frozen=True, slots=True)
class FoundImages:
    """The images of a class.

    Attributes:
        amis: newest first; empty when there are none.
        absent: what was asked for and is not there, e.g. SSM parameters.
        failures: what could not be asked; the images that are known of it are in `amis` all the same.
    """

    amis: tuple[AMI, ...]
    absent: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Intervals:
    """How old answers may be."""

    subnets: timedelta = KEEP
    images: timedelta = KEEP
    groups: timedelta = KEEP
    others: timedelta = KEEP

    @classmethod
    def of(cls, subnet_refresh: timedelta, ami_refresh: timedelta, group_refresh: timedelta) -> "Intervals":
        """From the settings, each a little shorter, so that a look at the end of the interval asks again."""
        return cls(subnet_refresh * 0.9, ami_refresh * 0.9, group_refresh * 0.9)


class Discovery:
    """Reads AWS for classes. Thread-safe.

    Args:
        book: takes the free addresses of every subnet that is found.
        reserved: takes the instances that are left of every reservation that is found.
    """

    def __init__(
        self,
        aws: Clients,
        clock: Clock,
        book: SubnetBook,
        reserved: ReservationBook,
        intervals: Intervals | None = None,
    ) -> None:
        self._aws, self._clock = aws, clock
        self.book, self.reserved = book, reserved
        self._intervals = intervals or Intervals()
        self._rows: Remembered[tuple[Row, ...]] = Remembered(clock.now)
        self._parameters = Parameters(self._parameter)
        self._lock = threading.Lock()
        self._groups: dict[Query, PlacementGroup | None] = {}

    def subnets(self, node_class: EC2NodeClass) -> tuple[Subnet, ...]:
        """The subnets of a class, those with most free addresses first. Raises `DiscoveryError`."""
        found: dict[str, Subnet] = {}
        for query in subnets.queries(node_class.spec.subnet_selector_terms):
            answer = self._ask(query, self._intervals.subnets)
            part = subnets.found(answer.value)
            self.book.note(part, answer.asked)
            found |= {one.id: one for one in part}
        return tuple(sorted(found.values(), key=lambda one: (-one.free_ips, one.id)))

    def security_groups(self, node_class: EC2NodeClass) -> tuple[groups.FoundSecurityGroup, ...]:
        """The security groups of a class, by id. Raises `DiscoveryError`."""
        asked = groups.queries(node_class.spec.security_group_selector_terms)
        return groups.found(row for query in asked for row in self._ask(query, self._intervals.groups).value)

    def images(self, node_class: EC2NodeClass, minor: int) -> FoundImages:
        """The images of a class for one minor of Kubernetes. Raises `DiscoveryError`."""
        term = images.alias_term(node_class)
        if term is not None:
            return self._published(node_class, term, minor)
        return self._selected(node_class.spec.ami_selector_terms)

    def capacity_reservations(self, node_class: EC2NodeClass) -> reservations.FoundReservation:
        """The capacity reservations of a class, by id. Raises `DiscoveryError`."""
        rows: dict[str, Row] = {}
        asked = self._clock.now()
        for query in reservations.queries(node_class.spec.capacity_reservation_selector_terms):
            try:
                answer = self._ask(query, self._intervals.others)
            except DiscoveryError as error:
                if error.failure.kind is FailureKind.NOT_FOUND:
                    continue
                raise
            asked = min(asked, answer.asked)
            rows |= {row["CapacityReservationId"]: row for row in answer.value}
        found = reservations.found(rows.values(), self._clock.now())
        self.reserved.note(found.left, asked)
        return found

    def find_placement_group(self, node_class: EC2NodeClass) -> PlacementGroup | None:
        """Look the placement group of a class up; None when it selects none, or there is none such. Raises `DiscoveryError`."""
        query = placement_groups.query(node_class)
        if query is None:
            return None
        try:
            group = placement_groups.found(self._ask(query, self._intervals.others).value)
        except DiscoveryError as error:
            if error.failure.kind is not FailureKind.NOT_FOUND and not error.failure.code.endswith(_UNKNOWN_GROUP):
                raise
            group = None
        with self._lock:
            self._groups[query] = group
        return group

    def placement_group(self, node_class: EC2NodeClass) -> PlacementGroup | None:
        """The placement group of a class as last looked up, without asking AWS; None when the class selects none.

        Raises:
            NotKnownYet: it was not looked up yet, or there is none such: instances must not be launched outside of it.
        """
        query = placement_groups.query(node_class)
        if query is None:
            return None
        with self._lock:
            group = self._groups.get(query)
        if group is None:
            raise NotKnownYet((Said(f"the placement group of EC2NodeClass {node_class.name}"),))
        return group

    # ------------------------------------------------------------------ images

    def _published(self, node_class: EC2NodeClass, term: AMISelectorTerm, minor: int) -> FoundImages:
        now = self._clock.now()
        wanted = images.published(term.alias_family, term.alias_version, minor)
        readings = self._parameters.read([one.parameter for one in wanted], now)
        variants: dict[str, list[images.Variant]] = {}
        from_parameter: dict[str, str] = {}
        for one in wanted:
            reading = readings[one.parameter]
            in_doubt = reading.failure is not None or reading.misses < parameters.GONE_AFTER
            value = reading.value or (images.carried(node_class, one) if in_doubt else "")
            if value:
                variants.setdefault(value, []).extend(one.variants)
            if reading.value and one.mutable:
                from_parameter[one.parameter] = reading.value
        failures = _failures(readings)
        if not variants:
            first = next((one.failure for one in readings.values() if one.failure is not None), None)
            if first is not None:
                raise DiscoveryError("ssm:GetParameter", first)
            return FoundImages((), tuple(name for name, one in readings.items() if one.missing))
        read = images.images_of(self._ask(images.by_ids(variants), self._intervals.images).value, now)
        good = {one.id for one in read if not one.deprecated}
        for parameter, value in from_parameter.items():
            if value not in good:
                self._parameters.doubt(parameter, now)
        absent = tuple(name for name, one in readings.items() if one.missing)
        return FoundImages(images.chosen(read, variants), absent, failures)

    def _selected(self, terms: tuple[AMISelectorTerm, ...]) -> FoundImages:
        now = self._clock.now()
        named = [term.ssm_parameter for term in terms if term.ssm_parameter and not term.id]
        readings = self._parameters.read(named, now, parameters.KEEP_OWN)
        for reading in readings.values():
            if reading.failure is not None and not reading.value:
                raise DiscoveryError("ssm:GetParameter", reading.failure)
        strange = tuple(
            Said(f"SSM parameter {name} contains {reading.value!r}, which is not an image ID")
            for name, reading in readings.items()
            if reading.value and not reading.value.startswith("ami-")
        )
        values = {name: one.value for name, one in readings.items() if one.value.startswith("ami-")}
        rows: list[Row] = []
        for query in images.queries(terms, values):
            rows.extend(self._ask(query, self._intervals.images).value)
        absent = (*(name for name, one in readings.items() if one.missing), *strange)
        return FoundImages(images.chosen(images.images_of(rows, now)), absent, _failures(readings))

    def _parameter(self, name: str) -> str | Failure:
        try:
            answer = self._aws.client("ssm").get_parameter(Name=name)
        except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
            return classify_exception(error)
        return str(answer.get("Parameter", {}).get("Value", ""))

    # ------------------------------------------------------------------ EC2

    def _ask(self, query: Query, keep: timedelta) -> CachedAnswer[tuple[Row, ...]]:
        return self._rows.get(query, keep, lambda: self._rows_of(query))

    def _rows_of(self, query: Query) -> tuple[Row, ...]:
        client = self._aws.client("ec2")
        try:
            if query.page:
                pages: Iterable[Mapping[str, Any]] = client.get_paginator(query.operation).paginate(
                    **query.parameters()
                )
            else:
                pages = [getattr(client, query.operation)(**query.parameters())]
            return tuple(row for page in pages for row in page.get(query.member, ()))
        except Exception as error:
            raise DiscoveryError(_action(query.operation), classify_exception(error)) from error


def _failures(readings: Mapping[str, Reading]) -> tuple[str, ...]:
    return tuple(
        str(DiscoveryError(f"ssm:GetParameter {name}", one.failure))
        for name, one in readings.items()
        if one.failure is not None
    )


def _action(operation: str) -> str:
    return "ec2:" + "".join(word.capitalize() for word in operation.split("_"))
