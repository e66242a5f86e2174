"""The command line: what is refused, and what the settings become."""

import functools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner

from certs.store import SecretNames
from provisioner.support.http import wsgi
from tests.support import rawhttp
from tests.unit.kube.test_sending import kubeconfig
from tests.unit.webhook.test_app import client
from webhook.server import LIMITS, WebhookConfig, command

REFUSED = {
    "an address without a port": (["--bind", "127.0.0.1"], "is not HOST:PORT"),
    "a port that does not exist": (["--bind", "127.0.0.1:70000"], "is not HOST:PORT"),
    "a lease without a namespace": (["--scheduler-lease", "mine"], "is not NAMESPACE/NAME"),
    "a namespace with capital letters": (["--namespace", "Shop"], "is not a valid name of a Kubernetes object"),
    "a URL without TLS": (["--register-url", "http://127.0.0.1:1"], "must look like https://HOST:PORT"),
    "a kubeconfig that is not there": (["--kubeconfig", "/nowhere/config"], "/nowhere/config"),
    "an unknown log level": (["--log-level", "loud"], "loud"),
    "a registry that is none": (["--image-registries", "http://x"], "--image-registries: "),
    "an account that is none": (["--image-ecr-accounts", "12"], "--image-ecr-accounts: '12' is not an AWS account ID"),
    "a network that is none": (
        ["--image-registries", "ghcr.io", "--image-registry-networks", "10.0.0.1/8"],
        "--image-registry-networks: ",
    ),
    "a network that is never allowed": (
        ["--image-registries", "ghcr.io", "--image-registry-networks", "169.254.169.254/32"],
        "link-local",
    ),
    "authorities that are not there": (
        ["--image-registries", "ghcr.io", "--image-registry-ca", "/nowhere/ca.pem"],
        "--image-registry-ca: ",
    ),
}


@pytest.mark.parametrize(("arguments", "text"), REFUSED.values(), ids=REFUSED)
def test_bad_arguments_are_a_sentence(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code != 0
    assert text in result.output
    assert "Traceback" not in result.output


def test_accounts_alone_switch_lookups_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registries of accounts that are trusted need not be listed."""
    configs: list[WebhookConfig] = []
    monkeypatch.setattr(
        "webhook.server.server", lambda config: SimpleNamespace(run=functools.partial(configs.append, config))
    )
    config = kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    result = CliRunner().invoke(command, ["--kubeconfig", config, "--image-ecr-accounts", "123456789012"])
    assert result.exit_code == 0, result.output
    assert [one.images.trust.accounts if one.images is not None else None for one in configs] == [
        frozenset({"123456789012"})
    ]


CONFIG = WebhookConfig(
    kubeconfig=None,
    bind=("127.0.0.1", 1),
    metrics_bind=("127.0.0.1", 2),
    health_bind=None,
    namespace="dv",
    cert_dir=Path("/nowhere"),
    secret="tls",
    existing_secret=False,
    existing_bundle=False,
    service="hook",
    configuration="conf",
    register_url="",
    scheduler_lease=("kube-system", "s"),
    scheduler_name="dovetail-scheduler",
    identity="a",
)
SERVICE = ("hook.dv.svc", "hook.dv.svc.cluster.local", "hook.dv", "hook")


def test_the_certificate_is_for_the_service() -> None:
    assert CONFIG.names == SecretNames(SERVICE)
    assert CONFIG.rotation().register == ()


def test_a_registered_address_is_in_the_certificate() -> None:
    assert replace(CONFIG, register_url="https://127.0.0.1:1").names == SecretNames(SERVICE, ("127.0.0.1",))
    assert replace(CONFIG, register_url="https://[::1]:1").names == SecretNames(SERVICE, ("::1",))
    assert replace(CONFIG, register_url="https://dev.local:1").names == SecretNames((*SERVICE, "dev.local"))


def test_registration_names_the_configuration() -> None:
    mutating, validating = replace(CONFIG, register_url="https://127.0.0.1:1").rotation().register
    assert mutating["metadata"]["name"] == validating["metadata"]["name"] == "conf"
    assert mutating["webhooks"][0]["clientConfig"] == {"url": "https://127.0.0.1:1/mutate"}
    assert validating["webhooks"][0]["clientConfig"] == {"url": "https://127.0.0.1:1/validate"}


def test_an_existing_secret_has_names_of_its_own() -> None:
    assert replace(CONFIG, existing_secret=True).names is None


def test_an_existing_bundle_is_not_injected() -> None:
    assert CONFIG.rotation().inject
    assert not replace(CONFIG, existing_bundle=True).rotation().inject


PROGRAM = """
import sys
from webhook.server import {settings}, _image_service, command
command.make_context("webhook", [])
assert {settings}("", "", "", None) is None
found = sorted(name for name in sys.modules if name.startswith(("webhook.images", "boto3", "botocore")))
sys.exit(str(found) if found else 0)
"""


def test_nothing_that_looks_up_images_is_loaded_unless_it_is_switched_on() -> None:
    code = PROGRAM.format(settings="_image_settings")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert CONFIG.images is None


LONGEST = 3 * 1024 * 1024


@pytest.mark.parametrize("path", ["/mutate", "/validate", "/convert"])
def test_a_body_of_more_than_three_mebibytes_is_refused_before_it_is_read(path: str) -> None:
    with rawhttp.serving(wsgi.handler(client().application), LIMITS) as (_, address):
        assert address.ask(rawhttp.post(b" " * LONGEST, path)).status == 400
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {LONGEST + 1}\r\n\r\n"
        assert address.ask(head.encode()).status == 413


def test_without_flags_the_lease_is_the_one_that_the_manifests_make() -> None:
    (lease,) = (one.default for one in command.params if one.name == "scheduler_lease")
    path = Path(__file__).parents[3] / "manifests" / "scheduler" / "lease.yaml"
    metadata = yaml.safe_load(path.read_text(encoding="utf-8"))["metadata"]
    assert lease == f"{metadata['namespace']}/{metadata['name']}"
