"""Text that the decoder refuses: which error it is, what is cut out, and what is still found in it."""

import json
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.values import jsontext
from provisioner.values.jsontext import (
    MAX_DEPTH,
    TooDeepError,
    decode_trimmed,
    elements,
    most_values,
    pointer,
    strings_at,
    trim,
)
from tests.support.kube import nested

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


class Dated(msgspec.Struct):
    at: datetime
    other: str = ""


class Thing(msgspec.Struct):
    a: str = ""


REFUSED: dict[str, bytes | str] = {
    "nothing": b"",
    "no JSON": b"{",
    "another type": b"[]",
    "a field of another type": b'{"a": 5}',
    "no UTF-8": b'{"a": "\xff"}',
    "half a character": '{"a": "\ud800"}',
    "nested 1,000 levels in a field that is skipped": b'{"x": ' + nested(1000) + b"}",
    "nested 100,000 levels": b"[" * 100_000,
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_a_decoder_raises_one_kind_of_error(text: bytes | str) -> None:
    with pytest.raises(msgspec.DecodeError):
        jsontext.decoder(Thing)(text)


def test_what_is_nested_too_deeply_can_be_told_from_the_rest() -> None:
    with pytest.raises(TooDeepError):
        jsontext.decoder(Thing)(b'{"x": ' + nested(1000) + b"}")


def test_what_is_too_deep_becomes_null_and_the_rest_stays_byte_by_byte() -> None:
    text = b'{ "a" : "x{[", "deep": ' + nested(300) + b', "b": [1, {"c": "]}\\""}] }'
    got = trim(text, depth=4)
    assert got == b'{ "a" : "x{[", "deep": {"f:a":{"f:a":{"f:a":null}}}, "b": [1, {"c": "]}\\""}] }'


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 1000, 10_000, 100_000])
def test_what_was_trimmed_can_be_decoded(levels: int) -> None:
    text = b'{"a": "kept", "x": [' + nested(levels) + b", 1, " + nested(levels) + b"]}"
    assert msgspec.json.decode(trim(text, MAX_DEPTH))["a"] == "kept"
    assert decode_trimmed(msgspec.json.Decoder(Thing).decode, text)[0] == Thing("kept")


def test_whether_something_was_cut_is_told() -> None:
    decode = msgspec.json.Decoder(Thing).decode
    assert decode_trimmed(decode, b'{"a": "b"}') == (Thing("b"), False)
    assert decode_trimmed(decode, b'{"a": "b", "x": ' + nested(1000) + b"}") == (Thing("b"), True)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("0000-12-31T10:00:00Z", "0001-01-01T00:00:00Z"),
        ("-001-12-31T10:00:00.000001Z", "0001-01-01T00:00:00Z"),
        ("10000-01-01T13:59:59Z", "9999-12-31T00:00:00Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
    ],
)
def test_times_of_years_that_only_go_knows_are_the_nearest_others(written: str, read: str) -> None:
    text = json.dumps({"at": written, "other": f"not {written}"}).encode()
    found, cut = decode_trimmed(msgspec.json.Decoder(Dated).decode, text)
    assert (found, cut) == (Dated(datetime.fromisoformat(read), f"not {written}"), False)


def test_other_times_are_still_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_trimmed(msgspec.json.Decoder(Dated).decode, b'{"at": "0000-99-31"}')


@given(json_values)
def test_what_is_not_deep_is_not_changed(value: Any) -> None:
    text = json.dumps(value).encode()
    assert trim(text, MAX_DEPTH) == text


@given(json_values, st.integers(1, 4))
def test_trimming_is_cutting_at_a_depth(value: Any, depth: int) -> None:
    def cut(one: Any, left: int) -> Any:
        if not isinstance(one, dict | list):
            return one
        if not left:
            return None
        if isinstance(one, list):
            return [cut(inner, left - 1) for inner in one]
        return {key: cut(inner, left - 1) for key, inner in one.items()}

    assert json.loads(trim(json.dumps(value).encode(), depth)) == cut(value, depth)


def _values(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_values, inner))


@given(json_values)
def test_no_text_holds_more_values_than_are_counted(value: Any) -> None:
    assert _values(value) <= most_values(json.dumps(value).encode())


@given(st.binary(max_size=300))
def test_no_text_breaks_the_scanners(text: bytes) -> None:
    for data in (text, b'{"metadata":{"name":"' + text, b'{"items":[' + text):
        assert len(trim(data, 2)) <= 2 * len(data)
        assert set(strings_at(data, [("metadata", "name")])) <= {("metadata", "name")}
        assert all(bytes(one) in data for one in elements(data, "items") or ())


NAME = ("metadata", "name")
PLACES: dict[str, tuple[str, str | None]] = {
    "where it belongs": ('{"kind": "Pod", "metadata": {"labels": {"name": "no"}, "name": "yes"}}', "yes"),
    "escaped": ('{"metadata": {"name": "\\u0079\\"es"}}', 'y"es'),
    "the first of two": ('{"metadata": {"name": "yes", "name": "no"}}', "yes"),
    "after what is nested deeply": (f'{{"x": {nested(5000).decode()}, "metadata": {{"name": "yes"}}}}', "yes"),
    "in a text that breaks off": ('{"metadata": {"name": "yes", "annotations": {"a": "b', "yes"),
    "before something wrong": ('{"metadata": {"name": "yes"}, , "spec"', "yes"),
    "in an annotation": ('{"metadata": {"annotations": {"a": "\\"metadata\\": {\\"name\\": \\"no\\"}"}}}', None),
    "as the key of an annotation": ('{"metadata": {"annotations": {"metadata\\": {\\"name": "no"}}}', None),
    "in another object of that name": ('{"spec": {"template": {"metadata": {"name": "no"}}}}', None),
    "in a list": ('{"metadata": [{"name": "no"}]}', None),
    "as another type": ('{"metadata": {"name": 5}}', None),
    "as an object": ('{"metadata": {"name": {"name": "no"}}}', None),
    "behind the end": ('{"metadata": {}} {"metadata": {"name": "no"}}', None),
    "one level too high": ('{"name": "no", "metadata": {}}', None),
    "half a character": ('{"metadata": {"name": "\\ud800"}}', None),
}


@pytest.mark.parametrize(("text", "want"), PLACES.values(), ids=PLACES)
def test_a_string_is_found_at_its_own_place_only(text: str, want: str | None) -> None:
    assert strings_at(text.encode(), [NAME]).get(NAME) == want


@given(json_values, st.text(), st.dictionaries(st.text(), st.text(), max_size=3))
def test_in_sound_text_the_scanner_finds_what_a_parser_finds(
    value: Any, name: str, annotations: dict[str, str]
) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    document = {"value": value, "metadata": {"annotations": annotations, "name": name, "spec": value}}
    text = json.dumps(document, ensure_ascii=False).encode(errors="surrogatepass")
    assert strings_at(text, [NAME]) == {NAME: name}


@given(st.lists(json_values, max_size=5), json_values)
def test_the_elements_of_a_list_are_told_apart(values: list[Any], other: Any) -> None:
    text = json.dumps({"kind": other, "items": values, "metadata": other}).encode()
    found = elements(text, "items")
    assert found is not None
    assert [json.loads(one) for one in found] == values


def test_a_bad_element_costs_itself() -> None:
    found = elements(b'{"items": [{"a": 1}, {"b": oops,}, {"c": [1, 2]}], "metadata": {}}', "items")
    assert found == [b'{"a": 1}', b' {"b": oops,}', b' {"c": [1, 2]}']


@pytest.mark.parametrize("text", [b"", b"[]", b'{"items": {}}', b'{"a": {"items": []}}', b'{"items": [{"a": 1}'])
def test_where_there_is_no_such_list_there_is_none(text: bytes) -> None:
    assert elements(text, "items") is None


@pytest.mark.parametrize("bad", [b'{"a": 1}}', b'{"a": 1]}', b'{"a": 1}]', b'{"a": [1}', b'{{"a": 1}', b'{"a": 1}]}'])
def test_an_element_with_brackets_too_many_or_too_few_does_not_end_the_list(bad: bytes) -> None:
    assert elements(b'{"items": [{"a": 0}, ' + bad + b', {"b": 2}, {"c": 3}], "metadata": {}}', "items") is None


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        (("metadata", "annotations", "dovetail.dev/plan"), "/metadata/annotations/dovetail.dev~1plan"),
        (("spec", "containers", 0, "a~b/c"), "/spec/containers/0/a~0b~1c"),
        (("spec", "tolerations", "-"), "/spec/tolerations/-"),
        ((), ""),
    ],
)
def test_a_pointer_escapes_its_parts(parts: tuple[str | int, ...], path: str) -> None:
    assert pointer(*parts) == path
