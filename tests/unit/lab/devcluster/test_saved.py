"""What a cluster remembers, and how abandoned ones are told."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.lab.devcluster import saved
from provisioner.lab.devcluster.errors import StateError
from provisioner.lab.devcluster.ports import PORT_NAMES
from provisioner.lab.devcluster.processes import Record
from provisioner.lab.devcluster.saved import Saved

PORTS = {name: 20000 + number for number, name in enumerate(PORT_NAMES)}
LASTING = Saved(PORTS, extender=False, owner=None)


def this_process() -> Record:
    record = Record.of(os.getpid())
    assert record is not None
    return record


@pytest.mark.parametrize("owned", [True, False])
def test_what_was_written_is_read(tmp_path: Path, owned: bool) -> None:
    kept = replace(LASTING, owner=this_process() if owned else None)
    kept.write(tmp_path)
    assert saved.load(tmp_path) == kept


def test_a_cluster_of_a_version_without_metrics_has_none(tmp_path: Path) -> None:
    replace(LASTING, metrics=True).write(tmp_path)
    assert saved.load(tmp_path) == replace(LASTING, metrics=True)
    file = tmp_path / "cluster.json"
    file.write_text(file.read_text().replace('"metrics"', '"other"'))
    assert saved.load(tmp_path) == LASTING


def test_gates_and_minor_of_a_cluster_are_kept(tmp_path: Path) -> None:
    kept = replace(LASTING, gates="gangs", minor="1.37")
    kept.write(tmp_path)
    assert saved.load(tmp_path) == kept


def test_nothing_saved_is_none(tmp_path: Path) -> None:
    assert saved.load(tmp_path / "nowhere") is None


def test_a_cluster_of_a_version_with_other_ports_chooses_anew(tmp_path: Path) -> None:
    replace(LASTING, ports={"etcd": 1}).write(tmp_path)
    assert saved.load(tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ports": 1}', '{"ports": {"etcd": "x"}}'])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(StateError, match=r"cluster\.json is damaged .* Remove the directory"):
        saved.load(tmp_path)


def test_a_temporary_cluster_is_abandoned_when_its_program_is_gone() -> None:
    owner = this_process()
    assert not replace(LASTING, owner=owner).is_abandoned
    assert replace(LASTING, owner=replace(owner, started=0)).is_abandoned
    assert not LASTING.is_abandoned


def test_ports_of_all_clusters_count_as_taken_and_a_damaged_one_for_nothing(tmp_path: Path) -> None:
    for name, shift in (("a", 0), ("b", 100)):
        (tmp_path / name).mkdir()
        replace(LASTING, ports={key: port + shift for key, port in PORTS.items()}).write(tmp_path / name)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "cluster.json").write_text("damaged")
    (tmp_path / ".lock").touch()
    assert saved.remembered_ports(tmp_path) == {*PORTS.values(), *(port + 100 for port in PORTS.values())}
    assert saved.remembered_ports(tmp_path / "nowhere") == set()
