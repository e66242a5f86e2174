"""Five walks through the code, as a reader takes them: from the entry that ARCHITECTURE.md names to the write, along the functions that really run.

`python -m tests.walks` prints of each walk how many files it passes, and how often it comes back to a file that it had left; `--say` prints the files.
`--tree DIR` walks through another checkout, `--entry NAME=PATH` begins elsewhere.

A function is read once, where it is called first, and everything that it calls is read before what comes after it. The provisioner's walks are those
of one pod, its launch and the drift of its node in an interleaving without trouble (tests/interleaving); the others are tests.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

HERE: Final = Path(__file__).parents[1]


class Walk(NamedTuple):
    """One part of a walk.

    Attributes:
        entry: the file of the first function that counts, or the end of its path.
        end: what ends it: a write, "METHOD plural", or the name of a function that is called.
        threads: of the interleaving, those along which it leads.
        test: the test that is run instead.
    """

    entry: str
    end: str = ""
    threads: tuple[str, ...] = ()
    test: str = ""


WALKS: Final[dict[str, tuple[Walk, ...]]] = {
    "pod": (Walk("provisioner/kube/watch.py", "POST nodeclaims", ("watch-pods", "provisioner", "creates-0")),),
    "command": (
        Walk("provisioner/disruption/controller.py", "DELETE nodeclaims", ("disruption", "disruption.queue-0")),
    ),
    "launch": (
        Walk("provisioner/lifecycle/controller.py", "KwokProvider.create", ("nodeclaim.lifecycle-0",)),
        Walk(
            "launch/launcher.py",
            "Cloud.create_fleet",
            test="launch/test_launcher.py::test_an_instance_is_launched_with_the_kubelet_that_its_claim_kept",
        ),
    ),
    "admission": (Walk("webhook/app.py", test="webhook/test_app.py::test_a_pod_is_stamped"),),
    "question": (Walk("extender/answering.py", test="extender/test_answering.py::test_a_planned_pod_is_steered"),),
}
Step = tuple[str, str, str]
"""A thread, and a file with a function of it; or "" with a write."""


class Recorder:
    """What is called, in order."""

    def __init__(self, tree: Path, thread: Callable[[], str]) -> None:
        self.steps: list[Step] = []
        self._root, self._thread = f"{tree}/", thread

    def __call__(self, frame: Any, event: str, _: object) -> None:
        """For `sys.setprofile`."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self._root) and "/.venv/" not in code.co_filename:
            self.steps.append((self._thread(), code.co_filename.removeprefix(self._root), code.co_qualname))


def path_of(steps: Iterable[Step], walk: Walk) -> list[str]:
    """The files in the order in which they are read, each as often as one comes to it."""
    path: list[str] = []
    read: set[tuple[str, str]] = set()
    for thread, file, function in steps:
        if function == walk.end and path:
            break
        if (walk.threads and thread not in walk.threads) or file.startswith("tests/") or not file:
            continue
        if (not path and not file.endswith(walk.entry)) or (file, function) in read:
            continue
        read.add((file, function))
        if not path or path[-1] != file:
            path.append(file)
    return path


def _interleaved(tree: Path) -> dict[str, list[Step]]:
    """A pod comes, its node is launched, and later its NodePool changes."""
    from tests.interleaving import threads

    threads.install()
    from provisioner.simulator.api_server import ApiServer
    from tests.interleaving.place import Workload
    from tests.interleaving.play import Play
    from tests.interleaving.threads import STAGE

    recorder = Recorder(tree, lambda: STAGE.current.name if STAGE.current else "")
    spawn, answer = STAGE.spawn, ApiServer.answer

    def spawned(name: str, call: Callable[[], Any], owner: object) -> Any:
        def run() -> Any:
            sys.setprofile(recorder)
            return call()

        return spawn(name, run, owner)

    def answered(self: ApiServer, sent: Any, by: object) -> Any:
        plural = next((one for one in ("nodeclaims", "nodes", "pods") if f"/{one}" in sent.path), sent.path)
        recorder.steps.append((STAGE.current.name if STAGE.current else "", "", f"{sent.method} {plural}"))
        return answer(self, sent, by)

    vars(STAGE)["spawn"] = spawned
    ApiServer.answer = answered  # type: ignore[method-assign]
    play = Play(1)
    play.place.calm, STAGE.at_requests, STAGE.at_locks = True, 0.0, 0.0
    play.run(40.0)
    found: dict[str, list[Step]] = {}
    changes: dict[tuple[str, ...], Callable[[], None]] = {
        ("pod", "launch"): lambda: play.place.deploy(Workload("w", replicas=1, cpu=900)),
        ("command",): play.drift,
    }
    for names, change in changes.items():
        recorder.steps.clear()
        change()
        play.run(120.0)
        found.update({name: list(recorder.steps) for name in names})
    return found


def _tested(tree: Path, test: str) -> list[Step]:
    """What a test calls."""
    import pytest

    recorder = Recorder(tree, lambda: "")

    class Plugin:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_call(self, item: Any) -> Any:
            threading.setprofile(recorder)
            sys.setprofile(recorder)
            try:
                return (yield)
            finally:
                sys.setprofile(None)

    (found,) = [
        one
        for one in (tree / "tests/unit").rglob(Path(test.partition("::")[0]).name)
        if str(one).endswith(test.partition("::")[0])
    ]
    code = pytest.main(
        ["-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", f"{found}::{test.partition('::')[2]}"],
        plugins=[Plugin()],
    )
    if code:
        raise SystemExit(int(code))
    return recorder.steps


def _recorded(tree: Path, part: str) -> dict[str, list[Step]]:
    """In a process of its own, which may be another checkout's: the steps of each walk of the interleaving, or of one test."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, __file__, "--tree", str(tree), "--part", part],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{part}: {done.stdout}{done.stderr}")
    found: dict[str, list[Step]] = json.loads(done.stdout.splitlines()[-1])
    return found


def walked(tree: Path, entries: dict[str, str]) -> dict[str, list[str]]:
    """The path of each walk."""
    played = _recorded(tree, "")
    found: dict[str, list[str]] = {}
    for name, parts in WALKS.items():
        first = parts[0]._replace(entry=entries.get(name, parts[0].entry))
        paths = [
            path_of((played if not one.test else _recorded(tree, one.test))[name if not one.test else ""], one)
            for one in (first, *parts[1:])
        ]
        if not all(paths):
            raise SystemExit(f"the walk of {name} never comes to {first.entry}")
        found[name] = [file for path in paths for file in path]
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the walks."""
    parser = argparse.ArgumentParser(prog="walks", description="Five walks through the code, measured.")
    parser.add_argument("--tree", type=Path, default=HERE)
    parser.add_argument("--entry", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--say", action="store_true")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    tree = given.tree.resolve()
    if given.part is not None:
        print(json.dumps({"": _tested(tree, given.part)} if given.part else _interleaved(tree)))
        return 0
    for name, path in walked(tree, dict(one.split("=") for one in given.entry)).items():
        files = set(path)
        print(f"{name}: {len(files)} files, {len(path) - len(files)} times back")
        for file in path if given.say else ():
            print(f"    {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
