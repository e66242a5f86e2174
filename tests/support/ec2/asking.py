"""Which permissions a call needs: action, resource and context, as IAM is asked about it.

Source: https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tests.support.ec2.filters import tags_of
from tests.support.ec2.motos import Iam
from tests.support.ec2.protocol import AwsError
from tests.support.ec2.world import ACCOUNT, World

Asked = tuple[str, str, Mapping[str, list[str]]]
_NOTHING: Final[Mapping[str, Any]] = {}


def _metadata(options: Mapping[str, Any]) -> dict[str, list[str]]:
    """Condition keys of an instance's metadata options; those that the request leaves out are not there."""
    keys = ("HttpEndpoint", "HttpPutResponseHopLimit", "HttpTokens")
    return {f"ec2:Metadata{key}": [str(options[key])] for key in keys if key in options}


class Asking:
    """The permissions of calls on one account."""

    def __init__(self, world: World, iam: Iam) -> None:
        self._world, self._iam = world, iam
        self._region = world.setup.region
        self._common = {"aws:RequestedRegion": [self._region]}

    def of(self, service: str, action: str, request: Mapping[str, Any]) -> list[Asked]:
        """Every permission that a call needs; called with the lock of the world held."""
        named = f"{service}:{action}"
        match service, action:
            case "ec2", "CreateFleet":
                return list(self._fleet(request))
            case "ec2", "RunInstances":
                return list(self._run(request))
            case "ec2", "CreateLaunchTemplate":
                return list(self._made(action, [named], "launch-template", tags_of(request, "launch-template")))
            case "ec2", "CreateTags" | "TerminateInstances" | "RebootInstances":
                return list(self._changed(named, request))
            case "ec2", "DeleteLaunchTemplate":
                return list(self._templates([named], [request]))
            case "ssm", _:
                name = str(request.get("Name", ""))
                owner = "" if name.startswith("/aws/service/") else ACCOUNT
                return [(named, f"arn:aws:ssm:{self._region}:{owner}:parameter{name}", self._common)]
            case "sqs", _:
                queue = str(request.get("QueueUrl", request.get("QueueName", ""))).rpartition("/")[2]
                return [(named.removesuffix("Batch"), f"arn:aws:sqs:{self._region}:{ACCOUNT}:{queue}", self._common)]
            case "eks", _:
                cluster = f"arn:aws:eks:{self._region}:{ACCOUNT}:cluster/{request.get('name', '')}"
                return [(named, cluster, self._common)]
            case "iam", _:
                return list(self._profile(named, request))
            case "arc-zonal-shift", _:
                resource = str(request.get("resourceIdentifier", ""))
                return [(named, resource, {**self._common, "arc-zonal-shift:ResourceIdentifier": [resource]})]
            case _:
                return [(named, "*", self._common)]

    # ------------------------------------------------------------------ launches

    def _fleet(self, request: Mapping[str, Any]) -> Iterator[Asked]:
        """EC2 asks about the fleet, and about RunInstances for what it will make."""
        both = ["ec2:CreateFleet", "ec2:RunInstances"]
        yield from self._made("CreateFleet", both[:1], "fleet", tags_of(request, "fleet"))
        specifications = [
            one.get("LaunchTemplateSpecification") or _NOTHING for one in request.get("LaunchTemplateConfigs") or ()
        ]
        yield from self._templates(both, specifications)
        spot = (request.get("TargetCapacitySpecification") or _NOTHING).get("DefaultTargetCapacityType") == "spot"
        for data in self._data(specifications):
            yield from self._instance("CreateFleet", both, request, data, spot=spot)

    def _run(self, request: Mapping[str, Any]) -> Iterator[Asked]:
        specifications = [request["LaunchTemplate"]] if request.get("LaunchTemplate") else []
        named = ["ec2:RunInstances"]
        yield from self._templates(named, specifications)
        for data in self._data(specifications) or [_NOTHING]:
            merged = {**data, **{name: value for name, value in request.items() if name != "TagSpecifications"}}
            yield from self._instance("RunInstances", named, request, merged, spot=False)

    def _instance(
        self, action: str, named: list[str], request: Mapping[str, Any], data: Mapping[str, Any], *, spot: bool
    ) -> Iterator[Asked]:
        for kind in ("instance", "volume", "network-interface", *(("spot-instances-request",) if spot else ())):
            more = _metadata(data.get("MetadataOptions") or _NOTHING) if kind == "instance" else _NOTHING
            yield from self._made(action, named, kind, {**tags_of(data, kind), **tags_of(request, kind)}, more)
        used = [self._arn("image", str(data.get("ImageId", "*")), account=""), self._arn("subnet", "*")]
        interfaces = data.get("NetworkInterfaces") or ()
        groups = (
            [group for one in interfaces for group in one.get("Groups") or ()] or data.get("SecurityGroupIds") or ()
        )
        used += [self._arn("security-group", group) for group in dict.fromkeys(groups)]
        placement = (data.get("Placement") or _NOTHING).get("GroupId")
        target = (data.get("CapacityReservationSpecification") or _NOTHING).get("CapacityReservationTarget") or _NOTHING
        used += [self._arn("placement-group", placement)] if placement else []
        used += [self._arn("capacity-reservation", target["CapacityReservationId"])] if target else []
        for one in used:
            yield from ((action_name, one, self._common) for action_name in named)
        profile = data.get("IamInstanceProfile") or _NOTHING
        name = profile.get("Name") or str(profile.get("Arn", "")).rpartition("/")[2]
        if name:
            yield from self._passed(name)

    def _passed(self, profile: str) -> Iterator[Asked]:
        found = self._iam.profile_role(profile)
        if found is not None and found[1]:
            context = {**self._common, "iam:PassedToService": ["ec2.amazonaws.com"]}
            yield "iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/{found[1]}", context

    def _data(self, specifications: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for one in specifications:
            try:
                template = self._world.templates.find(one)
                found.append(template.versions[template.version(str(one.get("Version", ""))) - 1])
            except AwsError:  # the call itself will say so
                continue
        return found

    def _templates(self, named: list[str], specifications: Iterable[Mapping[str, Any]]) -> Iterator[Asked]:
        for one in specifications:
            try:
                template = self._world.templates.find(one)
            except AwsError:
                continue
            context = {**self._common, **_tags("Resource", template.tags)}
            yield from ((action, self._arn("launch-template", template.id), context) for action in named)

    def _made(
        self,
        action: str,
        named: list[str],
        kind: str,
        tags: Mapping[str, str],
        more: Mapping[str, list[str]] = _NOTHING,
    ) -> Iterator[Asked]:
        """Something that is made with these tags; `more` are further condition keys of the actions."""
        arn = self._arn(kind, "*" if kind != "launch-template" else "lt-new")
        context = {**self._common, **_tags("Request", tags), **({"aws:TagKeys": sorted(tags)} if tags else {})}
        yield from ((one, arn, {**context, **more}) for one in named)
        if tags:
            yield "ec2:CreateTags", arn, {**context, "ec2:CreateAction": [action]}

    # ------------------------------------------------------------------ everything else

    def _changed(self, named: str, request: Mapping[str, Any]) -> Iterator[Asked]:
        tags = {one["Key"]: one.get("Value", "") for one in request.get("Tags") or ()}
        for resource in request.get("Resources") or request.get("InstanceIds") or ():
            instance = self._world.instances.all.get(resource)
            held = instance.tags if instance is not None else {}
            context = {**self._common, **_tags("Resource", held), **_tags("Request", tags)}
            if tags:
                context["aws:TagKeys"] = sorted(tags)
            yield named, self._arn("launch-template" if resource.startswith("lt-") else "instance", resource), context

    def _profile(self, named: str, request: Mapping[str, Any]) -> Iterator[Asked]:
        name = str(request.get("InstanceProfileName", ""))
        if not name:
            role = request.get("RoleName") or str(request.get("PolicySourceArn", "")).rpartition("/")[2]
            yield named, f"arn:aws:iam::{ACCOUNT}:{f'role/{role}' if role else 'instance-profile/*'}", self._common
            return
        tags = {one["Key"]: one.get("Value", "") for one in request.get("Tags") or ()}
        held = {} if named == "iam:CreateInstanceProfile" else self._iam.profile_tags(name)
        context = {**self._common, **_tags("Request", tags), **_tags("Resource", held)}
        yield named, f"arn:aws:iam::{ACCOUNT}:instance-profile{request.get('Path', '/')}{name}", context
        if named == "iam:CreateInstanceProfile" and tags:
            yield (
                "iam:TagInstanceProfile",
                f"arn:aws:iam::{ACCOUNT}:instance-profile{request.get('Path', '/')}{name}",
                {
                    **context,
                    **_tags("Resource", tags),
                },
            )
        if named == "iam:AddRoleToInstanceProfile":
            passed = {**self._common, "iam:PassedToService": ["ec2.amazonaws.com"]}
            yield "iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/{request.get('RoleName', '')}", passed

    def _arn(self, kind: str, name: str, account: str = ACCOUNT) -> str:
        return f"arn:aws:ec2:{self._region}:{account}:{kind}/{name}"


def _tags(which: str, tags: Mapping[str, str]) -> dict[str, list[str]]:
    return {f"aws:{which}Tag/{key}": [value] for key, value in tags.items()}
