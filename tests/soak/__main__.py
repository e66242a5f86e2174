"""python -m tests.soak --cloud kwok|aws --seconds 3600 --weeks 4 --seed N."""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from provisioner.lab.harness.machine import calibration, slowness
from provisioner.lab.harness.results import Figure, at_most, write
from provisioner.lab.progress import progress_for
from tests.soak import hour, weeks
from tests.soak.laws import Growth, Look, judged

RESULTS = Path("results")
HINTS = 12
CALIBRATIONS = 3
"""Loops of `calibration`, which tells of the fastest only."""


def main() -> int:
    """Run both; 0 where nothing grew."""
    parser = argparse.ArgumentParser(prog="soak", description="Look whether the programs keep more and more.")
    parser.add_argument("--cloud", choices=("kwok", "aws"), default="kwok")
    parser.add_argument("--seconds", type=float, default=3600.0, help="0: not on the control plane")
    parser.add_argument("--weeks", type=float, default=4.0, help="0: not in virtual time")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    loop = calibration()
    passed = (time.monotonic() - began) / CALIBRATIONS  # longer where others have the processors
    slow = slowness(max(loop, passed))
    rate = hour.PODS_PER_SECOND / slow

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)

    say(
        f"the reference loop takes {1000 * loop:.0f} ms of a processor, and {1000 * passed:.0f} ms: {hour.PODS_PER_SECOND:g} pods a second / {slow:.2f} = {rate:.1f}"
    )
    wrong: list[str] = []
    figures = [Figure("calibration", loop, "s"), Figure("times as slow, others included", slow, "")]
    if given.seconds:
        found = hour.run(given.cloud, given.seed, given.seconds, rate, say, progress_for(sys.stderr))
        say(f"{found.pods_per_second:.1f} pods bound a second, {found.faults} faults, disrupted {found.disrupted}")
        figures += [
            Figure("pods asked for each second", rate, "1/s"),
            Figure("pods bound each second", found.pods_per_second, "1/s"),
            Figure("faults", found.faults, ""),
        ]
        growths = judged(found.looks, given.seconds, hour.REQUIRED)
        wrong += [*found.wrong, *tell("control plane", growths)]
        figures += figures_of("", growths)
        keep("soak-looks", found.looks)
    if given.weeks:
        simulated = weeks.run(RESULTS / "soak", given.weeks, given.seed)
        say(f"{given.weeks:g} weeks took {simulated.seconds:.0f} s")
        growths = judged(simulated.looks, simulated.seconds, weeks.REQUIRED)
        wrong += [*simulated.wrong, *tell("virtual time", growths)]
        figures += [Figure("weeks: took", simulated.seconds, "s"), *figures_of("weeks: ", growths)]
        keep("soak-weeks-looks", simulated.looks)
    write(RESULTS, "soak", figures)
    for one in wrong:
        print(f"grew: {one}" if one.startswith("the median") else f"wrong: {one}")
    print("soak: nothing grew" if not wrong else f"soak: {len(wrong)} laws broken")
    return 1 if wrong else 0


def tell(title: str, growths: Sequence[Growth]) -> list[str]:
    """Print the table, and what grew most of what is not judged; a sentence of each broken law."""
    print(f"\n{title:62} {'early':>12} {'late':>12} {'limit':>12}")
    for one in growths:
        if (math.isfinite(one.limit) and (one.grew or not one.name.startswith("series of"))) or math.isnan(one.limit):
            print(f"{one.name:62} {one.early:12.1f} {one.late:12.1f} {one.limit:12.1f} {'GREW' if one.grew else ''}")
    hints = sorted(
        (one for one in growths if math.isinf(one.limit) and one.late > one.early), key=lambda one: one.early - one.late
    )
    for one in hints[:HINTS]:
        print(f"  {one.name:60} {one.early:12.1f} {one.late:12.1f}")
    print(flush=True)
    return [
        f"the median of {one.name} is {one.late:.1f} at the end and {one.early:.1f} before, and may be {one.limit:.1f}"
        for one in growths
        if one.grew
    ]


def figures_of(prefix: str, growths: Iterable[Growth]) -> list[Figure]:
    """The late medians, with their goals."""
    return [
        Figure(f"{prefix}{one.name}", one.late, "MB" if one.name.startswith("memory") else "", at_most(one.limit))
        for one in growths
        if not math.isinf(one.limit)
    ]


def keep(name: str, looks: Iterable[Look]) -> None:
    """Everything that was read, for a curve."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps([{"at": round(one.at, 1), **one.values} for one in looks])
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
