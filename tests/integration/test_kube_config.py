"""Kubeconfig files of every form that we accept, against a small server of our own that shows what it was sent."""

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from provisioner.kube import config
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ConfigError
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from tests.support.clock import FakeClock


class Echo(BaseHTTPRequestHandler):
    """Answers with the headers that came."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"path": self.path} | {name.lower(): value for name, value in self.headers.items()}).encode()
        self.send_response(401 if self.headers.get("authorization") == "Bearer old" else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


@pytest.fixture
def echo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(5)


def write(path: Path, server: str, user: dict[str, object] | None = None, **cluster: object) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def asked(kubeconfig: str) -> dict[str, str]:
    answer: dict[str, str] = json.loads(Client(connect(kubeconfig), SystemClock()).raw("GET", "/version"))
    return answer


def exec_plugin(path: Path, *tokens: str, expires: str = "") -> dict[str, object]:
    """A credential plugin that gives the next token each time it is run."""
    status = {"expirationTimestamp": expires} if expires else {}
    path.write_text(
        "import json, pathlib\n"
        f"count = pathlib.Path({str(path)!r} + '.count')\n"
        "run = int(count.read_text()) if count.exists() else 0\n"
        "count.write_text(str(run + 1))\n"
        f"tokens = {list(tokens)!r}\n"
        f"status = {status!r} | {{'token': tokens[min(run, len(tokens) - 1)]}}\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential', 'status': status}))\n"
    )
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(path)],
            "interactiveMode": "Never",
        }
    }


def test_a_token_is_sent(echo: str, tmp_path: Path) -> None:
    assert asked(write(tmp_path / "kc", echo, {"token": "t0"}))["authorization"] == "Bearer t0"


def test_a_context_is_chosen_by_name(echo: str, tmp_path: Path) -> None:
    path = Path(write(tmp_path / "kc", echo, {"token": "t0"}))
    document = yaml.safe_load(path.read_text())
    document["users"].append({"name": "other", "user": {"token": "t1"}})
    document["contexts"].append({"name": "y", "context": {"cluster": "c", "user": "other"}})
    path.write_text(yaml.safe_dump(document))
    answer = json.loads(Client(connect(str(path), context="y"), SystemClock()).raw("GET", "/version"))
    assert answer["authorization"] == "Bearer t1"
    with pytest.raises(ConfigError, match="no-such-context"):
        connect(str(path), context="no-such-context")


def test_a_token_file_is_read(echo: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file")
    assert asked(write(tmp_path / "kc", echo, {"tokenFile": "token"}))["authorization"] == "Bearer from-file"


def test_an_exec_plugin_is_asked(echo: str, tmp_path: Path) -> None:
    assert (
        asked(write(tmp_path / "kc", echo, exec_plugin(tmp_path / "plugin.py", "t1")))["authorization"] == "Bearer t1"
    )


def test_a_token_that_has_ended_is_renewed_before_it_is_used(echo: str, tmp_path: Path) -> None:
    plugin = exec_plugin(tmp_path / "plugin.py", "t1", "t2", expires="2020-01-01T00:00:00Z")
    assert asked(write(tmp_path / "kc", echo, plugin))["authorization"] == "Bearer t2"


def test_a_token_that_is_refused_is_fetched_anew(echo: str, tmp_path: Path) -> None:
    clock = FakeClock()
    client = Client(
        connect(write(tmp_path / "kc", echo, exec_plugin(tmp_path / "plugin.py", "old", "new")), clock=clock), clock
    )
    clock.advance(60)
    assert json.loads(client.raw("GET", "/version"))["authorization"] == "Bearer new"


def test_user_name_and_password_are_sent(echo: str, tmp_path: Path) -> None:
    want = "Basic " + base64.b64encode(b"a:b").decode()
    assert asked(write(tmp_path / "kc", echo, {"username": "a", "password": "b"}))["authorization"] == want


def test_a_cluster_below_a_path_is_asked_there(echo: str, tmp_path: Path) -> None:
    assert asked(write(tmp_path / "kc", f"{echo}/k8s/clusters/c-1/"))["path"] == "/k8s/clusters/c-1/version"


def test_our_name_is_sent(echo: str, tmp_path: Path) -> None:
    connection = connect(write(tmp_path / "kc", echo), user_agent="dovetail/1.0")
    assert json.loads(connection.request("GET", "/x").data)["user-agent"] == "dovetail/1.0"


def test_keys_do_not_stay_in_files(plane: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    connection = connect(str(plane.kubeconfig))
    assert connection.request("GET", "/version").status == 200
    assert list(tmp_path.iterdir()) == []
    connection.close()


WRONG = {
    "a file that is not there": (None, "does not exist or is not a file; set --kubeconfig"),
    "no YAML": ("{", "cannot be used"),
    "nothing in it": ("", "cannot be used"),
    "no current context": ("apiVersion: v1\nkind: Config\n", "cannot be used"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "kc"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        connect(str(path))
    assert str(path) in str(raised.value)
    assert message in str(raised.value)


def test_a_plugin_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text("raise SystemExit('no session')")
    user: dict[str, object] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(tmp_path / "plugin.py")],
        }
    }
    with pytest.raises(ConfigError, match=r"its exec plugin .* did not return a token"):
        connect(write(tmp_path / "kc", "https://127.0.0.1:1", user))


def test_an_authority_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be used: File does not exist: .*/missing.crt"):
        connect(
            write(tmp_path / "kc", "https://127.0.0.1:1", {"token": "t"}, **{"certificate-authority": "missing.crt"})
        )


LEAN = """
import sys
from provisioner.kube.config import connect
connection = connect(sys.argv[1])
connection.request("GET", "/version")
assert not [name for name in sys.modules if name == "kubernetes" or name.startswith("kubernetes.")], "traces of the lean import"
assert not sys.modules.keys() & {"oauthlib", "requests_oauthlib", "requests"}, "what only OIDC needs"
assert len(sys.modules) < 450, len(sys.modules)
from provisioner.kube import config
parts = vars(config._official().config.kube_config)
assert type(parts["OAuth2Session"](client_id="x")).__module__ == "requests_oauthlib.oauth2_session"
sender = parts["ApiClient"](configuration=config._official().configuration())
assert sender.request("GET", connection.host + "/version").status == 200, "OIDC asks its issuer"
assert not [name for name in sys.modules if name.startswith("kubernetes.client.models.")], "the image has no models"
assert issubclass(parts["oauthlib"].oauth2.rfc6749.errors.InvalidClientIdError, Exception), "OIDC finds the real library"
import kubernetes.client
assert kubernetes.client.CoreV1Api, "the ordinary import works afterwards"
"""


def test_the_models_of_the_official_package_are_not_loaded(echo: str, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", LEAN, write(tmp_path / "kc", echo, {"token": "t"})],
        check=True,
        cwd=Path(__file__).parents[2],
    )


def test_the_ordinary_import_does_as_well(echo: str, tmp_path: Path) -> None:
    code = "import sys, kubernetes\nfrom provisioner.kube.config import connect\nprint(connect(sys.argv[1]).request('GET', '/version').status)"
    done = subprocess.run(
        [sys.executable, "-c", code, write(tmp_path / "kc", echo, {"token": "t"})],
        check=True,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "200\n"


def test_in_a_pod_the_service_account_is_used(echo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that it is chosen: the official loader has its paths built in."""
    monkeypatch.setattr(config, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    (tmp_path / "token").write_text("t")
    with pytest.raises(ConfigError, match="the service account of this pod cannot be used"):
        connect()
