"""Where the API server is and who asks: what is said of a kubeconfig that gives no credentials."""

import json
from pathlib import Path
from typing import Any

import pytest

from provisioner.kube.config import connect
from provisioner.kube.errors import ConfigError

HINT = "Install it:\n  gcloud components install gke-gcloud-auth-plugin"
EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin", "installHint": HINT}
GCP = {"name": "gcp", "config": {"cmd-path": "/no/gcloud", "expiry-key": "{.credential.token_expiry}"}}
OLD = {"name": "gcp", "config": {"access-token": "t", "expiry": "2020-01-01T00:00:00Z"}}
NONE = {
    "a plugin that is not installed": (
        {"exec": EXEC},
        "its exec plugin 'no-such-plugin' is not installed. Install it: gcloud components install gke-gcloud-auth-plugin",
    ),
    "a plugin that fails": ({"exec": {**EXEC, "command": "/bin/false"}}, "its exec plugin '/bin/false' did not return"),
    "a plugin without a hint": (
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}},
        "its exec plugin 'no-such-plugin' is not installed",
    ),
    "gcp without a token": (
        {"auth-provider": GCP},
        "its auth-provider 'gcp' has no valid token.*gke-gcloud-auth-plugin",
    ),
    "gcp with an old token": (
        {"auth-provider": OLD},
        "its auth-provider 'gcp' has no valid token.*gke-gcloud-auth-plugin",
    ),
    "azure": ({"auth-provider": {"name": "azure"}}, "its auth-provider 'azure' has no valid token.*kubelogin"),
    "nobody": ({}, "contains no usable credentials"),
}


def kubeconfig(path: Path, user: dict[str, Any]) -> str:
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(body), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("user", "says"), NONE.values(), ids=NONE)
def test_a_kubeconfig_that_gives_no_credentials_says_why(user: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", user)
    with pytest.raises(ConfigError, match=says) as refused:
        connect(path)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(path)


@pytest.mark.parametrize("current", ["", "gone"])
def test_a_context_that_is_not_there_is_named_with_those_that_are(current: str, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"token": "t"})
    with pytest.raises(ConfigError) as refused:
        connect(path, context="prod")
    assert str(refused.value) == f'{path} has no context "prod"; its contexts are: c'
    body = json.loads(Path(path).read_text(encoding="utf-8"))
    Path(path).write_text(json.dumps({**body, "current-context": current}), encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        connect(path)
    says = f'context "{current}"; its contexts are: c' if current else "current context; set one with `kubectl config"
    assert f"{path} has no {says}" in str(refused.value)
