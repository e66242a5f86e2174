"""Nothing is permitted by comparing our clock with a time that another machine wrote: what waits counts from when this process first saw the object (decision 30).

Found are subtractions and comparisons of "now" with a time of an object, or with what was made of one in the same function; each of them is stated below.
"""

import ast
from collections.abc import Collection, Iterator
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
    {
        "deadline_of",
        "grace_end",
        "counting_deadline",
        "deadline",
        "ended_at",
        "read_do_not_disrupt",
        "renew_at",
        "consolidatable_at",
    }
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
    ("certs/rotation.py", "reason_to_mint"): _CERTIFICATE,
    ("certs/store.py", "fault"): _CERTIFICATE,
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
    (
        "provisioner/nodeclaims/growth_ledger.py",
        "_ages",
    ): "the last minute of a former leader, whose NodeClaims no leader has seen from their beginning",
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
    times, nows = variables_of(function)
    for one in ast.walk(function):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub):
            sides = [one.left, one.right]
        elif isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            sides = [one.left, *one.comparators]
        else:
            continue
        if any(is_now(side, nows) for side in sides) and any(is_time(side, times) for side in sides):
            return True
    return False


def variables_of(function: ast.FunctionDef) -> tuple[set[str], set[str]]:
    """Variables that hold a time of an object, or something made of one, and those that hold "now"; a time `or now` is a time."""
    times: set[str] = set()
    nows: set[str] = set(NOW)
    for _ in range(3):  # as far as one is made of another
        for target, value in assigned(function):
            is_one = is_time(value, times) and (isinstance(value, ast.BoolOp) or not is_now(value, nows))
            where = times if is_one else nows if is_now(value, nows) and not is_time(value, times) else None
            if where is not None:
                where |= {each.id for each in names_of([target])}
    return times, nows - times


def assigned(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is assigned to what; of tuples each part."""
    for one in ast.walk(function):
        match one:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                yield from zip(targets, values, strict=True)
            case ast.Assign(targets=targets, value=value):
                yield from ((target, value) for target in targets)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                yield target, value
            case _:
                pass


def names_of(targets: list[ast.expr]) -> Iterator[ast.Name]:
    for one in targets:
        if isinstance(one, ast.Name):
            yield one
        elif isinstance(one, ast.Tuple):
            yield from names_of(one.elts)


def is_now(value: ast.expr, nows: Collection[str] = NOW) -> bool:
    for one in ast.walk(value):
        if (isinstance(one, ast.Name) and one.id in nows) or (isinstance(one, ast.Attribute) and one.attr in NOW):
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
    """And what is stated is there: who compares no longer leaves the list, and who does it in a way that is not found any more is noticed."""
    assert set(found()) == set(STATED)


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
    "one that is now where nobody knows it": (
        "def f(claim, now):\n    made, name = claim.metadata.creation_timestamp or now, claim.name\n    return now - made >= LONG",
        True,
    ),
    "now by a variable": (
        "def f(self, pod):\n    due, at = pod.deleted, self._view.snapshot.at\n    return due <= at",
        True,
    ),
    "two times of one clock": ("def f(pod):\n    return pod.deleted > pod.created", False),
    "when it was first seen": ("def f(self, pod, now):\n    return now - self._since[pod.uid] > LONG", False),
    "whether there is one": ("def f(pod, now):\n    return pod.deleted is not None", False),
}


@pytest.mark.parametrize(("text", "is_found"), FOUND.values(), ids=FOUND)
def test_what_is_found(text: str, is_found: bool) -> None:
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert compares(function) == is_found
