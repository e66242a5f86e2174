"""Where things are kept."""

from pathlib import Path

import pytest

from provisioner.lab.devcluster.errors import StateError
from provisioner.lab.devcluster.paths import cache_root, checked_name, state_root


@pytest.mark.parametrize(
    ("env", "cache", "state"),
    [
        pytest.param({"HOME": "/h"}, "/h/.cache/dovetail", "/h/.local/state/dovetail/dev", id="defaults"),
        pytest.param(
            {"HOME": "/h", "XDG_CACHE_HOME": "/c", "XDG_STATE_HOME": "/s"},
            "/c/dovetail",
            "/s/dovetail/dev",
            id="the XDG variables win",
        ),
        pytest.param(
            {"HOME": "/h", "XDG_CACHE_HOME": "c", "XDG_STATE_HOME": ""},
            "/h/.cache/dovetail",
            "/h/.local/state/dovetail/dev",
            id="relative and empty ones are ignored",
        ),
    ],
)
def test_roots(env: dict[str, str], cache: str, state: str) -> None:
    assert (cache_root(env), state_root(env)) == (Path(cache), Path(state))


@pytest.mark.parametrize("name", ["default", "a", "a-1", "x" * 40])
def test_names_that_can_be_used(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a b", "../a", "a.b", "x" * 41])
def test_names_that_cannot(name: str) -> None:
    with pytest.raises(StateError, match="is not a valid cluster name"):
        checked_name(name)
