"""Interleavings in several processes, and what is told of them."""

import argparse
import json
import subprocess
import sys
from collections import Counter

from tests.interleaving.edges import CLAIM_EDGES, COMMAND_EDGES, SELDOM, Edge

CHUNK = 50
"""Seeds of one process; a seed is the same interleaving only after those before it in its process."""
FIGURES = "figures: "
MANY = 10_000
"""In so many interleavings every edge of the state tables is gone along, but for those that are seldom."""
TABLES = {"NodeClaim": CLAIM_EDGES, "command": COMMAND_EDGES}


def main(arguments: list[str]) -> int:
    """Play; 0 where no promise was broken and, of so many that each edge must come, none was missed."""
    parser = argparse.ArgumentParser(prog="interleaving", description="Play interleavings in several processes.")
    parser.add_argument("--seeds", default="0:100", help="FIRST:END")
    parser.add_argument(
        "--jobs", type=int, required=True, help="that many processes, each of which plays 50 seeds at a time"
    )
    given = parser.parse_args(arguments)
    first, end = map(int, given.seeds.split(":"))
    figures, failed = _shared(first, end, given.jobs)
    tell(figures, failed)
    missed = uncovered(figures) if figures["played"] >= MANY else []
    for what, old, new in missed:
        print(f"no interleaving went along the edge of the {what}: {old} -> {new}")
    return 1 if failed or missed else 0


def _shared(first: int, end: int, jobs: int) -> tuple[Counter[str], int]:
    """Play, and add up."""
    from concurrent.futures import ThreadPoolExecutor  # not where threads are played

    def chunk(start: int) -> tuple[Counter[str], int]:
        seeds = f"{start}:{min(end, start + CHUNK)}"
        command = [sys.executable, "-m", "tests.interleaving", "--seeds", seeds, "--keep-going"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = found.stdout.splitlines()
        figures: Counter[str] = Counter()
        for line in lines:
            if line.startswith(FIGURES):
                figures.update(json.loads(line.removeprefix(FIGURES)))
        if found.returncode:
            told = [line for line in lines if not line.startswith((FIGURES, "edge"))]
            print("\n".join((*told, found.stderr)), flush=True)
        return figures, int(found.returncode != 0)

    total: Counter[str] = Counter()
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for figures, wrong in pool.map(chunk, range(first, end, CHUNK)):
            total.update(figures)
            failed += wrong
    return total, failed


def uncovered(figures: Counter[str]) -> list[tuple[str, str, str]]:
    """Edges of the state tables that nothing went along, though something must have: of what, from where, to where."""
    return [
        (what, *edge)
        for what, table in TABLES.items()
        for edge in table
        if edge not in SELDOM and not figures[_figure(what, edge)]
    ]


def _figure(what: str, edge: Edge) -> str:
    """The name under which it is counted how often an edge was gone along."""
    return " | ".join(("edge", what, *edge))


def tell(figures: Counter[str], failed: int) -> None:
    """What has happened, and which edges of the state tables were gone along."""
    print(
        ", ".join(
            f"{what.removeprefix('seen ')} {count}"
            for what, count in sorted(figures.items())
            if what.startswith("seen ")
        )
    )
    for what, table in TABLES.items():
        counts = {edge: figures[_figure(what, edge)] for edge in table}
        for (old, new), count in counts.items():
            print(f"edge of the {what}: {old} -> {new}: {count} ({table[old, new]})")
        print(f"edges of the {what}: {sum(map(bool, counts.values()))} of {len(table)} covered")
    print(
        f"{figures['played']} interleavings, {failed} broken, {figures['switches']} switches of threads, {figures['cpu']} s of CPU"
    )
