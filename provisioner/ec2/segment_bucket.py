"""Segments of a history in a bucket of S3: `BucketFolder`."""

from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from provisioner.ec2.access.client import Clients
from provisioner.history.stores import FolderError

_MOST_PAGES: Final = 100


class BucketFolder:
    """The objects of a bucket below a prefix.

    The bucket policy needs `s3:ListBucket`, `s3:PutObject` and `s3:DeleteObject`.

    Args:
        bucket: its name.
        prefix: of the keys; "" or with a slash at the end.
    """

    def __init__(self, clients: Clients, bucket: str, prefix: str) -> None:
        self._client: Any = clients.client("s3")
        self._bucket, self._prefix = bucket, prefix

    def sizes(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        token: dict[str, str] = {}
        try:
            for _ in range(_MOST_PAGES):
                page = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, Delimiter="/", **token)
                found |= {one["Key"].removeprefix(self._prefix): one["Size"] for one in page.get("Contents", ())}
                if not page.get("IsTruncated"):
                    break
                token = {"ContinuationToken": page["NextContinuationToken"]}
        except (BotoCoreError, ClientError) as error:
            raise self._error(error) from None
        return found

    def write(self, name: str, data: bytes) -> None:
        try:
            self._client.put_object(Bucket=self._bucket, Key=f"{self._prefix}{name}", Body=data)
        except (BotoCoreError, ClientError) as error:
            raise self._error(error) from None

    def remove(self, name: str) -> None:
        try:
            self._client.delete_object(Bucket=self._bucket, Key=f"{self._prefix}{name}")
        except (BotoCoreError, ClientError) as error:
            raise self._error(error) from None

    def _error(self, error: Exception) -> FolderError:
        return FolderError(f"s3://{self._bucket}/{self._prefix}: {error}")
