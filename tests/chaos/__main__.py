"""python -m tests.chaos --cloud kwok|aws --seconds 600 --seed N."""

import argparse
import sys
import time
from pathlib import Path

from provisioner.lab.progress import progress_for
from tests.chaos.run import run
from tests.chaos.tenant import PERIOD_SECONDS


def main() -> int:
    """Run it; 0 where every promise was kept."""
    parser = argparse.ArgumentParser(prog="chaos", description="Break things under a churn of pods, and judge.")
    parser.add_argument("--cloud", choices=("kwok", "aws"), default="kwok")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--tenant",
        type=float,
        default=PERIOD_SECONDS,
        help="seconds without faults before and after it begins; 0: none",
    )
    parser.add_argument(
        "--logs", type=Path, default=Path("results/chaos"), help="where logs go when a promise is broken"
    )
    given = parser.parse_args()
    print(f"chaos: {given.cloud}, seed {given.seed}, {given.seconds:g} s", flush=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)

    outcome = run(
        given.cloud, given.seed, given.seconds, tenant=given.tenant, say=say, progress=progress_for(sys.stderr)
    )
    for sentence in outcome.wrong:
        print(f"broken: {sentence}")
    if outcome.wrong:
        given.logs.mkdir(parents=True, exist_ok=True)
        for name, text in outcome.logs.items():
            (given.logs / f"{outcome.cloud}-{outcome.seed}-{name}.log").write_text(text)
        print(f"logs: {given.logs}")
    print(outcome)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
