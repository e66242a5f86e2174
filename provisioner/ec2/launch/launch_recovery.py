"""Launches whose answer is not known are gone on with: what `recovery` decides is done here."""

from collections.abc import Mapping, Sequence
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import InstanceNotFoundError, LaunchUnderWayError
from provisioner.ec2.access.batcher import Gatherer
from provisioner.ec2.access.errors import LAUNCH_TEMPLATE_NOT_FOUND, FailureKind, classify_exception
from provisioner.ec2.instances.instances import Ec2Instance, InstanceError, Instances
from provisioner.ec2.launch import launch_marks, recovery
from provisioner.ec2.launch.fleet_launch import FleetLaunch, NotToldError
from provisioner.ec2.launch.launch_book import LaunchBook
from provisioner.ec2.launch.launch_marks import Mark
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.mark_book import MarkBook
from provisioner.ec2.launch.order_builder import OrderBuilder
from provisioner.ec2.launch.orders import LaunchWorld, Made, Order
from provisioner.ec2.launch.pace import LONGEST_WAIT
from provisioner.ec2.launch.recovery import RecoveryStep
from provisioner.ec2.nodeclass.kept_kubelet import with_kept_kubelet
from provisioner.kube.errors import ApiError, NotFound
from provisioner.support import logs
from provisioner.support.clock import Clock

_LIST_IDLE: Final = 0.05
_log = logs.get_logger(__name__)


class LaunchRecovery:
    """Looks for the instances of attempts, deals them, or sends the same call again; thread-safe."""

    def __init__(
        self,
        fleets: FleetLaunch,
        instances: Instances,
        templates: LaunchTemplates,
        world: LaunchWorld,
        book: LaunchBook,
        marks: MarkBook,
        builder: OrderBuilder,
        clock: Clock,
    ) -> None:
        self._fleets, self._instances, self._templates, self._world = fleets, instances, templates, world
        self._book, self._marks, self._builder = book, marks, builder
        self._claims_now: Gatherer[None, Sequence[NodeClaim]] = Gatherer(
            clock, lambda _: {None: world.claims_now()}, idle=_LIST_IDLE, batcher="list_nodeclaims"
        )

    def resume(self, tag: str, claims: Sequence[NodeClaim]) -> None:
        """Go on with an attempt whose answer is not known, for all of its claims; in a thread of their class."""
        if not self._marks.hold(tag):  # its answer is on its way, or somebody looks already
            self._book.turn_away(claims, LaunchUnderWayError(""), self._marks.look)
            return
        everyone, look = list(claims), self._marks.look
        try:
            every = self._claims_now.ask(None)
            everyone += (one for one in launch_marks.members(every, tag).values() if not one.status.provider_id)
            self._book.take_over(everyone)
            look = self._continue(tag, every)
        except (ClientError, BotoCoreError, InstanceError, ApiError) as error:
            known = isinstance(error, InstanceError | ApiError)
            message = str(error if known else classify_exception(error))
            self._book.let_wait(everyone, names.LAUNCH_FAILED, message, self._marks.look)
        except Exception as error:  # noqa: BLE001 - one claim or order that fails stops no other
            _log.exception("Failed to resume a launch; retrying", batch=tag)
            self._book.let_wait(everyone, names.LAUNCH_FAILED, repr(error), LONGEST_WAIT)
        finally:
            self._marks.let_go(tag)
        left = self._book.under_way(everyone, in_lane=True)  # whose mark is another one by now, or a copy of another's
        self._book.turn_away(left, LaunchUnderWayError(""), look)

    def _continue(self, tag: str, every: Sequence[NodeClaim]) -> float:
        """One look; seconds until the next one, if there has to be one.

        Args:
            tag: of the attempt.
            every: all claims, as the API server has them now.
        """
        everybody = launch_marks.members(every, tag)
        mine = {mark: claim for mark, claim in everybody.items() if not claim.status.provider_id}
        seen = self._instances.by_batch(tag)
        step, sent, look = self._marks.next_step(tag, everybody, seen)
        if step is RecoveryStep.DEAL:
            self._deal_seen(tag, everybody, seen, every)
            return look
        if step is not RecoveryStep.REPEAT or all(claim.metadata.deletion_timestamp for claim in mine.values()):
            return look  # who has no answer yet is told to wait; for those that go nothing is launched
        order = sent.order if sent is not None else self._builder.order_or_error(next(iter(mine.values())), {})
        if not isinstance(order, Order):
            return look
        count = sent.count if sent is not None else 1 + max(mark.ordinal for mark in everybody)
        if sent is None:
            order = self._fleets.for_company(order, everybody.values(), count)
        self._templates.ensure(order.needed)
        try:
            found = self._fleets.request_fleet(order, next(iter(mine)), count, first=False)
        except (ClientError, BotoCoreError) as error:
            failure = classify_exception(error)  # of this call: it says nothing of the one before
            if failure.kind is FailureKind.MISMATCH:
                self._marks.has_told(tag)
            if failure.reason == LAUNCH_TEMPLATE_NOT_FOUND:
                self._templates.forget(one.name for one in order.needed)
            _log.info("A launch cannot be replayed; looking for instances by batch tag", batch=tag, error=str(failure))
            self._book.let_wait(mine.values(), failure.reason, str(failure), look)
            return look
        except NotToldError as error:
            self._marks.has_told(tag)
            self._book.let_wait(mine.values(), names.LAUNCH_FAILED, str(error), look)
            return look
        if self._fleets.templates_are_gone(order, found):
            self._marks.spend(tag)
            self._book.put_back(mine.values())
            return look
        _log.info("Resumed a launch by replaying CreateFleet", batch=tag, nodeclaims=len(mine))
        ended = {one.id: "" for one in seen if one.ending}  # an answer may be older than the end of its instances
        self._fleets.take(order, mine, found, count, self._book.held(every, seen) | ended)
        return look

    def _deal_seen(
        self,
        tag: str,
        everybody: Mapping[Mark, NodeClaim],
        seen: Sequence[Ec2Instance],
        every: Sequence[NodeClaim],
    ) -> None:
        """Deal what EC2 describes; claims without an instance, or whose instance is gone again, are launched anew."""
        by_id = {one.id: one for one in seen}
        owners = self._shares(everybody, seen, every)
        mine = {mark: claim for mark, claim in everybody.items() if not claim.status.provider_id}
        again = []
        for mark, claim in mine.items():
            instance = by_id.get(owners.get(mark, ""))
            if instance is None or instance.ending:
                if instance is not None:
                    self._fleets.note_failure(claim, instance.provider_id, instance.failure)
                again.append(claim)
                continue
            node_class = self._world.class_of(claim)
            fitted = None if node_class is None else with_kept_kubelet(node_class, claim.metadata.annotations)
            types = () if fitted is None else self._world.types_for(claim, fitted)
            found = next((one for one in types if one.name == instance.instance_type), None)
            self._fleets.give(claim, Made.described(instance), found)
        self._marks.spend(tag)
        _log.info("Resumed a launch from its batch tag", batch=tag, nodeclaims=len(mine), instances=len(seen))
        self._book.put_back(again)

    def _shares(
        self, everybody: Mapping[Mark, NodeClaim], seen: Sequence[Ec2Instance], every: Sequence[NodeClaim]
    ) -> dict[Mark, str]:
        """Whose instance is which, of those that EC2 describes for an attempt; what claims outside of it have counts too."""
        named = {mark: claim.metadata.name for mark, claim in everybody.items()}
        return recovery.shares(named, [one.id for one in seen], self._book.held(every, seen))

    def lost_instance(self, claim: NodeClaim) -> str:
        """The provider ID of an instance that a claim may have without anybody knowing; "" while EC2 may still be hiding it.

        Raises:
            InstanceNotFoundError: it has none.
            InstanceError: EC2 or the API server did not answer.
        """
        try:
            mark = launch_marks.mark_of(self._world.read(claim.metadata.name))
            if mark is None or self._marks.is_spent(mark.tag):
                raise InstanceNotFoundError("")
            if not self._marks.hold(mark.tag):
                return ""
            try:
                every = self._claims_now.ask(None)
                everybody = launch_marks.members(every, mark.tag)
                seen = self._instances.by_batch(mark.tag)
                if self._marks.next_step(mark.tag, everybody, seen)[0] is not RecoveryStep.DEAL:
                    return ""
                found = self._shares(everybody, seen, every).get(mark)
            finally:
                self._marks.let_go(mark.tag)
        except NotFound as gone:
            raise InstanceNotFoundError("") from gone
        except ApiError as error:
            raise InstanceError(
                f"could not determine which instance was launched for the NodeClaim: {error}"
            ) from error
        if found is None or everybody[mark].metadata.uid != claim.metadata.uid:
            raise InstanceNotFoundError("")
        return next(one.provider_id for one in seen if one.id == found)
