"""Do threads that ask one prepared world get the answers that one thread alone gets?"""

import random
import sys
import threading
import time
from collections.abc import Sequence

from provisioner.apis.pods import Pod
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import World
from provisioner.scheduling.result import Result

EFFORT = 3
_SWITCH_SECONDS = 1e-5
"""Threads take turns five hundred times as often as usual."""


def gist(result: Result) -> object:
    """All of a result that matters."""
    return result.claims, result.existing, [(one.pod.uid, str(one)) for one in result.unplaced]


def answers_that_agree(worlds: Sequence[World], questions: Sequence[tuple[Pod, ...]], seconds: float) -> int:
    """Let two threads fill and ask one freshly prepared world after another; how many answers were compared.

    Raises:
        AssertionError: one differed from what a thread alone is answered, or raised.
    """
    alone = [[gist(prepare(world).solve(pods, effort=EFFORT)) for pods in questions] for world in worlds]
    end, before = time.monotonic() + seconds, sys.getswitchinterval()
    wrong: list[str] = []
    compared = 0
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        while not compared or (time.monotonic() < end and not wrong):
            for number, world in enumerate(worlds):
                shared, start = prepare(world), threading.Barrier(2)

                def ask(seed: int) -> None:
                    order = random.Random(seed).sample(range(len(questions)), len(questions))
                    start.wait(60)  # noqa: B023 - both threads of a round end within it
                    for one in order:
                        try:
                            found = gist(shared.solve(questions[one], effort=EFFORT))  # noqa: B023 - as above
                        except Exception as error:  # noqa: BLE001 - it is what the test fails with
                            wrong.append(f"world {number}, question {one}: {error!r}")  # noqa: B023 - as above
                            return
                        if found != alone[number][one]:  # noqa: B023 - as above
                            wrong.append(f"world {number}, question {one}: another answer")  # noqa: B023 - as above

                threads = [threading.Thread(target=ask, args=(compared + seed,)) for seed in range(2)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                compared += 2 * len(questions)
                if wrong or time.monotonic() >= end:
                    break
    finally:
        sys.setswitchinterval(before)
    assert not wrong, "\n".join(wrong[:10])
    return compared
