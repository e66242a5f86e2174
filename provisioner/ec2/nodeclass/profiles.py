"""Instance profiles: made for the role of a class, and deleted with it.

The name follows from cluster, region, class and role, so a crash between making a profile and writing its name down is continued by making it again.
What is not ours, by path and tags, is never changed and never deleted.

Source: spec/karpenter-aws.md 3.5.
Differs: the provider draws a new name every time; a role with a path is compared by its name; a profile that an instance uses is kept, also without a claim.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import UnsetType

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.structural import fnv
from provisioner.cloudprovider.errors import CloudError
from provisioner.ec2.access.batcher import parts
from provisioner.ec2.access.client import FILTER_VALUES, Clients, pages
from provisioner.ec2.access.errors import FailureKind, classify_exception
from provisioner.ec2.instances.instances import ENDING, LIVING
from provisioner.ec2.nodeclass.answer_cache import Remembered
from provisioner.ec2.nodeclass.discovery import DiscoveryError
from provisioner.support import logs

KEEP: Final = timedelta(minutes=15)
ROLE_MISSING_KEEP: Final = timedelta(minutes=1)
PROTECTED: Final = timedelta(hours=1)
"""A profile that was in use lately is not collected as garbage: a launch with it may be under way."""

_ALLOWED_NAME: Final = re.compile(r"[\w+=,.@-]{1,128}", re.ASCII)
_log = logs.get_logger(__name__)


class ProfileError(CloudError):
    """No profile can be made for a class as things are.

    Attributes:
        reason: of the condition InstanceProfileReady.
        message: what to change.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason, self.message = reason, message

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Profile:
    """One instance profile, as IAM has it."""

    name: str
    path: str
    roles: tuple[str, ...]
    tags: Mapping[str, str]
    created: datetime | None = None
    arn: str = ""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Profile":
        """From the answer of GetInstanceProfile or a row of ListInstanceProfiles (which has no tags)."""
        return cls(
            row["InstanceProfileName"],
            row.get("Path", "/"),
            tuple(role["RoleName"] for role in row.get("Roles", ())),
            {tag["Key"]: tag["Value"] for tag in row.get("Tags", ())},
            row.get("CreateDate"),
            row.get("Arn", ""),
        )


@dataclass(frozen=True, slots=True)
class Naming:
    """What profiles of one cluster and region are called, and which are ours."""

    cluster: str
    region: str

    @property
    def root(self) -> str:
        """The path under which every profile of the cluster is."""
        return f"/karpenter/{self.region}/{self.cluster}/"

    def path(self, node_class: EC2NodeClass) -> str:
        """The path of a class's profiles."""
        return f"{self.root}{node_class.metadata.uid}/"

    def name(self, node_class: EC2NodeClass, role: str) -> str:
        """The name of the profile for a class and a role; never longer than 128 characters for a cluster of EKS."""
        digest = fnv(f"{self.region}{node_class.name}{node_class.metadata.uid}{role}".encode())
        return f"{self.cluster}_{digest}"

    def former_name(self, node_class: EC2NodeClass) -> str:
        """The name that earlier versions of Karpenter gave the class's only profile; "" where IAM takes no such name."""
        name = f"{self.cluster}_{fnv(f'{self.region}{node_class.name}'.encode())}"
        return name if _ALLOWED_NAME.fullmatch(name) else ""

    def tags(self, node_class: EC2NodeClass) -> dict[str, str]:
        """The tags of a class's profile: the user's, then ours, which IAM policies ask for."""
        return {
            **node_class.tags,
            f"{ec2.CLUSTER_TAG_PREFIX}{self.cluster}": "owned",
            ec2.CLUSTER_NAME_TAG: self.cluster,
            ec2.NODECLASS_TAG: node_class.name,
            names.REGION_LABEL: self.region,
        }

    def ours(self, profile: Profile, node_class: EC2NodeClass) -> bool:
        """Whether a profile was made for this class: by its path, or for former names by its tags."""
        if profile.path == self.path(node_class):
            return True
        wanted = self.tags(node_class)
        owned = (f"{ec2.CLUSTER_TAG_PREFIX}{self.cluster}", ec2.NODECLASS_TAG)
        return profile.name == self.former_name(node_class) and all(
            profile.tags.get(key) == wanted[key] for key in owned
        )


def role_name(role: str) -> str:
    """The name of a role that is written with a path or as an ARN: IAM's calls take the name alone."""
    return role.rpartition("/")[2]


def garbage(
    profiles: Iterable[Profile], naming: Naming, used: Collection[str], seen: Mapping[str, datetime], now: datetime
) -> tuple[str, ...]:
    """Names of those profiles of the cluster that nothing uses, in order.

    Args:
        profiles: that IAM has under the cluster's path.
        naming: of the cluster.
        used: names in the status of any class, or on any claim.
        seen: when a name was last in use, as far as this process knows.
        now: aware.
    """
    return tuple(
        sorted(
            one.name
            for one in profiles
            if one.path.startswith(naming.root)
            and one.name not in used
            and not (one.name in seen and now - seen[one.name] < PROTECTED)
            and not (one.created is not None and now - one.created < PROTECTED)
        )
    )


class Profiles:
    """Makes, keeps and deletes instance profiles. Thread-safe."""

    def __init__(self, aws: Clients, naming: Naming, now: Callable[[], datetime]) -> None:
        self._aws, self.naming, self._now = aws, naming, now
        self._good: Remembered[str] = Remembered(now)
        self._bad: Remembered[ProfileError] = Remembered(now)
        self._seen: dict[str, datetime] = {}

    def ensure(self, node_class: EC2NodeClass) -> str:
        """The name of the profile that the class's instances get; it is made where there is none.

        Raises:
            ProfileError: the role does not exist, or the name is taken by somebody else.
            DiscoveryError: IAM failed.
        """
        spec = node_class.spec
        if not isinstance(spec.instance_profile, UnsetType) and spec.instance_profile:
            return spec.instance_profile
        role = role_name("" if isinstance(spec.role, UnsetType) else spec.role)
        question = (node_class.metadata.uid, role)
        known_bad = self._bad.peek(question, ROLE_MISSING_KEEP)
        if known_bad is not None:
            raise known_bad
        try:
            name = self._good.get(question, KEEP, lambda: self._make(node_class, role)).value
        except ProfileError as error:
            self._bad.put(question, error)
            raise
        self._seen[name] = self._now()
        return name

    def doubt(self, node_class: EC2NodeClass) -> None:
        """EC2 says that the class's profile does not exist: look again."""
        spec = node_class.spec
        self._good.forget((node_class.metadata.uid, role_name("" if isinstance(spec.role, UnsetType) else spec.role)))

    def delete_all(self, node_class: EC2NodeClass) -> None:
        """Delete every profile that was made for the class and that no instance uses. Raises `DiscoveryError`; what is gone already is fine."""
        doomed = {one.name: one for one in self._list(self.naming.path(node_class))}
        former = self.naming.former_name(node_class)
        found = self._get(former) if former else None
        if found is not None and self.naming.ours(found, node_class):
            doomed[former] = found
        for name in self._without_instances(doomed.values()):
            self._delete(name)

    def collect(self, used: Collection[str]) -> tuple[str, ...]:
        """Delete the profiles of the cluster that no class, no claim and no instance uses. Raises `DiscoveryError`.

        Args:
            used: names in the status of any class, or on any claim; read freshly.

        Returns:
            Names of those that were deleted.
        """
        there = {one.name: one for one in self._list(self.naming.root)}
        unused = garbage(there.values(), self.naming, used, self._seen, self._now())
        doomed = self._without_instances(there[name] for name in unused)
        for name in doomed:
            self._delete(name)
            self._seen.pop(name, None)
        return doomed

    def _without_instances(self, profiles: Iterable[Profile]) -> tuple[str, ...]:
        """Names of those by which no instance gets its credentials: nodes that were kept when their cluster was left have no claim."""
        found = {one.name: one.arn for one in profiles}
        used = set[str]()
        for arns in parts(tuple(found.values()), FILTER_VALUES):
            filters = [
                {"Name": "iam-instance-profile.arn", "Values": list(arns)},
                {"Name": "instance-state-name", "Values": [one for one in LIVING if one not in ENDING]},
            ]
            try:
                answers = list(pages(self._aws.client("ec2").describe_instances, Filters=filters))
            except Exception as error:
                raise DiscoveryError("ec2:DescribeInstances", classify_exception(error)) from error
            rows = (row for answer in answers for one in answer["Reservations"] for row in one["Instances"])
            used |= {row["IamInstanceProfile"]["Arn"] for row in rows if "IamInstanceProfile" in row}
        for name in (kept := [name for name, arn in found.items() if arn in used]):
            _log.info("Kept an instance profile that instances use", profile=name)
        return tuple(name for name in found if name not in kept)

    # ------------------------------------------------------------------ IAM

    def _make(self, node_class: EC2NodeClass, role: str) -> str:
        current = node_class.status.instance_profile
        if current:
            profile = self._get(current)
            if profile is not None and self.naming.ours(profile, node_class) and profile.roles == (role,):
                return current
        name = self.naming.name(node_class, role)
        profile = self._get(name) if name != current else profile
        made = False
        if profile is None:
            profile, made = self._create(node_class, name)
        if not self.naming.ours(profile, node_class):
            raise ProfileError(
                "InstanceProfileNotOurs",
                f"the instance profile {name} for spec.role already exists and was not created for this EC2NodeClass; "
                "delete it, or set spec.instanceProfile",
            )
        self._attach(profile, role, made=made)
        return name

    def _create(self, node_class: EC2NodeClass, name: str) -> tuple[Profile, bool]:
        """The profile, and whether it was made now: one that was there before, instances may be using."""
        tags = self.naming.tags(node_class)
        try:
            answer = self._iam().create_instance_profile(
                InstanceProfileName=name,
                Path=self.naming.path(node_class),
                Tags=[{"Key": key, "Value": tags[key]} for key in sorted(tags)],
            )
        except Exception as error:
            failure = classify_exception(error)
            found = self._get(name) if failure.kind is FailureKind.EXISTS or failure.maybe_done else None
            if found is None:
                raise DiscoveryError("iam:CreateInstanceProfile", failure) from error
            return found, False
        return Profile.of(answer["InstanceProfile"]), True

    def _attach(self, profile: Profile, role: str, *, made: bool) -> None:
        """Make `role` the profile's only role: it holds one at most. A profile that was made for it goes again where there is no such role."""
        for other in profile.roles:
            if other != role:
                self._call(
                    "RemoveRoleFromInstanceProfile",
                    {FailureKind.NOT_FOUND},
                    InstanceProfileName=profile.name,
                    RoleName=other,
                )
        if role in profile.roles:
            return
        try:
            self._iam().add_role_to_instance_profile(InstanceProfileName=profile.name, RoleName=role)
        except Exception as error:
            failure = classify_exception(error)
            if failure.kind is FailureKind.NOT_FOUND and "instance profile" not in failure.message.lower():
                if made:
                    self._delete_quietly(profile.name)
                else:
                    self._put_back(profile)
                raise ProfileError(
                    "RoleNotFound",
                    f'spec.role: role "{role}" does not exist in this account; create it, or correct the name',
                ) from error
            found = self._get(profile.name)
            if found is None or role not in found.roles:
                raise DiscoveryError("iam:AddRoleToInstanceProfile", failure) from error

    def _put_back(self, profile: Profile) -> None:
        """Give a profile the role that it had: instances that run get their credentials by it."""
        for role in profile.roles[:1]:
            try:
                self._call("AddRoleToInstanceProfile", set(), InstanceProfileName=profile.name, RoleName=role)
            except DiscoveryError as error:
                _log.warning("Failed to restore the role of an instance profile", name=profile.name, error=str(error))

    def _get(self, name: str) -> Profile | None:
        try:
            return Profile.of(self._iam().get_instance_profile(InstanceProfileName=name)["InstanceProfile"])
        except Exception as error:
            failure = classify_exception(error)
            if failure.kind is FailureKind.NOT_FOUND:
                return None
            raise DiscoveryError("iam:GetInstanceProfile", failure) from error

    def _list(self, path: str) -> list[Profile]:
        try:
            pages = self._iam().get_paginator("list_instance_profiles").paginate(PathPrefix=path)
            found = [Profile.of(row) for page in pages for row in page["InstanceProfiles"]]
        except Exception as error:
            raise DiscoveryError("iam:ListInstanceProfiles", classify_exception(error)) from error
        return [one for one in found if one.path.startswith(path)]  # what is listed here is deleted: trust no filter

    def _delete(self, name: str) -> None:
        found = self._get(name)
        for role in () if found is None else found.roles:
            self._call(
                "RemoveRoleFromInstanceProfile", {FailureKind.NOT_FOUND}, InstanceProfileName=name, RoleName=role
            )
        if found is not None:
            self._call("DeleteInstanceProfile", {FailureKind.NOT_FOUND}, InstanceProfileName=name)

    def _delete_quietly(self, name: str) -> None:
        try:
            self._delete(name)
        except DiscoveryError:
            return  # it has no role, and goes with the class or as garbage

    def _call(self, action: str, fine: Collection[FailureKind], **parameters: str) -> None:
        method = re.sub(r"(?<!^)(?=[A-Z])", "_", action).lower()
        try:
            getattr(self._iam(), method)(**parameters)
        except Exception as error:
            failure = classify_exception(error)
            if failure.kind not in fine:
                raise DiscoveryError(f"iam:{action}", failure) from error

    def _iam(self) -> Any:
        return self._aws.client("iam")
