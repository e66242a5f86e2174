"""What whoever runs the emulator may ask it: faults, calls, instances, interruptions, time."""

import functools
import json
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from tests.support.ec2.faults import Fault
from tests.support.ec2.instances import RUNNING, SHUTTING_DOWN, TERMINATED, Instance
from tests.support.ec2.market import SPOT
from tests.support.ec2.motos import Iam
from tests.support.ec2.pools import Reservation
from tests.support.ec2.queues import Queues
from tests.support.ec2.world import ACCOUNT, USER_INITIATED, World

_TAKEN: Final = "Server.SpotInstanceTermination"
_SPOT_NOTICE: Final = 120.0
_JSON: Final = {"Content-Type": "application/json"}
_EVENT_CODES: Final = {
    "retirement": "instance-retirement",
    "reboot": "instance-reboot",
    "system-reboot": "system-reboot",
    "maintenance": "system-maintenance",
    "stop": "instance-stop",
}


class Call:
    """One call that arrived; `done` notes how it ended."""

    def __init__(self, service: str, action: str) -> None:
        self.at = time.time()
        self.service, self.action = service, action
        self.code: str | None = None
        self.seconds = 0.0

    def done(self, code: str) -> None:
        """It was answered: "" is success."""
        self.code = code
        self.seconds = time.time() - self.at

    def row(self) -> dict[str, Any]:
        """For the log."""
        return {
            "at": self.at,
            "service": self.service,
            "action": self.action,
            "code": self.code,
            "seconds": self.seconds,
        }


class Admin:
    """The administrative side."""

    def __init__(self, world: World, iam: Iam, queues: Queues) -> None:
        self._world, self._iam, self._queues = world, iam, queues
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._commands: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "calls": lambda _: self._log(),
            "reset-calls": self._reset,
            "script": self._script,
            "hits": lambda _: world.script.hits(),
            "instances": lambda _: self._instances(),
            "interrupt": self._interrupt,
            "send": self._send,
            "skip": lambda asked: world.timing.skip(float(asked["seconds"])),
            "release": lambda _: world.images.release(world.timing.now()),
            "image": self._image,
            "deprecate": self._deprecate,
            "subnet": self._subnet,
            "group": self._group,
            "free": self._free,
            "scatter": lambda asked: world.network.subnets[asked["id"]].scatter(),
            "reservation": self._reservation,
            "shift": self._shift,
            "role": lambda asked: iam.create_role(asked["name"], asked.get("path", "/")),
            "facts": lambda _: self._facts(),
            "left": lambda _: self._left(),
            "prices": lambda asked: self._prices(asked),
        }

    def note(self, service: str, action: str) -> Call:
        """A call has arrived."""
        call = Call(service, action)
        with self._lock:
            self._calls.append(call)
        return call

    def answer(self, command: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """Carry a command out."""
        asked = json.loads(body or b"{}")
        try:
            with self._world.lock:
                found = self._commands[command](asked)
        except Exception as error:  # noqa: BLE001 - the test that asked is told
            return 400, _JSON, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode()
        return 200, _JSON, json.dumps(found, default=str).encode()

    def _log(self) -> list[dict[str, Any]]:
        with self._lock:
            return [call.row() for call in self._calls]

    def _reset(self, _: Mapping[str, Any]) -> None:
        with self._lock:
            self._calls.clear()

    def _script(self, asked: Mapping[str, Any]) -> None:
        faults = [Fault(**one) for one in asked["faults"]]
        self._world.script.replace(faults)
        for one in faults:
            if one.kind == "interruption":
                self._world.timing.after(one.delay, functools.partial(self._interrupt_many, one))

    def _interrupt_many(self, fault: Fault) -> None:
        with self._world.lock:
            running = [
                one
                for one in self._world.instances.all.values()
                if one.state == RUNNING
                and one.lifecycle == SPOT
                and not one.interrupted
                and self._world.script.matches(fault.match, one.instance_type, one.zone, one.capacity_type)
            ]
            for one in running[: fault.times or None]:
                self._spot(one, {})

    def _instances(self) -> list[dict[str, Any]]:
        return [
            {
                "id": one.id,
                "state": one.state,
                "type": one.instance_type,
                "zone": one.zone,
                "capacity_type": one.capacity_type,
                "lifecycle": one.lifecycle,
                "image": one.image,
                "subnet": one.subnet,
                "node": one.node,
                "joined": one.joined,
                "not_joined": one.not_joined,
                "tags": one.tags,
                "launched": one.launched.isoformat(),
                "reservation": one.capacity_reservation,
                "usd_per_hour": 0.0
                if one.capacity_reservation
                else self._world.market.price(one.instance_type, one.zone, one.capacity_type, self._world.timing.now()),
                "interrupted": one.interrupted,
                "terminated_by": one.reason,
                "ended": "" if one.ended is None else one.ended.isoformat(),
                "arch": one.arch,
            }
            for one in self._world.instances.all.values()
        ]

    # ------------------------------------------------------------------ interruptions

    def _interrupt(self, asked: Mapping[str, Any]) -> Any:
        instance = self._world.instances.all[asked["instance"]]
        return getattr(self, f"_{str(asked['kind']).replace('-', '_')}")(instance, asked)

    def _spot(self, instance: Instance, asked: Mapping[str, Any]) -> Any:
        """Warned now, ended two minutes later."""
        seconds = float(asked.get("seconds", _SPOT_NOTICE))
        instance.interrupted = "spot"
        self._world.timing.after(
            seconds, lambda: self._end(instance, "Server.SpotInstanceTermination: Spot instance termination", _TAKEN)
        )
        return self._world.tell(
            "aws.ec2",
            "EC2 Spot Instance Interruption Warning",
            {"instance-id": instance.id, "instance-action": "terminate"},
            instance.id,
        )

    def _reservation_interruption(self, instance: Instance, asked: Mapping[str, Any]) -> Any:
        seconds = float(asked.get("seconds", _SPOT_NOTICE))
        self._world.timing.after(seconds, lambda: self._end(instance, "Server.CapacityReservationInterruption", ""))
        return self._world.tell(
            "aws.ec2",
            "EC2 Capacity Reservation Instance Interruption Warning",
            {"instance-id": instance.id, "instance-action": "terminate"},
            instance.id,
        )

    def _rebalance(self, instance: Instance, _: Mapping[str, Any]) -> Any:
        return self._world.tell(
            "aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": instance.id}, instance.id
        )

    def _terminate(self, instance: Instance, _: Mapping[str, Any]) -> None:
        """Somebody else ends it."""
        self._end(instance, "User initiated", USER_INITIATED)

    def _stop(self, instance: Instance, _: Mapping[str, Any]) -> None:
        self._world.stop(instance)

    def _scheduled_change(self, instance: Instance, asked: Mapping[str, Any]) -> Any:
        """A Health event, and the same in DescribeInstanceStatus."""
        before = self._schedule(instance, asked)
        start, end = before["NotBefore"], before["NotAfter"]
        detail = {
            "eventArn": f"arn:aws:health:{self._world.setup.region}::event/EC2/AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED/{instance.id}",
            "service": "EC2",
            "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
            "eventTypeCategory": "scheduledChange",
            "startTime": f"{start:%a, %d %b %Y %H:%M:%S GMT}",
            "endTime": f"{end:%a, %d %b %Y %H:%M:%S GMT}",
            "eventDescription": [
                {"language": "en_US", "latestDescription": "The instance is scheduled for retirement."}
            ],
            "affectedEntities": [{"entityValue": instance.id, "tags": {}}],
        }
        return self._world.tell("aws.health", "AWS Health Event", detail, instance.id)

    def _schedule(self, instance: Instance, asked: Mapping[str, Any]) -> dict[str, Any]:
        """An event in DescribeInstanceStatus alone."""
        start = self._world.timing.now() + timedelta(seconds=float(asked.get("seconds", 14 * 86400)))
        description = "The instance is running on degraded hardware"
        if asked.get("done"):
            description = f"[{asked['done']}] {description}"  # Completed, Canceled
        event = {
            "InstanceEventId": f"instance-event-{len(instance.events):017x}",
            "Code": _EVENT_CODES[str(asked.get("code", "retirement"))],
            "Description": description,
            "NotBefore": start,
            "NotAfter": start + timedelta(hours=2),
        }
        instance.events.append(event)
        return event

    def _impair(self, instance: Instance, asked: Mapping[str, Any]) -> None:
        """Status checks fail since so many seconds; which: instance, system or ebs."""
        instance.impaired[str(asked.get("check", "instance"))] = self._world.timing.seconds() - float(
            asked.get("seconds", 0)
        )

    def _recover(self, instance: Instance, _: Mapping[str, Any]) -> None:
        instance.impaired.clear()
        instance.events.clear()

    def _end(self, instance: Instance, reason: str, code: str) -> None:
        with self._world.lock:
            if instance.state not in {SHUTTING_DOWN, TERMINATED}:
                self._world.end(instance, reason, code)

    def _send(self, asked: Mapping[str, Any]) -> None:
        self._queues.send(str(asked.get("queue", self._world.setup.name)), str(asked["body"]))

    # ------------------------------------------------------------------ things

    def _image(self, asked: Mapping[str, Any]) -> str:
        created = datetime.fromisoformat(asked["created"]) if asked.get("created") else self._world.timing.now()
        made = self._world.images.add(
            asked["id"],
            asked["name"],
            asked["arch"],
            asked.get("tags", {}),
            asked.get("family", "custom"),
            created,
            boot_mode=asked.get("boot_mode", ""),
            ena=asked.get("ena", True),
        )
        return made.id

    def _deprecate(self, asked: Mapping[str, Any]) -> None:
        self._world.images.image(asked["id"]).deprecated = self._world.timing.now() - timedelta(seconds=1)

    def _subnet(self, asked: Mapping[str, Any]) -> str:
        return self._world.add_subnet(asked["zone"], asked["cidr"], asked.get("tags", {})).id

    def _group(self, asked: Mapping[str, Any]) -> str:
        from tests.support.ec2.world import VPC

        self._world.add_group(asked["id"], asked["name"], asked.get("vpc", VPC), asked.get("tags", {}))
        return str(asked["id"])

    def _free(self, asked: Mapping[str, Any]) -> None:
        """Leave a subnet just so many free addresses."""
        subnet = self._world.network.subnets[asked["id"]]
        subnet.withheld = 0
        subnet.withheld = max(0, subnet.free - int(asked["free"]))

    def _reservation(self, asked: Mapping[str, Any]) -> str:
        """A reservation of any kind, also those that EC2 sells only."""
        world = self._world
        ends = world.timing.now() + timedelta(seconds=float(asked["seconds"])) if asked.get("seconds") else None
        made = Reservation(
            f"cr-{len(world.pools.reservations) + 1:017x}",
            asked["type"],
            asked["zone"],
            world.market.zone_id(asked["zone"]),
            int(asked.get("count", 1)),
            asked.get("owner", ACCOUNT),
            world.timing.now(),
            match=asked.get("match", "targeted"),
            kind=asked.get("kind", "default"),
            interruptible=bool(asked.get("interruptible")),
            ends=ends,
            tags=dict(asked.get("tags", {})),
        )
        world.pools.reservations[made.id] = made
        return made.id

    def _shift(self, asked: Mapping[str, Any]) -> None:
        """Shift traffic away from a zone; again with `cancel` to end that."""
        from tests.support.ec2.services import SHIFTS

        zone_id = self._world.market.zone_id(asked["zone"])
        if asked.get("cancel"):
            SHIFTS.pop(zone_id, None)
            return
        now = self._world.timing.now()
        expires = now + timedelta(seconds=float(asked.get("seconds", 3600)))
        SHIFTS[zone_id] = {
            "appliedStatus": "APPLIED",
            "awayFrom": zone_id,
            "comment": "",
            "expiryTime": expires.timestamp(),
            "resourceIdentifier": "",
            "startTime": now.timestamp(),
            "zonalShiftId": f"00000000-0000-4000-8000-{len(SHIFTS):012d}",
        }

    def _facts(self) -> dict[str, Any]:
        world = self._world
        return {
            "account": ACCOUNT,
            "region": world.setup.region,
            "cluster": world.setup.name,
            "zones": [one.zone for one in world.network.subnets.values()],
            "subnets": {one.zone: one.id for one in list(world.network.subnets.values())[:3]},
            "groups": [one.id for one in world.network.groups.values() if one.tags],
            "role": f"KarpenterNodeRole-{world.setup.name}",
            "profile": f"{world.setup.name}-node",
            "queue": world.setup.name,
            "now": world.timing.now().isoformat(),
            "running": sum(one.state == RUNNING for one in world.instances.all.values()),
        }

    def _left(self) -> dict[str, Any]:
        """What lives on in the account beside instances."""
        return {
            "templates": {one.name: one.tags for one in self._world.templates.all()},
            "profiles": self._iam.profiles(),
            "volumes": sorted(self._world.volumes),
            "messages": self._queues.bodies(self._world.setup.name),
        }

    def _prices(self, asked: Mapping[str, Any]) -> list[Any]:
        world = self._world
        now = world.timing.now()
        return [
            [name, zone, kind, world.market.price(name, zone, kind, now)] for name, zone, kind in asked["offerings"]
        ]
