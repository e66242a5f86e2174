"""Reports are optional: without the Secrets of manifests/ the programs run, and a wrong path is still an error."""

from pathlib import Path

import pytest

from extender.reports import Identity
from provisioner.controllers.core.reports import is_empty, serving_context


def test_a_directory_without_any_certificate_is_empty(tmp_path: Path) -> None:
    assert is_empty(str(tmp_path))
    (tmp_path / "..data").mkdir()  # what the kubelet leaves in every Secret volume
    assert is_empty(str(tmp_path))


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
def test_a_directory_with_some_of_the_files_is_not_empty_and_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    assert not is_empty(str(tmp_path))
    with pytest.raises(OSError):  # noqa: PT011 - OpenSSL words it
        serving_context(str(tmp_path)).current()


def test_a_directory_that_does_not_exist_is_a_mistake_not_an_empty_one(tmp_path: Path) -> None:
    assert not is_empty(str(tmp_path / "typo"))


def identity(directory: Path) -> Identity:
    return Identity(str(directory / "ca.crt"), str(directory / "tls.crt"), str(directory / "tls.key"), "name")


def test_an_extender_without_its_files_has_no_identity(tmp_path: Path) -> None:
    assert identity(tmp_path).is_absent


def test_an_extender_with_some_of_its_files_or_a_wrong_directory_is_told_so(tmp_path: Path) -> None:
    assert not identity(tmp_path / "typo").is_absent
    (tmp_path / "ca.crt").write_text("")
    assert not identity(tmp_path).is_absent
    with pytest.raises(FileNotFoundError):
        identity(tmp_path).version()


def test_an_extender_that_was_given_no_files_lacks_none() -> None:
    assert not Identity().is_absent
