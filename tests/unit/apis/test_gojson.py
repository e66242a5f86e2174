"""JSON as Go writes it."""

from typing import Any

import pytest

from provisioner.apis.gojson import go_json

TEXTS: dict[str, tuple[Any, str]] = {
    "nothing": (None, "null"),
    "switches are no numbers": ([True, False, 1, 0], "[true,false,1,0]"),
    "keys are sorted at every level": ({"b": {"d": 1, "c": 2}, "a": []}, '{"a":[],"b":{"c":2,"d":1}}'),
    "keys are sorted by their bytes": (
        {"\U0001f600": 1, "\uffee": 2, "Z": 3, "a": 4},
        '{"Z":3,"a":4,"\uffee":2,"\U0001f600":1}',
    ),
    "comparisons are escaped": ("a < b && c > d", '"a \\u003c b \\u0026\\u0026 c \\u003e d"'),
    "line separators are escaped": ("\u2028\u2029", '"\\u2028\\u2029"'),
    "other characters are not": ("Größe ☃ /", '"Größe ☃ /"'),
    "control characters and quotes": ('a"b\\c\td\n\x01', '"a\\"b\\\\c\\td\\n\\u0001"'),
    "whole numbers keep their digits": (12345678901234567890, "12345678901234567890"),
    "a fraction": (0.95, "0.95"),
    "a small fraction without exponent": (0.00001, "0.00001"),
    "a smaller one with exponent": (1.5e-7, "1.5e-7"),
    "a large number with exponent": (1e21, "1e+21"),
    "a large number of many digits": (-1.25e30, "-1.25e+30"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_a_value(name: str) -> None:
    value, want = TEXTS[name]
    assert go_json(value) == want


@pytest.mark.parametrize("value", [float("inf"), float("nan"), b"x", {1, 2}])
def test_what_json_has_no_text_for_is_an_error(value: Any) -> None:
    with pytest.raises(TypeError, match="has no JSON"):
        go_json(value)
