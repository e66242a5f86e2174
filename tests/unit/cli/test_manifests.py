"""`dovetail manifests` writes the definitions and tells which files are not what the types say."""

import pathlib

import yaml
from click.testing import CliRunner

from provisioner.apis.crds import documents
from provisioner.cli.manifests import command, stale

REPOSITORY = pathlib.Path(__file__).parents[3] / "manifests" / "crds"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, arguments)
    return result.exit_code, result.output


def test_the_files_in_the_repository_are_what_the_types_say() -> None:
    assert stale(REPOSITORY) == []


def test_what_is_written_is_what_is_checked(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "new" / "crds"
    assert run("--directory", str(directory))[0] == 0
    assert run("--check", "--directory", str(directory))[0] == 0
    for name, document in documents().items():
        assert yaml.safe_load((directory / name).read_text(encoding="utf-8")) == document


def test_a_check_names_every_file_that_is_wrong_and_writes_nothing(tmp_path: pathlib.Path) -> None:
    run("--directory", str(tmp_path))
    (tmp_path / "karpenter.sh_nodepools.yaml").write_text("kind: Other\n", encoding="utf-8")
    (tmp_path / "karpenter.sh_nodeclaims.yaml").unlink()
    (tmp_path / "karpenter.sh_machines.yaml").write_text("kind: Old\n", encoding="utf-8")
    (tmp_path / "kustomization.yaml").write_text("kind: Kustomization\n", encoding="utf-8")
    code, output = run("--check", "--directory", str(tmp_path))
    assert code == 1
    assert "karpenter.sh_nodepools.yaml differs from the types" in output
    assert "karpenter.sh_nodeclaims.yaml is missing" in output
    assert "karpenter.sh_machines.yaml belongs to no type" in output
    assert "kustomization" not in output
    assert "make manifests" in output
    assert (tmp_path / "karpenter.sh_nodepools.yaml").read_text(encoding="utf-8") == "kind: Other\n"


def test_no_anchors_in_the_text() -> None:
    for path in REPOSITORY.glob("karpenter*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert "&id" not in text
        assert text.startswith("# Generated")
