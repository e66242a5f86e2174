"""Which Kubernetes the API server runs, and whether this version of Dovetail is tested with it. The one owner of both questions.

The table in docs/guides/compatibility.md and the control planes that `make package` starts are compared with `TESTED_MINORS` by tests.
"""

import json
import re
from typing import Final

from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.support import logs

TESTED_MINORS: Final = range(33, 38)
"""Of Kubernetes 1: all that a control plane of their own tests."""

PAGE: Final = "docs/guides/compatibility.md"
_DIGITS: Final = re.compile(r"\d+")
_log = logs.get_logger(__name__)


def minor_of(version: str) -> int:
    """The minor of "1.33" or "33+"; 0 where there is none."""
    found = _DIGITS.match(version.rpartition(".")[2])
    return int(found[0]) if found else 0


def server_minor(client: Client) -> int:
    """The minor of the API server, by one request; 0 where it is no number.

    Raises:
        ApiError: it did not answer, or refused.
        ValueError: it answered something else than a version.
    """
    answer = json.loads(client.raw("GET", "/version"))
    if not isinstance(answer, dict) or "minor" not in answer:
        raise ValueError("/version contains no minor version")
    return minor_of(str(answer["minor"]))


def warn_if_not_tested(client: Client) -> None:
    """Log a warning where the API server is of a minor that this version is not tested with; nothing is refused, and no answer is no reason to."""
    try:
        minor = server_minor(client)
    except (ApiError, ValueError) as error:
        _log.info("Could not read the version of the API server", error=str(error))
        return
    version, tested = f"1.{minor}", f"1.{TESTED_MINORS[0]} to 1.{TESTED_MINORS[-1]}"
    if 0 < minor < TESTED_MINORS[0]:
        _log.warning(
            "This version of Kubernetes is older than those that Dovetail is tested with; upgrade the cluster",
            version=version,
            tested=tested,
            page=PAGE,
        )
    elif minor > TESTED_MINORS[-1]:
        _log.warning(
            "This version of Kubernetes is newer than those that Dovetail is tested with; upgrade Dovetail once a release supports it",
            version=version,
            tested=tested,
            page=PAGE,
        )
