"""YAML and JSON to plain values, and what is refused before it costs anything."""

import tracemalloc
from pathlib import Path

import pytest

from provisioner.cli.aws import classes_in
from provisioner.cli.documents import InputError
from provisioner.values.yamltext import MAX_DEPTH
from tests.support.manifests import input_file, lint_items


def read(text: str | bytes, name: str = "some.yaml") -> list[object]:
    with input_file(text, name) as file:
        return list(file.documents())


def test_scalars_are_what_kubectl_makes_of_them() -> None:
    text = "{a: 1, b: 1.5, c: 'yes', d: yes, e: ~, f: 500m, g: 2024-01-01T00:00:00Z, h: 0x10, 8080: x, true: z}"
    (one,) = read(text)
    assert one == {
        "a": 1,
        "b": 1.5,
        "c": "yes",
        "d": True,
        "e": None,
        "f": "500m",
        "g": "2024-01-01T00:00:00Z",
        "h": 16,
        "8080": "x",
        "true": "z",
    }


def test_long_texts_are_not_remembered() -> None:
    text = "".join(f"- text-{number:010}{'x' * 10_000}\n" for number in range(100))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert len(read(text)[0]) == 100  # type: ignore[arg-type]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000


KUBECTL: dict[str, object] = {
    "22:00": "22:00",
    "1:30.5": "1:30.5",
    "1e9": 10**9,
    "1.e5": 10**5,
    ".5e3": 500,
    "-.5": -0.5,
    "1e400": "1e400",
    "08": 8,
    "089123456789": 89123456789,
    "010": 8,
    "0o10": 8,
    "-0o7": -7,
    "0b11": 3,
    "0X1F": 31,
    "0xfffffffffffffffff": "0xfffffffffffffffff",
    "1_000": 1000,
    "_1": "_1",
    "18446744073709551615": 18446744073709551615,
    "99999999999999999999999": 1e23,
    "0777777777777777777777777": 7.777777777777778e23,
    "y": True,
    "NO": False,
    "nO": "nO",
    "NULL": None,
    "=": "=",
    "2001-01-01": "2001-01-01",
    "!!str 1": "1",
    "!!int '1'": 1,
    "!foo 1": 1,
    "'1'": "1",
}
"""What `kubectl label --local -o json` 1.36 makes of them."""


@pytest.mark.parametrize("text", KUBECTL)
def test_odd_scalars_are_what_kubectl_makes_of_them(text: str) -> None:
    (one,) = read(f"a: {text}")
    (item,) = lint_items(f"a: {text}")
    assert (one, item.document) == ({"a": KUBECTL[text]}, {"a": KUBECTL[text]})


def test_aws_check_reads_classes_as_kubectl_does(tmp_path: Path) -> None:
    """A tag of 22:00 was 1,320, which is no text."""
    path = tmp_path / "class.yaml"
    path.write_text(
        "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: a}\nspec: {tags: {window: 22:00}}"
    )
    (found,) = classes_in([path])
    assert found.spec.tags == {"window": "22:00"}


@pytest.mark.parametrize("text", ["0x" + "f" * 100_000, "0" + "7" * 100_000, "9" * 100_000, f"!!int 1{':00' * 10_000}"])
def test_a_number_of_many_digits_is_no_number(text: str) -> None:
    wanted = {"a": text.removeprefix("!!int ")}
    (item,) = lint_items(f"a: {text}")
    assert (read(f"a: {text}"), item.document) == ([wanted], wanted)


def test_documents_without_content_are_left_out() -> None:
    assert read("---\n# nothing\n---\na: 1\n---\n") == [{"a": 1}]


def test_anchors_and_merge_keys_work() -> None:
    assert read("base: &base {cpu: 1, memory: 2}\nmine: {<<: *base, cpu: 3}\nlist: [*base]") == [
        {"base": {"cpu": 1, "memory": 2}, "mine": {"memory": 2, "cpu": 3}, "list": [{"cpu": 1, "memory": 2}]}
    ]


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 3000 + "]" * 3000, "a: " + "{a: " * (MAX_DEPTH + 1)])
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="deeper than 64 levels"):
        read(text)


def test_aliases_may_not_unfold_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(InputError, match="aliases expand to more than"):
        read("\n".join(lines))


def test_aliases_of_many_documents_may_not_unfold_without_end() -> None:
    """A file of 1 MB took lint 20 GB, and convert wrote ten times that."""
    lines = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 5)]
    text = f"---\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{''.join(lines)}" * 20
    with pytest.raises(InputError, match="aliases expand to more than"):
        read(text)
    with pytest.raises(InputError, match="expand to more than 100,000 values"):
        lint_items(text)


def test_aliases_may_not_unfold_to_text_without_end() -> None:
    with pytest.raises(InputError, match="aliases expand to more than"):
        read(f"a: &a {'x' * 10_000}\nb: [{', '.join(['*a'] * 20_000)}]")


def test_aliases_may_not_nest_without_end() -> None:
    nested = "".join(f"- &a{n} {'[' * 20}*a{n - 1}{']' * 20}\n" for n in range(1, 4))
    with pytest.raises(InputError, match="line 5: is nested deeper than 64 levels"):
        read(f"- &a0 x\n{nested}- {'[' * 10}*a3{']' * 10}")


def test_a_number_that_is_too_large_stays_text() -> None:
    text = f"1{':00' * 200}.5"
    assert read(f"a: {text}") == [{"a": text}]


def test_an_alias_to_itself_is_refused() -> None:
    with pytest.raises(InputError, match=r"\*a refers to an anchor that is not defined before it"):
        read("&a [*a]")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1\nb: 2", r": line 2: is not valid YAML: .* \(column 2\)"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        ("? [a]\n: b", "a key must be a string"),
        ("a:\n  <<: text", "line 2: has a merge key"),
        ("a: 1\n~: 2", "line 2: a key must be a string"),
    ],
)
def test_what_is_no_yaml_is_said_with_its_place(text: str | bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "kind: Pod\nspec: {}\nkind: Node\n",
            "line 3: the key kind is repeated in a mapping; separate objects with",
        ),
        ("a:\n  b: 1\n  b: 2\n", "line 3: the key b is repeated in a mapping; remove one of them"),
        ("x: &x {b: 1}\na:\n  <<: *x\n  b: 2\n  b: 3\n", "line 5: the key b is repeated in a mapping"),
    ],
)
def test_a_key_that_stands_twice_is_refused_as_kubectl_does(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read(text)


def test_what_came_before_the_mistake_is_read() -> None:
    with input_file("a: 1\n---\nb: [\n") as file:
        found = file.documents()
        assert next(found) == {"a": 1}
        with pytest.raises(InputError):
            next(found)


def test_json_is_read_as_json() -> None:
    assert read('{"a": [1, "2"]}', "dump.json") == [{"a": [1, "2"]}]
    with pytest.raises(InputError, match="is not valid JSON"):
        read('{"a": ', "dump.json")
    with pytest.raises(InputError, match="is not valid JSON"):
        read('{"a":' * 100_000, "dump.json")


def test_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.cli.documents.MAX_BYTES", 10)
    with pytest.raises(InputError, match="split it into several files"):
        read("a: 1234567890")
