"""What is counted of a walk, and that walks begin where the map says."""

import re
from pathlib import Path

from tests.walks import WALKS, Step, Walk, path_of

ROOT = Path(__file__).parents[2]
STEPS: list[Step] = [
    ("other", "a.py", "before"),
    ("mine", "room/entry.py", "first"),
    ("mine", "b.py", "helper"),
    ("other", "c.py", "elsewhere"),
    ("mine", "tests/fake.py", "answer"),
    ("mine", "b.py", "another"),
    ("mine", "room/entry.py", "second"),
    ("mine", "b.py", "helper"),
    ("", "", "POST pods"),
    ("mine", "d.py", "after"),
]


def test_a_function_is_read_once_and_along_the_threads_of_the_walk() -> None:
    assert path_of(STEPS, Walk("room/entry.py", "POST pods", ("mine",))) == ["room/entry.py", "b.py", "room/entry.py"]


def test_without_an_end_it_leads_to_the_last_function_and_without_threads_along_all() -> None:
    assert path_of(STEPS, Walk("entry.py")) == ["room/entry.py", "b.py", "c.py", "b.py", "room/entry.py", "d.py"]


def test_no_entry_is_no_walk() -> None:
    assert path_of(STEPS, Walk("nowhere.py")) == []


def test_walks_begin_where_the_map_says() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("| walk |")[2].partition("\n\n")[0]
    assert re.findall(r"\| `([\w/.]+)` \|", text) == [parts[0].entry for parts in WALKS.values()]
