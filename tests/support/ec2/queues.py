"""SQS: standard queues with visibility, retention and long polls. (moto's own takes 18 ms a message once a thousand are in.)

Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html
"""

import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.ec2.protocol import AwsError

_MISSING: Final = "The specified queue does not exist."
_DEFAULTS: Final = {"VisibilityTimeout": "30", "MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0"}


@dataclass
class _Message:
    id: str
    body: str
    sent: float
    visible: float
    received: int = 0
    first: float = 0.0
    receipt: str = ""


@dataclass
class _Queue:
    name: str
    attributes: dict[str, str]
    messages: dict[str, _Message] = field(default_factory=dict)


class Queues:
    """The queues of the account; thread-safe, with a lock of its own, because a long poll waits in it.

    Args:
        address: that queue URLs begin with.
        arn: that queue ARNs begin with.
    """

    def __init__(self, address: str, arn: str) -> None:
        self._address, self._arn = address, arn
        self._numbers = itertools.count(1)
        self._queues: dict[str, _Queue] = {}
        self._changed = threading.Condition()
        self._actions: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "CreateQueue": self._create,
            "DeleteQueue": self._delete_queue,
            "GetQueueUrl": lambda asked: {"QueueUrl": self._url(self._named(str(asked["QueueName"])).name)},
            "GetQueueAttributes": self._attributes,
            "SetQueueAttributes": self._set_attributes,
            "SendMessage": lambda asked: self._put(self._of(asked), str(asked["MessageBody"])),
            "ReceiveMessage": self._receive,
            "DeleteMessage": self._delete,
            "DeleteMessageBatch": self._delete_batch,
            "ChangeMessageVisibility": self._change,
            "PurgeQueue": self._purge,
        }

    def action(self, name: str) -> Callable[[Mapping[str, Any]], dict[str, Any]] | None:
        """The function of an action; it may wait."""
        return self._actions.get(name)

    def create(self, name: str, **attributes: str) -> None:
        """A queue."""
        self._create({"QueueName": name, "Attributes": attributes})

    def send(self, name: str, body: str) -> None:
        """One message.

        Raises:
            AwsError: there is no such queue.
        """
        self._put(self._named(name), body)

    def bodies(self, name: str) -> list[str]:
        """Of the messages that nobody has deleted."""
        with self._changed:
            return [one.body for one in self._named(name).messages.values()]

    def _url(self, name: str) -> str:
        return f"{self._address}/{name}"

    def _named(self, name: str) -> _Queue:
        found = self._queues.get(name)
        if found is None:
            raise AwsError("QueueDoesNotExist", _MISSING)
        return found

    def _of(self, asked: Mapping[str, Any]) -> _Queue:
        return self._named(str(asked["QueueUrl"]).rpartition("/")[2])

    def _create(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        name = str(asked["QueueName"])
        with self._changed:
            self._queues.setdefault(name, _Queue(name, {**_DEFAULTS, **(asked.get("Attributes") or {})}))
        return {"QueueUrl": self._url(name)}

    def _delete_queue(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._changed:
            del self._queues[self._of(asked).name]
            self._changed.notify_all()
        return {}

    def _attributes(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._changed:
            queue = self._of(asked)
            now = time.time()
            hidden = sum(one.visible > now for one in queue.messages.values())
            found = {
                **queue.attributes,
                "QueueArn": f"{self._arn}:{queue.name}",
                "ApproximateNumberOfMessages": str(len(queue.messages) - hidden),
                "ApproximateNumberOfMessagesNotVisible": str(hidden),
            }
        wanted = asked.get("AttributeNames") or ()
        return {"Attributes": {name: value for name, value in found.items() if "All" in wanted or name in wanted}}

    def _set_attributes(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._changed:
            self._of(asked).attributes.update(asked.get("Attributes") or {})
        return {}

    def _put(self, queue: _Queue, body: str) -> dict[str, Any]:
        now = time.time()
        with self._changed:
            made = _Message(f"00000000-0000-4000-8000-{next(self._numbers):012d}", body, now, now)
            queue.messages[made.id] = made
            self._changed.notify()
        return {"MessageId": made.id, "MD5OfMessageBody": _md5(body)}

    def _receive(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        most = int(asked.get("MaxNumberOfMessages", 1))
        if not 1 <= most <= 10:
            raise AwsError("InvalidParameterValue", f"Value {most} for parameter MaxNumberOfMessages is invalid.")
        with self._changed:
            queue = self._of(asked)
            hold = float(asked.get("VisibilityTimeout", queue.attributes["VisibilityTimeout"]))
            wait = float(asked.get("WaitTimeSeconds", queue.attributes["ReceiveMessageWaitTimeSeconds"]))
            ends = time.time() + wait
            while not (found := self._visible(queue, most)) and (left := ends - time.time()) > 0:
                self._changed.wait(min(1.0, left))  # a message that was taken comes back without a word
                self._named(queue.name)
            now = time.time()
            for one in found:
                one.received += 1
                one.first = one.first or now
                one.visible = now + hold
                one.receipt = f"{one.id}/{one.received}"
        return {"Messages": [_told(one) for one in found]} if found else {}

    def _visible(self, queue: _Queue, most: int) -> list[_Message]:
        now = time.time()
        oldest = now - float(queue.attributes["MessageRetentionPeriod"])
        for one in [one for one in queue.messages.values() if one.sent < oldest]:
            del queue.messages[one.id]
        return list(itertools.islice((one for one in queue.messages.values() if one.visible <= now), most))

    def _delete(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._changed:
            self._drop(self._of(asked), str(asked["ReceiptHandle"]))
        return {}

    def _delete_batch(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        done, failed = [], []
        with self._changed:
            queue = self._of(asked)
            for one in asked["Entries"]:
                try:
                    self._drop(queue, str(one["ReceiptHandle"]))
                    done.append({"Id": one["Id"]})
                except AwsError as error:
                    failed.append({"Id": one["Id"], "SenderFault": True, "Code": error.code, "Message": error.message})
        return {"Successful": done, "Failed": failed}

    def _drop(self, queue: _Queue, receipt: str) -> None:
        name, _, number = receipt.rpartition("/")
        if not name or not number.isdigit():
            raise AwsError(
                "ReceiptHandleIsInvalid", f'The input receipt handle "{receipt}" is not a valid receipt handle.'
            )
        queue.messages.pop(name, None)

    def _change(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._changed:
            one = self._of(asked).messages.get(str(asked["ReceiptHandle"]).rpartition("/")[0])
            if one is None:
                raise AwsError("InvalidParameterValue", "The message does not exist.")
            one.visible = time.time() + float(asked["VisibilityTimeout"])
            self._changed.notify()
        return {}

    def _purge(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._changed:
            self._of(asked).messages.clear()
        return {}


def _told(one: _Message) -> dict[str, Any]:
    return {
        "MessageId": one.id,
        "ReceiptHandle": one.receipt,
        "MD5OfBody": _md5(one.body),
        "Body": one.body,
        "Attributes": {
            "SentTimestamp": str(int(one.sent * 1000)),
            "ApproximateReceiveCount": str(one.received),
            "ApproximateFirstReceiveTimestamp": str(int(one.first * 1000)),
            "SenderId": "AIDAEXAMPLE",
        },
    }


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
