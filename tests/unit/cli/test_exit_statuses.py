"""Every command through every way to end: one table of exit statuses, one answer to the same mistake, and no trace of Python in any of them."""

import functools
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.server import command as extender
from provisioner.cli import documents
from provisioner.cli.main import COMMANDS, dovetail, ended, run
from provisioner.kube import client
from provisioner.operator.main import main as provisioner
from provisioner.values.errors import ExitStatus
from tests.unit.takeover.test_node_groups import GROUP
from webhook.server import command as webhook

ROOT = Path(__file__).parents[3]
SHOP = str(ROOT / "docs" / "guides" / "plan" / "shop.yaml")
AWS = ("aws", "check", "--cluster-name", "blue", "--aws-region", "us-east-1")
AUTOSCALER = ("--from", "cluster-autoscaler")
OF_PYTHON = re.compile(
    r"Traceback|\b[A-Z]\w*(?:Error|Exception|Failed|Interrupt)\b|<class |NoneType|internal error| object at 0x"
)

FILES: Mapping[str, Callable[[str], tuple[str, ...]]] = {
    "lint": lambda path: ("lint", path),
    "convert": lambda path: ("convert", path),
    "plan": lambda path: ("plan", "--greedy", path),
    "simulate": lambda path: ("simulate", path, "-f", path),
    "why pod": lambda path: ("why", "pod", "web", "--from", path),
    "why node": lambda path: ("why", "node", "n", "--from", path),
    "aws check": lambda path: (*AWS, "--file", path),
    "takeover check": lambda path: ("takeover", "check", path),
    "takeover plan": lambda path: ("takeover", "plan", path),
    "takeover start": lambda path: ("takeover", "start", *AUTOSCALER, path),
}
"""Every command that reads files, with one."""
CLUSTER: Mapping[str, tuple[str, ...]] = {
    "plan": ("plan", "--greedy"),
    "why pod": ("why", "pod", "default/web"),
    "why node": ("why", "node", "n"),
    "aws check": AWS,
    "takeover check": ("takeover", "check"),
    "takeover plan": ("takeover", "plan"),
    "takeover start": ("takeover", "start"),
    "takeover start of groups": ("takeover", "start", *AUTOSCALER, "-"),
    "takeover status": ("takeover", "status"),
    "takeover status of groups": ("takeover", "status", *AUTOSCALER),
    "takeover back": ("takeover", "back"),
    "takeover back of groups": ("takeover", "back", *AUTOSCALER),
    "record": ("record", "TMP"),
    "ui": ("ui", "--no-browser"),
    "uninstall": ("uninstall",),
    "uninstall --keep-nodes": ("uninstall", "--keep-nodes", "--for", "nobody", "--dry-run"),
    "uninstall --drain": ("uninstall", "--drain"),
}
"""Every command that reads a cluster; a node group is on standard input. TMP is a directory of the test."""
NODE_GROUP = json.dumps({"nodegroup": GROUP}).encode()


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster, no AWS, no waiting between tries."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(client, "BACKOFF_BASE_SECONDS", 0.001)


def ask(*arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(dovetail, arguments, input=stdin)


def of_cluster(command: str, directory: Path) -> tuple[str, ...]:
    """The arguments of a row of `CLUSTER`."""
    return tuple([str(directory / "records") if one == "TMP" else one for one in CLUSTER[command]])


def check(result: Result, status: int, says: str) -> None:
    assert result.exit_code == status, result.output
    assert says in " ".join(result.output.split())
    assert not OF_PYTHON.search(result.output), result.output


def test_the_tables_name_every_command() -> None:
    ours = {name for name, (module, _) in COMMANDS.items() if module.startswith("provisioner.cli.")}
    context = click.Context(dovetail)
    named = {" ".join([name, *below]) for name in ours for below in ways_below(dovetail.get_command(context, name))}
    reads = {
        " ".join(itertools.takewhile(lambda word: word not in ("of", "--keep-nodes", "--drain"), one.split()))
        for one in CLUSTER
    }
    assert named == reads | set(FILES) | {"completion"}  # which reads neither
    assert tuple(ExitStatus) == (0, 1, 2, 3, 130)


def ways_below(command: click.Command | None) -> list[tuple[str, ...]]:
    """The names of every command below one, of each those that lead to it."""
    if not isinstance(command, click.Group):
        return [()]
    return [(name, *rest) for name, below in command.commands.items() for rest in ways_below(below)]


# --------------------------------------------------------------------------------------------------------- what is read


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
UNREADABLE: Mapping[str, tuple[bytes, str]] = {
    "empty": (b"", "contains no objects"),
    "comments": (b"# nothing\n---\n", "contains no objects"),
    "binary": (b"\x7fELF\x02\x01\x01\x00\x00", "is a binary file"),
    "not UTF-8": ("kind: Pod # caf\u00e9\n".encode("latin-1"), "is not UTF-8 text"),
    "not valid YAML": (b"kind: [Pod\n", "is not valid YAML"),
    "not valid JSON": (b'{"kind": ', "is not valid "),
    "a bomb": (BOMB.encode(), "aliases expand to more than"),
    "a pit": (b"a: " + b"[" * 100_000, "is nested deeper than 64 levels"),
    "a key twice": (b"kind: Pod\nkind: Node\n", ""),
}


@pytest.mark.parametrize("command", FILES)
@pytest.mark.parametrize("what", UNREADABLE.keys() - {"a key twice"})
def test_a_file_that_cannot_be_read_is_said_and_is_status_2(command: str, what: str, tmp_path: Path) -> None:
    data, says = UNREADABLE[what]
    path = tmp_path / "some.yaml"
    path.write_bytes(data)
    result = ask(*FILES[command](str(path)))
    check(result, 2, says)
    assert str(path) in result.output
    check(ask(*FILES[command]("-"), stdin=data), 2, says)


@pytest.mark.parametrize("command", FILES)
def test_paths_that_cannot_be_read_are_said_and_are_status_2(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_SUFFIXES", (".yaml",))
    monkeypatch.setattr("provisioner.cli.documents.MAX_BYTES", 4 << 20)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * ((4 << 20) + 1))
    (tmp_path / "empty").mkdir()
    for path, says in (
        (tmp_path / "nowhere.yaml", "cannot be read: No such file or directory"),
        (tmp_path / ("x" * 300), "cannot be read: File name too long"),
        (large / "below", "cannot be read: Not a directory"),
        (tmp_path / "empty", "is a directory without files"),
        (large, "exceeds the limit of 4 MiB"),
    ):
        check(ask(*FILES[command](str(path))), 2, says)


@pytest.mark.parametrize("command", ["lint", "convert", "plan"])
def test_standard_input_is_taken_once(command: str) -> None:
    text = Path(SHOP).read_bytes()
    check(ask(*FILES[command]("-"), "-", stdin=text), 2, "was specified twice")


def test_standard_input_that_is_closed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    (file,) = documents.inputs([Path("-")])
    with pytest.raises(documents.InputError, match="is closed"):
        list(file.documents())


def test_a_directory_a_list_and_utf_16_are_read_by_all(tmp_path: Path) -> None:
    classes = [
        {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name}, "spec": {}}
        for name in "ab"
    ]
    nested = {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "List", "items": classes}]}
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "list.json").write_text(json.dumps(nested), encoding="utf-8")
    (tmp_path / "empty.yaml").write_text("# a file in a directory may be empty\n", encoding="utf-8")
    (tmp_path / "windows.yml").write_bytes(yaml.safe_dump(classes[0]).encode("utf-16"))
    (tmp_path / "notes.txt").write_text("no manifest", encoding="utf-8")
    found = [one["metadata"]["name"] for _, one in documents.objects_in([tmp_path])]
    assert found == ["a", "b", "a"]


# -------------------------------------------------------------------------------------------------- what is found, or not


POOL = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: general}\nspec: {weight: 500}\n"
OLD = "apiVersion: karpenter.sh/v1alpha2\nkind: Thing\nmetadata: {name: a}\n"
GIANT = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: giant}\n"
    'spec: {containers: [{name: c, resources: {requests: {cpu: "9999"}}}]}\n'
)
DUMP = "apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: other, uid: u}, spec: {}, status: {}}]\n"
BAD_POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: 5}\n"
ENDS: Mapping[str, tuple[tuple[str, ...], str, int, str]] = {
    "lint: an error": (("lint", "-"), POOL, 1, "500 is more than the maximum 100"),
    "lint: nothing to check": (("lint", "-"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", 2, "nothing was checked"),
    "lint: fine": (("lint", "-"), GIANT, 0, "1 object checked"),
    "convert: no successor": (("convert", "-"), OLD, 1, "has no successor"),
    "convert: done": (("convert", "-"), GIANT, 0, "name: giant"),
    "plan: a pod cannot be placed": (("plan", "--greedy", "-"), GIANT, 0, "1 cannot be placed"),
    "plan: and that is what it is to fail on": (
        ("plan", "--greedy", "--fail-on", "unschedulable", "-"), GIANT, 1, "1 cannot be placed",
    ),
    "plan: an object is left out": (("plan", "--greedy", "-"), BAD_POD, 3, "spec.containers: Expected"),
    "plan: nothing is given": (("plan",), "", 2, "No input"),
    "why: no such pod": (("why", "pod", "web", "--from", "-"), DUMP, 1, "there is no pod default/web"),
    "why: no such pod there": (("why", "pod", "web", "-n", "shop", "--from", "-"), DUMP, 1, "there is no pod shop/web"),
    "why: two namespaces": (("why", "pod", "a/web", "-n", "b", "--from", "-"), DUMP, 2, "is not in namespace b"),
    "why: no such node": (("why", "node", "n", "--from", "-"), DUMP, 1, 'no Node or NodeClaim is named "n"'),
    "why: answered": (("why", "pod", "other", "--from", "-"), DUMP, 0, "pod default/other"),
    "why: no time": (("why", "pod", "other", "--at", "noon", "--from", "-"), DUMP, 2, "is not a time"),
    "aws check: no cluster": (("aws", "check"), "", 2, "--cluster-name"),
    "aws check: no credentials": ((*AWS, "--file", "-"), GIANT, 3, "could not be determined"),
    "completion: an unknown shell": (("completion", "tcsh"), "", 2, "is not one of"),
    "no such command": (("nothing",), "", 2, "No such command"),
    **{
        f"no such option of {name}": ((*make("-"), "--nonsense=1"), "", 2, "nonsense")
        for name, make in FILES.items()
    },
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "stdin", "status", "says"), ENDS.values(), ids=ENDS)
def test_what_a_command_ends_with(arguments: tuple[str, ...], stdin: str, status: int, says: str) -> None:
    check(ask(*arguments, stdin=stdin.encode()), status, says)


# ---------------------------------------------------------------------------------------------------------- the cluster


class _Refusing(BaseHTTPRequestHandler):
    server: "_Server"
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status, reason = self.server.answer
        body = json.dumps({"kind": "Status", "code": status, "reason": reason, "message": f"{reason}, said the server"})
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody reads it."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    answer = (403, "Forbidden")


@pytest.fixture(scope="module")
def server() -> Iterator[_Server]:
    """An API server that refuses everything."""
    made = _Server(("127.0.0.1", 0), _Refusing)
    thread = threading.Thread(target=functools.partial(made.serve_forever, 0.05), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join(5)


def config(port: int) -> dict[str, object]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


@pytest.mark.parametrize("command", CLUSTER)
@pytest.mark.parametrize("answer", [(403, "Forbidden"), (401, "Unauthorized"), (503, "ServiceUnavailable"), None])
def test_a_cluster_that_refuses_or_does_not_answer_is_status_3(
    command: str, answer: tuple[int, str] | None, server: _Server, tmp_path: Path
) -> None:
    port = server.server_address[1] if answer is not None else 9
    server.answer = answer or server.answer
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config(port)), encoding="utf-8")
    result = ask(*of_cluster(command, tmp_path), "--kubeconfig", str(path), stdin=NODE_GROUP)
    says = "said the server" if answer else "Connection refused"
    told_what_to_give = answer == (403, "Forbidden") and (
        command in ("plan", "takeover check", "takeover plan", "takeover start", "takeover status")
    )
    check(result, 3, "may not be read" if told_what_to_give else says)


DAMAGED: Mapping[str, Callable[[dict[str, object]], object]] = {
    "empty": lambda _: None,
    "a list": lambda _: [1, 2],
    "a text": lambda _: "text",
    "contexts are a number": lambda good: {**good, "contexts": 5},
    "a context without a name": lambda good: {**good, "contexts": [{}]},
    "no such cluster": lambda good: {**good, "clusters": []},
    "a cluster that is none": lambda good: {**good, "clusters": [{"name": "c", "cluster": 5}]},
    "a server that is no URL": lambda good: {**good, "clusters": [{"name": "c", "cluster": {"server": "ftp:/x"}}]},
    "a user that is none": lambda good: {**good, "users": [{"name": "u", "user": [1]}]},
    "no current context": lambda good: {**good, "current-context": ""},
}


@pytest.mark.parametrize("command", CLUSTER)
def test_a_kubeconfig_that_cannot_be_used_is_status_2(command: str, tmp_path: Path) -> None:
    use = functools.partial(ask, *of_cluster(command, tmp_path), stdin=NODE_GROUP)
    check(use("--kubeconfig", str(tmp_path / "nowhere")), 2, "does not exist")
    path = tmp_path / "kubeconfig"
    path.write_text("a: [", encoding="utf-8")
    check(use("--kubeconfig", str(path)), 2, str(path))
    path.write_text(yaml.safe_dump(config(9)), encoding="utf-8")
    check(use("--kubeconfig", str(path), "--context", "other"), 2, "other")


@pytest.mark.parametrize("what", DAMAGED)
def test_a_kubeconfig_is_damaged_in_words(what: str, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(DAMAGED[what](config(9))), encoding="utf-8")
    result = ask("why", "node", "n", "--kubeconfig", str(path))
    assert result.exit_code in (2, 3)  # what has no user may still be a cluster
    assert not OF_PYTHON.search(result.output), result.output


# ------------------------------------------------------------------------------------------------------ the three programs


def test_the_programs_end_with_status_2_where_they_cannot_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = f"--kubeconfig={tmp_path / 'nowhere'}"
    for arguments in (["--nonsense"], ["--log-level=loud"], [nowhere]):
        assert provisioner(arguments) == 2
        assert not OF_PYTHON.search(capsys.readouterr().err)
    for name in ("stdout", "stderr"):  # which `run` replaces
        monkeypatch.setattr(sys, name, getattr(sys, name))
    assert {webhook.name, extender.name} <= {None, "command", "webhook", "extender"}
    for program in ("webhook", "extender"):
        for one in ("--nonsense", "--log-level=loud", nowhere):
            assert run(["dovetail", program, one]) == 2


# ------------------------------------------------------------------------------------------------- streams and interruption


OURS = ("env", "--default-signal=INT")
"""A job in the background, as whatever runs the tests may be, is told to ignore it."""


def start(*arguments: str, **options: object) -> "subprocess.Popen[bytes]":
    command = [*OURS, sys.executable, "-c", "from provisioner.cli.entry import main; main()", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]


INTERRUPTED = """
import builtins, os, signal
from provisioner.cli.entry import main

left, real = int(os.environ["AFTER"]), builtins.__import__

def counting(*arguments, **keywords):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGINT)
    return real(*arguments, **keywords)

builtins.__import__ = counting
main()
"""


@pytest.mark.parametrize("after", [1, 60, 900])
def test_ctrl_c_while_modules_are_imported_says_nothing(after: int) -> None:
    command = [*OURS, sys.executable, "-c", INTERRUPTED, "lint", SHOP]
    found = subprocess.run(command, cwd=ROOT, env={**os.environ, "AFTER": str(after)}, capture_output=True, check=False)
    assert found.returncode in (130, -signal.SIGINT)  # a shell says 130 of both
    assert found.stderr.strip() == b""


def test_ctrl_c_while_a_file_is_read_is_status_130(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = start("lint", str(pipe), stdout=subprocess.DEVNULL)
    with pipe.open("wb"):  # which waits for the reader
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told.strip()) == (130, b"")


def test_a_question_that_is_interrupted_or_gets_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert ended(interrupted) == ExitStatus.INTERRUPTED
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert ended(lambda: click.confirm("really?", abort=True)) == ExitStatus.USAGE
    assert "ended before the question was answered" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert ended(lambda: click.confirm("really?", abort=True)) == ExitStatus.INTERRUPTED


def test_a_reader_that_goes_away_changes_no_status(tmp_path: Path) -> None:
    pools = "---\n".join(POOL.replace("general", f"p{number}") for number in range(2000))
    (tmp_path / "pools.yaml").write_text(pools, encoding="utf-8")
    process = start("lint", str(tmp_path / "pools.yaml"), stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert b"spec.template: is required" in process.stdout.readline()
    process.stdout.close()
    assert (process.wait(60), process.stderr.read()) == (1, b"")
    process.stderr.close()


def test_output_that_cannot_be_written_is_said() -> None:
    with Path("/dev/full").open("wb") as full:
        process = start("lint", "--help", stdout=full)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (2, b"dovetail: standard output cannot be written: No space left on device\n")
    closed = start("lint", "--help", preexec_fn=functools.partial(os.close, 1))
    _, told = closed.communicate(timeout=60)
    assert (closed.returncode, told) == (2, b"dovetail: standard output cannot be written: Bad file descriptor\n")


# ------------------------------------------------------------------------------------------------------- hostile input


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["metadata", "name", "spec", "kind", "items", "template", "annotations", "labels", "containers", "requirements", "status"]
    ), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
KINDS = [("v1", "Pod"), ("v1", "Node"), ("v1", "List"), ("apps/v1", "Deployment"), ("karpenter.sh/v1", "NodePool"),
         ("karpenter.sh/v1", "NodeClaim"), ("karpenter.k8s.aws/v1", "EC2NodeClass"), ("karpenter.sh/v1alpha5", "Provisioner"),
         ("karpenter.sh/v1beta1", "NodePool"), ("v1", "Namespace"), ("batch/v1", "CronJob")]  # fmt: skip


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """Bytes, or objects of our kinds with anything in them."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=60))
    version, kind = draw(st.sampled_from(KINDS))
    metadata = draw(
        st.sampled_from([{"name": "a"}, {"name": "a", "uid": "u"}, {"name": "web", "namespace": "default"}])
    )
    one = {
        "metadata": metadata,
        **draw(st.dictionaries(st.sampled_from(["spec", "status", "metadata", "items"]), VALUES, max_size=3)),
    }
    return json.dumps({"apiVersion": version, "kind": kind, **one}).encode()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=hostile(), command=st.sampled_from(sorted(FILES.keys() - {"aws check"})))
def test_no_input_makes_a_command_speak_of_python(data: bytes, command: str) -> None:
    result = ask(*FILES[command]("-"), stdin=data)
    assert result.exit_code in (0, 1, 2, 3), result.output
    assert not OF_PYTHON.search(result.output), result.output
