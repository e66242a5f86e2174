"""The committed wrapper modules are what the generator would write, and the cache key covers them."""

import re

import pytest

from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.wrapper import staging_replacements

PLANE = (versions.WRAPPERS / "plane" / "go.mod").read_text()


def test_every_staging_module_is_replaced_by_the_version_of_the_release() -> None:
    replaced = re.findall(r"^replace (\S+) => (\S+) (\S+)$", PLANE, re.MULTILINE)
    assert len(replaced) == 33
    wanted = "v0." + versions.KUBERNETES.removeprefix("v1.")
    assert all(old == new and version == wanted for old, new, version in replaced)
    unpublished = re.findall(r"^\t(\S+) v0\.0\.0(?: //.*)?$", PLANE, re.MULTILINE)
    assert set(unpublished) <= {old for old, _, _ in replaced}


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("plane", f"k8s.io/kubernetes {versions.KUBERNETES}"),
        ("plane", f"go.etcd.io/etcd/server/v3 {versions.ETCD}"),
        ("kwok", f"sigs.k8s.io/kwok {versions.KWOK}"),
        ("metrics", f"sigs.k8s.io/metrics-server {versions.METRICS}"),
        ("charts", f"helm.sh/helm/v4 {versions.HELM}"),
        ("charts", f"github.com/helm-unittest/helm-unittest {versions.UNITTEST}"),
        ("charts", f"github.com/yannh/kubeconform {versions.KUBECONFORM}"),
    ],
)
def test_the_wrapper_requires_the_pinned_version_and_knows_its_sum(module: str, line: str) -> None:
    directory = versions.WRAPPERS / module
    assert line in (directory / "go.mod").read_text()
    assert f"{line} h1:" in (directory / "go.sum").read_text()


@pytest.mark.parametrize("program", [*versions.PROGRAMS, *versions.TOOLS], ids=lambda program: program.name)
def test_every_program_is_a_tool_of_its_wrapper(program: versions.Binary) -> None:
    text = (versions.WRAPPERS / program.module / "go.mod").read_text()
    assert re.search(rf"^(tool |\t){re.escape(program.package)}$", text, re.MULTILINE)


def test_kubernetes_programs_are_stamped_with_their_version() -> None:
    apiserver = next(program for program in versions.PROGRAMS if program.name == "kube-apiserver")
    assert "gitVersion=v1.36.2" in apiserver.ldflags
    assert "gitMinor=36" in apiserver.ldflags
    etcd = next(program for program in versions.PROGRAMS if program.name == "etcd")
    assert etcd.ldflags == "-s -w"
    metrics = next(program for program in versions.PROGRAMS if program.name == versions.METRICS_SERVER)
    assert metrics.ldflags.endswith(f"gitVersion={versions.METRICS}")


def test_the_recipe_has_a_short_lasting_hash() -> None:
    assert re.fullmatch(r"[0-9a-f]{10}", versions.recipe_hash())
    assert versions.recipe_hash() == versions.recipe_hash()


def test_replacements_are_those_of_the_staging_tree_only() -> None:
    document = {
        "Replace": [
            {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
            {"Old": {"Path": "example.com/fork"}, "New": {"Path": "example.com/other"}},
        ]
    }
    assert staging_replacements(document, "v1.37.0") == {"k8s.io/api": "v0.37.0"}
    assert staging_replacements({"Replace": None}, "v1.37.0") == {}
