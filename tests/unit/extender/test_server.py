"""The command line and gunicorn's settings; nothing is started."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from certs.authority import Authority
from extender.answering import Answerer
from extender.app import create_app, prompt
from extender.board import Board
from extender.reports import ClientIdentity, Reporter
from extender.server import LIMITS, ExtenderConfig, SecondsParameter, command, server
from provisioner.support.http import wsgi
from tests.support import rawhttp
from tests.support.clock import FakeClock


@pytest.fixture
def tls(tmp_path: Path) -> ExtenderConfig:
    now = FakeClock().now()
    authority = Authority.create("test", now - timedelta(days=1), 3650)
    pair = authority.issue_server([], ["127.0.0.1"], now - timedelta(days=1), 3650)
    for name, content in {"ca": authority.certificate_pem, "cert": pair.cert_pem, "key": pair.key_pem}.items():
        (tmp_path / name).write_bytes(content)
    return ExtenderConfig(
        bind=("0.0.0.0", 8090),
        tls_cert=str(tmp_path / "cert"),
        tls_key=str(tmp_path / "key"),
        tls_client_ca=str(tmp_path / "ca"),
    )


def test_plain_http_stays_on_loopback() -> None:
    ExtenderConfig(bind=("127.0.0.1", 1)).check()
    ExtenderConfig(bind=("::1", 1)).check()
    for host in ("0.0.0.0", "10.0.0.1", "::", ""):
        with pytest.raises(ValueError, match="is not loopback"):
            ExtenderConfig(bind=(host, 1)).check()


def test_elsewhere_clients_have_to_show_a_certificate(tls: ExtenderConfig) -> None:
    tls.check()
    with pytest.raises(ValueError, match="--tls-client-ca"):
        replace(tls, tls_client_ca="").check()
    replace(tls, bind=("127.0.0.1", 1), tls_client_ca="").check()


def test_off_loopback_clients_need_a_certificate(tls: ExtenderConfig) -> None:
    anonymous = replace(tls, tls_client_ca="")
    with pytest.raises(ValueError, match="and --tls-client-ca"):
        anonymous.check()
    replace(anonymous, bind=("127.0.0.1", 8090)).check()


BAD = {
    "--tls-cert and --tls-key must be set together": {"tls_cert": "x"},
    "--tls-client-ca requires": {"tls_client_ca": "x"},
    "--bind :1 is not loopback": {"bind": ("", 1)},
    "--prefix": {"prefix": "scheduler"},
    "--tls-cert /none": {"tls_cert": "/none", "tls_key": "/none"},
}


@pytest.mark.parametrize(("says", "options"), BAD.items())
def test_flags_that_do_not_go_together(says: str, options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=says):
        ExtenderConfig(**options).check()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "seconds"), [("120s", 120.0), ("2m", 120.0), ("7", 7.0), ("0.5", 0.5), (120.0, 120.0)]
)
def test_a_time_is_a_duration_or_a_number_of_seconds(given: object, seconds: float) -> None:
    assert SecondsParameter().convert(given, None, None) == seconds


def test_the_context_is_kept_until_a_file_changes(tls: ExtenderConfig) -> None:
    serving = tls.serving
    assert serving is not None
    first = serving.current()
    assert serving.current() is first
    path = Path(tls.tls_cert)
    content = path.read_bytes()
    path.write_bytes(b"garbage")
    assert serving.current() is first  # a bad write does not stop the server
    path.write_bytes(content + b"\n")
    assert serving.current() is not first


def test_the_server_is_set_up_for_one_caller_with_a_long_breath(tls: ExtenderConfig) -> None:
    plain = server(ExtenderConfig(bind=("::1", 8090)))
    assert plain.cfg.bind == ["[::1]:8090"]
    assert plain.limits.idle_seconds > 90, "Go closes its connections after that time, and has to be first"
    assert plain.limits.answer_seconds < 1, "kube-scheduler waits for httpTimeout"
    assert plain.context is None
    assert server(tls).context is not None


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["--bind", "0.0.0.0:80"], "is not loopback"),
        (["--bind", "80"], "is not HOST:PORT"),
        (["--bind", "127.0.0.1:99999"], "is not HOST:PORT"),
        (["--kubeconfig", "/none"], "/none"),
        (["--hold-ttl", "soon"], "soon"),
        (["--hold-ttl", "inf"], "inf"),
        (["--reports-cert", "/none"], "must be set together"),
        (["--reports-ca", "/none/none"], "/none/none"),
        (["--log-level", "chatty"], "chatty"),
    ],
)
def test_a_bad_command_line_is_a_sentence(line: list[str], says: str) -> None:
    result = CliRunner().invoke(command, line)
    assert result.exit_code != 0
    assert says in result.output
    assert "Traceback" not in result.output


LONGEST = 3 * 1024 * 1024


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
def test_a_body_of_more_than_three_mebibytes_is_refused_before_it_is_read(verb: str) -> None:
    """kube-scheduler goes on without the extender then."""
    board = Board(FakeClock())
    answerer = Answerer(board, Reporter(ClientIdentity(), FakeClock(), lambda: True))
    handle, at_once = wsgi.handler(create_app(answerer, board.problem)), prompt(answerer)
    with rawhttp.serving(handle, LIMITS, prompt=at_once) as (_, address):
        longest = address.ask(rawhttp.post(b" " * LONGEST, f"/{verb}"))
        assert longest.status == (400 if verb == "preempt" else 200)
        assert b"truncated" in longest.body or longest.body == b"[]"
        head = f"POST /{verb} HTTP/1.1\r\nHost: x\r\nContent-Length: {LONGEST + 1}\r\n\r\n"
        assert address.ask(head.encode()).status == 413
