"""Nothing is permitted by comparing our clock with a time that another machine wrote: what waits counts from when this process first saw the object (decision 30).

Found are subtractions and comparisons of "now" with a time of an object, or with what was made of one in the same function; each of them is stated below.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

PACKAGES: Final = ("webhook", "extender", "certs", "provisioner")
#: Tells people or measures; or runs on somebody's own machine.
LEFT_OUT: Final = (
    "provisioner/cli/",
    "provisioner/lab/",
    "provisioner/simulator/",
    "provisioner/runtime/metrics.py",
    "provisioner/observability/",
    "provisioner/why/",
)
#: Attributes that hold a time of an object, of another leader's, or of the cloud's.
TIMES: Final = frozenset(
    {
        "creation_timestamp",
        "deletion_timestamp",
        "last_transition_time",
        "last_pod_event_time",
        "renew_time",
        "start_time",
    }
    | {
        "created",
        "deleted",
        "evicts",
        "ends",
        "begins",
        "until_time",
        "sent",
        "not_valid_after_utc",
        "not_valid_before_utc",
    }
)
#: Functions whose answer is such a time.
ANSWERS: Final = frozenset(
    {"deadline_of", "grace_end", "counting_deadline", "deadline", "read_do_not_disrupt", "consolidatable_at"}
)
NOW: Final = frozenset({"now"})
_DEADLINE: Final = "terminationGracePeriod is an absolute time by Karpenter's API, which a new leader goes on with; docs/known-flaws.md"
_CONSOLIDATE_AFTER: Final = (
    "consolidateAfter counts from lastPodEventTime, which every leader goes on with; docs/known-flaws.md"
)
_BOOKING: Final = "bookings and ValidUntilSeconds count from times of the object, by Cluster Autoscaler's API, which a new leader goes on with; docs/known-flaws.md"
_CLOUD: Final = "a time that the cloud names, for what the cloud does then"
_CERTIFICATE: Final = "certificates are valid from and to absolute times"
STATED: Final = {
    ("certs/mutual.py", "decide"): _CERTIFICATE,
    ("certs/store.py", "fault"): _CERTIFICATE,
    ("provisioner/apis/conversion/ownership.py", "karpenter_beside"): "what is fresh forbids; minutes count only",
    ("provisioner/apis/interruption.py", "has_begun"): _CLOUD,
    (
        "provisioner/apis/pods.py",
        "is_stuck_terminating",
    ): "drains ask with pods of `eviction_queue.Departures`, which are by our clock; others only tell",
    (
        "provisioner/ec2/nodeclass/profiles.py",
        "garbage",
    ): "besides, nobody has used it for as long before our eyes",
    ("provisioner/cloudprovider/kwok/provider.py", "_promise_again"): "a fake Node comes sooner or later",
    ("provisioner/disruption/controller.py", "_to_tell"): _CONSOLIDATE_AFTER,
    ("provisioner/termination/eviction_queue.py", "_must_go"): _DEADLINE,
    ("provisioner/disruption/forceful/controller.py", "_has_ended"): _DEADLINE,
    ("provisioner/disruption/forceful/controller.py", "_has_old_deadline"): _DEADLINE,
    ("provisioner/interruption/controller.py", "_close"): _CLOUD,
    ("provisioner/interruption/controller.py", "_earlier"): _CLOUD,
    ("provisioner/termination/terminator.py", "end"): _DEADLINE,
    ("provisioner/ec2/interruption/queue_controller.py", "_may_be_launching"): _CLOUD,
    ("provisioner/ec2/interruption/queue_controller.py", "poll"): "a metric",
    ("provisioner/ec2/instances/tagging_controller.py", "_gives_way"): "tags come sooner or later",
    (
        "provisioner/disruption/acceptance.py",
        "is_settled",
    ): "hours since the creation, which no leader has seen from its beginning",
    ("provisioner/disruption/candidates.py", "_selected_node"): "since the annotation was first seen",
    ("provisioner/disruption/methods/moves.py", "_closed"): _CONSOLIDATE_AFTER,
    ("provisioner/disruption/methods/moves.py", "_consolidatable"): _CONSOLIDATE_AFTER,
    (
        "provisioner/disruption/costs.py",
        "time_left",
    ): "expireAfter is days since the creation, which no leader has seen from its beginning",
    (
        "provisioner/disruption/pool_drift.py",
        "type_drift",
    ): "an hour since the creation; what drifts is judged once more before it goes",
    ("provisioner/disruption/methods/emptiness.py", "emptiness"): _CONSOLIDATE_AFTER,
    ("provisioner/interruption/response.py", "decide_interruptions"): _CLOUD,
    ("provisioner/disruption/loops.py", "saw"): "what differs by less than a clock may be wrong counts as now",
    (
        "provisioner/disruption/forceful/repair.py",
        "_earliest",
    ): "this process has seen the condition for a minute, too; Karpenter believes its time",
    ("provisioner/disruption/protections.py", "_told"): "tells",
    ("provisioner/history/holds.py", "_is_young"): "tells; consolidation decides by the same time",
    (
        "provisioner/disruption/gangs.py",
        "held_nodes",
    ): "minutes since the creation; whatever else keeps a node still does",
    (
        "provisioner/requests/decisions.py",
        "decide",
    ): "a week since the end, which no leader has seen from its beginning",
    ("provisioner/requests/decisions.py", "_ending"): _BOOKING,
    ("provisioner/requests/decisions.py", "_answer"): _BOOKING,
}


def found() -> Iterator[tuple[str, str]]:
    """File and function of each comparison."""
    for path in sorted(one for package in PACKAGES for one in Path(package).rglob("*.py")):
        if not str(path).startswith(LEFT_OUT):
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef) and compares(function):
                    yield str(path), function.name


def compares(function: ast.FunctionDef) -> bool:
    """Whether it compares now with a time of an object."""
    times = times_in(function)
    for one in ast.walk(function):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub):
            sides = [one.left, one.right]
        elif isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            sides = [one.left, *one.comparators]
        else:
            continue
        if any(map(is_now, sides)) and any(is_time(side, times) for side in sides):
            return True
    return False


def times_in(function: ast.FunctionDef) -> set[str]:
    """Variables that hold a time of an object, or something made of one."""
    times: set[str] = set()
    for _ in range(3):  # as far as one is made of another
        for one in ast.walk(function):
            targets, value = [], None
            if isinstance(one, ast.Assign):
                targets, value = one.targets, one.value
            elif isinstance(one, ast.AnnAssign | ast.NamedExpr):
                targets, value = [one.target], one.value
            if value is not None and is_time(value, times) and not any(map(is_now, [value])):
                times |= {each.id for each in names_of(targets)}
    return times


def names_of(targets: list[ast.expr]) -> Iterator[ast.Name]:
    for one in targets:
        if isinstance(one, ast.Name):
            yield one
        elif isinstance(one, ast.Tuple):
            yield from names_of(one.elts)


def is_now(value: ast.expr) -> bool:
    for one in ast.walk(value):
        if (isinstance(one, ast.Name) and one.id in NOW) or (isinstance(one, ast.Attribute) and one.attr in NOW):
            return True
        if isinstance(one, ast.Attribute) and one.attr == "at" and "snapshot" in ast.unparse(one.value):
            return True
    return False


def is_time(value: ast.expr, times: set[str]) -> bool:
    for one in ast.walk(value):
        if (isinstance(one, ast.Attribute) and one.attr in TIMES) or (isinstance(one, ast.Name) and one.id in times):
            return True
        if isinstance(one, ast.Call) and (getattr(one.func, "attr", "") or getattr(one.func, "id", "")) in ANSWERS:
            return True
    return False


def test_what_waits_counts_from_when_it_was_first_seen() -> None:
    assert not set(found()) - set(STATED)


FOUND = {
    "a time of an object": ("def f(pod, now):\n    return now - pod.deleted > LONG", True),
    "the other way round": (
        "def f(self, claim):\n    return claim.metadata.creation_timestamp + LONG <= self._clock.now()",
        True,
    ),
    "by a variable": (
        "def f(claim, now):\n    made = claim.metadata.creation_timestamp\n    end = made + LONG\n    return end < now",
        True,
    ),
    "the answer of a function": ("def f(claim, snapshot):\n    return deadline_of(claim) < snapshot.at", True),
    "two times of one clock": ("def f(pod):\n    return pod.deleted > pod.created", False),
    "when it was first seen": ("def f(self, pod, now):\n    return now - self._since[pod.uid] > LONG", False),
    "whether there is one": ("def f(pod, now):\n    return pod.deleted is not None", False),
}


@pytest.mark.parametrize(("text", "is_found"), FOUND.values(), ids=FOUND)
def test_what_is_found(text: str, is_found: bool) -> None:
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert compares(function) == is_found
