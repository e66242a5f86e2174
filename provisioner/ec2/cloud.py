"""AWS in the program: everything of EC2 made once a process, and the controllers that only AWS has made for every term."""

from collections.abc import Callable, Container
from pathlib import Path
from typing import Final

import botocore.session
from botocore.exceptions import BotoCoreError
from botocore.utils import IMDSRegionProvider

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.ec2 import labels
from provisioner.ec2.access.client import AwsClients
from provisioner.ec2.controllers import controllers
from provisioner.ec2.instances.drift import DriftJudge
from provisioner.ec2.instances.instances import Instances
from provisioner.ec2.instances.inventory import Inventory
from provisioner.ec2.instances.partitions import PartitionHook
from provisioner.ec2.interruption.zonal_shift import ZonalShifts
from provisioner.ec2.launch import templates
from provisioner.ec2.launch.launch_marks import Mark
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.launcher import Launcher
from provisioner.ec2.launch.orders import LaunchWorld
from provisioner.ec2.launch.templates import TemplateUses
from provisioner.ec2.market import discounts, discovered_capacity, prices, reads, unavailable_offerings
from provisioner.ec2.market import metrics as market_metrics
from provisioner.ec2.market.discovered_capacity import MemoryTable
from provisioner.ec2.market.persistence import Keeper, KeptTable
from provisioner.ec2.market.region_market import MarketContext, Reads, RegionMarket, prefix_delegation_of
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.ec2.nodeclass.cluster import EksFacts
from provisioner.ec2.nodeclass.discovery import Discovery, Intervals
from provisioner.ec2.nodeclass.reservations import ReservationBook
from provisioner.ec2.nodeclass.subnets import SubnetBook
from provisioner.ec2.provider import AwsProvider
from provisioner.ec2.settings import CONFIG_MAP, AwsSettings
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config import ApiConnection
from provisioner.kube.errors import NotFound
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.nodeclaims.writers import Writers
from provisioner.nodepools.controller import why_launches_failed
from provisioner.options import Options, OptionsError
from provisioner.runtime.base import Base
from provisioner.runtime.caches import Caches
from provisioner.runtime.changes import Change, NodeChanged
from provisioner.runtime.controller import Controller
from provisioner.support import logs, metrics
from provisioner.support.clock import Clock
from provisioner.termination.ends import Ends

_AWS_NODE: Final = ("kube-system", "aws-node")
_log = logs.get_logger(__name__)


class AwsCloud:
    """EC2 and what belongs to it.

    Args:
        options: with provider "aws".
        connection: to the API server; its authority is what instances trust.

    Raises:
        OptionsError: the region cannot be found out.
    """

    def __init__(
        self, options: Options, connection: ApiConnection, client: Client, caches: Caches, clock: Clock
    ) -> None:
        session = botocore.session.Session()
        self.settings = AwsSettings.of(options, options.aws_region or region_of(session))
        self.options, self.client, self.caches, self.clock = options, client, caches, clock
        permit = client.permit.check if client.permit is not None else None
        self.aws = AwsClients(self.settings.policy(), clock, session, permit=permit)
        self.shortages, self.memory = Shortages(), MemoryTable()
        self.uses = TemplateUses(self.settings.template_retention)
        self.facts = EksFacts(self.aws, client, self.settings, connection.authority)
        self.subnets, self.reservations = SubnetBook(self.shortages.subnet_open), ReservationBook()
        self.discovery = Discovery(
            self.aws,
            clock,
            self.subnets,
            self.reservations,
            Intervals.of(self.settings.subnet_refresh, self.settings.ami_refresh, self.settings.security_group_refresh),
        )
        self.shifts = (
            ZonalShifts(self.aws, lambda: "" if self.facts.eks is None else self.facts.eks.arn, clock)
            if self.settings.enable_zonal_shift
            else None
        )
        shifted = self._shifted = self.shifts.zones if self.shifts is not None else frozenset
        self._writer = ClaimWriter(client, caches.cluster, caches.carry_out)
        self._plan_again: Callable[[str], None] = lambda _: None
        self.market = RegionMarket(
            self.settings,
            self._reads(),
            MarketContext(
                reserved=self.reservations.counts,
                spent=self.reservations.spent,
                dry=self.subnets.spent,
                shifted=shifted,
                claims=caches.cluster.claims,
                group_of=self.discovery.placement_group,
                ipv6=lambda node_class: self.facts.ipv6(node_class.kubelet),
            ),
            self.shortages,
            self.memory,
            clock,
            reserved=self.reserves,
            changed=lambda: self._plan_again("market"),
        )
        self.instances = Instances(
            self.aws, clock, self.settings.cluster_name, shifted=shifted, once=lambda: self.aws.once("ec2")
        )
        self.inventory = Inventory(self.instances, clock)
        self.partitions = PartitionHook(clock)
        self.templates = LaunchTemplates(self.aws, self.uses, clock, self.settings.cluster_name)
        self.keeper = Keeper(client, options.system_namespace, tables_of(self.shortages, self.memory, self.uses), clock)
        judge = DriftJudge(self.inventory, self.node_class, self.market.known_types, self._group_id)
        self.launcher = Launcher(
            self.aws,
            self.instances,
            self.templates,
            LaunchWorld(
                class_of=lambda claim: self.node_class(claim.spec.node_class_ref.name),
                types_of=self.market.types,
                cluster=self.facts.cluster,
                max_pods=self.market.max_pods,
                reserved=self.market.reserved,
                efa_launch=self.market.efa_launch,
                claims=caches.cluster.claims,
                claims_now=lambda: client.list(resources.NODECLAIMS),
                read=lambda name: client.get(resources.NODECLAIMS, name),
                write=self._mark,
                group_of=self.discovery.placement_group,
                adjusted=self.market.adjusted,
                overlaid=lambda pool, types: caches.overlays.applied(pool, tuple(types)),
                failing=lambda claim: why_launches_failed(
                    caches.pools.store.get(claim.pool), caches.class_generation(claim.spec.node_class_ref.name)
                ),
            ),
            subnets=self.subnets,
            reservations=self.reservations,
            shortages=self.shortages,
            clock=clock,
            settings=self.settings,
            reserved=self.reserves,
            best_effort=options.min_values_policy == "BestEffort",
        )
        self.provider = AwsProvider(
            self.launcher,
            self.market,
            self.node_class,
            judge,
            clock,
            hooks=(self.partitions,),
            reboots=self.settings.reboots,
        )
        self._unwrite = metrics.written_by(
            lambda: market_metrics.lines(
                self.market.region,
                self.market.prices,
                self.shortages,
                clock.now(),
                (one for found in self.classes() for one in found.status.capacity_reservations),
                self.reservations.available,
            )
        )
        caches.listen(self._heard)

    @property
    def reserves(self) -> bool:
        """Whether the feature gate ReservedCapacity is on."""
        return self.options.feature_gates.reserved_capacity

    def node_class(self, name: str) -> EC2NodeClass | None:
        """The class of that name, as the watch has it."""
        found: EC2NodeClass | None = self.caches.classes.store.get(name)
        return found

    def classes(self) -> list[EC2NodeClass]:
        found: list[EC2NodeClass] = self.caches.classes.store.list()
        return found

    def zones(self) -> dict[str, str]:
        """Names of the zones of all classes, by id."""
        return {one.zone_id: one.zone for found in self.classes() for one in found.status.subnets if one.zone_id}

    # ------------------------------------------------------------------ the cloud

    def types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        return self.provider.known_types(pool)

    def start(self) -> None:
        """Begin to read AWS, and what an earlier process kept."""
        _log.info("Starting the AWS cloud provider", region=self.settings.region, cluster=self.settings.cluster_name)
        self.keeper.restore()
        self.facts.poller.start()
        self.market.start()

    def is_uncertain(self, claim: NodeClaim) -> bool:
        """Whether the instance is in a zone that traffic is shifted away from: EC2's answers about it mean little then."""
        return is_in_zone(claim, self._shifted())

    def controllers(self, base: Base, writing: Writers, ending: Ends, ledger: BudgetLedger) -> list[Controller]:
        self._plan_again = base.plan_again
        return controllers(self, base, writing, ending, ledger)

    def stop(self) -> None:
        self.launcher.stop()
        self.keeper.stop()
        self.market.stop()
        self.facts.poller.stop()
        self._unwrite()
        self.aws.close()

    # ------------------------------------------------------------------ parts

    def _reads(self) -> Reads:
        region = self.settings.region
        priced = prices.has_pricing_api(region, isolated_vpc=self.settings.isolated_vpc)
        return Reads(
            region=lambda: reads.read_region(self.aws),
            spot=lambda: reads.read_spot(self.aws, self.clock),
            on_demand=(lambda: reads.read_on_demand(self.aws, region)) if priced else None,
            discounts=self._discounts,
            prefix_delegation=self._prefixes,
        )

    def _discounts(self) -> str:
        where = self.settings.discounts
        if not where.startswith(CONFIG_MAP):
            return Path(where).read_text(encoding="utf-8") if where else ""
        name = where.removeprefix(CONFIG_MAP)
        found = self.client.find(resources.CONFIGMAPS, name, self.settings.system_namespace)
        return "" if found is None else discounts.text_of(found.data, where)

    def _prefixes(self) -> bool:
        try:
            return prefix_delegation_of(self.client.raw("GET", resources.DAEMONSETS.path(*_AWS_NODE)))
        except NotFound:
            return False

    def _mark(self, claim: NodeClaim, mark: Mark | None) -> NodeClaim:
        return self._writer.metadata(
            claim,
            resourceVersion=claim.metadata.resource_version,
            annotations={names.LAUNCH_ANNOTATION: None if mark is None else str(mark)},
        )

    def _group_id(self, node_class: EC2NodeClass) -> str:
        group = self.discovery.placement_group(node_class)
        return "" if group is None else group.id

    def _heard(self, change: Change) -> None:
        match change:
            case NodeChanged(old=old, new=Node() as node) if node.registered:
                if old is None or not old.registered:
                    self._learn(node)
            case _:
                return

    def _learn(self, node: Node) -> None:
        """Take over the memory of a Node that has registered."""
        claim = self.caches.cluster.claim_of(node)
        node_class = self.node_class(claim.spec.node_class_ref.name) if claim is not None else None
        if claim is not None and node_class is not None:
            self.market.learn(node, claim, node_class)


def tables_of(shortages: Shortages, memory: MemoryTable, uses: TemplateUses) -> tuple[KeptTable, ...]:
    """The tables of AWS."""
    return (
        KeptTable(
            unavailable_offerings.CONFIG_MAP,
            False,
            lambda now: (shortages.to_config(now),),
            lambda maps, now: sum(shortages.restore(data, now) for data in maps),
        ),
        KeptTable(discovered_capacity.CONFIG_MAP_PREFIX, True, memory.to_config, memory.restore),
        KeptTable(
            templates.CONFIG_MAP,
            False,
            lambda _: (uses.to_config(),),
            lambda maps, now: sum(not uses.restore(data, now) for data in maps),
        ),
    )


def is_in_zone(claim: NodeClaim, zone_ids: Container[str]) -> bool:
    """Whether the claim's instance is in one of these zones."""
    return claim.metadata.labels.get(labels.ZONE_ID, "") in zone_ids


def region_of(session: botocore.session.Session) -> str:
    """The region that this machine is in, as every SDK finds it; else what the instance says of itself.

    Raises:
        OptionsError: nobody says.
    """
    found = session.get_config_variable("region")
    if not found:
        try:
            found = IMDSRegionProvider(session).provide()
        except BotoCoreError as error:
            _log.info("Instance metadata does not report a Region; set AWS_REGION", error=str(error))
    if not found:
        raise OptionsError(
            "--aws-region (or AWS_REGION) is required because the Region could not be determined from the environment"
        )
    return str(found)
