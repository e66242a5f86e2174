"""What EC2 sells, asked with the user's own credentials; nothing is written. boto3 is imported only where a NodePool refers to an EC2NodeClass."""

from collections.abc import Iterable
from dataclasses import replace

import botocore.session
from botocore.exceptions import BotoCoreError

from provisioner.apis.karpenter import NodeClaim
from provisioner.ec2.access.client import AwsClients
from provisioner.ec2.cloud import region_of
from provisioner.ec2.launch.userdata.inputs import has_ipv6
from provisioner.ec2.market import prices, reads
from provisioner.ec2.market.discovered_capacity import MemoryTable
from provisioner.ec2.market.region_market import CATALOGUE, ON_DEMAND, SPOT, MarketContext, Reads, RegionMarket
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.ec2.settings import AwsSettings
from provisioner.options import Options, OptionsError
from provisioner.support.clock import Clock
from provisioner.values.errors import UndeterminedError, UserError


def market_of(options: Options, clock: Clock, claims: Iterable[NodeClaim]) -> RegionMarket:
    """The market of the cluster's region, read once.

    Memory that the provisioner has learnt, offerings that were refused to it, what is left of reservations, discounts and placement groups are not
    known here.

    Raises:
        UserError: there are no credentials, nobody says in which region the cluster is, or EC2 did not answer.
    """
    session = botocore.session.Session()
    try:
        if session.get_credentials() is None:
            raise UndeterminedError("there are no AWS credentials")
        settings = AwsSettings.of(options, options.aws_region or region_of(session))
    except (OptionsError, BotoCoreError) as error:
        raise UserError(str(error)) from None
    aws = AwsClients(replace(settings.policy(), attempts=2, connect_timeout=3.0, read_timeout=20.0), clock, session)
    known = tuple(claims)
    try:
        priced = prices.has_pricing_api(settings.region, isolated_vpc=settings.isolated_vpc)
        market = RegionMarket(
            settings,
            Reads(
                region=lambda: reads.read_region(aws),
                spot=lambda: reads.read_spot(aws, clock),
                on_demand=(lambda: reads.read_on_demand(aws, settings.region)) if priced else None,
            ),
            MarketContext(claims=lambda: known, ipv6=lambda node_class: has_ipv6(node_class.kubelet, None)),
            Shortages(),
            MemoryTable(),
            clock,
            reserved=options.feature_gates.reserved_capacity,
        )
        for question in (CATALOGUE, SPOT, *((ON_DEMAND,) if priced else ())):
            market.refresh(question)
        if not market.ready:
            raise UndeterminedError(f"EC2 did not list its instance types: {market.problem}")
        return market
    finally:
        aws.close()
