"""What a cloud brings into the program beside its `CloudProvider`: background work of every replica, and controllers that only it has."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Generic, ParamSpec, Protocol, TypeVar

from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.cloudprovider.metering import metered
from provisioner.cloudprovider.types import CloudProvider, InstanceType
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.plan_writer import NodePlanRemover, PlanWriter
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.options import Options
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import Change
from provisioner.runtime.live_reads import LiveReads
from provisioner.runtime.poller import ApiPoller
from provisioner.scheduling.world import Policies
from provisioner.state.cluster import Cluster
from provisioner.state.effects import Effect
from provisioner.support.clock import Clock
from provisioner.support.workers import KeyedQueue, WorkerPool
from provisioner.termination.disrupted_taint import DisruptedTaints
from provisioner.termination.eviction_queue import Evictions
from provisioner.termination.terminator import Terminator

P = ParamSpec("P")


R = TypeVar("R")


class LateCall(Generic[P, R]):
    """A function of a part that is made later than its callers.

    Args:
        name: what it does, for whoever calls it too early.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._call: Callable[P, R] | None = None

    def connect(self, call: Callable[P, R]) -> None:
        """Call this from now on."""
        self._call = call

    @property
    def problem(self) -> str:
        """That nothing is connected, for whoever forgot it; "" otherwise."""
        return f'"{self._name}" is not connected' if self._call is None else ""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function answers.

        Raises:
            RuntimeError: it is called before it is connected.
        """
        if self._call is None:
            raise RuntimeError(self.problem)
        return self._call(*args, **kwargs)


@dataclass(frozen=True)
class Calls:
    """By what parts reach those that are made after them.

    Attributes:
        carry_out: does what the state wants done.
        claim_again: look at a NodeClaim again now, by name.
        pool_again: look at a NodePool again soon, by name.
        plan_again: plan what waits again; the word says why.
        plan_later: plan what waits again in so many seconds.
        register: takes the name of a NodeClaim whose Node has come.
        fits_elsewhere: whether all pods that wait for a NodeClaim would find other places now.
        time_left: seconds of the batch that is planned now.
    """

    carry_out: LateCall[[Iterable[Effect]], None] = field(default_factory=lambda: LateCall("carry out effects"))
    claim_again: LateCall[[str], None] = field(default_factory=lambda: LateCall("look at a NodeClaim"))
    pool_again: LateCall[[str], None] = field(default_factory=lambda: LateCall("look at a NodePool"))
    plan_again: LateCall[[str], None] = field(default_factory=lambda: LateCall("plan again"))
    plan_later: LateCall[[float], None] = field(default_factory=lambda: LateCall("plan later"))
    register: LateCall[[str], None] = field(default_factory=lambda: LateCall("register a Node"))
    fits_elsewhere: LateCall[[str], bool] = field(default_factory=lambda: LateCall("look for other places"))
    time_left: LateCall[[], float] = field(default_factory=lambda: LateCall("tell the time that is left to a batch"))

    def check(self) -> None:
        """Whether all are connected; asked when every part is made, before anything is started.

        Raises:
            RuntimeError: one is not.
        """
        for one in fields(self):
            if problem := getattr(self, one.name).problem:
                raise RuntimeError(problem)


@dataclass(frozen=True)
class Base:
    """What the process lends to every part of a term."""

    caches: Caches
    client: Client
    provider: CloudProvider
    recorder: Recorder
    options: Options
    policies: Policies
    clock: Clock

    @property
    def cluster(self) -> Cluster:
        """The state that the caches feed."""
        return self.caches.cluster

    def provider_for(self, controller: str) -> CloudProvider:
        """The provider, its calls counted under that controller's name."""
        return metered(self.provider, controller, self.clock)


@dataclass(frozen=True)
class Writers:
    """Who writes NodeClaims and plans, and in which threads."""

    creates: WorkerPool
    notes: WorkerPool
    claims: ClaimWriter
    plans: PlanWriter
    node_plans: NodePlanRemover


@dataclass(frozen=True)
class Ends:
    """How Nodes are closed and drained, and instances terminated."""

    evictions: Evictions
    taints: DisruptedTaints
    terminator: Terminator
    live: LiveReads
    nodes: KeyedQueue
    garbage: ApiPoller


class CloudControllers(Protocol):
    """The controllers that only one cloud has, for as long as this process leads."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Finish what is under way and act no more."""
        ...

    def heard(self, change: Change) -> None:
        """One event of a watch, after the state has taken it in; see `runtime.caches.Caches.listen`."""
        ...


class Cloud(Protocol):
    """A provider with everything that belongs to it."""

    @property
    def provider(self) -> CloudProvider: ...

    def types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """The pool's instance types with what instances of them have; prices may be old. Never waits."""
        ...

    def start(self) -> None:
        """Begin what every replica does; the caches are full."""
        ...

    def is_uncertain(self, claim: NodeClaim) -> bool:
        """Whether nobody can say now if the claim's instance is there, so that nothing may be concluded from not finding it."""
        ...

    def lead(self, base: Base, calls: Calls, writing: Writers, ending: Ends, ledger: BudgetLedger) -> CloudControllers:
        """The controllers of a term, not started yet, made of the parts that `wiring` has made."""
        ...

    def stop(self) -> None:
        """End everything."""
        ...
