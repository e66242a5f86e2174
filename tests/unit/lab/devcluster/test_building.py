"""Building: what Go is told, what is kept, and failures as sentences. Go itself is a script here."""

import os
import stat
from pathlib import Path

import pytest

from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.building import GoBuild
from provisioner.lab.devcluster.errors import BuildError
from provisioner.lab.devcluster.progress import SILENT, StepProgress
from provisioner.lab.devcluster.toolchain import Toolchain

PLANE = versions.PLANES[versions.DEFAULT]

GOOD = """#!/bin/sh
echo "$GOFLAGS|$CGO_ENABLED|$GOTOOLCHAIN|$(cat go.mod | head -1)|$*" >> {log}
echo "go: downloading example.com/x v1" >&2
case "$1" in
  list) echo example.com/a; echo example.com/b; echo main ;;
  build) echo example.com/a >&2; echo example.com/b >&2; echo main >&2
         while [ "$1" != -o ]; do shift; done; echo built > "$2" ;;
  mod) echo '{{"Dir": "{module}"}}' ;;
esac
"""


class Heard(StepProgress):
    """A progress that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, index: int, total: int, what: str) -> None:
        self.lines.append(f"{index}/{total} {what}")

    def detail(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def done(self) -> None:
        self.lines.append("done")

    def failed(self) -> None:
        self.lines.append("failed")


def compiler(tmp_path: Path, script: str) -> GoBuild:
    go = tmp_path / "go"
    go.write_text(script)
    go.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GOFLAGS": "-mod=mod"}
    return GoBuild(env, Toolchain(go, "go1.26.8"))


def good(tmp_path: Path) -> GoBuild:
    module = tmp_path / "module"
    for name in versions.STAGE_SOURCES:
        path = module / "kustomize" / "stage" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"stage: {name}\n")
    return compiler(tmp_path, GOOD.format(log=tmp_path / "log", module=module))


def test_a_program_is_built_with_sums_checked_and_nothing_fetched_beside_them(tmp_path: Path) -> None:
    good(tmp_path).make(["kube-apiserver", "kwok"], tmp_path, SILENT)
    calls = (tmp_path / "log").read_text().splitlines()
    apiserver, kwok = (call for call in calls if "|build" in call)
    assert apiserver.startswith("-mod=readonly -buildvcs=false|0|local|module dovetail.dev/devcluster/plane-1.37|build")
    assert apiserver.endswith("k8s.io/kubernetes/cmd/kube-apiserver")
    assert "module dovetail.dev/devcluster/kwok|build" in kwok
    assert (tmp_path / "kube-apiserver").read_text() == "built\n"
    assert not list(tmp_path.glob(".*.partial"))


def test_the_stages_are_copied_beside_the_programs(tmp_path: Path) -> None:
    good(tmp_path).make([versions.STAGES], tmp_path, SILENT)
    text = (tmp_path / versions.STAGES).read_text()
    assert text == "\n---\n".join(f"stage: {name}" for name in versions.STAGE_SOURCES) + "\n"


def test_progress_says_what_is_done_now_and_how_much_is_left(tmp_path: Path) -> None:
    heard = Heard()
    good(tmp_path).make(["etcd", "kubectl"], tmp_path, heard)
    details = [
        "  downloading example.com/x v1 (module 1)",  # heard of the list
        "  downloading example.com/x v1 (module 1)",
        "  compiling example.com/a, 2 of 3 packages left",
        "  compiling example.com/b, 1 of 3 packages left",
        "  linking",
    ]
    assert heard.lines == [
        "1/2 building kubectl v1.37.2",
        *details,
        "done",
        "2/2 building etcd v3.7.0",
        *details,
        "done",
    ]


FAILURES = {
    "the proxy cannot be reached": (
        "go: github.com/a/b@v1: Get https://proxy: dial tcp 1.2.3.4:443: connect: connection refused",
        "building etcd failed: the Go module proxy cannot be reached .*Check the network and `go env GOPROXY`",
    ),
    "the disk is full": ("write /x: no space left on device", "the disk is full .*about 5 GB"),
    "anything else is quoted": ("x.go:1: syntax error", r"building etcd failed \(x.go:1: syntax error\)"),
}


@pytest.mark.parametrize(("said", "says"), FAILURES.values(), ids=FAILURES)
def test_a_failed_build_is_a_sentence_and_leaves_nothing(tmp_path: Path, said: str, says: str) -> None:
    heard = Heard()
    build = compiler(tmp_path, f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    with pytest.raises(BuildError, match=says):
        build.make(["etcd"], tmp_path, heard)
    assert heard.lines[-1] == "failed"
    assert not (tmp_path / "etcd").exists()


def test_the_committed_modules_cannot_be_changed_by_a_build(tmp_path: Path) -> None:
    before = versions.recipe_hash(PLANE.programs)
    build = compiler(tmp_path, "#!/bin/sh\necho changed >> go.mod; echo x > go.sum; exit 1\n")
    with pytest.raises(BuildError):
        build.make(["etcd"], tmp_path, SILENT)
    assert versions.recipe_hash(PLANE.programs) == before


def test_a_compiler_that_lost_its_right_to_run_is_named(tmp_path: Path) -> None:
    build = compiler(tmp_path, "#!/bin/sh\n")
    (tmp_path / "go").chmod(stat.S_IRUSR)
    with pytest.raises(BuildError, match="go does not run"):
        build.make(["etcd"], tmp_path, SILENT)


def test_a_module_without_its_stages_is_an_error(tmp_path: Path) -> None:
    build = compiler(tmp_path, f'#!/bin/sh\necho \'{{"Dir": "{tmp_path}"}}\'\n')
    with pytest.raises(BuildError, match=r"lacks a stage .*modcache"):
        build.make([versions.STAGES], tmp_path, SILENT)
