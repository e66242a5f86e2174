"""The generator of definitions: structural schemas from types, complete and always the same."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
import pytest

from provisioner.apis.crds import DEFINITIONS, QUANTITY, documents, schema_of
from provisioner.apis.meta import Object
from provisioner.apis.schema import CelRule, Schema

Document = dict[str, Any]


class Part(Object, frozen=True, kw_only=True):
    name: Annotated[str, Schema("A name.", required=True, min_length=1)]
    api_group: str = ""
    own_id: str = msgspec.field(default="", name="ownID")


class Whole(Object, frozen=True, kw_only=True):
    schema: ClassVar[Schema] = Schema(rules=(CelRule("a", "m"),))

    part: Part | None = None


class Shorter(Part, frozen=True, kw_only=True):
    name: Annotated[str, Schema("A name, or none.")] = ""


PART: Document = {
    "type": "object",
    "properties": {
        "apiGroup": {"type": "string"},
        "name": {"type": "string", "description": "A name.", "minLength": 1},
        "ownID": {"type": "string"},
    },
    "required": ["name"],
}
SCHEMAS: dict[str, tuple[Any, Document]] = {
    "text": (str, {"type": "string"}),
    "a number": (
        Annotated[int, Schema("N.", minimum=0, maximum=9)],
        {"type": "integer", "description": "N.", "minimum": 0, "maximum": 9},
    ),
    "a time": (datetime | None, {"type": "string", "format": "date-time"}),
    "a switch": (bool, {"type": "boolean"}),
    "a quantity": (str | int | float, QUANTITY),
    "something that may be unset": (str | msgspec.UnsetType, {"type": "string"}),
    "a list": (
        Annotated[tuple[str, ...], Schema(list_type="set", max_items=3, items=Schema(pattern="^a$"))],
        {
            "type": "array",
            "items": {"type": "string", "pattern": "^a$"},
            "maxItems": 3,
            "x-kubernetes-list-type": "set",
        },
    ),
    "a map": (
        Annotated[dict[str, str], Schema(max_properties=2, items=Schema(max_length=5))],
        {"type": "object", "additionalProperties": {"type": "string", "maxLength": 5}, "maxProperties": 2},
    ),
    "an object": (Part, PART),
    "an object with rules of its own": (
        Whole,
        {"type": "object", "properties": {"part": PART}, "x-kubernetes-validations": [{"rule": "a", "message": "m"}]},
    ),
    "rules of a place come after those of the type": (
        Annotated[Whole, Schema(rules=(CelRule("b", "n"),))],
        {
            "type": "object",
            "properties": {"part": PART},
            "x-kubernetes-validations": [{"rule": "a", "message": "m"}, {"rule": "b", "message": "n"}],
        },
    ),
    "a field that is stricter in one place": (
        Annotated[Part, Schema(fields={"ownID": Schema(enum=("x",))})],
        PART | {"properties": PART["properties"] | {"ownID": {"type": "string", "enum": ["x"]}}},
    ),
    "another type's schema": (
        Annotated[Part, Schema(like=Shorter)],
        {
            "type": "object",
            "properties": PART["properties"] | {"name": {"type": "string", "description": "A name, or none."}},
        },
    ),
    "a default": (Annotated[int, Schema(default=0)], {"type": "integer", "default": 0}),
    "a default that is a list": (
        Annotated[tuple[str, ...], Schema(default=("a",))],
        {"type": "array", "items": {"type": "string"}, "default": ["a"]},
    ),
    "a schema made by hand": (
        Annotated[str, Schema("ignored", replace={"type": "x", "enum": ("y",)})],
        {"type": "x", "enum": ["y"]},
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_of_a_type(name: str) -> None:
    hint, want = SCHEMAS[name]
    assert schema_of(hint) == want


@pytest.mark.parametrize("hint", [set[str], dict[int, str], tuple[str, str], str | bytes, object])
def test_a_type_without_structural_schema_is_an_error(hint: Any) -> None:
    with pytest.raises(TypeError, match="no structural schema"):
        schema_of(hint)


def test_a_stricter_place_leaves_the_type_as_it_was() -> None:
    schema_of(Annotated[Part, Schema(fields={"ownID": Schema(enum=("x",))})])
    assert schema_of(Part) == PART


def nodes(schema: Document, path: str = "") -> Iterator[tuple[str, Document]]:
    """Every schema within a schema, by path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from nodes(schema[word], f"{path}[]")


def version_of(document: Document) -> Document:
    (version,) = document["spec"]["versions"]
    return dict(version)


@pytest.mark.parametrize("document", documents().values(), ids=list(documents()))
class TestEveryDefinition:
    def test_every_field_is_described(self, document: Document) -> None:
        root = version_of(document)["schema"]["openAPIV3Schema"]
        for path, schema in nodes(root):
            if path not in ("", ".metadata") and not path.endswith("[]"):
                assert schema.get("description"), path

    def test_every_part_has_a_type(self, document: Document) -> None:
        for path, schema in nodes(version_of(document)["schema"]["openAPIV3Schema"]):
            assert schema.get("type") or schema.get("x-kubernetes-int-or-string"), path

    def test_required_fields_are_there(self, document: Document) -> None:
        for path, schema in nodes(version_of(document)["schema"]["openAPIV3Schema"]):
            assert set(schema.get("required", [])) <= schema.get("properties", {}).keys(), path

    def test_the_status_is_written_apart(self, document: Document) -> None:
        assert version_of(document)["subresources"]["status"] == {}

    def test_its_name_is_plural_and_group(self, document: Document) -> None:
        spec = document["spec"]
        assert document["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"


def test_documents_are_the_same_each_time_and_share_nothing() -> None:
    first, second = documents(), documents()
    assert first == second
    next(iter(first.values()))["spec"]["group"] = "other"
    assert documents() == second


def test_the_files() -> None:
    assert sorted(documents()) == [
        "autoscaling.x-k8s.io_capacitybuffers.yaml",
        "karpenter.k8s.aws_ec2nodeclasses.yaml",
        "karpenter.kwok.sh_kwoknodeclasses.yaml",
        "karpenter.sh_nodeclaims.yaml",
        "karpenter.sh_nodeoverlays.yaml",
        "karpenter.sh_nodepools.yaml",
    ]


def test_only_pools_are_scaled() -> None:
    scaled = [definition.kind for definition in DEFINITIONS if definition.scale]
    assert scaled == ["NodePool"]
    assert version_of(documents()["karpenter.sh_nodepools.yaml"])["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.nodes",
    }


def test_only_buffers_have_a_namespace() -> None:
    scopes = {document["spec"]["names"]["kind"]: document["spec"]["scope"] for document in documents().values()}
    assert [kind for kind, scope in scopes.items() if scope == "Namespaced"] == ["CapacityBuffer"]
