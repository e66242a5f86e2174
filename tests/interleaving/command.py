"""The command line of the interleavings."""

import argparse
import gc
import time
from collections import Counter

from tests.interleaving import threads
from tests.interleaving.edges import CLAIM_EDGES, COMMAND_EDGES
from tests.interleaving.mutants import MUTANTS
from tests.interleaving.play import Play


def main(arguments: list[str]) -> int:
    """Play; 0 where no promise was broken, or where a mutant was caught."""
    parser = argparse.ArgumentParser(prog="interleaving")
    parser.add_argument("--seeds", default="0:100", help="FIRST:END")
    parser.add_argument("--say", action="store_true", help="print what happens")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first broken promise")
    parser.add_argument("--mutant", choices=MUTANTS, help="a defect, which must be caught")
    given = parser.parse_args(arguments)
    if given.mutant:
        MUTANTS[given.mutant]()
    first, end = map(int, given.seeds.split(":"))
    seen: Counter[str] = Counter()
    edges: Counter[tuple[str, str, str]] = Counter()
    failed, switches, began = 0, 0, time.process_time()
    gc.disable()
    for seed in range(first, end):
        try:
            played = Play(seed, print if given.say else lambda _: None).play()
        except threads.Deadlock as error:
            print(f"seed {seed}: {error}", flush=True)
            return 1
        seen += played.seen
        edges += played.edges
        switches += played.switches
        if played.wrong:
            failed += 1
            print(f"seed {seed}: " + "\n    ".join(played.wrong), flush=True)
            if not given.keep_going:
                break
        if seed % 50 == 0:
            gc.collect()
    seconds = time.process_time() - began
    print(f"{end - first} interleavings, {failed} broken, {switches} switches, {seconds:.1f} s of CPU; {dict(seen)}")
    if not given.mutant:
        tell(edges)
    if given.mutant:
        return 0 if failed else 1
    return 1 if failed else 0


def tell(edges: Counter[tuple[str, str, str]]) -> None:
    """Which edges of the state tables were gone along, and which were not."""
    for what, table in (("NodeClaim", CLAIM_EDGES), ("command", COMMAND_EDGES)):
        for old, new in table:
            print(f"edge of the {what}: {old} -> {new}: {edges[what, old, new]} times")
        missed = [edge for edge in table if not edges[(what, *edge)]]
        print(f"edges of the {what}: {len(table) - len(missed)} of {len(table)} covered")
