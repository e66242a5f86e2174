"""TOML that tomllib reads back as it was."""

from datetime import UTC, date, datetime, time

import pytest

from provisioner.ec2.launch.userdata.toml import write


def test_the_order_of_keys_does_not_matter() -> None:
    assert write({"b": {"y": 1, "x": 2}, "a": 3}) == write({"a": 3, "b": {"x": 2, "y": 1}})


def test_an_empty_table_is_there() -> None:
    assert write({"a": {"b": {}}}) == "[a.b]\n"


def test_times() -> None:
    document = {"a": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "b": date(2026, 1, 2), "c": time(3, 4)}
    assert write(document) == "a = 2026-01-02T03:04:05+00:00\nb = 2026-01-02\nc = 03:04:00\n"


def test_what_toml_has_no_text_for_is_an_error() -> None:
    with pytest.raises(TypeError, match="has no TOML"):
        write({"a": [None]})
