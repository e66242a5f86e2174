"""Launch templates.

Quota: 5,000 an account and region, 10,000 versions of each. Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/launch-template-restrictions.html
What EC2 says then is in no list of AWS; for templates it is quoted in https://github.com/aws/karpenter-provider-aws/issues/8686, for versions it is made like that.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from tests.support.ec2.filters import next_token, paged, selected, tag_list, tags_of
from tests.support.ec2.protocol import AwsError

USER_DATA_LIMIT: Final = 16384
_CREATOR: Final = "arn:aws:sts::123456789012:assumed-role/karpenter/session"


@dataclass
class LaunchTemplate:
    """A template and its versions, the first is number 1."""

    id: str
    name: str
    created: datetime
    born: float
    tags: dict[str, str]
    versions: list[dict[str, Any]] = field(default_factory=list)
    default: int = 1
    token: str = ""
    asked: str = ""

    def version(self, wanted: str) -> int:
        """The number that $Latest, $Default or a number means.

        Raises:
            AwsError: there is no such version.
        """
        number = {"$Latest": len(self.versions), "$Default": self.default, "": self.default}.get(wanted)
        if number is None:
            number = int(wanted) if wanted.isdigit() else 0
        if not 1 <= number <= len(self.versions):
            raise AwsError(
                "InvalidLaunchTemplateId.VersionNotFound", f"Could not find launch template version {wanted}"
            )
        return number


def check_user_data(encoded: str) -> None:
    """See that user data can be read and is not too long.

    Raises:
        AwsError: EC2 would refuse it.
    """
    try:
        text = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from None
    if len(text) > USER_DATA_LIMIT:
        raise AwsError("InvalidUserData.Malformed", "User data is limited to 16384 bytes")


def check(request: Mapping[str, Any]) -> None:
    """See that EC2 would take a CreateLaunchTemplate by itself.

    Raises:
        AwsError: it would not.
    """
    name = str(request.get("LaunchTemplateName", ""))
    if not 3 <= len(name) <= 128:
        raise AwsError(
            "InvalidLaunchTemplateName.MalformedException",
            f"The launch template name '{name}' must be between 3 and 128 characters",
        )
    if user_data := (request.get("LaunchTemplateData") or {}).get("UserData"):
        check_user_data(user_data)


class LaunchTemplates:
    """All templates of the account in the region."""

    def __init__(self) -> None:
        self._by_name: dict[str, LaunchTemplate] = {}
        self._made = 0
        self.limit, self.versions = 5_000, 10_000

    def all(self) -> list[LaunchTemplate]:
        """In order of creation."""
        return list(self._by_name.values())

    def find(self, specification: Mapping[str, Any], youngest: float = float("inf")) -> LaunchTemplate:
        """The template that a specification names.

        Args:
            specification: LaunchTemplateName or LaunchTemplateId.
            youngest: templates made after this instant are not known yet.

        Raises:
            AwsError: there is none.
        """
        name, wanted = specification.get("LaunchTemplateName"), specification.get("LaunchTemplateId")
        if name is not None:
            found = self._by_name.get(name)
            if found is None or found.born > youngest:
                raise AwsError(
                    "InvalidLaunchTemplateName.NotFoundException",
                    "At least one of the launch templates specified in the request does not exist.",
                )
            return found
        for one in self._by_name.values():
            if one.id == wanted and one.born <= youngest:
                return one
        raise AwsError("InvalidLaunchTemplateId.NotFound", f"The launch template ID '{wanted}' does not exist")

    def create(self, request: Mapping[str, Any], now: datetime, seconds: float) -> dict[str, Any]:
        """CreateLaunchTemplate."""
        name = request["LaunchTemplateName"]
        data = dict(request["LaunchTemplateData"])
        check(request)
        asked = json.dumps(request, sort_keys=True, default=str)
        known = self._by_name.get(name)
        if known is not None:
            token = request.get("ClientToken")
            if token and token == known.token and asked == known.asked:
                return {"LaunchTemplate": _described(known)}
            if token and token == known.token:
                raise AwsError(
                    "IdempotentParameterMismatch",
                    "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
                )
            raise AwsError("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
        if len(self._by_name) >= self.limit:
            raise AwsError("MaxTemplateLimitExceeded", "Account has already reached max permitted templates")
        self._made += 1
        made = LaunchTemplate(
            f"lt-{self._made:017x}",
            name,
            now,
            seconds,
            tags_of(request, "launch-template"),
            [data],
            token=request.get("ClientToken", ""),
            asked=asked,
        )
        self._by_name[name] = made
        return {"LaunchTemplate": _described(made)}

    def add_version(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """CreateLaunchTemplateVersion."""
        found = self.find(request)
        data = dict(request["LaunchTemplateData"])
        if source := request.get("SourceVersion"):
            data = {**found.versions[found.version(source) - 1], **data}
        if data.get("UserData"):
            check_user_data(data["UserData"])
        if len(found.versions) >= self.versions:
            raise AwsError("VersionLimitExceeded", "The launch template has already reached max permitted versions")
        found.versions.append(data)
        return {"LaunchTemplateVersion": _version(found, len(found.versions))}

    def delete(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteLaunchTemplate."""
        if not request.get("LaunchTemplateName") and not request.get("LaunchTemplateId"):
            raise AwsError("MissingParameter", "Either launchTemplateId or launchTemplateName must be specified")
        found = self.find(request)
        del self._by_name[found.name]
        return {"LaunchTemplate": _described(found)}

    def describe(
        self, request: Mapping[str, Any], youngest: float, lag: Callable[[str], float] = lambda _: 0.0
    ) -> dict[str, Any]:
        """DescribeLaunchTemplates; `lag` is how late one, by id, is told of."""
        names, ids = request.get("LaunchTemplateNames") or (), request.get("LaunchTemplateIds") or ()
        if names or ids:
            chosen = [self.find({"LaunchTemplateName": one}, youngest) for one in names]
            chosen += [self.find({"LaunchTemplateId": one}, youngest) for one in ids]
        else:
            chosen = [one for one in self._by_name.values() if one.born + lag(one.id) <= youngest]
        chosen = selected(chosen, request.get("Filters"), _facts, lambda one: one.tags)
        page, token = paged(chosen, request, least=1, most=200)
        return {"LaunchTemplates": [_described(one) for one in page], **next_token(token)}

    def describe_versions(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeLaunchTemplateVersions."""
        found = self.find(request)
        numbers = [found.version(one) for one in request.get("Versions") or ()] or range(1, len(found.versions) + 1)
        return {"LaunchTemplateVersions": [_version(found, number) for number in numbers]}


def _described(one: LaunchTemplate) -> dict[str, Any]:
    return {
        "LaunchTemplateId": one.id,
        "LaunchTemplateName": one.name,
        "CreateTime": one.created,
        "CreatedBy": _CREATOR,
        "DefaultVersionNumber": one.default,
        "LatestVersionNumber": len(one.versions),
        "Tags": tag_list(one.tags),
    }


def _version(one: LaunchTemplate, number: int) -> dict[str, Any]:
    return {
        "LaunchTemplateId": one.id,
        "LaunchTemplateName": one.name,
        "VersionNumber": number,
        "CreateTime": one.created,
        "CreatedBy": _CREATOR,
        "DefaultVersion": number == one.default,
        "LaunchTemplateData": one.versions[number - 1],
    }


def _facts(one: LaunchTemplate) -> Mapping[str, Iterable[str]]:
    return {"launch-template-name": (one.name,), "create-time": (one.created.isoformat(),)}
