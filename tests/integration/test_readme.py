"""The commands of README and of Getting started, as they are printed, from an unpacked checkout with an empty home; and what they print.

Only the binaries of the control plane are those that were built before.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from provisioner.lab.devcluster.binaries import VARIABLE, find
from provisioner.lab.devcluster.building import GoBuild
from provisioner.lab.devcluster.ports import is_free
from tests.support import readme
from tests.support.eventually import eventually
from tests.support.terminal import Terminal

PAGE: Final = (readme.ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS: Final = {block[0]: block for block in readme.blocks(PAGE)}
"""By their first lines."""
STARTED: Final = readme.fenced((readme.ROOT / "docs" / "guides" / "getting-started.md").read_text(encoding="utf-8"))
DEMO: Final = "make demo     # 1,000 pending pods get nodes, run, and are removed again"
DEMO_SAYS: Final = next(line for line in BLOCKS if line.startswith("demo ok:"))
WALK: Final = "make install                         # installs .venv/bin/dovetail"
PLAN: Final = ".venv/bin/dovetail plan docs/guides/plan/shop.yaml"
PLAN_SAYS: Final = next(line for line in BLOCKS if line.startswith("64 pods:"))
INSTALL: Final = "docker build -t REGISTRY/dovetail:0.1.0 . && docker push REGISTRY/dovetail:0.1.0"
DOCKER: Final = '#!/bin/sh\ntest -f Dockerfile || test "$1" = push\n'
"""No engine runs here; `make package` builds the image by itself."""

PORTS: Final = (8080, 8081, 8444)
"""Of a provisioner that is not told others, as in README."""
SECONDS: Final = 240.0


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return readme.unpacked(tmp_path / "checkout")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An empty home, with the programs of the control plane at hand and the same index of packages as here."""
    home = tmp_path / "home"
    home.mkdir()
    programs = find(GoBuild(dict(os.environ)), os.environ).paths
    pip = {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_", "HTTPS_", "https_"))}
    return readme.environment(home, **pip, **{VARIABLE: str(next(iter(programs.values())).parent)})


def test_every_block_of_commands_is_run_by_a_test_here() -> None:
    assert BLOCKS.keys() == {DEMO, DEMO_SAYS, WALK, PLAN, PLAN_SAYS, INSTALL}


def test_a_plan_prints_what_readme_prints(checkout: Path, tmp_path: Path) -> None:
    readme.stand_in_for_install(checkout)
    (tmp_path / "home").mkdir()
    (line,) = BLOCKS[PLAN]
    environment = readme.environment(tmp_path / "home")
    found = subprocess.run(
        ["/bin/bash", "-c", line], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert readme.prints(found.stdout, BLOCKS[PLAN_SAYS]), found.stdout


@pytest.fixture
def shell(checkout: Path, environment: dict[str, str]) -> Iterator[Terminal]:
    """A terminal in the checkout; the cluster of its home ends with it."""
    with Terminal(checkout, environment) as terminal:
        yield terminal
        terminal.type("test ! -x .venv/bin/dovetail || .venv/bin/dovetail dev down --delete --all --yes", 120.0)


def typed(shell: Terminal, line: str) -> str:
    """What a line prints; it has to succeed. One that ends by Ctrl-C gets it once NodeClaims are shown."""
    watches = "Ctrl-C" in line
    status, printed = shell.type(line, SECONDS if watches else 900.0, interrupt_after="general-" if watches else "")
    assert watches or status == 0, f"{line}: {printed}"
    return printed


@pytest.mark.package
@pytest.mark.plane
@pytest.mark.timeout(1800)
def test_the_local_cluster_and_every_why_that_readme_names(shell: Terminal) -> None:
    eventually(lambda: all(map(is_free, PORTS)), f"no other program has ports {PORTS}", SECONDS, 1.0)
    block = BLOCKS[WALK]
    assert [line for line in block if "Ctrl-C" in line]
    *lines, stop, down = block
    for line in lines:
        typed(shell, line)
    whys = re.findall(r"^\| `(dovetail why [^`]*)`", PAGE, re.MULTILINE)
    assert whys == ["dovetail why pod NAMESPACE/NAME", "dovetail why node NAME"]
    typed(shell, "kubectl wait --for=condition=Ready pod -l app=web --timeout=300s")
    pod = typed(shell, "kubectl get pod -l app=web -o name | head -1").strip().removeprefix("pod/")
    node = typed(shell, "kubectl get node -o name | head -1").strip().removeprefix("node/")
    for why, name in zip(whys, (f"default/{pod}", node), strict=True):
        told = typed(shell, f".venv/bin/{re.sub('NAMESPACE/NAME|NAME', name, why)}")
        assert name in told
    for line in (stop, down):
        typed(shell, line)


@pytest.mark.package
@pytest.mark.plane
@pytest.mark.timeout(1800)
def test_getting_started_as_it_is_printed(shell: Terminal, checkout: Path) -> None:
    readme.stand_in_for_install(checkout)  # README's walk installs
    eventually(lambda: all(map(is_free, PORTS)), f"no other program has ports {PORTS}", SECONDS, 1.0)
    *blocks, stop, plan = STARTED
    install, *lines = (line for block in blocks for line in block)
    (watch,) = (line for line in lines if "Ctrl-C" in line)
    at = lines.index(watch)
    for line in lines[:at]:
        typed(shell, line)
    shell.type(watch, SECONDS, interrupt_after="True")
    (compare,) = plan
    context = typed(shell, "kubectl config current-context").strip()
    assert "Cost: " in typed(shell, compare.replace("NAME", context))
    said = "".join(typed(shell, line) for line in lines[at + 1 :])
    assert install == "make install"
    assert '"count":' in said, "the plan of a NodeClaim"
    assert "node.kubernetes.io/instance-type" in said, "why the pod `stuck` has no node"
    for line in stop:
        typed(shell, line)


@pytest.mark.package
@pytest.mark.plane
@pytest.mark.timeout(1800)
def test_what_is_installed_from_an_overlay(shell: Terminal, tmp_path: Path, checkout: Path) -> None:
    readme.stand_in_for_install(checkout)
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER, encoding="utf-8")
    docker.chmod(0o755)
    typed(shell, ".venv/bin/dovetail dev up")
    typed(shell, 'eval "$(.venv/bin/dovetail dev env)"')
    typed(shell, f"export PATH={docker.parent}:$PATH")
    for line in BLOCKS[INSTALL]:
        typed(shell, line)
    assert "REGISTRY/dovetail" in typed(shell, "kubectl -n dovetail-system get deployments -o yaml")
    (then,) = re.findall(r"Then create a NodePool: `([^`]*)`", PAGE)
    typed(shell, then)


@pytest.mark.package
@pytest.mark.plane
@pytest.mark.timeout(1800)
def test_the_demo_ends_as_readme_says(shell: Terminal) -> None:
    (line,) = BLOCKS[DEMO]
    printed = typed(shell, line)
    said = readme.normalised(printed.strip().splitlines()[-1])
    assert said == readme.normalised(DEMO_SAYS)
