"""Instances without a claim are terminated, claims without an instance are deleted. Source: spec/karpenter-aws.md 6.3, core spec 5.

Differs: a launched claim whose instance ended before its Node registered is deleted too, where Karpenter lets its pods wait
for the registration timeout. An instance is terminated only after it had no claim for five minutes without a break, and after the
API server itself, not a cache, has confirmed that no claim has it. Live pods on it are evicted first.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.cloudprovider.errors import CloudError, InstanceNotFoundError
from provisioner.cloudprovider.types import CloudProviderView, SortedOut, manages
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.runtime import metrics
from provisioner.runtime.live_reads import DECIDED_SECONDS, Postponed, never
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.termination.terminator import EndState, InstanceEnding

FIRST_POLLS = 20
FIRST_SECONDS = 10.0
POLL_SECONDS = 120.0
MISSED_SECONDS = 30.0
GARBAGE_COLLECTED = "garbage_collected"
_log = logs.get_logger(__name__)


class ListedInstance(Protocol):
    """What is needed of a provider's own description of an instance."""

    @property
    def id(self) -> str: ...

    @property
    def provider_id(self) -> str: ...

    @property
    def launched(self) -> datetime | None: ...


InstanceT = TypeVar("InstanceT", bound=ListedInstance)


class InstanceCollector(Generic[InstanceT]):
    """Looks for instances that no claim has.

    Args:
        list_instances: every instance of the cluster, asked for now; raises CloudError.
        sort_out: deals instances to claims, as the provider marks them; pure.
        end: drains an instance and ends it, by provider ID; raises ApiError and CloudError.
        look_again: a claim, by name, whose instance is there.
        orphan_after: how long an instance must have been nobody's.
        beside: that another Karpenter leads, as a sentence: its launches are not orphans; "" where none does.
    """

    def __init__(
        self,
        list_instances: Callable[[], Sequence[InstanceT]],
        sort_out: Callable[[Iterable[InstanceT], Iterable[NodeClaim]], SortedOut[InstanceT]],
        end: Callable[[str], InstanceEnding],
        cluster: Cluster,
        client: Client,
        writer: ClaimWriter,
        clock: Clock,
        *,
        look_again: Callable[[str], None],
        orphan_after: timedelta,
        beside: Callable[[], str] = lambda: "",
    ) -> None:
        self._list_instances, self._sort_out, self._terminate = list_instances, sort_out, end
        self._cluster, self._client, self._writer, self._clock = cluster, client, writer, clock
        self._look_again, self._orphan_after, self._beside = look_again, orphan_after, beside
        self._since: dict[str, float] = {}
        self._polls = 0

    def poll(self) -> float:
        """Look once; seconds until the next look.

        Raises:
            CloudError: instances could not be listed.
            ApiError: claims could not be listed.
        """
        found = self._sort_out(self._list_instances(), self._cluster.claims())
        for name in found.awaited:
            self._look_again(name)
        now = self._clock.monotonic()
        if self._beside():
            self._since.clear()
            return FIRST_SECONDS
        self._since = {one.id: self._since.get(one.id, now) for one in found.orphans}
        due = [one for one in found.orphans if now - self._since[one.id] >= self._orphan_after.total_seconds()]
        # the API server is asked: a cache may not know a claim yet
        orphans = self._sort_out(due, self._client.list(resources.NODECLAIMS)).orphans if due else ()
        again = [self._end(one) for one in orphans]
        self._polls += 1
        return min([FIRST_SECONDS if self._polls <= FIRST_POLLS else POLL_SECONDS, *again])

    def _end(self, orphan: InstanceT) -> float:
        """Begin its end, once live pods have left it; seconds until it should be looked at again."""
        try:
            ending = self._terminate(orphan.provider_id)
        except (CloudError, ApiError) as error:
            _log.warning(
                "Failed to terminate an instance without a NodeClaim; retrying", instance=orphan.id, error=str(error)
            )
            return POLL_SECONDS
        if ending.state is EndState.HELD:
            _log.info(
                "Draining an instance without a NodeClaim before terminating it", instance=orphan.id, reason=ending.why
            )
            return ending.requeue_after
        self._since.pop(orphan.id, None)
        _log.info("Terminated an instance without a NodeClaim", instance=orphan.id, launched=orphan.launched)
        if (node := self._node_of(orphan)) is not None:
            try:
                self._writer.delete_node(node)
            except ApiError as error:
                _log.warning(
                    "Failed to delete the Node of an instance without a NodeClaim; retrying",
                    node=node.metadata.name,
                    error=str(error),
                )
        return POLL_SECONDS

    def _node_of(self, orphan: InstanceT) -> Node | None:
        for view in self._cluster.snapshot().nodes:
            if view.claim is None and view.provider_id == orphan.provider_id:
                return self._cluster.node(view.name)
        return None


class ClaimCollector:
    """Looks for launched claims whose instance vanished behind our back.

    One that is not registered is young, and so may be what is known of its instance: it is deleted at the second look in a row that misses it, or
    as soon as its cloud says that it ended the instance itself. While one waits for its Node, looks are frequent: its pods wait for the next one.

    Args:
        uncertain: of which claims nobody can say now whether their instance is there.
    """

    def __init__(
        self,
        cluster: Cluster,
        provider: CloudProviderView,
        writer: ClaimWriter,
        *,
        uncertain: Callable[[NodeClaim], bool],
        postponed: Postponed = never,
    ) -> None:
        self._postponed = postponed
        self._cluster, self._provider, self._writer = cluster, provider, writer
        self._uncertain = uncertain
        self._missed: frozenset[str] = frozenset()
        """UIDs of claims without a registered Node whose instance the last look missed."""

    def poll(self) -> float:
        """Look once; seconds until the next look.

        Raises:
            CloudError: instances could not be listed.
        """
        claims = self._cluster.claims()  # before the instances: whoever is launched meanwhile is not among them
        there = {one.provider_id for one in self._provider.list()}
        missed, self._missed = self._missed, frozenset()
        young = False
        for claim in claims:
            candidate, registered = self._is_candidate(claim), is_true(claim.status.conditions, names.REGISTERED)
            young = young or (candidate and not registered)
            if candidate and claim.status.provider_id not in there and (gone := self._vanished(claim)) is not None:
                if not (registered or gone.failed_launch or claim.metadata.uid in missed):
                    self._missed |= {claim.metadata.uid}
                    continue
                if self._postponed(claim, self._cluster.node_of(claim), patience=DECIDED_SECONDS):
                    self._missed |= {claim.metadata.uid}
                    continue
                try:
                    self._writer.delete(claim)
                except ApiError as error:
                    _log.warning("Failed to delete a NodeClaim; retrying", nodeclaim=claim.name, error=str(error))
                    continue
                metrics.claim_disrupted(claim, GARBAGE_COLLECTED)
                _log.info("Deleted a NodeClaim whose instance no longer exists", nodeclaim=claim.name)
        return MISSED_SECONDS if self._missed or young else POLL_SECONDS

    def _is_candidate(self, claim: NodeClaim) -> bool:
        if not manages(self._provider, claim.spec.node_class_ref):
            return False
        if claim.metadata.deletion_timestamp is not None or not is_true(claim.status.conditions, names.LAUNCHED):
            return False
        if self._uncertain(claim):
            return False
        node = self._cluster.node_of(claim)
        return node is None or not is_true(node.status.conditions, names.READY)

    def _vanished(self, claim: NodeClaim) -> InstanceNotFoundError | None:
        """Asked for by its id: a list may lag behind. None while it is there, or nobody knows."""
        try:
            self._provider.get(claim.status.provider_id)
        except InstanceNotFoundError as gone:
            return gone
        except CloudError as error:
            _log.info(
                "Could not determine whether an instance still exists; retrying", nodeclaim=claim.name, error=str(error)
            )
        return None
