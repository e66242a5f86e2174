"""Whose name registries are asked in."""

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from provisioner.kube.client import Client
from tests.support.clock import FakeClock
from tests.support.kube import FakeApi, Script, Sent, ok, refusal
from webhook.images import credentials as module
from webhook.images.credentials import Credentials, ecr_token
from webhook.images.documents import Login
from webhook.images.lookups import Key
from webhook.images.references import parse
from webhook.images.trust import Trust, parse_accounts

ECR = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/app"
STRANGER = "999999999999.dkr.ecr.eu-central-1.amazonaws.com/app"
TRUST = Trust(accounts=parse_accounts("123456789012"))


def secret(**auths: str) -> dict[str, Any]:
    document = {"auths": {host: {"auth": base64.b64encode(text.encode()).decode()} for host, text in auths.items()}}
    return {
        "metadata": {"name": "pull"},
        "data": {".dockerconfigjson": base64.b64encode(json.dumps(document).encode()).decode()},
    }


def token(_: str) -> str:
    return base64.b64encode(b"AWS:token").decode()


def credentials(
    respond: dict[str, Script], clock: FakeClock | None = None, make: Any = token
) -> tuple[Credentials, FakeApi]:
    def answer(sent: Sent) -> Script:
        return respond.get(sent.path.rpartition("/")[2], refusal(404, "NotFound"))

    api = FakeApi(respond=answer)
    return Credentials(Client(api, FakeClock()), TRUST, clock or FakeClock(), make), api


def test_a_pull_secret_of_the_pod_s_namespace_is_read_by_name() -> None:
    found, api = credentials({"pull": ok(secret(**{"ghcr.io": "u:p"}))})
    assert found.login(Key(parse("ghcr.io/x"), "shop", ("pull",))) == Login("u", "p")
    assert [(sent.method, sent.path) for sent in api.sent] == [("GET", "/api/v1/namespaces/shop/secrets/pull")]
    assert found.login(Key(parse("quay.io/x"), "shop", ("pull",))) is None


def test_the_next_secret_is_read_where_one_is_missing_forbidden_or_broken() -> None:
    answers: dict[str, Script] = {
        "b": refusal(403, "Forbidden"),
        "c": ok({"data": {".dockerconfigjson": "e30K" * 3}}),
        "d": ok(["?"]),
        "e": ok(secret(**{"ghcr.io": "u:p"})),
    }
    found, api = credentials(answers)
    assert found.login(Key(parse("ghcr.io/x"), "shop", ("a", "b", "c", "d", "e"))) == Login("u", "p")
    assert len(api.sent) == 5


def test_a_name_with_a_path_in_it_stays_a_name() -> None:
    found, api = credentials({})
    assert found.login(Key(parse("ghcr.io/x"), "shop", ("../../kube-system/secrets/admin",))) is None
    assert api.sent[0].path == "/api/v1/namespaces/shop/secrets/..%2F..%2Fkube-system%2Fsecrets%2Fadmin"


def test_our_role_is_used_for_a_listed_account_alone() -> None:
    found, _ = credentials({})
    assert found.login(Key(parse(ECR))) == Login("AWS", "token")
    assert found.login(Key(parse(STRANGER))) is None
    assert found.login(Key(parse("ghcr.io/x"))) is None


def test_a_token_is_made_once_in_six_hours_and_a_failure_is_not_repeated_at_once() -> None:
    made: list[str] = []

    def make(region: str) -> str:
        made.append(region)
        if len(made) == 1:
            raise OSError("no credentials")
        return token(region)

    clock = FakeClock()
    found, _ = credentials({}, clock, make)
    assert [found.login(Key(parse(ECR))) for _ in range(3)] == [None] * 3
    clock.advance(module.ECR_FAILED_SECONDS)
    assert [found.login(Key(parse(ECR))) for _ in range(3)] == [Login("AWS", "token")] * 3
    clock.advance(module.ECR_SECONDS)
    assert found.login(Key(parse(ECR))) == Login("AWS", "token")
    assert made == ["eu-central-1"] * 3


@pytest.mark.parametrize("text", ["", "!", base64.b64encode(b"AWS").decode(), base64.b64encode(b"\xff:\xff").decode()])
def test_a_token_that_is_none_is_no_login(text: str) -> None:
    found, _ = credentials({}, make=lambda _: text)
    assert found.login(Key(parse(ECR))) is None


@contextmanager
def aws(body: dict[str, Any], status: int = 200) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """An endpoint of ECR on loopback, and what it was asked."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked.append((self.headers["x-amz-target"], self.headers["authorization"]))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def environment(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL_ECR": endpoint,
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def test_a_token_comes_from_ecr_through_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with aws({"authorizationData": [{"authorizationToken": token("")}]}) as (endpoint, asked):
        for name, value in environment(endpoint).items():
            monkeypatch.setenv(name, value)
        assert ecr_token("eu-central-1") == token("")
    ((target, signature),) = asked
    assert target.endswith(".GetAuthorizationToken")
    assert "/eu-central-1/ecr/aws4_request" in signature


def test_a_refusal_of_ecr_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with aws({"__type": "AccessDeniedException", "message": "not allowed"}, 400) as (endpoint, _):
        for name, value in environment(endpoint).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(OSError, match="AccessDeniedException"):
            ecr_token("eu-central-1")


def test_boto3_is_not_loaded_by_the_service() -> None:
    code = "import sys, webhook.images.service; sys.exit('boto3' in sys.modules or 'botocore' in sys.modules)"
    root = str(Path(__file__).parents[4])
    assert (
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root}, check=False).returncode
        == 0
    )
