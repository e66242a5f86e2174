"""The only creator of NodeClaims: names them, tells the state, writes them."""

import random
import string
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.names import PLAN_ANNOTATION
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid, NotFound
from provisioner.nodeclaims.growth_ledger import GrowthLedger
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.runtime import metrics
from provisioner.scheduling.node_claims import NewClaim
from provisioner.state.cluster import Cluster
from provisioner.state.effects import ClaimUnneeded, Effect
from provisioner.state.keys import NodeKey
from provisioner.support import logs
from provisioner.values.message import EventMessage, Said

REFUSALS = (BadRequest, Forbidden, Invalid, NotFound)
"""What a create call meets until somebody changes something: admission, the role, the schema, a CRD that is missing."""
_NAME_TRIES = 20
_NAME_LETTERS = string.ascii_lowercase + string.digits
_log = logs.get_logger(__name__)


def claim_refused(problem: str) -> EventMessage:
    """The API server does not take a NodeClaim, for pods or of a static NodePool."""
    return EventMessage("Warning", "FailedCreate", f"Failed to create a NodeClaim: {problem}")


class NoFreeNameError(Exception):
    """Every name that was tried for a NodeClaim is taken."""

    def __init__(self, pool: str) -> None:
        super().__init__(pool)
        self.pool = pool

    def __str__(self) -> str:
        return Said(f"found no unused name for a NodeClaim of NodePool {self.pool!r} in {_NAME_TRIES} attempts")


class ClaimCreator:
    """Creates NodeClaims in two steps: `announce` at once, `create` where waiting does no harm.

    Args:
        effects: carries out what the state wants done (see `provisioner.state.effects`).
        created: called with every claim that exists now.
        plans: brings a plan up to date to which pods were added while the claim was written.

    Attributes:
        growth: says what may come to be.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        plans: PlanWriter,
        *,
        effects: Callable[[Iterable[Effect]], None],
        created: Callable[[NodeClaim], None],
        chance: random.Random,
        growth: GrowthLedger,
    ) -> None:
        self.growth = growth
        self._client, self._cluster, self._plans = client, cluster, plans
        self._effects, self._created, self._chance = effects, created, chance

    def announce(self, pool: str, make: Callable[[str], NewClaim]) -> NewClaim | None:
        """One claim, as of `announce_all`; None where none of its pods needs it any more."""
        found = self.announce_all([(pool, make)])
        return found[0] if found else None

    def announce_all(self, wanted: Sequence[tuple[str, Callable[[str], NewClaim]]]) -> list[NewClaim]:
        """Find free names and tell the state of claims, so that every later question plans around them; no call is made.

        Args:
            wanted: of each the NodePool's name, and the claim of a name; see `scheduling.node_claims`.

        Returns:
            What is to be given to `create`, in the same order; nothing where none of the pods of one needs it any more.

        Raises:
            NoFreeNameError: try again later.
            HeldBackError: a limit does not allow all of them now.
        """
        for _ in range(_NAME_TRIES):
            new = [make(f"{pool}-{''.join(self._chance.choices(_NAME_LETTERS, k=5))}") for pool, make in wanted]
            if len({one.name for one in new}) < len(new):
                continue
            asked = [(one.claim, one.pods) for one in new]
            entered = self.growth.admit([one.claim for one in new], partial(self._cluster.announce_all, asked))
            if entered:
                return new
            if entered is None:
                return []
        raise NoFreeNameError(wanted[0][0])

    def announce_again(self, new: NewClaim) -> None:
        """Tell the state of a claim that was announced before a restart; no limit is asked again."""
        self.growth.note(new.name)
        self._cluster.announce(new.claim, new.pods)

    def create(self, new: NewClaim, reason: str = "provisioned") -> NodeClaim | None:
        """Write an announced claim; where that fails the state learns that it never came to be.

        Args:
            new: what was announced.
            reason: what for, for metrics.

        Returns:
            The claim; None where its pods found other places meanwhile, and nothing was written.

        Raises:
            ApiError: it is not known to exist. One of `REFUSALS` comes again until somebody changes something; after another it
                may have come to be all the same, and its watch event finds its pods planned.
        """
        if self._cluster.is_unneeded(new.name):
            _log.info(
                "Skipped a NodeClaim because its pods were scheduled to other nodes, or not all NodeClaims of its launch set could be created",
                nodeclaim=new.name,
            )
            self._failed(new.name)
            return None
        try:
            claim = self._written(new)
        except ApiError as error:
            _log.warning("Failed to create a NodeClaim; planning its pods again", nodeclaim=new.name, error=str(error))
            self._failed(new.name)
            raise
        self.growth.written(new.name)
        self._effects(self._cluster.claim_written(claim))
        key = NodeKey(new.name)
        if len(self._cluster.assigned(key)) > len(new.pods):  # a later batch came before the claim was there
            self._plans.changed(key)
        metrics.CLAIMS_CREATED.labels(reason, new.pool, "true" if new.min_values_relaxed else "false").inc()
        self._created(claim)
        return claim

    def _failed(self, name: str) -> None:
        """It never came to be: its pods are planned with a later batch, and others of its launch set are not needed."""
        failed = self._cluster.claim_failed(name)
        self._effects([effect for effect in failed if isinstance(effect, ClaimUnneeded)])

    def _written(self, new: NewClaim) -> NodeClaim:
        try:
            return self._client.create(resources.NODECLAIMS, new.body, retry=True)
        except AlreadyExists:
            # our own retried create, or a name that was taken: the plan written on it tells; without one any of the same pool is as good
            claim = self._client.get(resources.NODECLAIMS, new.name)
            same_owner = claim.metadata.owner_references == new.claim.metadata.owner_references
            if claim.metadata.annotations.get(PLAN_ANNOTATION, "") != new.plan or not (new.plan or same_owner):
                raise
            return claim
