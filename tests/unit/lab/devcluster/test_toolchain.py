"""Finding Go: new enough, working, in the usual places, else a private one."""

from pathlib import Path

import pytest

from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.building import GoBuild
from provisioner.lab.devcluster.errors import ToolchainError
from provisioner.lab.devcluster.progress import SILENT
from provisioner.lab.devcluster.toolchain import go_version, install_wheel, machine_go, wheel_go


def put_go(directory: Path, text: str, status: int = 0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    go = directory / "go"
    go.write_text(f"#!/bin/sh\necho '{text}'\nexit {status}\n")
    go.chmod(0o755)
    return go


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.27 linux/arm64", (1, 27, 0)),
        ("go version devel +abc", None),
        ("", None),
    ],
)
def test_the_version_is_read(text: str, numbers: tuple[int, int, int] | None) -> None:
    assert go_version(text) == numbers


def test_a_go_on_path_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    go = put_go(tmp_path, "go version go1.99.3 linux/amd64")
    found = machine_go({"PATH": f"{tmp_path}:/bin:/usr/bin"})
    assert found is not None
    assert (found.go, found.version) == (go, "go1.99.3")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        pytest.param("go version go1.25.9 linux/amd64", 0, id="too old"),
        pytest.param("go version go1.99.0 linux/amd64", 1, id="it fails"),
        pytest.param("something else", 0, id="not Go at all"),
    ],
)
def test_a_go_on_path_that_will_not_do_is_passed_over(tmp_path: Path, text: str, status: int) -> None:
    go = put_go(tmp_path, text, status)
    found = machine_go({"PATH": f"{tmp_path}:/bin:/usr/bin"})
    assert found is None or found.go != go


def test_a_private_go_of_an_earlier_run_is_found(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": "/bin:/usr/bin"}
    assert wheel_go(env) is None
    go = put_go(
        tmp_path / ".cache/dovetail/go" / versions.GO_WHEEL.replace("==", "-") / "go/bin",
        "go version go1.26.6 linux/amd64",
    )
    found = wheel_go(env)
    assert found is not None
    assert found.go == go


def test_no_go_and_no_package_index_is_a_sentence_that_says_what_to_do(tmp_path: Path) -> None:
    env = {
        "HOME": str(tmp_path),
        "PATH": "/bin:/usr/bin",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    with pytest.raises(ToolchainError, match=r"Go 1\.26\.4 or newer is needed.*Install Go.*DOVETAIL_DEV_BIN"):
        install_wheel(env, SILENT)
    assert wheel_go(env) is None


def test_the_key_of_a_build_names_versions_compiler_and_recipe(tmp_path: Path) -> None:
    put_go(tmp_path, "go version go1.99.3 linux/amd64")
    env = {"PATH": f"{tmp_path}:/bin:/usr/bin", "HOME": str(tmp_path)}
    recipe = versions.recipe_hash(versions.PLANES["1.37"].programs)
    assert GoBuild(env).key() == f"v1.37.2-etcdv3.7.0-kwokv0.8.0-go1.99.3-{recipe}"


def test_each_minor_is_cached_beside_the_others(tmp_path: Path) -> None:
    put_go(tmp_path, "go version go1.99.3 linux/amd64")
    env = {"PATH": f"{tmp_path}:/bin:/usr/bin", "HOME": str(tmp_path)}
    keys = [GoBuild({**env, versions.VARIABLE: minor}).key() for minor in versions.PLANES]
    assert len(set(keys)) == len(versions.PLANES)
    for key, plane in zip(keys, versions.PLANES.values(), strict=True):
        assert key.startswith(plane.key)


def test_tools_for_charts_have_a_key_of_their_own(tmp_path: Path) -> None:
    """So that a new version of one builds no control plane anew."""
    put_go(tmp_path, "go version go1.99.3 linux/amd64")
    key = GoBuild({"PATH": f"{tmp_path}:/bin:/usr/bin", "HOME": str(tmp_path)}, tools=True).key()
    assert key == f"tools-go1.99.3-{versions.recipe_hash(versions.TOOLS)}"
    assert versions.recipe_hash(versions.TOOLS) != versions.recipe_hash(versions.PLANES[versions.DEFAULT].programs)
