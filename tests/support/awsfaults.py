"""The table of faults: every action of AWS that is used, with everything that may go wrong with it; and one life of classes and claims that meets them.

A row is met by a class of its own kind of fault, so that many rows happen at once in one provisioner: each fault matches the calls of its class only.
"""

import contextlib
import signal
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.ec2 import NODECLAIM_TAG, EC2NodeClass
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Condition, is_true
from provisioner.ec2.access.permissions import PERMISSIONS
from provisioner.ec2.nodeclass.profiles import Naming
from provisioner.kube.config import connect
from provisioner.kube.resources import EC2NODECLASSES, EVENTS, NODECLAIMS, NODEPOOLS
from provisioner.kube.watch import Reflector
from provisioner.lab.harness import applying
from provisioner.support.clock import SystemClock
from tests.support.awscluster import CLUSTER, PROVISIONER, AwsCluster, node_class, pool
from tests.support.ec2 import Fault

KINDS: Final = ("throttled", "500", "timeout-after-effect", "denied", "not-found", "stale")
ATTEMPTS: Final = {"throttled": 4, "500": 4, "timeout-after-effect": 4}
"""How often a fault hits, so that one whole call fails with all of its retries; others fail at the first."""
WAIT: Final = 120.0
_NUDGE_SECONDS: Final = 1.5
_NEVER: Final = 1_000_000
_GATHERED_SECONDS: Final = 0.3
_ONLY_CHECKED: Final = frozenset({"iam:SimulatePrincipalPolicy", "iam:GetRole"})
"""Of `dovetail aws check`, not of the controllers."""
_REHEARSED: Final = frozenset({"ec2:RunInstances"})
"""Called as a dry run; what is launched goes through CreateFleet."""

EARLY: Final[Mapping[str, tuple[str, ...]]] = {
    "a": (
        *("DescribeSubnets", "DescribeSecurityGroups", "DescribeImages", "CreateInstanceProfile"),
        "CreateFleet",
    ),
    "b": (
        *("DescribeCapacityReservations", "DescribePlacementGroups", "AddRoleToInstanceProfile"),
        "CreateLaunchTemplate",
    ),
    "c": ("GetInstanceProfile", "RunInstances"),
}
"""Actions from a class's creation to its instance's first minutes, by the class that meets their faults."""
LAST_TOLD: Final[Mapping[str, str]] = {"a": "DescribeImages", "b": "CreateLaunchTemplate", "c": "RunInstances"}
"""The last of them before a class is Ready: when its trouble is told, so is every other."""
LATE: Final[Mapping[str, tuple[str, ...]]] = {
    "a": ("CreateTags", "TerminateInstances", "ListInstanceProfiles", "DeleteLaunchTemplate"),
    "b": ("DescribeInstances", "RemoveRoleFromInstanceProfile", "DescribeLaunchTemplates"),
    "c": ("DeleteInstanceProfile",),
}
"""Those after that, to the end."""
REGION: Final = ("DescribeInstanceTypes", "DescribeInstanceTypeOfferings", "DescribeSpotPriceHistory", "GetProducts")
"""What the process reads for everybody, again and again until there is an answer."""

_REHEARSED_CALLS: Final = frozenset({"CreateLaunchTemplate", "RunInstances"})
"""Of dry runs of a class."""
_READING: Final = ("Describe", "Get", "List", "Receive")
_NOTHING_NAMED: Final = "it names nothing that could be missing"
_NOTHING_OF_OURS: Final = "it reads nothing that we make: an older answer is as good"
_CHANGES: Final = "it changes something, and reads nothing that may be old"
_GONE: Final = (
    "that it is not there is what was wanted; what is there all the same goes with the garbage: "
    "tests/integration/test_nodeclass.py: test_profiles_of_former_roles_are_collected_when_no_claim_has_them, "
    "tests/integration/test_aws_launching.py: test_templates_go_with_their_class"
)
_READS_OURS: Final = frozenset(
    {"DescribeInstances", "DescribeLaunchTemplates", "CreateFleet", "RunInstances", "GetInstanceProfile"}
)
_NODECLASS: Final = "tests/integration/test_nodeclass.py"
_DISCOVERY: Final = "tests/integration/test_aws_discovery.py"
_DAY_TWO: Final = "tests/integration/test_aws_day_two.py"
_REBOOTS: Final = "tests/integration/test_aws_reboots.py"
_READERS: Final = "tests/integration/test_aws_faults.py: test_a_reader_of_the_process_goes_on"


def actions() -> tuple[str, ...]:
    """Every action that the controllers call, from the table of permissions."""
    called = {row.action for row in PERMISSIONS if not row.through} - _ONLY_CHECKED | _REHEARSED
    batched = {"sqs:DeleteMessage": "DeleteMessageBatch"}
    return tuple(sorted({batched.get(action, action.partition(":")[2]) for action in called}))


def mutating() -> frozenset[str]:
    """Those actions of them that make, change or end something for a class or a claim."""
    return frozenset(one for one in actions() if not one.startswith(_READING)) - {"RunInstances", "DeleteMessageBatch"}


_ELSEWHERE: Final[Mapping[tuple[str, str], str]] = {
    **dict.fromkeys(
        ((action, "not-found") for action in ("CreateInstanceProfile", "CreateLaunchTemplate", *REGION)), _NOTHING_NAMED
    ),
    ("DescribeInstanceStatus", "not-found"): _NOTHING_NAMED,
    ("DeleteInstanceProfile", "not-found"): _GONE,
    ("DeleteLaunchTemplate", "not-found"): _GONE,
    ("ReceiveMessage", "not-found"): f"{_DAY_TWO}: test_a_queue_that_is_missing_is_looked_up_again",
    ("DeleteMessageBatch", "not-found"): f"{_DAY_TWO}: test_a_queue_that_is_missing_is_looked_up_again",
    ("AddRoleToInstanceProfile", "not-found"): f"{_NODECLASS}: test_what_keeps_a_class_from_being_ready",
}
_ALL_ELSEWHERE: Final[Mapping[str, str]] = {
    "GetParameter": (
        f"{_DISCOVERY}: test_one_failed_reading_never_shrinks_the_list; "
        f"{_NODECLASS}: test_a_new_class_waits_for_a_call_that_fails_and_says_so"
    ),
    "DescribeInstanceStatus": f"{_DAY_TWO}: test_while_ec2_does_not_say_nobody_is_marked",
    "RebootInstances": f"{_REBOOTS}: test_what_ec2_answers_is_asked_for_no_second_time",
    "ReceiveMessage": f"{_DAY_TWO}: test_no_trouble_of_the_queue_loses_a_notice",
    "DeleteMessageBatch": f"{_DAY_TWO}: test_no_trouble_of_the_queue_loses_a_notice",
    **dict.fromkeys((*REGION, "DescribeCluster", "GetManagedResource", "GetQueueUrl"), _READERS),
}


def elsewhere(action: str, kind: str) -> str:
    """The test that covers a row which is not one of ours, or why it cannot happen; "" for ours."""
    if kind == "stale" and action not in _READS_OURS:
        return _NOTHING_OF_OURS if action.startswith(_READING) else _CHANGES
    return _ELSEWHERE.get((action, kind)) or _ALL_ELSEWHERE.get(action, "")


@dataclass(frozen=True, slots=True)
class Row:
    """One action with one kind of fault, and the group of `EARLY` or `LATE` that meets it."""

    action: str
    kind: str
    group: str

    def __str__(self) -> str:
        return f"{self.action}: {self.kind}"

    @property
    def owner(self) -> str:
        """The class that meets it, and its pool."""
        return f"faults-{self.group}-{self.kind}"

    @property
    def claim(self) -> str:
        """The claim of that class."""
        return f"{self.owner}-claim"

    @property
    def times(self) -> int:
        """How many calls it hits; of dry runs two looks at the class, since what one saw is not written where something else was written meanwhile.

        Of terminations that are denied four, since an instance that is denied among others is looked for by halves: among up to eight it is denied alone at last.
        """
        if (self.action, self.kind) == ("TerminateInstances", "denied"):
            return 4
        looks = 2 if self.action in _REHEARSED_CALLS and self.kind in ATTEMPTS else 1
        return looks * ATTEMPTS.get(self.kind, 1)


def rows_of(table: Mapping[str, Iterable[str]]) -> tuple[Row, ...]:
    """The rows of a table of actions by group, less those that are elsewhere."""
    return tuple(
        Row(action, kind, group)
        for group, listed in table.items()
        for action in listed
        for kind in KINDS
        if not elsewhere(action, kind)
    )


EARLY_ROWS: Final = rows_of(EARLY)
LATE_ROWS: Final = rows_of(LATE)
ROWS: Final = (*EARLY_ROWS, *LATE_ROWS)
TAG_ROWS: Final = tuple(row for row in LATE_ROWS if row.action == "CreateTags")
"""Instances are tagged soon after their Nodes have joined: it may begin before the last one has, and end while others are ended."""
OWNERS: Final = tuple(f"faults-{group}-{kind}" for group in EARLY for kind in KINDS)


@dataclass
class Seen:
    """What a user saw, and what AWS was asked.

    Attributes:
        conditions: (kind of object, name, type, status, reason, message), each once.
        events: (name of the object, reason, message), each once.
        calls: by row: calls that matched its fault.
        hits: by row: calls that it hit.
        log: of the provisioner.
        strays: instances without a claim, and claims without an instance, after the launch; all instances and claims after the end.
        left: by name: templates and profiles after the end.
        instances: how many there were.
    """

    conditions: set[tuple[str, str, str, str, str, str]] = field(default_factory=set)
    events: set[tuple[str, str, str]] = field(default_factory=set)
    calls: dict[Row, int] = field(default_factory=dict)
    hits: dict[Row, int] = field(default_factory=dict)
    log: str = ""
    strays: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    instances: int = 0

    def of(self, kind: str, name: str) -> list[tuple[str, str, str, str]]:
        """Type, status, reason and message of the conditions that one object had."""
        return sorted(one[2:] for one in self.conditions if one[:2] == (kind, name))


Conditioned = EC2NodeClass | NodeClaim


class Life:
    """Classes, pools and claims from their beginning to their end, with every fault of the table.

    Args:
        aws: with a provisioner that runs and has not seen them yet.
        flags: of that provisioner, which is started anew before the end.
    """

    def __init__(self, aws: AwsCluster, *flags: str) -> None:
        self._aws, self._client, self._flags = aws, aws.client, flags
        self.seen = Seen()
        self._clock = SystemClock()
        self._nudged: dict[str, float] = {}
        self._nudges = Counter[str]()
        self._told: dict[str, tuple[Condition, ...]] = {}

    def run(self) -> Seen:
        """Live it; what was seen."""
        with self._watching():
            self._begin()
            self._launch()
            self._end()
            self._note(LATE_ROWS)
        self.seen.events |= {
            (one.involved_object.name, one.reason, one.message) for one in self._client.list(EVENTS, "default")
        }
        self.seen.log = self._aws.log()
        return self.seen

    # ------------------------------------------------------------------ the three parts

    def _begin(self) -> None:
        """Classes and pools, until all are Ready; the provisioner sees them when their faults are set."""
        aws = self._aws
        aws.cluster.signal(PROVISIONER, signal.SIGSTOP)
        made = [self._make(index, name) for index, name in enumerate(OWNERS)]
        profiles = {one.name: Naming(CLUSTER, aws.ec2.region).name(one, f"role-{one.name}") for one in made}
        aws.ec2.script([*(early_fault(row, profiles) for row in EARLY_ROWS), *map(self._tag_fault, TAG_ROWS)])
        aws.ec2.reset_calls()
        aws.cluster.signal(PROVISIONER, signal.SIGCONT)
        aws.eventually(self._all_ready, "all classes and pools are Ready", WAIT)

    def _launch(self) -> None:
        """A claim of each, until all have Nodes that are ready."""
        for name in OWNERS:
            body = self._aws.claim(name)
            body["metadata"] = {**body["metadata"], "name": f"{name}-claim"}
            del body["metadata"]["generateName"]
            self._client.create(NODECLAIMS, body)
        self._aws.eventually(lambda: len(self._aws.initialized()) == len(OWNERS), "all claims are initialised", WAIT)
        owners = {one.status.provider_id.rpartition("/")[2] for one in self._aws.claims()}
        self.seen.strays += sorted(owners ^ {one["id"] for one in self._aws.ec2.alive()})
        self.seen.instances = len(owners)

    def _end(self) -> None:
        """Delete it all."""
        aws = self._aws
        instances = {one.name: one.status.provider_id.rpartition("/")[2] for one in aws.claims()}
        classes = {one.name: one for one in self._client.list(EC2NODECLASSES)}
        templates = {
            name: [key for key, tags in aws.ec2.left()["templates"].items() if name in tags.values()] for name in OWNERS
        }
        naming = Naming(CLUSTER, aws.ec2.region)
        matches = {
            row: {
                "TerminateInstances": [instances[row.claim]],
                "DescribeInstances": [instances[row.claim]],
                "ListInstanceProfiles": [naming.path(classes[row.owner])],
                "DescribeLaunchTemplates": [row.owner],
                "DeleteLaunchTemplate": templates[row.owner],
            }.get(row.action, [classes[row.owner].status.instance_profile])[0]
            for row in LATE_ROWS
            if row not in TAG_ROWS
        }
        aws.stop_provisioner()
        self._note((*EARLY_ROWS, *TAG_ROWS))
        # a new process asks for the partitions of instances and tags them: that is not to meet the faults of their end
        asked = Fault("DescribeInstances", "denied", after=_NEVER, match={"contains": f'"{max(instances.values())}"'})
        aws.ec2.script([*map(self._tag_fault, TAG_ROWS), asked])
        aws.start(*self._flags)
        tagged = {name for name in OWNERS if any(row.owner == name for row in TAG_ROWS)}
        others = {instances[f"{name}-claim"] for name in OWNERS if name not in tagged}
        aws.eventually(lambda: aws.ec2.hits()[-1][0] > 0, "the instances are asked about", WAIT)
        aws.eventually(lambda: self._are_tagged(others), "the other instances are tagged", WAIT)
        self._note(TAG_ROWS)
        aws.ec2.script(
            self._tag_fault(row) if row in TAG_ROWS else _fault(row, {"contains": f'"{matches[row]}"'})
            for row in LATE_ROWS
        )
        self._delete_claims(name for name in OWNERS if name not in tagged)
        waiting = {instances[f"{name}-claim"] for name in tagged}
        aws.eventually(lambda: self._are_tagged(waiting), "the instances are tagged", WAIT)
        self._delete_claims(tagged)
        left_over = set(OWNERS)
        aws.eventually(lambda: self._are_gone(left_over), "the claims and classes are gone", WAIT)
        aws.await_empty()
        left = aws.ec2.left()
        self.seen.strays += [one["id"] for one in aws.ec2.alive()] + [one.name for one in aws.claims()]
        self.seen.left = sorted({*left["templates"], *left["profiles"]} - {aws.ec2.vpc.profile})

    # ------------------------------------------------------------------ parts of the parts

    def _make(self, index: int, name: str) -> EC2NodeClass:
        """A class whose questions to AWS are like no other's, and its pool."""
        ec2, tags = self._aws.ec2, {"faults": name}
        zones = ec2.vpc.zones
        ec2.add_subnet(zones[index % len(zones)], f"10.0.{96 + index}.0/24", tags)
        ec2.add_group(f"sg-{0xFA00 + index:017x}", name, tags)
        ec2.add_image(f"ami-{0xFA00 + index:017x}", name, family="al2023", faults=name)
        ec2.add_role(f"role-{name}")
        ec2.client("ec2").create_placement_group(GroupName=name, Strategy="spread")
        selector = [{"tags": tags}]
        spec = {
            "amiFamily": "AL2023",
            "amiSelectorTerms": selector,
            "subnetSelectorTerms": selector,
            "securityGroupSelectorTerms": selector,
            "capacityReservationSelectorTerms": selector,
            "placementGroupSelector": {"name": name},
            "role": f"role-{name}",
        }
        applying.apply(
            self._client, [node_class(name, **spec), pool(name, name, disruption={"consolidateAfter": "Never"})]
        )
        return self._client.get(EC2NODECLASSES, name)

    def _all_ready(self) -> bool:
        """Whether all are; those that have said anew what is wrong are looked at again."""
        waiting = [
            one
            for one in self._client.list(EC2NODECLASSES)
            if one.name in OWNERS and not is_true(one.status.conditions, names.READY)
        ]
        told = {
            one.name: one.status.conditions for one in waiting if any(cond.message for cond in one.status.conditions)
        }
        self._nudge([one for one in waiting if told.get(one.name) != self._told.get(one.name)])
        self._nudge_again(one for one in waiting if _has_told_all(one))
        self._told |= told
        pools = [one for one in self._client.list(NODEPOOLS) if one.metadata.name in OWNERS]
        return not waiting and all(is_true(one.status.conditions, names.READY) for one in pools)

    def _are_tagged(self, ids: Collection[str]) -> bool:
        return all(NODECLAIM_TAG in one["tags"] for one in self._aws.ec2.alive() if one["id"] in ids)

    def _delete_claims(self, owners: Iterable[str]) -> None:
        """One after another: what is asked at the same time is asked by one call, and the fault of one instance hits all of them."""
        for name in sorted(owners, key=lambda one: not one.endswith("-throttled")):  # whose retries last longest
            self._client.delete(NODECLAIMS, f"{name}-claim")
            self._clock.sleep(_GATHERED_SECONDS)

    def _are_gone(self, owners: set[str]) -> bool:
        """Whether nothing is left of these; the pool and class of a claim that is gone are deleted, and taken from `owners`."""
        claims = {one.name for one in self._aws.claims()}
        for name in [one for one in owners if f"{one}-claim" not in claims]:
            self._client.delete(EC2NODECLASSES, name)
            self._client.delete(NODEPOOLS, name)
            self._nudged[name] = self._clock.monotonic()
            owners.remove(name)
        going = [one for one in self._client.list(EC2NODECLASSES) if one.name in OWNERS and one.name not in owners]
        self._nudge_again(going)
        return not owners and not going

    def _nudge_again(self, classes: Iterable[EC2NodeClass]) -> None:
        """Nudge those of them that have not been nudged for a while."""
        due = self._clock.monotonic() - _NUDGE_SECONDS
        self._nudge([one for one in classes if self._nudged.get(one.name, 0.0) <= due])

    def _nudge(self, classes: Iterable[EC2NodeClass]) -> None:
        """Have them looked at again, by their pools while they have any: if the class itself changes, a look that is under way writes nothing of what it saw."""
        for one in classes:
            self._nudged[one.name] = self._clock.monotonic()
            if one.metadata.deletion_timestamp is not None:
                self._aws.nudge(one)
                continue
            self._nudges[one.name] += 1
            self._client.patch(NODEPOOLS, one.name, {"spec": {"weight": 1 + self._nudges[one.name] % 100}})

    def _note(self, rows: tuple[Row, ...]) -> None:
        """What became of the faults of these rows, which come first in the script."""
        for row, (matched, hit) in zip(rows, self._aws.ec2.hits()[: len(rows)], strict=True):
            self.seen.calls[row] = self.seen.calls.get(row, 0) + matched
            self.seen.hits[row] = self.seen.hits.get(row, 0) + hit

    def _tag_fault(self, row: Row) -> Fault:
        """What is left of the fault of a row of `TAG_ROWS`; calls are counted when nothing is."""
        left = row.times - self.seen.hits.get(row, 0)
        match = {"contains": f'"{row.claim}"'}
        return (
            Fault(row.action, row.kind, times=left, match=match)
            if left
            else Fault(row.action, row.kind, after=_NEVER, match=match)
        )

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        """Hear of every version of every class and claim."""
        clock = SystemClock()
        connection = connect(str(self._aws.cluster.kubeconfig), user_agent="dovetail-test-watch")
        reflectors: tuple[Reflector[Any], ...] = (
            Reflector(connection, EC2NODECLASSES, changed=Noting("class", self.seen).changed, clock=clock),
            Reflector(connection, NODECLAIMS, changed=Noting("claim", self.seen).changed, clock=clock),
        )
        for one in reflectors:
            one.start()
        try:
            yield
        finally:
            for one in reflectors:
                one.stop()
            connection.close()


class Noting:
    """A handler that keeps every condition that objects of one kind ever had."""

    def __init__(self, kind: str, seen: Seen) -> None:
        self._kind, self._seen = kind, seen

    def changed(self, old: Conditioned | None, new: Conditioned | None) -> None:
        """One version."""
        if new is not None:
            self._seen.conditions |= {
                (self._kind, new.metadata.name, one.type, one.status, one.reason, one.message)
                for one in new.status.conditions
            }


def _has_told_all(node_class: EC2NodeClass) -> bool:
    """Whether a class has told of the last trouble that it meets before it is Ready, so that nothing is lost when a look at it is disturbed."""
    last = next(action for group, action in LAST_TOLD.items() if node_class.name.startswith(f"faults-{group}-"))
    return any(last in one.message for one in node_class.status.conditions)


def early_fault(row: Row, profiles: Mapping[str, str]) -> Fault:
    """The fault of a row that meets its class alone."""
    match: dict[str, Any] = {"contains": f'"{row.owner}"'}
    match |= {
        "CreateFleet": {"DryRun": ""},  # the launch itself
        "AddRoleToInstanceProfile": {"contains": f'"role-{row.owner}"'},
        "GetInstanceProfile": {"contains": f'"{profiles[row.owner]}"'},
    }.get(row.action, {})
    return _fault(row, match)


def _fault(row: Row, match: Mapping[str, Any]) -> Fault:
    return Fault(row.action, row.kind, times=row.times, match=match, seconds=20.0 if row.kind == "stale" else 0.0)
