"""The command line of the interleavings."""

import argparse
import gc
import time
from collections import Counter

from tests.interleaving.play import Play


def main(arguments: list[str]) -> int:
    """Play; 0 where no promise was broken, or where a mutant was caught."""
    parser = argparse.ArgumentParser(prog="interleaving")
    parser.add_argument("--seeds", default="0:100", help="FIRST:END")
    parser.add_argument("--say", action="store_true", help="print what happens")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first broken promise")
    given = parser.parse_args(arguments)
    first, end = map(int, given.seeds.split(":"))
    seen: Counter[str] = Counter()
    failed, switches, began = 0, 0, time.process_time()
    gc.disable()
    for seed in range(first, end):
        played = Play(seed, print if given.say else lambda _: None).play()
        seen += played.seen
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
    return 1 if failed else 0
