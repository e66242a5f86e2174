"""Repairs the share of an owner's pods that run on demand, where its pods ask for it. The next step is decided by `shares.repair`.

Every ten seconds the pods that ask are looked at in the cache. An owner among whose pods nothing has changed for a minute and whose share seems
wrong is read at the API server, with its pods; the decision is made from that alone. At most one pod of an owner is evicted, through the Eviction
API; then its pods have to settle again. What is remembered here is only of use while this process leads: a new leader waits until owners have
been quiet for a minute before its own eyes, and reads from their pods what was tried.
"""

import contextlib
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.core import Deployment, Node, ObjectReference, ReplicaSet, StatefulSet
from provisioner.apis.meta import OwnerReference, controller_of, selector_text
from provisioner.apis.pods import Pod, is_terminal
from provisioner.apis.shares import REPAIR_BY_EVICTION, SeatedPod, Share, ShareAttempt, Side, attempt_text, parse
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
)
from provisioner.kube.events import Recorder
from provisioner.runtime.base import Base
from provisioner.runtime.controller import Controller
from provisioner.runtime.live_reads import CHOSEN_SECONDS, Postponed, never
from provisioner.runtime.object_reference import pod_reference
from provisioner.shares.repair import (
    MOST_ATTEMPTS,
    SETTLE_SECONDS,
    Adopt,
    Bar,
    Evict,
    ShareMember,
    ShareView,
    Unrepaired,
    asks,
    decide,
    is_drifted,
    is_moving,
    is_repairable,
    is_settled,
    member_of,
    members_of,
    side_of_label,
    side_of_node,
)
from provisioner.state.pause import Activity, Pause
from provisioner.support import logs, metrics
from provisioner.support.backoff import doubled
from provisioner.support.clock import Clock
from provisioner.termination.ends import Ends
from provisioner.values.message import EventMessage, Said

LOOK_SECONDS: Final = 10.0
MOST_READ: Final = 10
"""Owners that are read at the API server in one look; namespaces take turns."""
MOST_ADOPTED: Final = 100
"""Pods that are labelled in one look."""
AGAIN_SECONDS: Final = 30.0
"""After which an owner that could not be repaired at the moment is read again; doubled each time in a row."""
QUIET_SECONDS: Final = 600.0
"""The same where reading it sooner would be of no use, and the longest time between two. A pod that changes ends it."""
TOLD_SECONDS: Final = 3600.0

REPAIRS: Final = metrics.counter(
    "dovetail_on_demand_repairs_total",
    "Evictions of pods to restore the share of a workload that runs on demand, by result (evicted, refused, failed), "
    "and owners that were given up because evictions did not help (stopped).",
    ("result",),
)

_DENIED: Final = (BadRequest, Unauthorized, Forbidden, Invalid)
"""Answers after which nothing was done for sure."""
_QUIET: Final = frozenset({Unrepaired.WITHIN, Unrepaired.NOT_ASKED, Unrepaired.STOPPED, Unrepaired.UNSETTLED})
"""What does not change as long as the pods do not, or not soon."""
_TOLD: Final = frozenset({Unrepaired.STOPPED, Unrepaired.UNKNOWN, Unrepaired.PROTECTED, Unrepaired.BUDGET})
_log = logs.get_logger(__name__)

_Fingerprint = frozenset[tuple[str, str, bool, bool]]
_NOT_REPAIRED: Final = {
    Unrepaired.STOPPED: Said(
        f"after {MOST_ATTEMPTS} evictions, no new pod was assigned to the capacity that lacks pods; the next attempt is in a day. Check that "
        "the webhook runs with --on-demand-shares, and that nothing else sets the capacity type of the pods"
    ),
    Unrepaired.UNKNOWN: Said(f"the node of a pod has no label {names.CAPACITY_TYPE_LABEL}"),
    Unrepaired.PROTECTED: Said(
        f"each pod that could be evicted is protected by {names.DO_NOT_DISRUPT}, by its own node selector or affinity, "
        "or by a pause of its NodePool"
    ),
    Unrepaired.BUDGET: Said("no PodDisruptionBudget of the pods allows an eviction now"),
}


@dataclass(slots=True)
class _Owner:
    """What is remembered of an owner whose pods ask.

    Attributes:
        pods: as they were seen last.
        print: what of them has to settle.
        since: when they became so.
        read_at: when it was read at the API server; 0 for never.
        due: when it may be read again.
        right_until: its share is taken for right until then, as long as no pod changes.
        seated: whether the webhook put a pod where it is, by UID, as was read last; the cache does not know.
        failures: reads in a row after which nothing could be done.
        attempt: the last, by this process.
        told: why it was not repaired, as was said last.
    """

    pods: tuple[Pod, ...]
    print: _Fingerprint
    since: float
    read_at: float = 0.0
    due: float = 0.0
    right_until: float = 0.0
    seated: Mapping[str, bool] = field(default_factory=dict)
    failures: int = 0
    attempt: ShareAttempt | None = None
    told: Unrepaired | None = None


@dataclass(frozen=True, slots=True)
class _Group:
    """The pods of one owner in the cache."""

    namespace: str
    owner: OwnerReference
    pods: tuple[Pod, ...]

    @property
    def key(self) -> tuple[str, str]:
        """The same UID in another namespace is a lie."""
        return self.namespace, self.owner.uid

    @property
    def reference(self) -> ObjectReference:
        owner = self.owner
        return ObjectReference(
            api_version=owner.api_version, kind=owner.kind, name=owner.name, namespace=self.namespace, uid=owner.uid
        )


class ShareRepair:
    """See the module; used by one thread.

    Args:
        pods: every pod in the cache.
        node: a Node in the cache, by name.
        budgets: PodDisruptionBudgets in the cache.
        client: reads owners and pods, labels and evicts.
        recorder: for events of pods and owners.
        clock: measures how long pods stay as they are.
        stale: which watch is behind, in words; "" where none is. Nothing is done meanwhile.
    """

    def __init__(
        self,
        pods: Callable[[], Iterable[Pod]],
        node: Callable[[str], Node | None],
        budgets: Callable[[], PodBudgets],
        client: Client,
        recorder: Recorder,
        clock: Clock,
        *,
        stale: Callable[[], str],
        pause: Callable[[], Pause],
        postponed: Postponed = never,
    ) -> None:
        self._postponed = postponed
        self._pods, self._node, self._budgets = pods, node, budgets
        self._client, self._recorder, self._clock = client, recorder, clock
        self._stale, self._pause = stale, pause
        self._owners: dict[tuple[str, str], _Owner] = {}
        self._adoptions = 0

    def poll(self) -> float:
        """Look once; seconds until the next look."""
        self._look()
        return LOOK_SECONDS

    def _look(self) -> None:
        now = self._clock.monotonic()
        if self._stale():
            for owner in self._owners.values():
                owner.since = now  # nobody knows what happened meanwhile
            return
        groups = self._groups()
        self._remember(groups, now)
        if self._pause().covers_all(Activity.CONSOLIDATION):
            return
        self._adoptions = 0
        end = now + LOOK_SECONDS
        for group in self._turns(group for group in groups if self._seems_due(group, now)):
            if self._clock.monotonic() >= end:
                return  # the others come with the next look
            self._read(group)

    # ------------------------------------------------------------------ from the cache

    def _groups(self) -> list[_Group]:
        """The pods of each owner of which one asks. Cost: O(pods)."""
        every = tuple(self._pods())
        asking: set[tuple[str, str]] = set()
        for pod in every:
            if names.ON_DEMAND_REPAIR in pod.annotations and pod.owner is not None:
                key = (pod.namespace, pod.owner.uid)
                if key not in asking and asks(pod):
                    asking.add(key)
        if not asking:
            return []
        found: defaultdict[tuple[str, str], list[Pod]] = defaultdict(list)
        for pod in every:
            if pod.owner is not None and not is_terminal(pod) and (pod.namespace, pod.owner.uid) in asking:
                found[pod.namespace, pod.owner.uid].append(pod)
        return [
            _Group(namespace, owner, tuple(pods))
            for (namespace, _), pods in found.items()
            if (owner := next(filter(is_repairable, (one.owner for one in pods)), None)) is not None
        ]

    def _remember(self, groups: Iterable[_Group], now: float) -> None:
        before, self._owners = self._owners, {}
        for group in groups:
            owner = before.get(group.key)
            if owner is None:
                owner = _Owner(group.pods, _fingerprint(group.pods), now)
            elif not _are_same(owner.pods, group.pods):
                seen = _fingerprint(group.pods)
                if owner.print != seen:
                    owner.print, owner.since, owner.due = seen, now, 0.0
                owner.pods, owner.right_until = group.pods, 0.0
            self._owners[group.key] = owner

    def _seems_due(self, group: _Group, now: float) -> bool:
        """Whether the API server is asked about an owner; the decision itself is made from what it answers."""
        owner = self._owners[group.key]
        if now < max(owner.due, owner.right_until, owner.since + SETTLE_SECONDS):
            return False
        if not all(is_settled(pod) for pod in group.pods):
            return False
        share = _most_common_share(group.pods)
        if share is not None and any(is_drifted(share, sides) for sides in self._sides(group.pods, owner.seated)):
            return True
        owner.right_until = now + QUIET_SECONDS  # nodes may change, but hardly do
        return False

    def _sides(self, pods: Iterable[Pod], seated: Mapping[str, bool]) -> Iterable[list[Side | None]]:
        """What pods count as if the webhook seated all of which it is not known, and if it seated none."""
        nodes = [(pod, side_of_node(self._node(pod.node_name))) for pod in pods]
        for unknown in (True, False):
            yield [(side_of_label(pod) if seated.get(pod.uid, unknown) else None) or side for pod, side in nodes]

    def _turns(self, groups: Iterable[_Group]) -> list[_Group]:
        """Those that are read now: of each namespace in turn the one that was read the longest time ago."""
        before: Counter[str] = Counter()
        order: list[tuple[int, float, _Group]] = []
        for group in sorted(groups, key=lambda one: self._owners[one.key].read_at):
            order.append((before[group.namespace], self._owners[group.key].read_at, group))
            before[group.namespace] += 1
        return [group for *_, group in sorted(order, key=lambda one: one[:2])[:MOST_READ]]

    # ------------------------------------------------------------------ from the API server

    def _read(self, group: _Group) -> None:
        """Look at one owner as the API server has it, and do what comes next."""
        owner = self._owners[group.key]
        owner.read_at = self._clock.monotonic()
        owner.due = owner.read_at + AGAIN_SECONDS
        try:
            decision = self._decide(group, owner)
            match decision:
                case Unrepaired():
                    self._leave(group, owner, decision)
                case _ if self._stale() or self._pause().covers_all(Activity.CONSOLIDATION):
                    return  # since this look began
                case Adopt(members=members):
                    self._adopt(members)
                case Evict(member=member) if self._postponed(
                    None, self._node(member.pod.node_name), patience=CHOSEN_SECONDS
                ):
                    return
                case Evict():
                    self._evict(group, owner, decision)
        except (NotFound, Conflict):
            return  # something has changed: it is looked at again
        except ApiError as error:
            self._failed(owner)
            _log.warning(
                "Failed to repair the share of pods that run on demand; retrying", owner=_name(group), error=str(error)
            )

    def _decide(self, group: _Group, owner: _Owner) -> Evict | Adopt | Unrepaired:
        """What comes next. Cost: a few small reads, and the pods of this owner alone."""
        found = self._owner(group)
        if found is None:
            return Unrepaired.NOT_ASKED
        annotations = found.spec.template.metadata.annotations
        share = _share(annotations)
        if share is None or annotations.get(names.ON_DEMAND_REPAIR) != REPAIR_BY_EVICTION:
            return Unrepaired.NOT_ASKED
        above = _deployment_of(found)
        deployment = None if above is None else self._deployment(above, group.namespace)
        if (above is not None and deployment is None) or is_moving(found, deployment, ()):
            return Unrepaired.ROLLING  # without its Deployment it goes, and its pods with it
        listed = self._client.list(resources.SEATED_PODS, group.namespace, _selector(found))
        seated = members_of(group.owner.uid, listed)
        current = _fingerprint(one.pod for one in seated) == owner.print
        members = tuple(self._members(group.owner.uid, seated))
        owner.seated = {one.pod.uid: one.seated for one in members}
        view = ShareView(
            share=share,
            wanted=found.spec.wanted,
            members=members,
            steady=self._clock.monotonic() - owner.since if current else 0.0,
            now=self._clock.now(),
            known=owner.attempt,
        )
        decision = decide(view)
        if isinstance(decision, Unrepaired) or isinstance(found, StatefulSet) or controller_of(found.metadata) is None:
            return decision
        brothers = self._client.list(
            resources.REPLICASETS, group.namespace, "" if deployment is None else _selector(deployment)
        )
        return Unrepaired.ROLLING if is_moving(found, deployment, brothers) else decision

    def _owner(self, group: _Group) -> ReplicaSet | StatefulSet | None:
        """The owner, if it is the one that the pods name."""
        found = self._client.get(resources.WORKLOADS[group.owner.kind], group.owner.name, group.namespace)
        return found if found.metadata.uid == group.owner.uid and not isinstance(found, Deployment) else None

    def _deployment(self, above: OwnerReference, namespace: str) -> Deployment | None:
        found = self._client.find(resources.DEPLOYMENTS, above.name, namespace)
        return found if found is not None and found.metadata.uid == above.uid else None

    def _members(self, owner: str, seated: Iterable[SeatedPod]) -> Iterable[ShareMember]:
        now, budgets, pause = self._clock.now(), self._budgets(), self._pause()
        for one in seated:
            node = self._node(one.pod.node_name)
            pool = "" if node is None else node.metadata.labels.get(names.NODEPOOL_LABEL, "")
            bar = Bar.NONE
            if pause.why(pool, Activity.CONSOLIDATION):
                bar = Bar.PROTECTED
            elif budgets.holding(one.pod):
                bar = Bar.BUDGET
            yield member_of(owner, one, node, bar, now)

    # ------------------------------------------------------------------ acting

    def _leave(self, group: _Group, owner: _Owner, why: Unrepaired) -> None:
        if why in _QUIET:
            owner.due = self._clock.monotonic() + QUIET_SECONDS
        else:
            self._failed(owner)
        if why in _TOLD:
            self._recorder.publish(
                group.reference,
                "Warning",
                "OnDemandShareNotRepaired",
                f"Not repairing the share of pods that run on demand ({names.STAMP_ON_DEMAND}): {_NOT_REPAIRED[why]}",
                ttl=TOLD_SECONDS,
            )
        if why is Unrepaired.STOPPED and owner.told is not why:
            REPAIRS.labels("stopped").inc()
            _log.warning(
                "Stopped repairing a share of pods that run on demand because evictions did not help; check that the "
                "webhook runs with --on-demand-shares",
                owner=_name(group),
            )
        owner.told = why

    def _adopt(self, members: Iterable[ShareMember]) -> None:
        for member in members:
            if self._adoptions >= MOST_ADOPTED:
                return
            self._adoptions += 1
            pod = member.pod
            body = {"metadata": {**_guard(pod), "labels": {names.ON_DEMAND_SHARE_LABEL: member.side}}}
            self._client.patch(resources.PODS, pod.name, body, pod.namespace, subresource="status")

    def _evict(self, group: _Group, owner: _Owner, decision: Evict) -> None:
        """Write what is tried before it is: a process that ends right after it has tried."""
        pod, bearer = decision.member.pod, decision.bearer
        before = bearer.annotations.get(names.ON_DEMAND_REPAIRED)
        written = self._write(bearer, attempt_text(decision.attempt))
        try:
            self._client.evict(pod.name, pod.namespace, pod.uid)
        except TooManyRequests as error:
            REPAIRS.labels("refused").inc()
            if error.by_budget:
                self._leave(group, owner, Unrepaired.BUDGET)
            else:
                self._failed(owner)
            self._take_back(written, before)
            return
        except (NotFound, Conflict):
            self._take_back(written, before)
            raise
        except ApiError as error:
            REPAIRS.labels("failed").inc()
            if isinstance(error, _DENIED):
                self._take_back(written, before)
                denied = EventMessage(
                    "Warning",
                    "OnDemandShareNotRepaired",
                    f"Not repairing the share of pods that run on demand ({names.STAMP_ON_DEMAND}): the API server "
                    f"denied the eviction of pod {pod.key}; retrying. Check the admission webhooks for pods/eviction: "
                    f"{error}",
                )
                self._recorder.publish(group.reference, *denied, ttl=TOLD_SECONDS)
            else:  # it may be done all the same, now or a little later
                owner.attempt, owner.since = decision.attempt, self._clock.monotonic()
            raise
        owner.attempt, owner.failures, owner.told = decision.attempt, 0, None
        REPAIRS.labels("evicted").inc()
        on_demand, wanted = decision.on_demand, decision.wanted
        self._recorder.publish(
            pod_reference(pod),
            "Normal",
            "Evicted",
            f"Evicted pod: {on_demand} pods of {_name(group)} run on demand, and {names.STAMP_ON_DEMAND} requests "
            f"{wanted}",
        )
        _log.info(
            "Evicted a pod to repair the share of its owner's pods that run on demand",
            pod=pod.key,
            owner=_name(group),
            on_demand=on_demand,
            wanted=wanted,
        )

    def _take_back(self, written: Pod, before: str | None) -> None:
        """Nothing was tried."""
        with contextlib.suppress(ApiError):  # while its pod is there, the record does not count anyway
            self._write(written, before)

    def _write(self, bearer: Pod, text: str | None) -> Pod:
        body = {"metadata": {**_guard(bearer), "annotations": {names.ON_DEMAND_REPAIRED: text}}}
        return self._client.patch(resources.PODS, bearer.name, body, bearer.namespace, subresource="status")

    def _failed(self, owner: _Owner) -> None:
        owner.failures += 1
        owner.due = self._clock.monotonic() + doubled(owner.failures, base=AGAIN_SECONDS, cap=QUIET_SECONDS)


def _guard(pod: Pod) -> dict[str, str]:
    return {"uid": pod.uid, "resourceVersion": pod.resource_version}


def _name(group: _Group) -> str:
    return f"{group.owner.kind} {group.namespace}/{group.owner.name}"


def _deployment_of(found: ReplicaSet | StatefulSet) -> OwnerReference | None:
    above = None if isinstance(found, StatefulSet) else controller_of(found.metadata)
    is_deployment = above is not None and (above.kind, above.api_version.partition("/")[0]) == ("Deployment", "apps")
    return above if is_deployment else None


def _selector(found: ReplicaSet | StatefulSet | Deployment) -> str:
    return "" if found.spec.selector is None else selector_text(found.spec.selector)


def _are_same(before: tuple[Pod, ...], now: tuple[Pod, ...]) -> bool:
    """Whether these are the very same objects; the cache has another for each change."""
    return len(before) == len(now) and all(map(operator.is_, before, now))


def _fingerprint(pods: Iterable[Pod]) -> _Fingerprint:
    return frozenset((pod.uid, pod.node_name, pod.ready, pod.deleted is None) for pod in pods)


def _most_common_share(pods: Iterable[Pod]) -> Share | None:
    """What most pods of an owner say; its template decides. Whoever writes another on each of them causes no more work."""
    texts = Counter(pod.annotations.get(names.STAMP_ON_DEMAND, "") for pod in pods)
    return _share({names.STAMP_ON_DEMAND: texts.most_common(1)[0][0]})


def _share(annotations: Mapping[str, str]) -> Share | None:
    """The share that annotations ask for; None for none that can be read."""
    try:
        return parse(annotations.get(names.STAMP_ON_DEMAND, "").strip())
    except ValueError:
        return None


def controllers(base: Base, ending: Ends) -> list[Controller]:
    """What evicts pods so that owners keep their share on demand, where they ask for it."""
    repair = ShareRepair(
        base.caches.pods.store.list,
        base.cluster.node,
        base.cluster.pod_budgets,
        base.client,
        base.recorder,
        base.clock,
        stale=base.caches.disruption_is_stale,
        pause=base.caches.pause,
        postponed=ending.live.postponed,
    )
    return [Controller(name="on-demand-repair", poll=repair.poll)]
