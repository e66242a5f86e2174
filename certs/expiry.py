"""When the certificates expire that a program serves or shows: a metric, read from their files at every scrape.

Without cryptography, which is several megabytes that extender and provisioner load for nothing else: what the interpreter's own tests
read certificates with has been there since Python 2.6.
"""

import math
import ssl
from _ssl import _test_decode_cert  # type: ignore[attr-defined]
from collections.abc import Callable
from pathlib import Path
from typing import Final

from provisioner.support.metrics import gauge

_EXPIRES: Final = gauge(
    "dovetail_certificate_expiration_timestamp_seconds",
    "Unix time at which a certificate of this program expires; NaN while there is none.",
    ("certificate",),
)


def watch(certificate: str, path: Path) -> None:
    """Tell from now on when the first certificate of a PEM file expires, which is the leaf.

    A file that cannot be read, or is in the midst of being replaced, counts as it was before. Cost: one `stat` a scrape.
    """
    _EXPIRES.labels(certificate).set_function(_reader(path))


def _reader(path: Path) -> Callable[[], float]:
    known: tuple[tuple[int, int], float] = ((0, 0), math.nan)

    def read() -> float:
        nonlocal known
        try:
            status = path.stat()
            stamp = status.st_mtime_ns, status.st_ino
            if stamp != known[0]:
                known = stamp, float(ssl.cert_time_to_seconds(str(_test_decode_cert(str(path))["notAfter"])))
        except OSError:  # ssl.SSLError is one; whoever serves the file keeps the former one too
            pass
        return known[1]

    return read
