"""The SQS queue that EventBridge writes interruptions into. Source: spec/karpenter-aws.md 6.5."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from provisioner.ec2.access.client import Clients
from provisioner.ec2.access.errors import FailureKind, classify_exception
from provisioner.support import logs

MAX_MESSAGES: Final = 10
VISIBILITY_SECONDS: Final = 20
WAIT_SECONDS: Final = 20
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Received:
    """One message, hidden from others for a while.

    Attributes:
        receipt: what it is deleted by.
        sent: when EventBridge wrote it; None where SQS does not say.
    """

    body: str
    receipt: str
    sent: datetime | None = None


class InterruptionQueue:
    """One queue, found by its name; one reader at a time.

    Args:
        name: of the queue, in the account and region of our credentials.
        wait_seconds: how long SQS waits for a message.
        visibility_seconds: how long a message that was received is hidden from others.
    """

    def __init__(
        self,
        aws: Clients,
        name: str,
        *,
        wait_seconds: int = WAIT_SECONDS,
        visibility_seconds: int = VISIBILITY_SECONDS,
    ) -> None:
        self._aws, self.name = aws, name
        self._wait_seconds, self._visibility_seconds = wait_seconds, visibility_seconds
        self._url = ""

    def receive(self) -> list[Received]:
        """At most ten messages; waits until there is one, or for 20 seconds.

        Raises:
            botocore.exceptions.ClientError: as the call; the queue is looked up anew after one that says it is not there.
        """
        sqs = self._aws.client("sqs")
        try:
            if not self._url:
                self._url = sqs.get_queue_url(QueueName=self.name)["QueueUrl"]
            answer = sqs.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=MAX_MESSAGES,
                VisibilityTimeout=self._visibility_seconds,
                WaitTimeSeconds=self._wait_seconds,
                MessageSystemAttributeNames=["SentTimestamp"],
                MessageAttributeNames=["All"],
            )
        except Exception as error:
            if classify_exception(error).kind is FailureKind.NOT_FOUND:
                self._url = ""
            raise
        return [_received(message) for message in answer.get("Messages", ())]

    def delete(self, messages: Sequence[Received]) -> int:
        """Delete messages, at most ten; how many were. One that was not comes again, and says what is known."""
        if not messages:
            return 0
        entries = [{"Id": str(number), "ReceiptHandle": one.receipt} for number, one in enumerate(messages)]
        answer = self._aws.client("sqs").delete_message_batch(QueueUrl=self._url, Entries=entries)
        for failed in answer.get("Failed", ()):
            _log.warning("Failed to delete a queue message; it will be delivered again", code=failed.get("Code", ""))
        return len(answer.get("Successful", ()))


def _received(message: dict[str, Any]) -> Received:
    sent = message.get("Attributes", {}).get("SentTimestamp", "")
    return Received(
        message.get("Body", ""),
        message["ReceiptHandle"],
        datetime.fromtimestamp(int(sent) / 1000, UTC) if sent.isdigit() else None,
    )
