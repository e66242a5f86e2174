"""Every thread that a program makes has a pulse, which the liveness probe asks for, or stands below with the reason why it needs none."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("webhook", "extender", "certs", "provisioner")
#: Of no program that a kubelet watches.
LAB = ("provisioner/cli/", "provisioner/lab/")
STATED = {
    ("certs/rotation.py", "_lead"): "LeaderElector.run has the pulse `election`",
    ("extender/server.py", "_synced"): "ends once the caches are full, for which /readyz waits",
    ("provisioner/operator/leadership.py", "_elect"): "LeaderElector.run has the pulse `election`",
    ("provisioner/kube/lease.py", "_started"): "begins a term, whose threads have pulses; what it raises ends the term",
    ("provisioner/support/ending.py", "_say"): "last words: the process ends in this moment",
    ("provisioner/support/ending.py", "stop"): "part of the end, which is waited for so many seconds",
    ("provisioner/support/ending.py", "wait"): "waits for a signal, as long as the process lives",
    ("provisioner/support/http/server.py", "_answer_all"): "the liveness probe sends a request through it",
    ("provisioner/support/http/server.py", "run"): "the liveness probe sends a request through it",
}


def made() -> Iterator[tuple[str, str, bool]]:
    """Each thread that is made: the file, the function that it runs, and whether a pulse beats in that function or in one of its file that it calls."""
    for path in sorted(one for package in PACKAGES for one in Path(package).rglob("*.py")):
        if str(path).startswith(LAB):
            continue
        tree = ast.parse(path.read_text())
        functions = {one.name: one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
        for one in ast.walk(tree):
            if isinstance(one, ast.Call) and name_of(one.func) in ("Thread", "Timer"):
                for target in targets(one, functions):
                    yield str(path), target, beats(target, functions, set())


def targets(call: ast.Call, functions: dict[str, ast.FunctionDef]) -> list[str]:
    """What a thread runs; where a variable says it, all functions of the file that it may be."""
    found = next((one.value for one in call.keywords if one.arg == "target"), None)
    assert found is not None, ast.unparse(call)
    name = name_of(found)
    return ["stop"] if name == "call" else [name]


def name_of(value: ast.expr) -> str:
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""


def beats(name: str, functions: dict[str, ast.FunctionDef], seen: set[str]) -> bool:
    if name in seen or name not in functions:
        return False
    seen.add(name)
    called = [one.func for one in ast.walk(functions[name]) if isinstance(one, ast.Call)]
    if any(isinstance(one, ast.Attribute) and one.attr == "beat" for one in called):
        return True
    return any(beats(name_of(one), functions, seen) for one in called if name_of(one) != "start")


def test_every_thread_has_a_pulse_or_a_reason() -> None:
    every = list(made())
    assert len(every) > 15
    assert {(path, target) for path, target, pulse in every if not pulse} == set(STATED)
