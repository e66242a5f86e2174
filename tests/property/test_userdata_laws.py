"""The forms of user data: what we write is read back, by us and by the standard library."""

import email
import json
import tomllib
from datetime import UTC
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from provisioner.ec2.launch.userdata import mime, toml
from provisioner.ec2.launch.userdata.mime import MimePart
from provisioner.ec2.launch.userdata.rendering import encoded, refused, render
from tests.support.ec2 import reading
from tests.support.userdata import node

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


ODD = st.sampled_from([None, True, 1, "", "x", "RAID0", "Q0E=", "é", [], ["x"], [1], {}, {"x": 1}, {"x": True}])
FIELDS = {
    "cluster": ("name", "certificateAuthority", "enableOutpost", "other"),
    "containerd": ("config", "baseRuntimeSpec"),
    "instance": ("localStorage",),
    "kubelet": ("config", "flags", "maxPodsExpression"),
    "featureGates": ("a", "b"),
}
SPECS = st.fixed_dictionaries(
    {},
    optional={
        key: ODD | st.fixed_dictionaries({}, optional=dict.fromkeys(names, ODD)) for key, names in FIELDS.items()
    },
)
CONFIGS = st.fixed_dictionaries(
    {
        "apiVersion": st.sampled_from(["node.eks.aws/v1alpha1"] * 8 + ["node.eks.aws/v1", None, 1]),
        "kind": st.sampled_from(["NodeConfig"] * 8 + ["NodeConfigs", None]),
    },
    optional={"spec": SPECS | ODD, "other": ODD},
)


@given(CONFIGS | ODD, st.booleans(), st.sampled_from(["", "---\n", "---\na: [", "...\n"]))
def test_a_class_is_refused_exactly_where_its_instances_would_not_join(document: Any, part: bool, behind: str) -> None:
    text = f"{json.dumps(document)}\n{behind}"
    if part:
        text = mime.write([MimePart.of(mime.NODE_CONFIG, text)])
    rendered = encoded(render(node("AL2023", user_data=text)))
    try:
        reading.read("al2023", rendered)
    except reading.UserDataError:
        assert refused("AL2023", text)
    else:
        assert refused("AL2023", text) == ""


BODIES = st.text(alphabet=st.sampled_from("ab -/\n:#=é"), max_size=30)
TYPES = st.sampled_from(["text/x-shellscript", "application/node.eks.aws", 'text/cloud-config; charset="utf-8"'])


@given(st.lists(st.tuples(TYPES, BODIES), min_size=1, max_size=4))
def test_a_multipart_document_that_is_written_is_read(found: list[tuple[str, str]]) -> None:
    parts = tuple(MimePart.of(kind, text) for kind, text in found)
    assert mime.read(mime.write(parts)) == parts


@given(st.lists(st.tuples(TYPES, BODIES), min_size=1, max_size=4))
def test_the_standard_library_reads_the_same(found: list[tuple[str, str]]) -> None:
    message: Any = email.message_from_string(mime.write(MimePart.of(kind, text) for kind, text in found))
    assert [(one["Content-Type"], one.get_payload()) for one in message.get_payload()] == found
