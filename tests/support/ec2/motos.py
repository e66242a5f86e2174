"""The services that moto does right: IAM, SQS and EventBridge, called inside this process."""

import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from tests.support.ec2.protocol import AwsError

SERVICES: Final = frozenset({"iam", "sqs", "events"})


class Moto:
    """moto's backends of one account and region. They share a lock, because moto's are not made for threads; long polls wait outside of it."""

    def __init__(self, account: str, region: str, address: str) -> None:
        from moto.core.botocore_stubber import BotocoreStubber  # a quarter of a second

        self._stubber = BotocoreStubber()
        self._account, self._region, self._address = account, region, address
        self.lock = threading.RLock()
        self._arrived = threading.Condition(self.lock)

    def call(
        self, service: str, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Answer one request as it came over HTTP."""
        from botocore.awsrequest import AWSPreparedRequest
        from botocore.compat import HTTPHeaders

        host = {"iam": "iam.amazonaws.com"}.get(service, f"{service}.{self._region}.amazonaws.com")
        told = HTTPHeaders()
        for name, value in headers.items():
            if name.lower() not in {"host", "content-length", "connection"}:
                told[name] = value
        wait = 0.0
        if service == "sqs" and headers.get("X-Amz-Target", "").endswith("ReceiveMessage"):
            asked = json.loads(body)
            wait = float(asked.pop("WaitTimeSeconds", 0))
            body = json.dumps({**asked, "WaitTimeSeconds": 0}).encode()
        if service == "sqs":
            body = body.replace(self._address.encode(), f"https://{host}".encode())
        request = AWSPreparedRequest(method, f"https://{host}{path}", told, body, stream_output=False)
        with self.lock:
            status, answered, content = self._process(request)
            if wait and status == 200 and b'"Messages"' not in content:
                url = str(json.loads(body)["QueueUrl"])
                ends = time.monotonic() + wait
                while not self._has_message(url) and time.monotonic() < ends:
                    self._arrived.wait(min(1.0, ends - time.monotonic()))  # messages come back by themselves too
                status, answered, content = self._process(request)
            if service == "sqs" and headers.get("X-Amz-Target", "").rpartition(".")[2] in {
                "SendMessage",
                "SendMessageBatch",
                "ChangeMessageVisibility",
            }:
                self._arrived.notify_all()
        if service == "sqs":
            content = content.replace(f"https://{host}".encode(), self._address.encode())
        return status, answered, content

    def _process(self, request: Any) -> tuple[int, dict[str, str], bytes]:
        answer = self._stubber.process_request(request)
        if answer is None:
            raise AwsError("InvalidAction", "No such action", 404)
        status, headers, body = answer
        content = body.encode() if isinstance(body, str) else bytes(body)
        return int(status), {str(name): str(value) for name, value in dict(headers).items()}, content

    def _has_message(self, url: str) -> bool:
        queue = self._sqs().queues.get(url.rpartition("/")[2])
        return queue is not None and bool(queue.messages)

    def _sqs(self) -> Any:
        from moto.sqs.models import sqs_backends

        return sqs_backends[self._account][self._region]

    def _iam(self) -> Any:
        from moto.iam.models import iam_backends

        return iam_backends[self._account]["aws"]

    # ------------------------------------------------------------------ what the emulator itself does there

    def create_queue(self, name: str) -> str:
        """A queue with the retention that Karpenter's has; its URL."""
        with self.lock:
            self._sqs().create_queue(name, tags={}, MessageRetentionPeriod="300")
        return f"{self._address}/{self._account}/{name}"

    def send(self, queue: str, text: str) -> None:
        """One message."""
        with self.lock:
            self._sqs().send_message(queue, text)
            self._arrived.notify_all()

    def create_role(self, name: str, path: str = "/") -> str:
        """A role for machines; its ARN."""
        trust = {
            "Statement": [
                {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
            ]
        }
        with self.lock:
            made = self._iam().create_role(name, json.dumps(trust), path, None, "", [], 3600)
        return str(made.arn)

    def create_profile(self, name: str, role: str) -> None:
        """An instance profile with its role."""
        with self.lock:
            self._iam().create_instance_profile(name, "/", [])
            self._iam().add_role_to_instance_profile(name, role)

    def profile_role(self, name: str) -> tuple[str, str] | None:
        """ARN of an instance profile and name of its role, "" without one; None where there is no such profile."""
        with self.lock:
            found = self._iam().instance_profiles.values()
            for one in found:
                if one.name == name:
                    return str(one.arn), str(one.roles[0].name) if one.roles else ""
        return None

    def policies_of(self, arn: str) -> list[dict[str, Any]]:
        """Every policy document of a role or user, attached and inline.

        Raises:
            AwsError: there is no such principal.
        """
        kind, _, name = arn.rpartition(":")[2].partition("/")
        name = name.rpartition("/")[2]
        with self.lock:
            backend = self._iam()
            holders = backend.roles.values() if kind == "role" else backend.users.values()
            for one in holders:
                if one.name == name:
                    texts = [policy.document for policy in one.managed_policies.values()]
                    texts += list(one.policies.values())
                    return [json.loads(text) if isinstance(text, str) else dict(text) for text in texts]
        raise AwsError("NoSuchEntity", f"The {kind} with name {name} cannot be found.", 404)

    def profile_tags(self, name: str) -> dict[str, str]:
        """Tags of an instance profile; none where there is no such profile."""
        with self.lock:
            for one in self._iam().instance_profiles.values():
                if one.name == name:
                    return {str(tag["Key"]): str(tag["Value"]) for tag in one.tags}
        return {}
