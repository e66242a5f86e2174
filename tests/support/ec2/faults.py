"""What goes wrong, by script.

Replays: AWS promises that a request with the same client token "completes successfully without performing any further actions" and that
its result "might contain updated information", not that it is the first answer again. Source: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
Reads: what was made "might not be immediately visible to all subsequent commands"; up to five minutes of waiting are advised.
Source: https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html

`Setup.lag` makes every read late; "stale" and "unseen" do it to single calls and single instances.
"""

import fnmatch
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.ec2.instances import STATE_REASONS
from tests.support.ec2.shortages import SHORTAGES

KINDS: Final = frozenset(
    {
        "throttled",
        "500",
        "timeout-after-effect",
        "denied",
        "not-found",
        "stale",
        "hang",
        "shortage",
        "error",
        "replay",
        "slow-boot",
        "interruption",
        "unseen",
        "ends-at-launch",
    }
)


_OF_INSTANCES: Final = frozenset({"shortage", "slow-boot", "interruption", "unseen", "ends-at-launch"})
_NOT_OF_CALLS: Final = _OF_INSTANCES | {"replay"}


@dataclass(frozen=True)
class Fault:
    """One line of a fault script.

    Attributes:
        action: of which calls, with wildcards: "CreateFleet", "Describe*". Not read for `shortage`, `slow-boot`, `interruption` and `replay`.
        kind: "throttled", "500", "denied", "not-found" and "error" answer without effect; "timeout-after-effect" does the work and
            drops the connection; "hang" waits, then goes on as usual; "stale" answers reads as they were a while ago; "shortage" takes
            instances away from CreateFleet and RunInstances; "replay" makes a CreateFleet whose client token was used answer with the fleet's id
            and nothing else, or, where `code` is given, with that error; "slow-boot" makes instances boot later; "interruption" interrupts running spot
            instances once, after `delay`; "unseen" leaves instances out of every Describe* although they are there; "ends-at-launch" ends instances after 2 (`seconds`) of EC2's
            seconds, with `code` as their StateReason.
        times: so many calls (or, of a shortage, refusals; of slow boots and interruptions, instances); 0 is no limit.
        after: so many matching calls pass before.
        delay: it begins so long after the script was given, in EC2's seconds.
        seconds: in EC2's seconds how long it lasts, 0 for no end. Of a hang and a timeout: real seconds until it goes on or drops.
            Of a stale read: how old it is (10 where it is 0). Of a slow boot: how much longer it takes.
        match: all must be so, values with wildcards, or lists of which any: parameters of the call by name, or "contains" (anywhere in the
            request). Of instances: "instance-type", "family", "zone", "capacity-type", and "cheapest" (0.9: only
            the cheapest 90 % of all offerings in zones with subnets); of unseen ones "instance", their ids.
        parameter: of a shortage: only launches that ask for this parameter are refused, and EC2 says what it says of it (`shortages.SHORTAGES`).
        available: of a shortage: how many instances each offering has left.
        code: of "error" and "ends-at-launch", and of shortages that say something else than InsufficientInstanceCapacity.
        message: likewise.
        status: HTTP status of "error".
    """

    action: str
    kind: str
    times: int = 0
    after: int = 0
    delay: float = 0.0
    seconds: float = 0.0
    match: Mapping[str, Any] = field(default_factory=dict)
    parameter: str = ""
    available: int = 0
    code: str = ""
    message: str = ""
    status: int = 400

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no fault is called {self.kind}; there are {', '.join(sorted(KINDS))}")
        if self.kind == "ends-at-launch" and self.code not in STATE_REASONS:
            raise ValueError(f"no instance ends for {self.code}; there are {', '.join(sorted(STATE_REASONS))}")
        if self.parameter and self.parameter not in SHORTAGES:
            raise ValueError(f"no parameter {self.parameter} is short; there are {', '.join(sorted(SHORTAGES))}")


class _Line:
    def __init__(self, fault: Fault, now: float) -> None:
        self.fault = fault
        self.begins = now + fault.delay
        lasting = fault.kind not in {"hang", "timeout-after-effect", "stale", "slow-boot", "ends-at-launch"}
        self.ends = self.begins + fault.seconds if lasting and fault.seconds else float("inf")
        self.passed = 0
        self.hits = 0
        self.used: dict[tuple[str, str, str], int] = {}

    def take(self) -> bool:
        """Whether this time counts."""
        self.passed += 1
        if self.passed <= self.fault.after or (self.fault.times and self.hits >= self.fault.times):
            return False
        self.hits += 1
        return True


class Script:
    """The faults that are left. Called under the lock of the world."""

    def __init__(
        self, seconds: Callable[[], float], cheapest: Callable[[float], frozenset[tuple[str, str, str]]]
    ) -> None:
        self._seconds = seconds
        self._cheapest = cheapest
        self._lines: list[_Line] = []
        self._hides = False

    def replace(self, faults: list[Fault]) -> None:
        """Forget the former script."""
        self._lines = [_Line(one, self._seconds()) for one in faults]
        self._hides = any(one.kind == "unseen" for one in faults)

    def hits(self) -> list[tuple[int, int]]:
        """Of every fault of the script, in its order: calls that matched it, and those that it hit."""
        return [(line.passed, line.hits) for line in self._lines]

    def of_call(self, action: str, request: Mapping[str, Any]) -> list[Fault]:
        """What hits this call."""
        return [
            line.fault
            for line in self._open()
            if line.fault.kind not in _NOT_OF_CALLS
            and fnmatch.fnmatchcase(action, line.fault.action)
            and _call_matches(line.fault.match, request)
            and line.take()
        ]

    def replay(self, request: Mapping[str, Any]) -> Fault | None:
        """What a call with a client token that was used meets; None: the first answer again."""
        found = [
            line.fault
            for line in self._open()
            if line.fault.kind == "replay" and _call_matches(line.fault.match, request) and line.take()
        ]
        return found[0] if found else None

    def shortage(
        self, instance_type: str, zone: str, capacity_type: str, asks: Callable[[str], bool] | None = None
    ) -> Fault | None:
        """Why one more instance of an offering is not to be had; None takes one of those that are left.

        Args:
            asks: whether the launch asks for a parameter: to look at shortages of parameters, instead of those of instances.
        """
        taken = []
        for line in self._open():
            fault = line.fault
            if fault.kind != "shortage" or not self.matches(fault.match, instance_type, zone, capacity_type):
                continue
            if not (fault.parameter and asks(fault.parameter) if asks is not None else not fault.parameter):
                continue
            key = instance_type, zone, capacity_type
            if line.used.get(key, 0) >= fault.available:
                if line.take():
                    return fault
            else:
                taken.append((line, key))
        for line, key in taken:
            line.used[key] = line.used.get(key, 0) + 1
        return None

    def unseen(self, instance_id: str) -> bool:
        """Whether no read tells of an instance."""
        return self._hides and any(
            line.fault.kind == "unseen" and _any(line.fault.match.get("instance", "*"), instance_id) and line.take()
            for line in self._open()
        )

    def slower(self, instance_type: str, zone: str, capacity_type: str) -> float:
        """By how many seconds an instance boots later."""
        return sum(
            line.fault.seconds
            for line in self._open()
            if line.fault.kind == "slow-boot"
            and self.matches(line.fault.match, instance_type, zone, capacity_type)
            and line.take()
        )

    def ends_at_launch(self, instance_type: str, zone: str, capacity_type: str) -> Fault | None:
        """Why an instance that has just been made will not live."""
        return next(
            (
                line.fault
                for line in self._open()
                if line.fault.kind == "ends-at-launch"
                and self.matches(line.fault.match, instance_type, zone, capacity_type)
                and line.take()
            ),
            None,
        )

    def _open(self) -> list[_Line]:
        now = self._seconds()
        return [line for line in self._lines if line.begins <= now < line.ends]

    def matches(self, match: Mapping[str, Any], instance_type: str, zone: str, capacity_type: str) -> bool:
        """Whether a fault is about instances of this offering."""
        facts = {
            "instance-type": instance_type,
            "family": instance_type.partition(".")[0],
            "zone": zone,
            "capacity-type": capacity_type,
        }
        for name, wanted in match.items():
            if name == "cheapest":
                if (instance_type, zone, capacity_type) not in self._cheapest(float(wanted)):
                    return False
            elif name not in facts or not _any(wanted, facts[name]):
                return False
        return True


def in_turn(action: str, *kinds: str, **match: Any) -> list[Fault]:
    """What the first calls of an action meet, one after another; "" is no fault. Those after them are answered."""
    return [
        Fault(action, kind, times=1, after=number, match=match, seconds=0.0)
        for number, kind in enumerate(kinds)
        if kind
    ]


def _call_matches(match: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    for name, wanted in match.items():
        if name == "contains":
            if str(wanted) not in json.dumps(request, default=str):
                return False
        elif not _any(wanted, request.get(name, "")):
            return False
    return True


def _any(wanted: Any, value: Any) -> bool:
    patterns = wanted if isinstance(wanted, list | tuple) else [wanted]
    values = value if isinstance(value, list | tuple) else [value]
    return any(fnmatch.fnmatchcase(str(one), str(pattern)) for one in values for pattern in patterns)
