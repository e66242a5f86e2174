"""CreateFleet of type instant: which offerings are tried, in which order, and what the answer says.

300 overrides are the limit of fleets of type request and maintain only. Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_FleetLaunchTemplateConfigRequest.html
Spot comes from several pools, deep ones first; in what shares is not said there, so it is ours. Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-fleet-allocation-strategy.html
A type that its zone does not have is InvalidFleetConfiguration here, and Unsupported in RunInstances; in no list of AWS's, but quoted in
https://github.com/aws/karpenter-provider-aws/issues/1219 and /2243.
MinTargetCapacity: 1000 at most, for fleets of type instant, with SingleAvailabilityZone or SingleInstanceType; where it is not reached, no instance is launched.
Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_OnDemandOptionsRequest.html and API_SpotOptionsRequest.html; the codes are not told there.
It is reached in one zone or not at all. Source: https://github.com/aws/aws-parallelcluster/issues/6950. What the answer says of offerings that are not short
by themselves, and of those that were not tried: https://github.com/aws/aws-parallelcluster-node, tests/slurm_plugin/test_fleet_manager.py.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tests.support.ec2.instances import Instance
from tests.support.ec2.market import ON_DEMAND, SPOT, Market
from tests.support.ec2.protocol import AwsError

MAX_CONFIGURATIONS: Final = 50
MAX_OVERRIDES: Final = 300
MAX_MINIMUM: Final = 1000
CAPACITY_BLOCK: Final = "capacity-block"
RESERVED: Final = "reserved-capacity"
_TARGETS: Final = frozenset({ON_DEMAND, SPOT, CAPACITY_BLOCK, RESERVED})
_STRATEGIES: Final = {
    ON_DEMAND: ("lowest-price", "prioritized"),
    SPOT: (
        "lowest-price",
        "diversified",
        "capacity-optimized",
        "capacity-optimized-prioritized",
        "price-capacity-optimized",
    ),
}
_DEEP: Final = 0.5
_SPREADING: Final = frozenset(_STRATEGIES[SPOT]) - {"lowest-price"}
_TOO_FEW: Final = (
    "UnfulfillableCapacity",
    "Unable to fulfill request due to MinTargetCapacity constraints. Please adjust your request.",
)
_NO_OVERRIDES: Final[tuple[Mapping[str, Any], ...]] = ({},)
_PASSED_ON: Final = (
    "InstanceType",
    "MaxPrice",
    "SubnetId",
    "AvailabilityZone",
    "AvailabilityZoneId",
    "WeightedCapacity",
    "Priority",
    "Placement",
    "ImageId",
)


@dataclass(frozen=True)
class Candidate:
    """One override of one template.

    Attributes:
        template: id and version, as answers echo them.
        override: as the request has it.
        data: of the template, the override applied.
    """

    template: Mapping[str, str]
    override: Mapping[str, Any]
    data: Mapping[str, Any]
    instance_type: str
    subnet: str
    zone: str
    image: str

    @property
    def priority(self) -> float:
        """Lower goes first; none is last."""
        return float(self.override.get("Priority", float("inf")))

    def echo(self) -> dict[str, Any]:
        """LaunchTemplateAndOverrides of answers."""
        overrides = {name: self.override[name] for name in _PASSED_ON if name in self.override}
        return {"LaunchTemplateSpecification": dict(self.template), "Overrides": {**overrides, "ImageId": self.image}}


def fingerprint(request: Mapping[str, Any]) -> str:
    """What must be equal for two requests of one client token."""
    return json.dumps({name: value for name, value in request.items() if name != "DryRun"}, sort_keys=True, default=str)


def check(request: Mapping[str, Any]) -> str:
    """The target capacity type of a request.

    Raises:
        AwsError: EC2 would refuse it as it is.
    """
    configurations = request.get("LaunchTemplateConfigs") or ()
    if not configurations:
        raise AwsError("MissingParameter", "The request must contain the parameter LaunchTemplateConfigs")
    if len(configurations) > MAX_CONFIGURATIONS:
        raise AwsError(
            "InvalidParameterValue", f"The number of LaunchTemplateConfigs exceeds the maximum of {MAX_CONFIGURATIONS}."
        )
    instant = request.get("Type", "maintain") == "instant"
    if not instant and sum(len(one.get("Overrides") or ()) for one in configurations) > MAX_OVERRIDES:
        raise AwsError("InvalidParameterValue", f"The number of overrides exceeds the maximum of {MAX_OVERRIDES}.")
    for options in (request.get("OnDemandOptions") or {}, request.get("SpotOptions") or {}):
        _check_minimum(options, instant=instant)
    if not instant:
        raise AwsError("UnsupportedOperation", "Only fleets of type instant exist here.")
    target = request.get("TargetCapacitySpecification") or {}
    if not 1 <= target.get("TotalTargetCapacity", 0) <= 10_000:
        raise AwsError("InvalidTargetCapacitySpecification", "TotalTargetCapacity must be between 1 and 10000.")
    kind = target.get("DefaultTargetCapacityType", ON_DEMAND)
    if kind not in _TARGETS:
        raise AwsError("InvalidParameterValue", f"DefaultTargetCapacityType {kind} is not valid.")
    strategy = _strategy(request, kind)
    if strategy and strategy not in _STRATEGIES[_market(kind)]:
        raise AwsError("InvalidFleetConfig", f"The allocation strategy {strategy} is not valid for {kind}.")
    return str(kind)


def _check_minimum(options: Mapping[str, Any], *, instant: bool) -> None:
    single = options.get("SingleAvailabilityZone") or options.get("SingleInstanceType")
    least = options.get("MinTargetCapacity")
    if not instant and (single or least is not None):
        said = "SingleAvailabilityZone, SingleInstanceType and MinTargetCapacity are supported only for fleets of type instant."
        raise AwsError("InvalidParameterCombination", said)
    if least is None:
        return
    if not 0 <= least <= MAX_MINIMUM:
        raise AwsError("InvalidParameterValue", f"MinTargetCapacity must not exceed {MAX_MINIMUM}.")
    if not single:
        said = "MinTargetCapacity requires SingleAvailabilityZone or SingleInstanceType."
        raise AwsError("InvalidParameterCombination", said)


def candidates(
    request: Mapping[str, Any],
    template_of: Callable[[Mapping[str, Any]], tuple[Mapping[str, str], Mapping[str, Any]]],
    zone_of: Callable[[str], str],
) -> list[Candidate]:
    """Every override, in the request's order.

    Args:
        request: as it came.
        template_of: id, version and data of the template that a specification names; raises AwsError.
        zone_of: the zone of a subnet, "" where there is no such subnet.
    """
    found = []
    for configuration in request["LaunchTemplateConfigs"]:
        template, data = template_of(configuration.get("LaunchTemplateSpecification") or {})
        for override in configuration.get("Overrides") or _NO_OVERRIDES:
            if "InstanceRequirements" in override:
                raise AwsError("UnsupportedOperation", "InstanceRequirements are not known here.")
            found.append(candidate(template, data, override, zone_of))
    return found


def candidate(
    template: Mapping[str, str], data: Mapping[str, Any], override: Mapping[str, Any], zone_of: Callable[[str], str]
) -> Candidate:
    """One override applied to its template."""
    interfaces = data.get("NetworkInterfaces") or ()
    subnet = override.get("SubnetId") or next((one["SubnetId"] for one in interfaces if one.get("SubnetId")), "")
    return Candidate(
        template,
        override,
        {**data, "Placement": {**data.get("Placement", {}), **override.get("Placement", {})}},
        override.get("InstanceType") or data.get("InstanceType", ""),
        subnet,
        zone_of(subnet) or override.get("AvailabilityZone", ""),
        override.get("ImageId") or data.get("ImageId", ""),
    )


def ordered(
    found: Sequence[Candidate], request: Mapping[str, Any], kind: str, market: Market, now: datetime
) -> list[Candidate]:
    """The candidates in the order in which EC2 tries them."""

    def price(one: Candidate) -> float:
        if one.instance_type not in market.types or not one.zone:
            return float("inf")
        return market.price(one.instance_type, one.zone, _market(kind), now)

    def depth(one: Candidate) -> float:
        return market.depth(one.instance_type, one.zone)

    keys: dict[str, Callable[[Candidate], tuple[float, ...]]] = {
        "lowest-price": lambda one: (price(one),),
        "prioritized": lambda one: (one.priority, price(one)),
        "diversified": lambda one: (price(one),),
        "capacity-optimized": lambda one: (-depth(one),),
        "capacity-optimized-prioritized": lambda one: (depth(one) < _DEEP, one.priority),
        "price-capacity-optimized": lambda one: (depth(one) < _DEEP, price(one)),
    }
    strategy = _strategy(request, kind) or "lowest-price"
    return sorted(found, key=keys[strategy])


def allocate(
    found: Sequence[Candidate],
    request: Mapping[str, Any],
    kind: str,
    launch: Callable[[Candidate], Instance],
    depth: Callable[[Candidate], float] = lambda _: 1.0,
) -> tuple[list[tuple[Candidate, list[Instance]]], list[tuple[Candidate, AwsError]]]:
    """Launch until there are enough or nothing is left to try; by candidate what was launched, and why others were not.

    Args:
        found: in order.
        request: how many, and whether all of one type or zone.
        kind: target capacity type.
        launch: makes one instance, or raises AwsError.
        depth: of a spot pool, 0 to 1: it gives no greater share of the fleet in one round.
    """
    left = int(request["TargetCapacitySpecification"]["TotalTargetCapacity"])
    options = request.get("SpotOptions" if kind == SPOT else "OnDemandOptions") or {}
    spread = kind == SPOT and _strategy(request, kind) in _SPREADING
    wanted = left
    launched: dict[int, tuple[Candidate, list[Instance]]] = {}
    refused: dict[int, tuple[Candidate, AwsError]] = {}
    while left and len(refused) < len(found):
        tried = 0
        for index, one in enumerate(found):
            if not left:
                break
            first = next(iter(launched.values()), None)
            if index in refused or (first is not None and not _alike(one, first[0], options)):
                continue
            tried += 1
            share = max(1, round(wanted * depth(one) / 2)) if spread else left
            for _ in range(min(share, left)):
                try:
                    instance = launch(one)
                except AwsError as error:
                    refused[index] = one, error
                    break
                launched.setdefault(index, (one, []))[1].append(instance)
                left -= 1
        if not tried:
            break
    return list(launched.values()), list(refused.values())


def least_of(request: Mapping[str, Any], kind: str) -> int:
    """How many instances there must be at least."""
    options = request.get("SpotOptions" if kind == SPOT else "OnDemandOptions") or {}
    return int(options.get("MinTargetCapacity") or 0)


def allocate_whole(
    found: Sequence[Candidate],
    request: Mapping[str, Any],
    kind: str,
    launch: Callable[[Candidate], Instance],
    depth: Callable[[Candidate], float],
    forget: Callable[[Instance], None],
) -> tuple[list[tuple[Candidate, list[Instance]]], list[tuple[Candidate, AwsError]]]:
    """The same, of the first zone (and type, if there must be one) that has as many as there must be; `forget` takes back what one without gave."""
    options = request.get("SpotOptions" if kind == SPOT else "OnDemandOptions") or {}
    places: dict[tuple[str, str], list[Candidate]] = {}
    for one in found:
        places.setdefault((one.zone, one.instance_type if options.get("SingleInstanceType") else ""), []).append(one)
    refused: list[tuple[Candidate, AwsError]] = []
    for some in places.values():
        launched, short = allocate(some, request, kind, launch, depth)
        refused += short
        if sum(len(made) for _, made in launched) >= least_of(request, kind):
            return launched, short
        for _, made in launched:
            for instance in made:
                forget(instance)
    of_itself = {id(one) for one, _ in refused}
    refused += [(one, AwsError(*_TOO_FEW)) for one in found if id(one) not in of_itself]
    return [], refused


def answer(
    fleet_id: str,
    launched: Iterable[tuple[Candidate, Sequence[Instance]]],
    refused: Iterable[tuple[Candidate, AwsError]],
    lifecycle: str,
) -> dict[str, Any]:
    """CreateFleet's answer."""
    return {
        "FleetId": fleet_id,
        "Errors": [
            {
                "LaunchTemplateAndOverrides": one.echo(),
                "Lifecycle": lifecycle,
                "ErrorCode": error.code,
                "ErrorMessage": error.message,
            }
            for one, error in refused
        ],
        "Instances": [
            {
                "LaunchTemplateAndOverrides": one.echo(),
                "Lifecycle": lifecycle,
                "InstanceIds": [instance.id for instance in instances],
                "InstanceType": one.instance_type,
            }
            for one, instances in launched
        ],
    }


def _alike(one: Candidate, first: Candidate, options: Mapping[str, Any]) -> bool:
    if options.get("SingleInstanceType") and one.instance_type != first.instance_type:
        return False
    return not options.get("SingleAvailabilityZone") or one.zone == first.zone


def _market(kind: str) -> str:
    return SPOT if kind == SPOT else ON_DEMAND


def _strategy(request: Mapping[str, Any], kind: str) -> str:
    options = request.get("SpotOptions" if kind == SPOT else "OnDemandOptions") or {}
    return str(options.get("AllocationStrategy", ""))
