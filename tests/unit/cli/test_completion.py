"""What a shell proposes, and kubectl: commands, options, values, and names in the cluster within a short time."""

import functools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from provisioner.cli import completion
from provisioner.cli.completion import kubectl_complete, proposals
from provisioner.cli.main import COMMANDS, dovetail

ROOT = Path(__file__).parents[3]
NAMES = {
    "/api/v1/namespaces/shop/pods": [("shop", "web-1"), ("shop", "db-0")],
    "/api/v1/namespaces/default/pods": [("default", "mine")],
    "/api/v1/pods": [("shop", "web-1"), ("default", "mine")],
    "/api/v1/nodes": [("", "node-a")],
    "/apis/karpenter.sh/v1/nodeclaims": [("", "claim-a")],
    "/api/v1/namespaces": [("", "default"), ("", "shop")],
}


class _Answers(BaseHTTPRequestHandler):
    server: "_NameServer"

    def do_GET(self) -> None:
        time.sleep(self.server.delay)
        items = [{"metadata": {"namespace": space, "name": name}} for space, name in NAMES[self.path.partition("?")[0]]]
        body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items})
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody reads it."""


class _NameServer(ThreadingHTTPServer):
    daemon_threads = True
    delay = 0.0

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever completes waits no longer."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_NameServer]:
    """An API server with a few names, at the current context of $KUBECONFIG, whose namespace is shop."""
    server = _NameServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=functools.partial(server.serve_forever, 0.05), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [
            {"name": "blue", "context": {"cluster": "c", "user": "u", "namespace": "shop"}},
            {"name": "green", "context": {"cluster": "c", "user": "u"}},
        ],
        "current-context": "blue",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document), encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


def words(line: str) -> list[str]:
    """The proposals behind a line, whose last word is unfinished."""
    *before, last = line.split(" ")
    return [str(one.value) for one in proposals(dovetail, before, last)]


def test_commands_and_options_are_proposed_without_importing_commands() -> None:
    assert words("") == sorted(COMMANDS)
    assert words("co") == ["completion", "convert"]
    assert {"--context", "--kubeconfig", "--namespace", "--fail-on", "--output"} <= set(words("plan --"))
    code = (
        "import sys; from provisioner.cli.main import dovetail; from provisioner.cli.completion import proposals;"
        "proposals(dovetail, [], ''); print([m for m in sys.modules if m.startswith('provisioner.cli.plan.')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("plan --output ", ["table", "json"]),
        ("lint -o j", ["json"]),
        ("lint --fail-on ", ["error", "warning"]),
        ("plan --catalogue ec2:us-gov-west-1", ["ec2:us-gov-west-1"]),
        ("plan --catalogue k", ["kwok"]),
        ("why pod x --through ", ["auto", "leader", "own"]),
        ("why pod x --consolidation ", ["saving", "karpenter"]),
        ("provisioner --log-level ", ["debug", "info", "warning", "error"]),
        ("webhook --log-format ", ["text", "json"]),
        ("aws check --packing=g", ["greedy"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("why ", ["node", "pod"]),
    ],
)
def test_values_are_proposed(line: str, wanted: list[str]) -> None:
    assert sorted(words(line)) == sorted(wanted)


def test_flags_of_the_provisioner_are_proposed_where_they_are_taken() -> None:
    for line in ("why node x --cluster-n", "aws check --cluster-n", "provisioner --cluster-n"):
        assert words(line) == ["--cluster-name"]
    assert words("plan --cluster-n") == []


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("why pod ", ["db-0", "web-1"]),
        ("why pod w", ["web-1"]),
        ("why pod -n default ", ["mine"]),
        ("why pod --context green ", ["mine"]),
        ("why pod shop/", ["shop/web-1"]),
        ("why node ", ["claim-a", "node-a"]),
        ("why pod x -n s", ["shop"]),
        ("plan --namespace ", ["default", "shop"]),
        ("aws check --context ", ["blue", "green"]),
    ],
)
def test_names_of_the_cluster_are_proposed(line: str, wanted: list[str]) -> None:
    assert words(line) == wanted


def test_a_cluster_that_is_slow_is_not_waited_for(cluster: _NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "SECONDS", 0.2)
    cluster.delay = 3.0
    began = time.monotonic()
    assert words("why node ") == []
    assert time.monotonic() - began < 2.5


def test_without_a_cluster_nothing_is_proposed_and_nothing_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    assert words("why node ") == words("plan --context ") == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("cluster")
def test_kubectl_is_answered_as_it_asks() -> None:
    assert kubectl_complete(dovetail, ["why", "pod", "w"]) == "web-1\n:4"
    assert kubectl_complete(dovetail, ["lint", ""]) == ":0"  # files
    *lines, last = kubectl_complete(dovetail, [""]).splitlines()
    assert last == ":4"
    assert "lint\tCheck manifests without a cluster." in lines


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_the_command(shell: str) -> None:
    script = CliRunner().invoke(dovetail, ["completion", shell]).output
    assert f"_DOVETAIL_COMPLETE={shell}_complete" in script
    if program := shutil.which(shell):
        assert (
            subprocess.run([program, "-n"], input=script, text=True, check=False, capture_output=True).returncode == 0
        )
    asked = {
        "_DOVETAIL_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "dovetail li",
        "COMP_CWORD": "1" if shell != "fish" else "li",
    }
    code = "from provisioner.cli.entry import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert "lint" in found.stdout
    assert found.stderr == ""


def test_kubectl_finds_the_command_and_its_completion() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts["kubectl-dovetail"] == scripts["dovetail"] == "provisioner.cli.entry:main"
    assert scripts["kubectl_complete-dovetail"] == "provisioner.cli.completion:main"
    code = "import sys; sys.argv[0] = '/usr/bin/kubectl-dovetail'; from provisioner.cli.entry import main; main()"
    found = subprocess.run([sys.executable, "-c", code, "lint"], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr.startswith("Usage: kubectl dovetail lint [OPTIONS] FILE...\nTry 'kubectl dovetail lint --help'")
