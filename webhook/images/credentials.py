"""Whose name registries are asked in: pull secrets of the pod's own namespace, else our own IAM role for ECR in the accounts that an operator listed."""

import base64
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Final

from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import SECRETS
from provisioner.support import logs
from provisioner.support.clock import Clock
from webhook.images.documents import LONGEST_TOKEN, ImageDocumentError, Login, login_in
from webhook.images.lookups import Key
from webhook.images.trust import Trust

SECRET_SECONDS: Final = 5.0
ECR_SECONDS: Final = 6 * 3600.0
"""A token of ECR is good for twelve hours."""
ECR_FAILED_SECONDS: Final = 300.0
ECR_CHILD_SECONDS: Final = 20.0
MAX_REGIONS: Final = 64
_log = logs.get_logger(__name__)


def ecr_token(region: str) -> str:
    """A fresh token for ECR of a region, from a process of its own: boto3 would take more memory here than everything else.

    Raises:
        OSError: there is none, and why.
    """
    command = [sys.executable, "-m", "webhook.images.ecr", region]
    try:
        done = subprocess.run(command, capture_output=True, timeout=ECR_CHILD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError("no answer arrived in time") from error
    if done.returncode != 0:
        raise OSError(done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300])
    return done.stdout[:LONGEST_TOKEN].decode("ascii", "replace").strip()


class Credentials:
    """Answers `login` of `Lookups`; thread-safe.

    Args:
        client: reads pull secrets, one at a time and by name.
        trust: for which ECR our own role may be used.
        clock: for the age of tokens.
        token: makes one for a region.
    """

    def __init__(self, client: Client, trust: Trust, clock: Clock, token: Callable[[str], str] = ecr_token) -> None:
        self._client, self._trust, self._clock, self._token = client, trust, clock, token
        self._lock = threading.Lock()
        self._tokens: dict[str, tuple[Login | None, float]] = {}

    def login(self, key: Key) -> Login | None:
        """What to show the registry of an image; None where there is nothing for it."""
        for name in key.secrets:
            try:
                if (found := login_in(self._secret(name, key.namespace), key.reference)) is not None:
                    return found
            except (ApiError, ImageDocumentError, ValueError) as error:
                _log.info(
                    "Failed to read a pull secret; the registry is asked without it",
                    namespace=key.namespace,
                    secret=name,
                    error=str(error),
                )
        region = self._trust.region_of(key.reference.host)
        return None if region is None else self._of_ecr(region)

    def _secret(self, name: str, namespace: str) -> Mapping[str, bytes]:
        path = SECRETS.path(namespace, name)
        text = self._client.raw("GET", path, read_timeout=SECRET_SECONDS, total_timeout=SECRET_SECONDS, tries=1)
        return SECRETS.decode(text).data

    def _of_ecr(self, region: str) -> Login | None:
        with self._lock:  # one process at a time
            known = self._tokens.get(region)
            if known is not None and self._clock.monotonic() < known[1]:
                return known[0]
            login, seconds = None, ECR_FAILED_SECONDS
            try:
                username, _, password = base64.b64decode(self._token(region), validate=True).decode().partition(":")
                if username and password:
                    login, seconds = Login(username, password), ECR_SECONDS
            except (OSError, ValueError) as error:
                _log.warning(
                    "Failed to get a token for Amazon ECR; the registry is asked without it",
                    region=region,
                    error=str(error)[:300],
                )
            if region in self._tokens or len(self._tokens) < MAX_REGIONS:
                self._tokens[region] = (login, self._clock.monotonic() + seconds)
            return login
