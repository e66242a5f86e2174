"""Launches against the emulator, without a cluster: claims in memory, a launcher that can be killed after any call, and the next one."""

import contextlib
import enum
import itertools
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import msgspec

from provisioner.apis import names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import LaunchSet, encode_sets
from provisioner.apis.meta import Condition
from provisioner.cloudprovider.errors import CloudError
from provisioner.cloudprovider.types import InstanceType, LaunchedInstance
from provisioner.ec2.access.client import AwsClients
from provisioner.ec2.instances.instances import Instances
from provisioner.ec2.launch.launch_marks import Mark
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.launcher import Launcher
from provisioner.ec2.launch.orders import LaunchWorld
from provisioner.ec2.launch.templates import TemplateUses
from provisioner.ec2.launch.userdata.inputs import JoinedCluster
from provisioner.ec2.market import reads
from provisioner.ec2.market.discovered_capacity import MemoryTable
from provisioner.ec2.market.region_market import CATALOGUE, SPOT, MarketContext, Reads, RegionMarket
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.ec2.nodeclass.reservations import ReservationBook
from provisioner.ec2.nodeclass.subnets import Subnet, SubnetBook
from provisioner.ec2.settings import AwsSettings
from provisioner.kube.errors import Conflict, ConnectionFailed, TooManyRequests
from provisioner.support.clock import SystemClock
from provisioner.support.workers import KeyedQueue, ReconcileResult, pool, run_parallel
from tests.support.ec2 import Ec2
from tests.support.eventually import PATIENCE as CROWDED

T = TypeVar("T")

CLOCK = SystemClock()
CLUSTER = JoinedCluster("dovetail", "https://cluster.example", "Y2E=", 36, "10.100.0.0/16", "10.100.0.10")
PARAMETER = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/{}/standard/recommended/image_id"
ARCHITECTURES: Mapping[str, str] = {"amd64": "x86_64", "arm64": "arm64"}
"""EC2's word for each of Kubernetes'."""

ATTEMPTS = 2
"""Of every call, the first one included; a fault that hits so often fails a whole call with its retries, each of which waits up to twice as long."""

PATIENCE = 3.0
"""Seconds for which a rig looks for instances that may have been launched."""

LAG = PATIENCE / 6
"""Seconds by which reads are behind at most: what 30 s are to the patience of the real program."""

ABSENT = 2.0 * CROWDED
"""Seconds for which EC2 must not have described an instance of a rig until it counts as gone."""

READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 1}


class KilledError(Exception):
    """The process was killed; it does nothing more."""


class Answer(enum.Enum):
    """What becomes of one write, or of its answer."""

    LOST = "carried out, and the answer is lost"
    REFUSED = "refused: too many requests"
    LATE = "the connection breaks, and the write is carried out when everybody has given it up"
    NEVER = "the connection breaks before the write arrives"


class Claims:
    """NodeClaims as an API server keeps them: every write makes a new version, and a guarded one is refused when another came first.

    Attributes:
        answers: what becomes of writes of annotations, by their number, from 1; the others are carried out and answered.
        deaf: whether reads fail too.
        late: writes that are still on their way.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: dict[str, NodeClaim] = {}
        self._versions = itertools.count(1)
        self.writes = 0
        self.answers: dict[int, Answer] = {}
        self.deaf = False
        self.late: list[Callable[[], object]] = []
        self.errors: dict[str, CloudError] = {}
        self.deleted: set[str] = set()

    def add(
        self,
        count: int,
        wanted: Mapping[str, list[str]] | None = None,
        *,
        pool: str = "default",
        node_class: str = "default",
        sets: Iterable[LaunchSet] = (),
    ) -> list[str]:
        """Make equal claims that want these label values, of these launch sets; their names."""
        annotations = {names.LAUNCH_SET: encode_sets(sets)} if sets else {}
        wanted = {names.ARCH_LABEL: list(ARCHITECTURES), **(wanted or {})}
        made = []
        with self._lock:
            for _ in range(count):
                name = f"{pool}-{len(self._claims):04d}"
                self._claims[name] = msgspec.convert(
                    {
                        "metadata": {
                            "name": name,
                            "uid": str(uuid.uuid4()),
                            "creationTimestamp": CLOCK.now(),
                            "resourceVersion": str(next(self._versions)),
                            "generation": 1,
                            "labels": {names.NODEPOOL_LABEL: pool},
                            "annotations": annotations,
                        },
                        "spec": {
                            "nodeClassRef": {
                                "group": "karpenter.k8s.aws",
                                "kind": "EC2NodeClass",
                                "name": node_class,
                            },
                            "requirements": [
                                {"key": key, "operator": "In", "values": values} for key, values in wanted.items()
                            ],
                            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                        },
                    },
                    NodeClaim,
                    strict=False,
                )
                made.append(name)
        return made

    def all(self) -> list[NodeClaim]:
        """Every claim."""
        with self._lock:
            return list(self._claims.values())

    def get(self, name: str) -> NodeClaim:
        """One of them."""
        with self._lock:
            return self._claims[name]

    def change(self, name: str, **metadata: Any) -> NodeClaim:
        """Change metadata."""
        with self._lock:
            return self._changed(name, **metadata)

    def put(self, claim: NodeClaim) -> None:
        """Have a claim as it is given."""
        with self._lock:
            self._claims[claim.metadata.name] = claim

    def _changed(self, name: str, **metadata: Any) -> NodeClaim:
        claim = self._claims[name]
        metadata["resource_version"] = str(next(self._versions))
        changed = msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, **metadata))
        self._claims[name] = changed
        return changed

    def write(self, claim: NodeClaim, mark: Mark | None) -> NodeClaim:
        """Write a mark, or take it off, unless the claim has changed since it was read."""

        def carried_out() -> NodeClaim:
            current = self._claims[claim.metadata.name]
            if current.metadata.resource_version != claim.metadata.resource_version:
                raise Conflict(409, "Conflict", "the object has been modified")
            kept = {key: text for key, text in current.metadata.annotations.items() if key != names.LAUNCH_ANNOTATION}
            marked = kept if mark is None else {**kept, names.LAUNCH_ANNOTATION: str(mark)}
            return self._changed(claim.metadata.name, annotations=marked)

        def later() -> None:
            with self._lock, contextlib.suppress(Conflict):
                carried_out()

        with self._lock:
            self.writes += 1
            match self.answers.get(self.writes):
                case None:
                    return carried_out()
                case Answer.LOST:
                    carried_out()
                case Answer.REFUSED:
                    raise TooManyRequests(429, "TooManyRequests", "slow down")
                case Answer.LATE:
                    self.late.append(later)
                case Answer.NEVER:
                    pass
        raise ConnectionFailed("read timed out", maybe_applied=True)

    def read(self, name: str) -> NodeClaim:
        """One of them, asked for now."""
        if self.deaf:
            raise ConnectionFailed("read timed out", maybe_applied=True)
        return self.get(name)

    def read_all(self) -> list[NodeClaim]:
        """Every claim, asked for now."""
        if self.deaf:
            raise ConnectionFailed("read timed out", maybe_applied=True)
        return self.all()

    def launched(self, name: str, instance: LaunchedInstance) -> None:
        """Write a status."""
        with self._lock:
            claim = self._claims[name]
            told = Condition(type="Launched", status="True", reason="Launched", last_transition_time=CLOCK.now())
            status = msgspec.structs.replace(claim.status, provider_id=instance.provider_id, conditions=(told,))
            version = msgspec.structs.replace(claim.metadata, resource_version=str(next(self._versions)))
            self._claims[name] = msgspec.structs.replace(claim, metadata=version, status=status)

    def forget_status(self, name: str) -> None:
        """The claim is there again, and its status is not."""
        claim = self.get(name)
        self.put(msgspec.structs.replace(claim, status=type(claim.status)()))

    def without_instance(self) -> list[str]:
        """Names of those that are not launched."""
        return [claim.metadata.name for claim in self.all() if not claim.status.provider_id]

    def claims_by_instance(self) -> Counter[str]:
        """How many claims have each instance."""
        return Counter(claim.status.provider_id.rpartition("/")[2] for claim in self.all() if claim.status.provider_id)


@dataclass(frozen=True)
class Ground:
    """What all rigs of one emulator share, because it takes long to make."""

    ec2: Ec2
    settings: AwsSettings
    aws: AwsClients
    market: RegionMarket
    images: Mapping[str, str]
    subnets: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, ec2: Ec2, *, attempts: int = ATTEMPTS) -> "Ground":
        """Read an emulator; `attempts` of every call, the first one included."""
        settings = AwsSettings(cluster_name=ec2.vpc.cluster, region=ec2.region)
        policy = replace(settings.policy(), attempts=attempts, rates={})  # one test need not wait for another's calls
        aws = AwsClients(policy, CLOCK, ec2.session())
        rows = aws.client("ec2").describe_subnets(SubnetIds=sorted(ec2.vpc.subnets.values()))["Subnets"]
        ssm = aws.client("ssm")
        images = {
            arch: ssm.get_parameter(Name=PARAMETER.format(word))["Parameter"]["Value"]
            for arch, word in ARCHITECTURES.items()
        }
        return cls(ec2, settings, aws, market_of(aws, settings), images, tuple(rows))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.aws.close()


def node_class_of(
    ground: Ground, name: str = "default", *, images: Mapping[str, str] | None = None, **spec: Any
) -> EC2NodeClass:
    """A class that is ready for the emulator's network, with an image for each architecture; `images`: others, by architecture."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1},
            "spec": {"amiFamily": "AL2023", "amiSelectorTerms": [{"alias": "al2023@latest"}], **spec},
            "status": {
                "subnets": [
                    {"id": row["SubnetId"], "zone": row["AvailabilityZone"], "zoneID": row["AvailabilityZoneId"]}
                    for row in ground.subnets
                ],
                "securityGroups": [{"id": one} for one in ground.ec2.vpc.groups],
                "amis": [
                    {
                        "id": image,
                        "name": f"al2023-{arch}",
                        "requirements": [{"key": names.ARCH_LABEL, "operator": "In", "values": [arch]}],
                    }
                    for arch, image in (ground.images if images is None else images).items()
                ],
                "instanceProfile": ground.ec2.vpc.profile,
                "conditions": [{**READY, "lastTransitionTime": "2026-11-21T12:00:00Z"}],
            },
        },
        EC2NodeClass,
    )


@dataclass
class Kill:
    """When a process dies.

    Attributes:
        action: after which action of EC2, or which write of claims: "mark", "unmark" or "status".
        after: which of them, from 1.
        effect: whether that one still has its effect.
    """

    action: str
    after: int = 1
    effect: bool = True


def kills(ordered: int) -> dict[str, Kill]:
    """A process that orders a fleet for so many claims dies before or after any of its writes."""
    middle = ordered // 2
    return {
        "before the first template": Kill("create_launch_template", effect=False),
        "after the first template": Kill("create_launch_template"),
        "before the first mark": Kill("mark", effect=False),
        "after the first mark": Kill("mark"),
        "in the middle of the marks": Kill("mark", after=middle),
        "before the last mark": Kill("mark", after=ordered, effect=False),
        "after the last mark": Kill("mark", after=ordered),
        "before CreateFleet": Kill("create_fleet", effect=False),
        "before the answer of CreateFleet": Kill("create_fleet"),
        "before the first status": Kill("status", effect=False),
        "in the middle of the statuses": Kill("status", after=middle),
        "before the last status": Kill("status", after=ordered, effect=False),
    }


@dataclass
class Mortal:
    """`AwsClients` and API server of a process that may be killed; `fleets`: what CreateFleet was asked, as it was sent."""

    aws: AwsClients
    claims: Claims
    kill: Kill | None = None
    dead: threading.Event = field(default_factory=threading.Event)
    seen: Counter[str] = field(default_factory=Counter)
    fleets: list[Mapping[str, Any]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def client(self, service: str, region: str = "") -> Any:
        """A client that dies with the process."""
        real, outer = self.aws.client(service, region), self

        class Client:
            def __getattr__(self, name: str) -> Callable[..., Any]:
                def call(**asked: Any) -> Any:
                    if name == "create_fleet":
                        outer.fleets.append(asked)
                    return outer.call(name, lambda: getattr(real, name)(**asked))

                return call

        return Client()

    def write(self, claim: NodeClaim, mark: Mark | None) -> NodeClaim:
        """Write a mark, or take it off, if alive."""
        action = "unmark" if mark is None else "mark"
        made: NodeClaim = self.call(action, lambda: self.claims.write(claim, mark))
        return made

    def call(self, name: str, run: Callable[[], Any]) -> Any:
        """One call with an effect."""
        with self._lock:
            if self.dead.is_set():
                raise KilledError
            self.seen[name] += 1
            dies = self.kill is not None and self.kill.action == name and self.kill.after == self.seen[name]
            if dies:
                self.dead.set()
        if dies and self.kill is not None and not self.kill.effect:
            raise KilledError
        answer = run()
        if dies:
            raise KilledError
        return answer


class Rig:
    """One process' launcher over the emulator, and the lifecycle of claims around it.

    Attributes:
        classes: by name.
        look: seconds between two looks at a launch that was interrupted.
        failing: what the NodePool of every claim says of launches that failed.
        overlaid: the catalogue as NodeOverlays change it for a NodePool.
    """

    look = 0.2
    failing = ""

    def __init__(
        self, ground: Ground, claims: Claims, classes: Iterable[EC2NodeClass], *, kill: Kill | None = None
    ) -> None:
        self.ec2, self.claims, self.settings, self.market = ground.ec2, claims, ground.settings, ground.market
        self.classes = {one.metadata.name: one for one in classes}
        self.mortal = Mortal(ground.aws, claims, kill)
        self.overlaid: Callable[[str, Sequence[InstanceType]], Sequence[InstanceType]] = lambda _, types: types
        self.shortages = self.market.shortages
        self.subnets = SubnetBook(self.shortages.subnet_open)
        self.subnets.note(map(Subnet.of, ground.subnets), CLOCK.now())
        self.reservations = ReservationBook()
        self.instances = Instances(self.mortal, CLOCK, self.settings.cluster_name, idle=0.02, patience=ABSENT)
        self.templates = LaunchTemplates(self.mortal, TemplateUses(), CLOCK, self.settings.cluster_name)
        self.launcher = Launcher(
            self.mortal,
            self.instances,
            self.templates,
            LaunchWorld(
                class_of=lambda claim: self.classes.get(claim.spec.node_class_ref.name),
                types_of=self.market.types,
                cluster=lambda: CLUSTER,
                max_pods=self.market.max_pods,
                efa_launch=self.market.efa_launch,
                claims=claims.all,
                claims_now=claims.read_all,
                read=claims.read,
                write=self.mortal.write,
                overlaid=lambda pool, types: self.overlaid(pool, types),
                failing=lambda _: self.failing,
            ),
            subnets=self.subnets,
            reservations=self.reservations,
            shortages=self.shortages,
            clock=CLOCK,
            settings=self.settings,
            look=self.look,
            patience=PATIENCE,
        )
        self.launched_after: dict[str, float] = {}
        self.told: list[CloudError] = []
        self._began = CLOCK.monotonic()
        self._queue = KeyedQueue("claims", self._reconcile, CLOCK, workers=10)
        self.launcher.listen(self._queue.add)

    def start(self, resume: bool = True) -> None:
        """Reconcile every claim from now on."""
        self._began = CLOCK.monotonic()
        if resume:
            self.launcher.resume(self.claims.all())
        self._queue.start()
        self._queue.add_all(claim.metadata.name for claim in self.claims.all())

    def wait(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Wait until every claim has an instance, or `until`, for so many seconds of a machine that the test has to itself; whether that came."""
        done = until or (lambda: not self.claims.without_instance())
        end = CLOCK.monotonic() + seconds * CROWDED
        while not done():
            if CLOCK.monotonic() > end:
                return False
            CLOCK.sleep(0.02)
        return True

    def reconcile_now(self, name: str) -> None:
        """Look at a claim."""
        self._queue.add(name)

    def launcher_busy(self) -> bool:
        """Whether the launcher still has something under way."""
        return not repr(self.launcher).endswith(" 0 under way>")

    def in_parallel(self, call: Callable[[T], object], items: Iterable[T]) -> None:
        """Call for every item at the same time."""
        given = list(items)
        with pool(len(given)) as threads:
            for outcome in run_parallel(threads, call, given):
                outcome.unwrap()

    def stop(self) -> None:
        """The process ends."""
        self.mortal.dead.set()
        self._queue.stop()
        self.launcher.stop()

    def _reconcile(self, name: str) -> ReconcileResult:
        if self.mortal.dead.is_set() or name in self.claims.deleted:
            return ReconcileResult()
        claim = self.claims.get(name)
        if claim.status.provider_id:
            return ReconcileResult()
        try:
            instance = self.launcher.create(claim)
        except CloudError as error:
            self.claims.errors[name] = error
            self.told.append(error)
            return ReconcileResult(requeue_after=5.0 if error.retry_after is None else error.retry_after)
        with contextlib.suppress(KilledError):
            self.mortal.call("status", lambda: self.claims.launched(name, instance))
            self.launched_after[name] = CLOCK.monotonic() - self._began
        return ReconcileResult()


def market_of(aws: AwsClients, settings: AwsSettings) -> RegionMarket:
    """The emulator's market, read once."""
    made = RegionMarket(
        settings,
        Reads(region=lambda: reads.read_region(aws), spot=lambda: reads.read_spot(aws, CLOCK)),
        MarketContext(),
        Shortages(),
        MemoryTable(),
        CLOCK,
    )
    made.refresh(CATALOGUE)
    made.refresh(SPOT)
    return made


@contextmanager
def rig(ground: Ground, claims: Claims, classes: Iterable[EC2NodeClass], *, kill: Kill | None = None) -> Iterator[Rig]:
    """A rig for the length of a block."""
    made = Rig(ground, claims, classes, kill=kill)
    try:
        yield made
    finally:
        made.stop()


def alive(ec2: Ec2) -> Mapping[str, dict[str, Any]]:
    """Instances that are paid for, by id."""
    return {one["id"]: one for one in ec2.alive()}


def known_everywhere(ec2: Ec2) -> None:
    """Let EC2's time pass at once until every part of it knows every instance."""
    ec2.skip(max(1.0, ec2.lag) + 0.1)
