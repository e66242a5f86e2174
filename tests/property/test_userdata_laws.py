"""The forms of user data: what we write is read back, by us and by the standard library."""

import email
import tomllib
from datetime import UTC
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from provisioner.cloudprovider.aws.launch.userdata import mime, toml
from provisioner.cloudprovider.aws.launch.userdata.mime import Part

SCALARS = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.datetimes(timezones=st.just(UTC))
    | st.dates()
    | st.times()
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_toml_that_is_written_is_read(document: dict[str, Any]) -> None:
    assert tomllib.loads(toml.write(document)) == document


BODIES = st.text(alphabet=st.sampled_from("ab -/\n:#=é"), max_size=30)
TYPES = st.sampled_from(["text/x-shellscript", "application/node.eks.aws", 'text/cloud-config; charset="utf-8"'])


@given(st.lists(st.tuples(TYPES, BODIES), min_size=1, max_size=4))
def test_a_multipart_document_that_is_written_is_read(found: list[tuple[str, str]]) -> None:
    parts = tuple(Part.of(kind, text) for kind, text in found)
    assert mime.read(mime.write(parts)) == parts


@given(st.lists(st.tuples(TYPES, BODIES), min_size=1, max_size=4))
def test_the_standard_library_reads_the_same(found: list[tuple[str, str]]) -> None:
    message: Any = email.message_from_string(mime.write(Part.of(kind, text) for kind, text in found))
    assert [(one["Content-Type"], one.get_payload()) for one in message.get_payload()] == found
