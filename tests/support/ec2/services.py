"""Which function answers which action, and the small services that are ours alone."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from tests.support.ec2 import fleet, instances, policies, templates
from tests.support.ec2.asking import Asking
from tests.support.ec2.filters import check_filters, tags_of
from tests.support.ec2.motos import Iam
from tests.support.ec2.node_groups import NodeGroups
from tests.support.ec2.protocol import AwsError
from tests.support.ec2.world import ACCOUNT, VPC, World, denied, dry_run

SHIFTS: Final[dict[str, dict[str, Any]]] = {}
"""Zonal shifts, by zone id."""

Action = Callable[[Mapping[str, Any], float], Any]
_CARRIED: Final = frozenset(
    {"CreateFleet", "RunInstances", "TerminateInstances", "RebootInstances", "CreateTags", "DeleteTags"}
)
"""Actions that look at DryRun themselves, because they check more before."""


_PRICING: Final = {
    "cn-": ("cn-northwest-1",),
    "us-gov-": (),
    "eusc-": ("eusc-de-east-1",),
    "us-isob-": ("us-isob-east-1",),
    "us-isof-": ("us-isof-south-1",),
    "us-iso-": ("us-iso-east-1",),
    "eu-isoe-": ("eu-isoe-west-1",),
    "": ("us-east-1", "eu-central-1", "ap-south-1"),
}
"""Where the Pricing API is, by how a partition's regions begin. Sources: https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html
and https://docs.amazonaws.cn/en_us/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html; of the European Sovereign Cloud
https://github.com/aws/karpenter-provider-aws/pull/9437, which also tells what credentials of another partition are answered; of iso, no page is public."""


class Services:
    """The actions that are neither IAM's nor SQS's."""

    def __init__(self, world: World, iam: Iam) -> None:
        self._world, self._iam = world, iam
        self._asking = Asking(world, iam)
        network, images, pools, made, market = (
            world.network,
            world.images,
            world.pools,
            world.templates,
            world.market,
        )
        groups = NodeGroups(world.setup.name)
        now, seconds = world.timing.now, world.timing.seconds
        ec2: dict[str, Action] = {
            "CreateFleet": world.create_fleet,
            "RunInstances": world.run_instances,
            "DescribeInstances": world.describe_instances,
            "TerminateInstances": lambda request, _: world.terminate_instances(request),
            "RebootInstances": lambda request, _: world.reboot_instances(request),
            "DescribeInstanceStatus": lambda request, _: world.instances.describe_status(request, seconds(), now()),
            "CreateTags": lambda request, _: world.change_tags(request, remove=False),
            "DeleteTags": lambda request, _: world.change_tags(request, remove=True),
            "ModifyInstanceAttribute": lambda request, _: world.modify_instance(request),
            "DescribeVolumes": lambda request, _: world.describe_volumes(request),
            "CreateLaunchTemplate": lambda request, _: made.create(request, now(), seconds()),
            "CreateLaunchTemplateVersion": lambda request, _: made.add_version(request),
            "DeleteLaunchTemplate": lambda request, _: made.delete(request),
            "DescribeLaunchTemplates": lambda request, stale: made.describe(request, seconds() - stale, world.lag),
            "DescribeLaunchTemplateVersions": lambda request, _: made.describe_versions(request),
            "DescribeSubnets": lambda request, _: network.describe_subnets(request),
            "DescribeSecurityGroups": lambda request, _: network.describe_groups(request),
            "DescribeImages": lambda request, _: images.describe(request, now()),
            "DescribeInstanceTypes": lambda request, _: market.describe_types(request),
            "DescribeInstanceTypeOfferings": lambda request, _: market.describe_offerings(request),
            "DescribeSpotPriceHistory": lambda request, _: market.describe_spot(request, now()),
            "DescribeAvailabilityZones": lambda request, _: market.describe_zones(request),
            "CreateCapacityReservation": lambda request, _: pools.create_reservation(
                request, market.zone_id(request["AvailabilityZone"]), now()
            ),
            "CancelCapacityReservation": lambda request, _: world.cancel_reservation(request),
            "DescribeCapacityReservations": lambda request, _: pools.describe_reservations(request),
            "CreatePlacementGroup": lambda request, _: pools.create_group(request),
            "DeletePlacementGroup": lambda request, _: pools.delete_group(request),
            "DescribePlacementGroups": lambda request, _: pools.describe_groups(request),
        }
        self._own: dict[str, dict[str, Action]] = {
            "ec2": {name: action if name in _CARRIED else _dry(action) for name, action in ec2.items()},
            "sts": {"GetCallerIdentity": lambda *_: _IDENTITY, "AssumeRole": self._assume},
            "iam": {
                "SimulatePrincipalPolicy": self._simulate,
                "ListInstanceProfiles": lambda request, _: iam.list_profiles(request),
            },
            "ssm": {
                "GetParameter": self._get_parameter,
                "GetParameters": self._get_parameters,
                "PutParameter": self._put_parameter,
            },
            "eks": {
                "DescribeCluster": self._describe_cluster,
                "ListClusters": lambda *_: {"clusters": [world.setup.name]},
                "CreateNodegroup": groups.create,
                "ListNodegroups": groups.list,
                "DescribeNodegroup": groups.describe,
                "UpdateNodegroupConfig": groups.update,
            },
            "pricing": {"GetProducts": lambda request, _: market.products(request)},
            "arc-zonal-shift": {"GetManagedResource": self._managed_resource},
        }

    def own(self, service: str, action: str) -> Action | None:
        """The function of an action; None where moto or nobody answers it."""
        return self._own.get(service, {}).get(action)

    def check_place(self, service: str, region: str) -> None:
        """See that a call comes to where its service is.

        Raises:
            AwsError: it was signed for a region without it.
        """
        own = self._world.setup.region
        there = next(places for begin, places in _PRICING.items() if own.startswith(begin))
        if service == "pricing" and region not in there:
            raise AwsError("UnrecognizedClientException", "The security token included in the request is invalid.")

    def validate(self, service: str, action: str, request: Mapping[str, Any]) -> None:
        """Look at a request by itself, before anybody asks who sent it: EC2 refuses what can never be right to the unauthorised too. (Seen, not documented.)

        Raises:
            AwsError: it is refused as it is.
        """
        if service != "ec2":
            return
        check_filters(request.get("Filters"))
        for specification in request.get("TagSpecifications") or ():
            tags_of(request, specification.get("ResourceType", ""))
        match action:
            case "CreateFleet":
                fleet.check(request)
            case "TerminateInstances" | "RebootInstances" | "DescribeInstances":
                instances.check_ids(request.get("InstanceIds") or ())
            case "CreateLaunchTemplate":
                templates.check(request)
            case _:
                pass

    def check_permission(self, service: str, action: str, request: Mapping[str, Any]) -> None:
        """See that the policies of the caller allow a call, where it was given any.

        Raises:
            AwsError: they do not.
        """
        documents = self._world.setup.policies
        if not documents or service == "sts":
            return
        with self._world.lock:
            asked = self._asking.of(service, action, request)
        for named, resource, context in asked:
            if policies.decide(documents, named, resource, context) != "allowed":
                if service == "ec2":
                    raise denied(named, resource)
                code = "AccessDenied" if service in {"iam", "sqs"} else "AccessDeniedException"
                raise AwsError(
                    code,
                    f"User is not authorized to perform: {named} on resource: {resource}",
                    403 if service == "iam" else 400,
                )

    # ------------------------------------------------------------------ small services

    def _assume(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
        arn = str(request["RoleArn"])
        name = arn.rpartition("/")[2]
        session = str(request.get("RoleSessionName", "session"))
        return {
            "Credentials": {
                "AccessKeyId": "ASIAIOSFODNN7EXAMPLE",
                "SecretAccessKey": "wJalrXUtnFEMI",
                "SessionToken": "FwoGZXIvYXdzEXAMPLETOKEN",
                "Expiration": self._world.timing.now() + timedelta(hours=1),
            },
            "AssumedRoleUser": {
                "AssumedRoleId": f"AROA:{session}",
                "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/{name}/{session}",
            },
        }

    def _simulate(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
        documents = self._iam.policies_of(str(request["PolicySourceArn"]))
        documents += [_document(text) for text in request.get("PolicyInputList") or ()]
        context = {
            one["ContextKeyName"]: [str(value) for value in one.get("ContextKeyValues") or ()]
            for one in request.get("ContextEntries") or ()
        }
        results = []
        for action in request.get("ActionNames") or ():
            for resource in request.get("ResourceArns") or ("*",):
                held = {name.lower() for name in context}
                results.append(
                    {
                        "EvalActionName": action,
                        "EvalResourceName": resource,
                        "EvalDecision": policies.decide(documents, action, resource, context),
                        "MatchedStatements": [],
                        "MissingContextValues": [
                            key for key in policies.missing(documents, action, resource) if key.lower() not in held
                        ],
                    }
                )
        return {"EvaluationResults": results, "IsTruncated": False}

    def _get_parameter(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
        return {"Parameter": self._world.images.get_parameter(str(request["Name"]), self._world.timing.now())}

    def _get_parameters(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
        found, unknown = [], []
        for name in request["Names"]:
            try:
                found.append(self._world.images.get_parameter(name, self._world.timing.now()))
            except AwsError:
                unknown.append(name)
        return {"Parameters": found, "InvalidParameters": unknown}

    def _put_parameter(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
        name = str(request["Name"])
        if name.lower().lstrip("/").startswith(("aws", "ssm")):
            raise AwsError("AccessDeniedException", f"No access to reserved parameter name: {name}.")
        self._world.images.custom[name] = str(request["Value"])
        return {"Version": 1, "Tier": "Standard"}

    def _describe_cluster(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
        setup = self._world.setup
        if request["name"] != setup.name:
            raise AwsError("ResourceNotFoundException", f"No cluster found for name: {request['name']}.", 404)
        return {
            "cluster": {
                "name": setup.name,
                "arn": self.cluster_arn,
                "version": setup.version,
                "endpoint": setup.endpoint,
                "status": "ACTIVE",
                "certificateAuthority": {"data": setup.ca_bundle},
                "kubernetesNetworkConfig": {"serviceIpv6Cidr": setup.service_cidr, "ipFamily": "ipv6"}
                if setup.ipv6
                else {"serviceIpv4Cidr": setup.service_cidr, "ipFamily": "ipv4"},
                "resourcesVpcConfig": {"vpcId": VPC, "subnetIds": sorted(self._world.network.subnets)},
                "platformVersion": "eks.1",
                "roleArn": f"arn:aws:iam::{ACCOUNT}:role/cluster",
            }
        }

    @property
    def cluster_arn(self) -> str:
        """Of the EKS cluster."""
        return f"arn:aws:eks:{self._world.setup.region}:{ACCOUNT}:cluster/{self._world.setup.name}"

    def _managed_resource(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
        if request["resourceIdentifier"] != self.cluster_arn:
            raise AwsError("ResourceNotFoundException", "The resource is not managed.", 404)
        return {
            "arn": self.cluster_arn,
            "name": self._world.setup.name,
            "appliedWeights": {},
            "autoshifts": [],
            "zonalShifts": [{**one, "resourceIdentifier": self.cluster_arn} for one in SHIFTS.values()],
            "zonalAutoshiftStatus": "DISABLED",
        }


_IDENTITY: Final = {
    "UserId": "AROAEXAMPLE:session",
    "Account": ACCOUNT,
    "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/karpenter/session",
}


def _dry(action: Action) -> Action:
    """The same, with a dry run that carries nothing out."""

    def carry_out(request: Mapping[str, Any], stale: float) -> Any:
        if request.get("DryRun"):
            raise dry_run()
        return action({name: value for name, value in request.items() if name != "DryRun"}, stale)

    return carry_out


def _document(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found
