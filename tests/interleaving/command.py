"""The command line of the interleavings."""

import argparse
import gc
import json
import time
from collections import Counter

from tests.interleaving import threads
from tests.interleaving.jobs import CHUNK, FIGURES, tell
from tests.interleaving.mutants import MUTANTS
from tests.interleaving.play import Play


def main(arguments: list[str]) -> int:
    """Play; 0 where no promise was broken, or where a mutant was caught."""
    parser = argparse.ArgumentParser(
        prog="interleaving", description="Play interleavings of the real controllers, and judge them."
    )
    parser.add_argument(
        "--seeds", default="0:100", help="FIRST:END; a seed that broke something is played again with the same FIRST"
    )
    parser.add_argument("--say", action="store_true", help="print what happens")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first broken promise")
    parser.add_argument("--thin", action="store_true", help="only fleets whose nodes can go together only")
    parser.add_argument("--gangs", action="store_true", help="only fleets with gangs, and markets that run out")
    parser.add_argument("--mutant", choices=MUTANTS, help="a defect, which must be caught")
    given = parser.parse_args(arguments)
    first, end = map(int, given.seeds.split(":"))
    if given.mutant:
        MUTANTS[given.mutant]()
    figures, failed = _played(
        first, end, say=given.say, keep_going=given.keep_going, thin=given.thin, gangs=given.gangs
    )
    print(FIGURES + json.dumps(figures))
    if given.mutant:
        print(f"mutant {given.mutant!r}: {'caught' if failed else 'NOT caught'} in {figures['played']} interleavings")
        return 0 if failed else 1
    tell(figures, failed)
    return 1 if failed else 0


def _played(first: int, end: int, *, say: bool, keep_going: bool, thin: bool, gangs: bool) -> tuple[Counter[str], int]:
    figures: Counter[str] = Counter(played=0, switches=0)
    failed, began = 0, time.process_time()
    gc.disable()
    for seed in range(first, end):
        try:
            played = Play(seed, print if say else lambda _: None, thin=thin, gangs=gangs).play()
        except threads.Deadlock as error:
            print(f"seed {seed}: {error}", flush=True)
            failed += 1
            break
        figures["played"] += 1
        figures["switches"] += played.switches
        figures.update({f"seen {what}": count for what, count in played.seen.items()})
        figures.update({" | ".join(("edge", *edge)): count for edge, count in played.edges.items()})
        if played.wrong:
            failed += 1
            again = f"python -m tests.interleaving --seeds {first}:{seed + 1} --say --keep-going"
            print(f"seed {seed}: " + "\n    ".join(played.wrong) + f"\n    again: {again}", flush=True)
            if not keep_going:
                break
        if seed % CHUNK == 0:
            gc.collect()
    figures["cpu"] = round(time.process_time() - began)
    return figures, failed
