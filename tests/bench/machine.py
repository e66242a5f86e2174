"""How much memory a program has had at most."""

import re
from pathlib import Path


def peak_megabytes(process: int | str = "self") -> float:
    """The most that was resident of a program (VmHWM), of this one by default; ru_maxrss is what the process had before exec, too, and so its parent's."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024
