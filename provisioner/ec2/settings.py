"""The settings of AWS as its parts read them: from flags and environment, with the region that they are for. Pure.

Source: spec/karpenter-aws.md 7.3.
Differs: a memory overhead that cannot be read is refused at the start, where Karpenter falls back to its default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal, cast

from provisioner.apis import names
from provisioner.ec2.access.client import DESCRIBING, MUTATING, QUEUE, CallPolicy, CallRate
from provisioner.options import AwsFeatureGates, Options

Rebalance = Literal["ignore", "replace", "drain"]

CONFIG_MAP: Final = "configmap/"
"""What `AwsSettings.discounts` begins with when it names a ConfigMap."""


@dataclass(frozen=True, kw_only=True)
class AwsSettings:
    """What an operator decides about AWS; what is called as a flag is that flag's value.

    Attributes:
        catalogue_refresh: how old what EC2 says of types and where they are offered may be.
        fleet_idle: a batch of launches is sent when no claim joined for so long.
        fleet_longest: and at the latest after this.
        spot_lead: evictions of an interrupted spot instance begin so long before its end, replacement or not.
        scheduled_drain: before a scheduled change, its instance is drained within budgets.
        scheduled_force: before a scheduled change, it is drained regardless.
        orphan_after: an instance whose claim is gone is left so long.
    """

    cluster_name: str
    region: str
    cluster_endpoint: str = ""
    cluster_ca_bundle: str = ""
    isolated_vpc: bool = False
    eks_control_plane: bool = False
    vm_memory_overhead: float = 0.075
    interruption_queue: str = ""
    reserved_enis: int = 0
    dry_run_validation: bool = True
    enable_zonal_shift: bool = False
    translate_provisioners: bool = False
    ami_refresh: timedelta = timedelta(minutes=1)
    subnet_refresh: timedelta = timedelta(minutes=1)
    security_group_refresh: timedelta = timedelta(minutes=1)
    gates: AwsFeatureGates = field(default_factory=AwsFeatureGates)
    system_namespace: str = names.OWN_NAMESPACE
    discounts: str = ""
    rebalance: Rebalance = "ignore"
    spot_refresh: timedelta = timedelta(minutes=10)
    price_refresh: timedelta = timedelta(hours=12)
    catalogue_refresh: timedelta = timedelta(hours=12)
    template_retention: timedelta = timedelta(hours=24)
    rates: Mapping[str, CallRate] = field(
        default_factory=lambda: {MUTATING: CallRate(5, 50), DESCRIBING: CallRate(20, 100), QUEUE: CallRate(50, 100)}
    )
    fleet_idle: timedelta = timedelta(milliseconds=35)
    fleet_longest: timedelta = timedelta(seconds=1)
    spot_lead: timedelta = timedelta(seconds=75)
    scheduled_drain: timedelta = timedelta(hours=24)
    scheduled_force: timedelta = timedelta(hours=2)
    orphan_after: timedelta = timedelta(minutes=5)

    @classmethod
    def of(cls, options: Options, region: str) -> "AwsSettings":
        """The settings of flags and environment.

        Args:
            options: of the program.
            region: `options.aws_region`, or where that is empty, what the instance says.
        """
        return cls(
            cluster_name=options.cluster_name,
            region=region,
            cluster_endpoint=options.cluster_endpoint,
            cluster_ca_bundle=options.cluster_ca_bundle,
            isolated_vpc=options.isolated_vpc,
            eks_control_plane=options.eks_control_plane,
            vm_memory_overhead=options.vm_memory_overhead_percent,
            interruption_queue=options.interruption_queue,
            reserved_enis=options.reserved_enis,
            dry_run_validation=not options.disable_dry_run,
            enable_zonal_shift=options.enable_zonal_shift,
            translate_provisioners=options.translate_provisioners,
            ami_refresh=options.ami_refresh_interval,
            subnet_refresh=options.subnet_refresh_interval,
            security_group_refresh=options.security_group_refresh_interval,
            gates=options.aws_feature_gates,
            system_namespace=options.system_namespace,
            discounts=options.discounts,
            rebalance=cast(Rebalance, options.rebalance),
        )

    def policy(self) -> CallPolicy:
        """How AWS is called under these settings."""
        return CallPolicy(region=self.region, rates=self.rates, user_agent=f"dovetail cluster/{self.cluster_name}")
