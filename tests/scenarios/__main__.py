"""python -m tests.scenarios [WORDS…] [--extender yes|no|both] [--logs DIRECTORY]: plays rows and prints how each went.

With words, only the rows with all of them in their name. Exit status 0 where every row went as expected.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.scenarios.row import GROUPS, Row
from tests.scenarios.stage import RowResult, played
from tests.scenarios.tables import ROWS, TABLES

_WAYS = {"yes": (True,), "no": (False,), "both": (False, True)}


def main(arguments: Sequence[str]) -> int:
    """Play; 0 where every row went as expected."""
    parser = argparse.ArgumentParser(prog="scenarios", description="Play scenarios and judge them.")
    parser.add_argument("words", nargs="*", help="only rows with these in their name")
    parser.add_argument("--extender", choices=_WAYS, default="both", help="whether kube-scheduler asks the extender")
    parser.add_argument("--group", action="append", choices=GROUPS, default=[], help="only rows of this group")
    parser.add_argument("--logs", type=Path, default=None, help="where the logs of all programs are copied to")
    parser.add_argument("--table", choices=TABLES, default="", help="only rows of this table")
    given = parser.parse_args(arguments)
    rows = [one for one in ROWS if all(word in one.name for word in given.words)]
    rows = [one for one in rows if not given.group or one.group in given.group]
    rows = [one for one in rows if not given.table or one in TABLES[given.table]]
    if not rows:
        parser.error("no row has these words")
    status = 0
    for extender in _WAYS[given.extender]:
        began = time.monotonic()
        mine = [one for one in rows if one.extender in (None, extender)]
        with played(mine, extender=extender, logs=given.logs, say=say) as found:
            status |= report(mine, found, extender=extender, seconds=time.monotonic() - began)
    return status


def say(outcome: RowResult) -> None:
    """On standard error, as rows end; the table comes last."""
    print(f"{'FAILED' if outcome.wrong else 'passed'} {outcome.seconds:6.1f} s  {outcome.row}", file=sys.stderr)
    if outcome.wrong:
        print(outcome.wrong, file=sys.stderr, flush=True)


def verdict(row: Row, outcome: RowResult) -> str:
    """In a word, as pytest has them."""
    if row.broken:
        return "xfailed" if outcome.wrong else "XPASSED"
    return "FAILED" if outcome.wrong else "passed"


def report(rows: Iterable[Row], found: Mapping[str, RowResult], *, extender: bool, seconds: float) -> int:
    """Print the table, then what went wrong; 1 where something did."""
    words = f"{'with' if extender else 'without'} the extender"
    lines: list[str] = []
    counts: dict[str, int] = {}
    for one in rows:
        outcome = found[one.name]
        word = verdict(one, outcome)
        counts[word] = counts.get(word, 0) + 1
        lines.append(f"{word:8} {outcome.seconds:6.1f} s  {one.name}{f' ({one.broken})' if one.broken else ''}")
    total = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    lines.append(f"scenarios {words}: {total} in {seconds:.0f} s")
    with contextlib.suppress(BrokenPipeError):
        print("\n".join(lines), flush=True)
    return int(any(word in ("FAILED", "XPASSED") for word in counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
