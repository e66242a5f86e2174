"""IAM, which moto does right, called inside this process."""

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from moto.core.botocore_stubber import BotocoreStubber
from moto.iam.models import iam_backends

from tests.support.ec2.filters import paged
from tests.support.ec2.protocol import AwsError

_HOST = "iam.amazonaws.com"
_OURS = frozenset({"host", "content-length", "connection"})


class Iam:
    """moto's IAM of one account, one call at a time, because moto's backends are not made for threads."""

    def __init__(self, account: str) -> None:
        self._stubber = BotocoreStubber()
        self._backend: Any = iam_backends[account]["aws"]
        self._lock = threading.RLock()

    def call(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Answer one request as it came over HTTP."""
        told = HTTPHeaders()
        for name, value in headers.items():
            if name.lower() not in _OURS:
                told[name] = value
        request = AWSPreparedRequest(method, f"https://{_HOST}{path}", told, body, stream_output=False)
        with self._lock:
            answer = self._stubber.process_request(request)
        if answer is None:
            raise AwsError("InvalidAction", "No such action")
        status, answered, content = answer
        found = content.encode() if isinstance(content, str) else bytes(content)
        return int(status), {str(name): str(value) for name, value in dict(answered).items()}, found

    def create_role(self, name: str, path: str = "/") -> str:
        """A role for instances; its ARN."""
        principal = {"Service": "ec2.amazonaws.com"}
        trust = {"Statement": [{"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}]}
        with self._lock:
            made = self._backend.create_role(name, json.dumps(trust), path, None, "", [], 3600)
        return str(made.arn)

    def create_profile(self, name: str, role: str) -> None:
        """An instance profile with its role."""
        with self._lock:
            self._backend.create_instance_profile(name, "/", [])
            self._backend.add_role_to_instance_profile(name, role)

    def profile_role(self, name: str) -> tuple[str, str] | None:
        """ARN of an instance profile and name of its role, "" without one; None where there is no such profile."""
        one = self._profile(name)
        return None if one is None else (str(one.arn), str(one.roles[0].name) if one.roles else "")

    def profile_tags(self, name: str) -> dict[str, str]:
        """Tags of an instance profile; none where there is no such profile."""
        one = self._profile(name)
        return {} if one is None else {str(tag["Key"]): str(tag["Value"]) for tag in one.tags}

    def list_profiles(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """ListInstanceProfiles; moto's own knows no path prefix."""
        prefix = str(request.get("PathPrefix", "/"))
        with self._lock:
            found = [one for one in self._backend.instance_profiles.values() if one.path.startswith(prefix)]
        rows = [
            {
                "Path": one.path,
                "InstanceProfileName": one.name,
                "InstanceProfileId": one.id,
                "Arn": one.arn,
                "CreateDate": one.create_date,
                "Roles": [
                    {
                        "Path": role.path,
                        "RoleName": role.name,
                        "RoleId": role.id,
                        "Arn": role.arn,
                        "CreateDate": role.create_date,
                    }
                    for role in one.roles
                ],
            }
            for one in found
        ]
        page, token = paged(rows, {"MaxResults": request.get("MaxItems"), "NextToken": request.get("Marker")}, least=1)
        return {"InstanceProfiles": page, "IsTruncated": bool(token), **({"Marker": token} if token else {})}

    def age(self, name: str, now: datetime) -> float:
        """Seconds since an instance profile was made; 0 where there is none."""
        one = self._profile(name)
        return 0.0 if one is None else (now - one.create_date.replace(tzinfo=UTC)).total_seconds()

    def profiles(self) -> list[str]:
        """Names of all instance profiles."""
        with self._lock:
            return sorted(str(one.name) for one in self._backend.instance_profiles.values())

    def policies_of(self, arn: str) -> list[dict[str, Any]]:
        """Every policy document of a role or user, attached and inline.

        Raises:
            AwsError: there is no such principal.
        """
        kind, _, name = arn.rpartition(":")[2].partition("/")
        name = name.rpartition("/")[2]
        with self._lock:
            holders = self._backend.roles.values() if kind == "role" else self._backend.users.values()
            for one in holders:
                if one.name == name:
                    attached = [
                        version.document
                        for policy in one.managed_policies.values()
                        for version in policy.versions
                        if version.is_default
                    ]
                    texts = [*attached, *one.policies.values()]
                    return [json.loads(text) if isinstance(text, str) else dict(text) for text in texts]
        raise AwsError("NoSuchEntity", f"The {kind} with name {name} cannot be found.", 404)

    def _profile(self, name: str) -> Any:
        with self._lock:
            for one in self._backend.instance_profiles.values():
                if one.name == name:
                    return one
        return None
