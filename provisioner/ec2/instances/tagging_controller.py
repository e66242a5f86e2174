"""Gives instances the tags that can only be known once their Node has joined. Source: spec/karpenter-aws.md 6.2.

Differs: what an instance has is read from the last list, and tags wait until a launch has had its turn, for half a minute at most;
launches and tags share one allowance of calls, so tags take at most two of its five a second.
"""

from collections.abc import Callable, Container, Mapping

from provisioner.apis import ec2, names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition, is_true
from provisioner.cloudprovider.errors import CloudError
from provisioner.ec2.instances.instances import Ec2Instance, instance_id_of
from provisioner.kube.errors import Conflict, NotFound
from provisioner.kube.limits import TokenBucket
from provisioner.nodeclaims.writer import ClaimWriter, age_seconds
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, ReconcileResult

PER_SECOND, BURST = 2.0, 5
DELAY_SECONDS = 5.0
#: Tags give way to launches for so long after the Node has joined.
YIELD_SECONDS = 30.0
SHIFTED_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_TAGGED: Mapping[str, str] = {ec2.TAGGED_ANNOTATION: "true", ec2.CLUSTER_NAME_TAGGED_ANNOTATION: "true"}
_log = logs.get_logger(__name__)


def missing_tags(present: Mapping[str, str], claim: NodeClaim, cluster: str) -> dict[str, str]:
    """Tags that the claim's instance still lacks; a Name that the class gives it stays. Pure."""
    wanted = {
        ec2.NAME_TAG: claim.status.node_name,
        ec2.NODECLAIM_TAG: claim.name,
        ec2.CLUSTER_NAME_TAG: cluster,
    }
    return {key: value for key, value in wanted.items() if key not in present}


def is_due(claim: NodeClaim) -> bool:
    """Whether the claim's instance may lack tags that are known now. Pure."""
    annotations = claim.metadata.annotations
    return (
        bool(claim.status.node_name)
        and bool(instance_id_of(claim.status.provider_id))
        and claim.metadata.deletion_timestamp is None
        and is_true(claim.status.conditions, names.REGISTERED)
        and any(annotations.get(key) != value for key, value in _TAGGED.items())
    )


class TaggingController:
    """One key is a claim's name.

    Args:
        find: an instance by provider ID, as it was listed last; raises CloudError.
        tag: adds tags to an instance; raises CloudError.
        cluster_name: value of the tag that names the cluster.
        shifted: ids of zones whose instances are left alone now.
    """

    def __init__(
        self,
        find: Callable[[str], Ec2Instance],
        tag: Callable[[str, Mapping[str, str]], None],
        cluster: Cluster,
        writer: ClaimWriter,
        cluster_name: str,
        clock: Clock,
        *,
        shifted: Callable[[], Container[str]] = frozenset,
    ) -> None:
        self._find, self._tag, self._cluster, self._writer = find, tag, cluster, writer
        self._cluster_name, self._shifted = cluster_name, shifted
        self._clock, self._looked_at, self._launching = clock, float("-inf"), False
        self._allowance = TokenBucket(PER_SECOND, BURST, clock)

    def reconcile(self, name: str) -> ReconcileResult:
        """Tag one instance, and note it on its claim."""
        claim = self._cluster.claim(name)
        if claim is None or not is_due(claim):
            return DONE
        if self._gives_way(claim):
            return ReconcileResult(requeue_after=DELAY_SECONDS)
        try:
            instance = self._find(claim.status.provider_id)
            if instance.zone_id in self._shifted():
                return ReconcileResult(requeue_after=SHIFTED_SECONDS)
            if lacking := missing_tags(instance.tags, claim, self._cluster_name):
                self._allowance.take()
                self._tag(instance.id, lacking)
            self._writer.metadata(claim, annotations=dict(_TAGGED))
        except NotFound:
            return DONE
        except Conflict:
            return ReconcileResult(requeue_after=1.0)
        except CloudError as error:  # "not found" too: EC2 may not know it everywhere, and if it is gone its claim goes
            _log.info("Failed to tag an instance; retrying", nodeclaim=name, error=str(error))
            return ReconcileResult(failed=True)
        return DONE

    def _gives_way(self, claim: NodeClaim) -> bool:
        """Whether a launch is under way, and the claim's Node has not been there for long."""
        registered = condition(claim.status.conditions, names.REGISTERED)
        if registered is None or age_seconds(registered.last_transition_time, self._clock.now()) >= YIELD_SECONDS:
            return False
        now = self._clock.monotonic()
        if now >= self._looked_at + _LOOK_SECONDS:  # not once for each of hundreds that came together
            self._looked_at = now
            self._launching = any(
                one.metadata.deletion_timestamp is None and not is_true(one.status.conditions, names.LAUNCHED)
                for one in self._cluster.claims()
            )
        return self._launching
