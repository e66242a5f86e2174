"""Files from outside, each by its hash."""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from provisioner.lab.devcluster.paths import cache_root

_TIMEOUT_SECONDS = 60
_TRIES = 3


class FetchError(Exception):
    """A file was not to be had, or another came in its place."""


def fetched(urls: Sequence[str], sha256: str) -> Path:
    """The file with this hash, out of the cache or from the first address that has it; what has another hash is refused.

    Raises:
        FetchError: no address gave this file.
    """
    cached = cache_root(os.environ) / "image" / sha256
    if cached.is_file() and hashlib.sha256(cached.read_bytes()).hexdigest() == sha256:
        return cached
    cached.parent.mkdir(parents=True, exist_ok=True)
    refusals = []
    for url in [*urls] * _TRIES:
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
                content = answer.read()
        except (urllib.error.URLError, HTTPException, OSError) as error:
            refusals.append(f"{url}: {error}")
            continue
        if (found := hashlib.sha256(content).hexdigest()) != sha256:
            refusals.append(f"{url}: sha256 is {found}")
            continue
        partial = cached.with_suffix(f".{os.getpid()}")
        partial.write_bytes(content)
        partial.replace(cached)
        return cached
    raise FetchError(f"No address has the file with sha256 {sha256}:\n" + "\n".join(dict.fromkeys(refusals)))
