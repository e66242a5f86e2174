"""The committed wrapper modules are what the generator would write, and the cache key covers them."""

import re

import pytest

from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.errors import BinaryError
from provisioner.lab.devcluster.wrapper import staging_replacements

PLANE = versions.PLANES[versions.DEFAULT]
STAGING = {"1.35": 31, "1.36": 33, "1.37": 33}
"""How many staging modules each minor has."""
PROGRAMS = [program for plane in versions.PLANES.values() for program in plane.programs]


@pytest.mark.parametrize("minor", versions.PLANES)
def test_every_staging_module_is_replaced_by_the_version_of_the_release(minor: str) -> None:
    plane = versions.PLANES[minor]
    text = (versions.WRAPPERS / plane.module / "go.mod").read_text()
    replaced = re.findall(r"^replace (\S+) => (\S+) (\S+)$", text, re.MULTILINE)
    assert len(replaced) == STAGING[minor]
    wanted = "v0." + plane.kubernetes.removeprefix("v1.")
    assert all(old == new and version == wanted for old, new, version in replaced)
    unpublished = re.findall(r"^\t(\S+) v0\.0\.0(?: //.*)?$", text, re.MULTILINE)
    assert set(unpublished) <= {old for old, _, _ in replaced}


@pytest.mark.parametrize(
    ("module", "line"),
    [
        *((plane.module, f"k8s.io/kubernetes {plane.kubernetes}") for plane in versions.PLANES.values()),
        *((plane.module, f"go.etcd.io/etcd/server/v3 {plane.etcd}") for plane in versions.PLANES.values()),
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


@pytest.mark.parametrize("program", [*PROGRAMS, *versions.TOOLS], ids=lambda one: f"{one.name} {one.version}")
def test_every_program_is_a_tool_of_its_wrapper(program: versions.Binary) -> None:
    text = (versions.WRAPPERS / program.module / "go.mod").read_text()
    assert re.search(rf"^(tool |\t){re.escape(program.package)}$", text, re.MULTILINE)


def test_kubernetes_programs_are_stamped_with_their_version() -> None:
    apiserver = next(program for program in PLANE.programs if program.name == "kube-apiserver")
    assert "gitVersion=v1.37.2" in apiserver.ldflags
    assert "gitMinor=37" in apiserver.ldflags
    etcd = next(program for program in PLANE.programs if program.name == "etcd")
    assert etcd.ldflags == "-s -w"
    metrics = next(program for program in PLANE.programs if program.name == versions.METRICS_SERVER)
    assert metrics.ldflags.endswith(f"gitVersion={versions.METRICS}")


def test_the_recipe_has_a_short_lasting_hash() -> None:
    assert re.fullmatch(r"[0-9a-f]{10}", versions.recipe_hash(PLANE.programs))
    assert versions.recipe_hash(PLANE.programs) == versions.recipe_hash(PLANE.programs)


CHOICES = {"": "1.37", "1.35": "1.35", "1.36": "1.36", "1.37": "1.37"}


@pytest.mark.parametrize(("text", "minor"), CHOICES.items())
def test_a_variable_chooses_the_minor(text: str, minor: str) -> None:
    assert versions.chosen({versions.VARIABLE: text}) is versions.PLANES[minor]
    assert versions.chosen({}) is PLANE


def test_a_minor_that_is_not_built_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        BinaryError, match=r"DOVETAIL_KUBERNETES=1\.38 is not supported\. Set it to one of 1\.35, 1\.36, 1\.37"
    ):
        versions.chosen({versions.VARIABLE: "1.38"})


def test_replacements_are_those_of_the_staging_tree_only() -> None:
    document = {
        "Replace": [
            {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
            {"Old": {"Path": "example.com/fork"}, "New": {"Path": "example.com/other"}},
        ]
    }
    assert staging_replacements(document, "v1.37.0") == {"k8s.io/api": "v0.37.0"}
    assert staging_replacements({"Replace": None}, "v1.37.0") == {}
