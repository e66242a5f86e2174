"""EC2 instances of the cluster: what one is (`Ec2Instance`, pure), and how they are asked for, ended and tagged (`Instances`).

Describe, terminate and tag calls of many threads are gathered into few. Source: spec/karpenter-aws.md 5.7 and 6.1.
Differs: instances are described by a filter, so that one that is gone does not fail the call for the others. One that EC2 does not describe is gone
only when it has been missing for minutes (`absence`), or is shown as terminated.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from provisioner.apis import ec2, names
from provisioner.cloudprovider.errors import CloudError, InstanceNotFoundError, RebootRefusedError
from provisioner.ec2 import labels
from provisioner.ec2.access.batcher import Gatherer, parts
from provisioner.ec2.access.bisection import FOR_ALL, each_its_own
from provisioner.ec2.access.client import FILTER_VALUES, Clients, pages
from provisioner.ec2.access.errors import Failure, FailureKind, classify_exception
from provisioner.ec2.instances.absence import ABSENT_SECONDS, Absences
from provisioner.ec2.instances.endings import EndedAtLaunchError, launch_failure
from provisioner.ec2.launch.launch_marks import BATCH_TAG
from provisioner.support.clock import Clock
from provisioner.support.metrics import counter
from provisioner.values.bounded import put_newest
from provisioner.values.message import Said

PENDING, RUNNING, STOPPING, STOPPED = "pending", "running", "stopping", "stopped"
SHUTTING_DOWN, TERMINATED = "shutting-down", "terminated"
LIVING: Final = (PENDING, RUNNING, STOPPING, STOPPED, SHUTTING_DOWN)
"""States of an instance that is still there."""

ENDING: Final = frozenset({SHUTTING_DOWN, TERMINATED})

INTERRUPTIBLE: Final = "interruptible-capacity-reservation"
_PROVIDER_ID: Final = re.compile(r".*:///(?P<zone>[^/]*)/(?P<id>[^/]+)", re.ASCII)
_PAGE: Final = 1000

MOST_CALLS: Final = 40
"""For one batch of terminations or tags, however many of them are refused."""

_PASSING: Final = (FailureKind.THROTTLED, FailureKind.CREDENTIALS, FailureKind.CONNECTION, FailureKind.SERVER)
"""Of failures that had no effect, those after which a reboot is worth another try."""

_TROUBLED_AT_ONCE: Final = 8
_MAX_TROUBLED: Final = 1024
_WAITS: Final = Failure(
    FailureKind.UNKNOWN, "", "", Said("EC2 refused this request before; other refused requests are retried first")
)

_Tags = tuple[tuple[str, str], ...]
_Tagging = tuple[str, _Tags]
_FAILED = counter(
    "karpenter_cloudprovider_instance_termination_failures_total",
    "Instance terminations that AWS refused.",
    ("zone", "zone_id"),
)


UNSEEN_SECONDS: Final = 5.0


class InstanceError(CloudError):
    """AWS did not answer a question about instances as hoped; try again."""


class InstanceUnseenError(InstanceError):
    """EC2 does not describe the instance, and it is too early to take that for its end; nothing may follow from it."""

    retry_after = UNSEEN_SECONDS

    def __init__(self, instance_id: str, patience: float) -> None:
        super().__init__(instance_id, patience)
        self.instance_id, self.patience = instance_id, patience

    def __str__(self) -> str:
        return Said(
            f"EC2 does not currently report instance {self.instance_id}; the instance counts as terminated once EC2 "
            f"has not reported it for {self.patience:.0f} s"
        )


@dataclass(frozen=True, slots=True)
class Ec2Instance:
    """One instance as EC2 describes it; fields are "" where EC2 says nothing.

    Attributes:
        capacity_type: on-demand, spot or reserved.
        reservation_type: for reserved: "default" or "capacity-block".
        interruptible: whether the owner of its reservation may take it back.
        partition: number of its partition in a placement group; 0 where there is none.
        efas: its EFA interfaces.
        launched: None where unknown.
        failure: of one whose end has begun: why its launch failed, if its Node has not registered; None where somebody asked for the end.
    """

    id: str
    state: str
    instance_type: str
    zone: str
    capacity_type: str
    zone_id: str = ""
    image_id: str = ""
    subnet_id: str = ""
    security_group_ids: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    launched: datetime | None = None
    reservation_id: str = ""
    reservation_type: str = ""
    interruptible: bool = False
    profile_arn: str = ""
    efas: int = 0
    tenancy: str = labels.DEFAULT_TENANCY
    group_id: str = ""
    partition: int = 0
    failure: Failure | None = None

    @property
    def provider_id(self) -> str:
        """As in the Node's spec."""
        return provider_id(self.zone, self.id)

    @property
    def ending(self) -> bool:
        """Whether its end has begun."""
        return self.state in ENDING

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Ec2Instance":
        """From a row of DescribeInstances."""
        placement: Mapping[str, Any] = row.get("Placement") or {}
        spot, reservation = row.get("SpotInstanceRequestId", ""), row.get("CapacityReservationId", "")
        wish: Mapping[str, Any] = row.get("CapacityReservationSpecification") or {}
        lifecycle = row.get("InstanceLifecycle", "")
        reserved = reservation and wish.get("CapacityReservationPreference") == "capacity-reservations-only"
        kind = names.CAPACITY_SPOT if spot else names.CAPACITY_RESERVED if reserved else names.CAPACITY_ON_DEMAND
        state, why = (row.get("State") or {}).get("Name", ""), row.get("StateReason") or {}
        return cls(
            id=row["InstanceId"],
            state=state,
            instance_type=row.get("InstanceType", ""),
            zone=placement.get("AvailabilityZone", ""),
            zone_id=placement.get("AvailabilityZoneId", ""),
            capacity_type=kind,
            image_id=row.get("ImageId", ""),
            subnet_id=row.get("SubnetId", ""),
            security_group_ids=tuple(sorted(one["GroupId"] for one in row.get("SecurityGroups", ()))),
            tags={tag["Key"]: tag.get("Value", "") for tag in row.get("Tags", ())},
            launched=row.get("LaunchTime"),
            reservation_id=reservation,
            reservation_type=""
            if not reserved
            else labels.CAPACITY_BLOCK
            if lifecycle == labels.CAPACITY_BLOCK
            else "default",
            interruptible=lifecycle == INTERRUPTIBLE,
            profile_arn=(row.get("IamInstanceProfile") or {}).get("Arn", ""),
            efas=sum(one.get("InterfaceType") in ec2.EFA_TYPES for one in row.get("NetworkInterfaces", ())),
            tenancy=placement.get("Tenancy") or labels.DEFAULT_TENANCY,
            group_id=placement.get("GroupId", ""),
            partition=int(placement.get("PartitionNumber") or 0),
            failure=launch_failure(why.get("Code", ""), why.get("Message", "")) if state in ENDING else None,
        )


def provider_id(zone: str, instance_id: str) -> str:
    """As in the Node's spec, e.g. "aws:///us-east-1a/i-0123"."""
    return f"aws:///{zone}/{instance_id}"


def instance_id_of(provider_id: str) -> str:
    """The instance id in a provider ID; "" where it is none of EC2's."""
    found = _PROVIDER_ID.fullmatch(provider_id)
    return found["id"] if found else ""


class Instances:
    """EC2's instances; thread-safe, every method blocks.

    Args:
        clock: measures how long calls are gathered.
        cluster: whose instances `list` tells.
        idle: seconds that a call waits for others to join.
        shifted: ids of zones that traffic is shifted away from; nothing is ended there meanwhile.
        patience: seconds for which an instance must be missing, see `absence`.
        once: the client of EC2 that sends each call once at most; nothing is rebooted without.
    """

    def __init__(
        self,
        aws: Clients,
        clock: Clock,
        cluster: str,
        *,
        idle: float = 0.1,
        shifted: Callable[[], Collection[str]] = frozenset,
        patience: float = ABSENT_SECONDS,
        once: Callable[[], Any] | None = None,
    ) -> None:
        self._once = once
        self._aws, self._clock, self._cluster, self._shifted = aws, clock, cluster, shifted
        self._absences = Absences(patience)
        self._troubled: dict[str, None] = {}  # whose termination was refused
        self._unseen: dict[str, None] = {}  # whose termination is asked for although EC2 does not describe them
        self._turn = 0
        self._descriptions: Gatherer[str, Ec2Instance] = Gatherer(
            clock, self._describe, idle=idle, batcher="describe_instances"
        )
        self._terminations: Gatherer[str, str] = Gatherer(
            clock, self._terminate, idle=idle, batcher="terminate_instances"
        )
        self._tags: Gatherer[_Tagging, None] = Gatherer(clock, self._create_tags, idle=idle, batcher="create_tags")

    def get(self, provider_id: str) -> Ec2Instance:
        """The instance of that provider ID; asked for now.

        Raises:
            InstanceNotFoundError: it has terminated, or EC2 has described none for minutes.
            InstanceUnseenError: EC2 does not describe it now.
            InstanceError: EC2 did not answer.
        """
        instance_id = instance_id_of(provider_id)
        if not instance_id:
            raise InstanceNotFoundError(provider_id)
        return self._descriptions.ask(instance_id)

    def get_all(self, provider_ids: Iterable[str]) -> dict[str, Ec2Instance]:
        """Those of these instances that are there, by the provider ID that was asked for; one call for every 200.

        Raises:
            InstanceError: EC2 did not answer.
        """
        asked = {instance_id: one for one in provider_ids if (instance_id := instance_id_of(one))}
        answers = self._describe(sorted(asked))
        return {asked[key]: found for key, found in answers.items() if isinstance(found, Ec2Instance)}

    def list(self) -> tuple[Ec2Instance, ...]:
        """Every instance of this cluster that is there, in order of id.

        Raises:
            InstanceError: EC2 did not answer.
        """
        return self._find(
            {"Name": "tag-key", "Values": [ec2.NODEPOOL_TAG]},
            {"Name": "tag-key", "Values": [ec2.NODECLASS_TAG]},
            {"Name": f"tag:{ec2.CLUSTER_NAME_TAG}", "Values": [self._cluster]},
            {"Name": "instance-state-name", "Values": list(LIVING)},
        )

    def by_batch(self, tag: str) -> tuple[Ec2Instance, ...]:
        """Every instance that a launch made (see `launch_marks`), those that are gone too as long as EC2 remembers them, in order of id.

        Raises:
            InstanceError: EC2 did not answer.
        """
        return self._find(
            {"Name": f"tag:{ec2.CLUSTER_NAME_TAG}", "Values": [self._cluster]},
            {"Name": f"tag:{BATCH_TAG}", "Values": [tag]},
        )

    def terminate(self, provider_id: str) -> Failure | None:
        """Begin the end of an instance; one whose end has begun is left alone, one that EC2 does not describe is not.

        Returns:
            Why its launch failed, where EC2 has begun its end itself.

        Raises:
            InstanceNotFoundError: it is gone.
            InstanceError: EC2 did not do it, or its zone is shifted away from; try again.
        """
        try:
            found = self.get(provider_id)
        except InstanceUnseenError as unseen:
            if len(self._shifted()):
                raise  # nobody knows in which zone it is
            self._unseen[unseen.instance_id] = None
            try:
                self._terminations.ask(unseen.instance_id)  # what makes changes may know it all the same
            except InstanceUnseenError:
                raise unseen from None
            finally:
                self._unseen.pop(unseen.instance_id, None)
            return None
        if found.ending:
            return found.failure
        if found.zone_id in self._shifted():
            raise InstanceError(
                f"instance {found.id} is not terminated while a zonal shift moves traffic away from {found.zone} "
                f"({found.zone_id})"
            )
        try:
            self._terminations.ask(found.id)
        except InstanceError:
            _FAILED.labels(found.zone, found.zone_id).inc()
            raise
        return None

    def reboot(self, provider_id: str) -> None:
        """Reboot an instance, by one call that is sent once at most. EC2 has no token by which it would know a second one.

        Raises:
            RebootRefusedError: EC2 did not do it.
            InstanceNotFoundError: it is gone.
            InstanceError: nobody knows whether EC2 did it.
        """
        try:
            found = self.get(provider_id)
        except InstanceNotFoundError:
            raise
        except InstanceError as error:
            raise RebootRefusedError(str(error), final=False) from error  # nothing was sent
        if found.ending:
            raise InstanceNotFoundError(provider_id)
        if self._once is None:
            raise RebootRefusedError(Said("this program does not reboot instances"), final=True)
        if found.zone_id in self._shifted():
            raise RebootRefusedError(
                f"instance {found.id} is not rebooted while a zonal shift moves traffic away from {found.zone} ({found.zone_id})",
                final=False,
            )
        try:
            self._once().reboot_instances(InstanceIds=[found.id])
        except Exception as error:  # botocore raises many kinds; classify_exception sorts them
            failure = classify_exception(error)
            if failure.kind is FailureKind.NOT_FOUND:
                raise InstanceNotFoundError(provider_id) from error
            if failure.maybe_done or failure.kind is FailureKind.UNKNOWN:
                raise InstanceError(str(failure)) from error
            raise RebootRefusedError(str(failure), final=failure.kind not in _PASSING) from error

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Tag an instance; instances that get the same tags at about the same time are tagged by one call.

        Raises:
            InstanceError: EC2 did not do it; try again.
        """
        self._tags.ask((instance_id, tuple(sorted(tags.items()))))

    # ------------------------------------------------------------------ calls

    def _describe(self, ids: Sequence[str]) -> dict[str, Ec2Instance | Exception]:
        found: dict[str, Ec2Instance | Exception] = {}
        for some in parts(tuple(ids), FILTER_VALUES):
            asked = self._clock.monotonic()
            described = {one.id: one for one in self._find({"Name": "instance-id", "Values": list(some)})}
            for instance in some:
                one = described.get(instance)
                if one is not None:
                    found[instance] = one if one.state != TERMINATED else _gone(one)
                elif self._absences.missed(instance, asked):
                    found[instance] = InstanceNotFoundError(instance)
                else:
                    found[instance] = InstanceUnseenError(instance, self._absences.patience)
        return found

    def _terminate(self, ids: Sequence[str]) -> dict[str, str | Exception]:
        """End them by one call; those that were refused the last time, or are not described, are asked for alone, so that they hold up nobody."""
        troubled = [one for one in ids if one in self._troubled or one in self._unseen]
        others = [one for one in ids if one not in troubled]
        said: dict[str, str | Exception | Failure] = {}
        for some in filter(None, (others, *([one] for one in troubled[:_TROUBLED_AT_ONCE]))):
            self._turn += 1
            said |= each_its_own(some, self._end, most_calls=MOST_CALLS - _TROUBLED_AT_ONCE, turn=self._turn)
        for one in troubled[:_TROUBLED_AT_ONCE]:  # behind those that wait for their turn
            if self._troubled.pop(one, True) is None and isinstance(said[one], Failure):
                self._troubled[one] = None
        answers: dict[str, str | Exception] = {}
        for one in ids:
            answer = said.get(one, _WAITS)
            answers[one] = self._told(one, answer) if isinstance(answer, Failure) else answer
        return answers

    def _end(self, ids: Sequence[str]) -> dict[str, str | Exception] | Failure:
        try:
            answer = self._aws.client("ec2").terminate_instances(InstanceIds=list(ids))
        except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
            failure = classify_exception(error)
            if len(ids) == 1 and failure.kind not in FOR_ALL and failure.kind is not FailureKind.NOT_FOUND:
                put_newest(self._troubled, ids[0], None, _MAX_TROUBLED)
            return failure
        ended = {one["InstanceId"] for one in answer.get("TerminatingInstances", ())}
        silent = InstanceError("EC2 did not confirm that the instance is terminating")
        return {instance: SHUTTING_DOWN if instance in ended else silent for instance in ids}

    def _create_tags(self, wanted: Sequence[_Tagging]) -> dict[_Tagging, Exception | None]:
        groups: dict[_Tags, tuple[str, ...]] = {}
        for instance, tags in wanted:
            groups[tags] = (*groups.get(tags, ()), instance)
        return {
            (instance, tags): error
            for tags, ids in groups.items()
            for instance, error in self._tag_some(ids, tags).items()
        }

    def _tag_some(self, ids: Sequence[str], tags: _Tags) -> dict[str, Exception | None]:
        def call(some: Sequence[str]) -> dict[str, None] | Failure:
            try:
                self._aws.client("ec2").create_tags(
                    Resources=list(some), Tags=[{"Key": key, "Value": value} for key, value in tags]
                )
            except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
                return classify_exception(error)
            return dict.fromkeys(some)

        said = each_its_own(ids, call, most_calls=MOST_CALLS)
        return {one: None if answer is None else self._told(one, answer) for one, answer in said.items()}

    def _told(self, instance: str, failure: Failure) -> CloudError:
        """What a failure means for one instance; that a change does not find it is no proof that it is gone."""
        if failure.kind is FailureKind.NOT_FOUND:
            return InstanceUnseenError(instance, self._absences.patience)
        return InstanceError(str(failure))

    def _find(self, *filters: Mapping[str, Any]) -> tuple[Ec2Instance, ...]:
        found: dict[str, Ec2Instance] = {}
        try:
            for page in pages(self._aws.client("ec2").describe_instances, Filters=list(filters), MaxResults=_PAGE):
                for reservation in page.get("Reservations", ()):
                    for row in reservation.get("Instances", ()):
                        found[row["InstanceId"]] = Ec2Instance.of(row)
        except Exception as error:
            failure = classify_exception(error)
            raise InstanceError(str(failure)) from error
        self._absences.seen(found)
        return tuple(found[name] for name in sorted(found))


def _gone(instance: Ec2Instance) -> InstanceNotFoundError:
    if instance.failure is None:
        return InstanceNotFoundError(instance.id)
    return EndedAtLaunchError(instance.id, instance.failure)
