"""Finding programs: in which order, what is made, what is refused."""

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.binaries import Binaries, find
from provisioner.lab.devcluster.errors import BinaryError
from provisioner.lab.devcluster.progress import StepProgress


def program(text: str = "", status: int = 0) -> str:
    said = text or "v1.37.9 3.7.9 v0.8.9"
    return f"#!/bin/sh\necho '{said}'\nexit {status}\n"


def put(directory: Path, name: str, text: str | None = None) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f".{name}.partial"  # complete before it is seen, as the real sources do it
    partial.write_text(program() if text is None else text)
    partial.chmod(0o755)
    return partial.replace(directory / name)


class Maker:
    """A source that writes small scripts and remembers what it was asked for."""

    def __init__(self, text: str | None = None) -> None:
        self.asked: list[list[str]] = []
        self.text = text

    def key(self) -> str:
        return "key"

    def make(self, names: Iterable[str], directory: Path, progress: StepProgress) -> None:
        self.asked.append(list(names))
        for index, name in enumerate(self.asked[-1], 1):
            progress.begin(index, len(self.asked[-1]), name)
            put(directory, name, self.text)
            progress.done()


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_with_nothing_there_all_is_made_into_the_cache(env: dict[str, str], tmp_path: Path) -> None:
    maker = Maker()
    found = find(maker, env)
    assert maker.asked == [list(versions.ARTIFACTS)]
    cache = tmp_path / "cache" / "dovetail" / "devcluster" / "key"
    assert dict(found.paths) == {name: cache / name for name in versions.ARTIFACTS}


def test_a_second_search_makes_nothing(env: dict[str, str]) -> None:
    find(Maker(), env)
    again = Maker()
    find(again, env)
    assert again.asked == []


def test_only_what_is_missing_is_made(env: dict[str, str], tmp_path: Path) -> None:
    find(Maker(), env)
    (tmp_path / "cache/dovetail/devcluster/key/kwok").unlink()
    again = Maker()
    find(again, env)
    assert again.asked == [["kwok"]]


def test_the_directory_of_the_variable_comes_first_and_the_rest_is_made(env: dict[str, str], tmp_path: Path) -> None:
    own = put(tmp_path / "own", "etcd")
    maker = Maker()
    found = find(maker, {**env, "DOVETAIL_DEV_BIN": str(tmp_path / "own")})
    assert found.paths["etcd"] == own
    assert maker.asked == [[name for name in versions.ARTIFACTS if name != "etcd"]]


def test_a_full_directory_needs_no_source_at_all(env: dict[str, str], tmp_path: Path) -> None:
    for name in versions.ARTIFACTS:
        put(tmp_path / "own", name)
    maker = Maker()
    find(maker, {**env, "DOVETAIL_DEV_BIN": str(tmp_path / "own")})
    assert maker.asked == []
    assert not (tmp_path / "cache").exists()


def test_two_searches_at_once_make_everything_once(env: dict[str, str]) -> None:
    maker = Maker()
    threads = [threading.Thread(target=find, args=(maker, env)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert maker.asked == [list(versions.ARTIFACTS)]


BROKEN = {
    "a program that is no program": ("\x7fELF nonsense", r"etcd does not run|etcd fails"),
    "a program that fails": (program(status=3), "etcd fails with exit status 3"),
    "a program of another minor": (program("3.4.30 v1.35.1"), "etcd is not version 3.7.x but says"),
    "an empty file": ("", "etcd does not run|etcd is not version|etcd fails"),
}


@pytest.mark.parametrize(("text", "says"), BROKEN.values(), ids=BROKEN)
def test_a_corrupt_program_is_named_with_what_to_do(env: dict[str, str], tmp_path: Path, text: str, says: str) -> None:
    path = put(tmp_path / "own", "etcd", text)
    with pytest.raises(BinaryError, match=says) as caught:
        find(Maker(), {**env, "DOVETAIL_DEV_BIN": str(tmp_path / "own")})
    assert str(path) in str(caught.value)
    assert caught.value.fix


def test_a_program_without_the_right_to_execute_is_named_with_chmod(env: dict[str, str], tmp_path: Path) -> None:
    path = put(tmp_path / "own", "etcd")
    path.chmod(0o644)
    with pytest.raises(BinaryError, match=rf"{path} is not executable\. .*chmod \+x"):
        find(Maker(), {**env, "DOVETAIL_DEV_BIN": str(tmp_path / "own")})


def test_a_variable_that_names_no_directory_is_refused(env: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(BinaryError, match=r"DOVETAIL_DEV_BIN=.*nowhere is not a directory"):
        find(Maker(), {**env, "DOVETAIL_DEV_BIN": str(tmp_path / "nowhere")})


def test_links_point_to_what_was_found_and_are_renewed(tmp_path: Path) -> None:
    for place in ("old", "new"):
        paths = {name: put(tmp_path / place, name) for name in versions.ARTIFACTS}
        Binaries(paths).link(tmp_path / "bin")
        links = {path.name: path.resolve() for path in (tmp_path / "bin").iterdir()}
        assert links == {name: paths[name] for name in versions.PROGRAM_NAMES if name != versions.METRICS_SERVER}


def test_an_optional_program_is_made_when_it_is_asked_for(env: dict[str, str], tmp_path: Path) -> None:
    find(Maker(), env)
    maker = Maker(program("v0.9.7"))
    found = find(maker, env, names=(*versions.ARTIFACTS, versions.METRICS_SERVER))
    assert maker.asked == [[versions.METRICS_SERVER]]
    found.link(tmp_path / "bin")
    assert (tmp_path / "bin" / versions.METRICS_SERVER).resolve() == found.paths[versions.METRICS_SERVER]
