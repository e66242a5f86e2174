"""python -m tests.interleaving --seeds 0:10000 [--jobs 2] [--mutant NAME] [--say]."""

import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of an interleaving
    os.execve(
        sys.executable,
        [sys.executable, "-m", "tests.interleaving", *sys.argv[1:]],
        {**os.environ, "PYTHONHASHSEED": "0"},
    )

import prometheus_client  # noqa: F401 - its locks stay what they are

from tests.interleaving import threads

if __name__ == "__main__":
    if any(one.startswith("--jobs") for one in sys.argv):
        from tests.interleaving.jobs import main
    else:
        threads.install()
        from tests.interleaving.command import main
    sys.exit(main(sys.argv[1:]))
