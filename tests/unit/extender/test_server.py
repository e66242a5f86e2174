"""The command line and gunicorn's settings; nothing is started."""

from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from certs.authority import Authority
from extender.server import Config, Server, command
from tests.support.clock import FakeClock


@pytest.fixture
def tls(tmp_path: Path) -> Config:
    now = FakeClock().now()
    authority = Authority.create("test", now - timedelta(days=1), 3650)
    pair = authority.issue_server([], ["127.0.0.1"], now - timedelta(days=1), 3650)
    for name, content in {"ca": authority.certificate_pem, "cert": pair.cert_pem, "key": pair.key_pem}.items():
        (tmp_path / name).write_bytes(content)
    return Config(
        bind=("0.0.0.0", 8090),
        tls_cert=str(tmp_path / "cert"),
        tls_key=str(tmp_path / "key"),
        tls_client_ca=str(tmp_path / "ca"),
    )


def test_plain_http_stays_on_loopback() -> None:
    Config(bind=("127.0.0.1", 1)).check()
    Config(bind=("::1", 1)).check()
    for host in ("0.0.0.0", "10.0.0.1", "::"):
        with pytest.raises(ValueError, match="is not loopback and there is no TLS"):
            Config(bind=(host, 1)).check()


def test_with_tls_any_address_will_do(tls: Config) -> None:
    tls.check()


BAD = {
    "--tls-cert and --tls-key belong together": {"tls_cert": "x"},
    "--tls-client-ca needs": {"tls_client_ca": "x"},
    "--prefix": {"prefix": "scheduler"},
    "--hold-ttl": {"hold_seconds": -1.0},
    "--tls-cert /none": {"tls_cert": "/none", "tls_key": "/none"},
}


@pytest.mark.parametrize(("says", "options"), BAD.items())
def test_flags_that_do_not_go_together(says: str, options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=says):
        Config(**options).check()  # type: ignore[arg-type]


def test_the_context_is_kept_until_a_file_changes(tls: Config) -> None:
    server = Server(tls)
    assert server._tls is not None
    first = server._tls.current()
    assert server._tls.current() is first
    path = Path(tls.tls_cert)
    content = path.read_bytes()
    path.write_bytes(b"garbage")
    assert server._tls.current() is first  # a bad write does not stop the server
    path.write_bytes(content + b"\n")
    assert server._tls.current() is not first


def test_gunicorn_is_set_up_for_one_caller_with_a_long_breath() -> None:
    settings = Server(Config(bind=("::1", 8090))).cfg.settings
    want = {
        "workers": 1,
        "worker_class_str": "PatientWorker",
        "keepalive": 120,
        "preload_app": False,
        "accesslog": None,
    }
    server = Server(Config())
    assert server.cfg.worker_class_str == want.pop("worker_class_str")
    for name, value in want.items():
        assert getattr(server.cfg, name) == value
    assert settings["bind"].get() == ["[::1]:8090"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["--bind", "0.0.0.0:80"], "is not loopback"),
        (["--bind", "80"], "is not HOST:PORT"),
        (["--bind", "127.0.0.1:99999"], "is not HOST:PORT"),
        (["--kubeconfig", "/none"], "/none"),
        (["--hold-ttl", "soon"], "soon"),
        (["--reports-cert", "/none"], "belong together"),
        (["--reports-ca", "/none/none"], "/none/none"),
        (["--log-level", "chatty"], "chatty"),
    ],
)
def test_a_bad_command_line_is_a_sentence(line: list[str], says: str) -> None:
    result = CliRunner().invoke(command, line)
    assert result.exit_code != 0
    assert says in result.output
    assert "Traceback" not in result.output
