"""`dovetail manifests` writes what is made from code and tells which files are not what the code says."""

import pathlib
import shutil

import pytest
import yaml
from click.testing import CliRunner

from provisioner.apis.crds import documents
from provisioner.lab.infrastructure import BEGIN, END, MarksError, spliced
from provisioner.lab.manifests import command, stale

REPOSITORY = pathlib.Path(__file__).parents[3] / "manifests"


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of what people write, without the files that are made from code alone."""
    copy = tmp_path / "manifests"
    for name in ("aws", "base", "components", "monitoring", "scheduler"):
        shutil.copytree(REPOSITORY / name, copy / name)
    (copy / "components" / "admission-policy" / "policy.yaml").unlink()
    (copy / "aws" / "terraform" / "policies.tf").unlink()
    return copy


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, arguments)
    return result.exit_code, result.output


def test_the_files_in_the_repository_are_what_the_code_says() -> None:
    assert stale(REPOSITORY) == []


def test_what_is_written_is_what_is_checked(directory: pathlib.Path) -> None:
    assert run("--directory", str(directory))[0] == 0
    assert run("--check", "--directory", str(directory))[0] == 0
    for name, document in documents().items():
        assert yaml.safe_load((directory / "crds" / name).read_text(encoding="utf-8")) == document


def test_a_check_names_every_file_that_is_wrong_and_writes_nothing(directory: pathlib.Path) -> None:
    run("--directory", str(directory))
    definitions = directory / "crds"
    (definitions / "karpenter.sh_nodepools.yaml").write_text("kind: Other\n", encoding="utf-8")
    (definitions / "karpenter.sh_nodeclaims.yaml").unlink()
    (definitions / "karpenter.sh_machines.yaml").write_text("kind: Old\n", encoding="utf-8")
    (definitions / "kustomization.yaml").write_text("kind: Kustomization\n", encoding="utf-8")
    template = directory / "aws" / "cloudformation.yaml"
    template.write_text(template.read_text(encoding="utf-8").replace("ec2:CreateFleet", "ec2:*", 1), encoding="utf-8")
    code, output = run("--check", "--directory", str(directory))
    assert code == 1
    assert "karpenter.sh_nodepools.yaml differs from its source" in output
    assert "karpenter.sh_nodeclaims.yaml is missing" in output
    assert "karpenter.sh_machines.yaml belongs to no API type" in output
    assert "cloudformation.yaml differs" in output
    assert "kustomization" not in output
    assert "make manifests" in output
    assert (definitions / "karpenter.sh_nodepools.yaml").read_text(encoding="utf-8") == "kind: Other\n"
    assert "ec2:*" in template.read_text(encoding="utf-8")


def test_what_people_wrote_stays(directory: pathlib.Path) -> None:
    template = directory / "aws" / "cloudformation.yaml"
    mine = template.read_text(encoding="utf-8").replace("Default: dovetail-system", "Default: mine")
    template.write_text(mine, encoding="utf-8")
    run("--directory", str(directory))
    assert template.read_text(encoding="utf-8") == mine


@pytest.mark.parametrize("arguments", [(), ("--check",)], ids=["writing", "checking"])
def test_a_file_of_people_that_is_missing_is_named(directory: pathlib.Path, arguments: tuple[str, ...]) -> None:
    (directory / "aws" / "cloudformation.yaml").unlink()
    code, output = run(*arguments, "--directory", str(directory))
    assert code == 1
    assert "cloudformation.yaml is missing; restore it" in output
    assert not (directory / "crds").exists()


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    assert spliced(f"a\n# {BEGIN}\nold\n# {END}\nb\n", "new\nlines") == f"a\n# {BEGIN}\nnew\nlines\n# {END}\nb\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a\n", id="none"),
        pytest.param(f"{BEGIN}\n", id="no end"),
        pytest.param(f"{END}\n{BEGIN}\n", id="the wrong way round"),
        pytest.param(f"{BEGIN}\n{BEGIN}\n{END}\n", id="twice"),
    ],
)
def test_marks_that_are_not_there_once_each_are_an_error(text: str) -> None:
    with pytest.raises(MarksError):
        spliced(text, "new")


def test_no_anchors_in_the_text() -> None:
    for path in (REPOSITORY / "crds").glob("karpenter*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert "&id" not in text
        assert text.startswith("# Generated")
