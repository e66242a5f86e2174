"""What registries answer, and what pull secrets hold."""

import base64
import json
import tracemalloc
from typing import Any

import pytest

from tests.support.imagehosts import INDEX, digest_of, encoded, index, manifest
from tests.support.kube import nested
from webhook.images.documents import (
    MAX_BYTES,
    Challenge,
    ImageDocumentError,
    Login,
    Platform,
    challenges_in,
    login_in,
    platform_in,
    platforms_in,
    token_in,
)
from webhook.images.references import parse

AMD64, ARM64 = Platform("linux", "amd64"), Platform("linux", "arm64")


def test_an_index_names_its_platforms_without_attestations() -> None:
    body = encoded(index(("linux", "amd64"), ("linux", "arm64"), attestations=2))
    assert platforms_in(body) == frozenset({AMD64, ARM64})


def test_attestations_are_left_out_whatever_platform_they_name() -> None:
    document = index(("linux", "amd64"), attestations=2)
    document["manifests"][1]["platform"] = {"os": "linux", "architecture": "arm64"}
    del document["manifests"][2]["platform"]
    assert platforms_in(encoded(document)) == frozenset({AMD64})


def test_a_list_of_docker_is_an_index_and_so_is_one_that_names_no_type() -> None:
    docker = "application/vnd.docker.distribution.manifest.list.v2+json"
    assert platforms_in(encoded(index(("linux", "amd64"), mediaType=docker))) == frozenset({AMD64})
    assert platforms_in(encoded({"manifests": index(("linux", "amd64"))["manifests"]})) == frozenset({AMD64})


def test_other_names_of_an_architecture_are_go_s() -> None:
    assert platforms_in(encoded(index(("Linux", "x86_64"), ("linux", "aarch64")))) == frozenset({AMD64, ARM64})


def test_platforms_that_no_node_has_are_left_out() -> None:
    assert platforms_in(encoded(index(("plan9", "amd64"), ("linux", "amd64"), ("linux", "../etc")))) == frozenset(
        {AMD64}
    )


def test_a_manifest_names_its_configuration_which_names_the_platform() -> None:
    config = encoded({"os": "linux", "architecture": "arm64"})
    assert platforms_in(encoded(manifest(config))) == digest_of(config)
    assert platform_in(config) == ARM64


def _signed() -> dict[str, Any]:
    return {"schemaVersion": 1, "name": "a", "fsLayers": [], "history": []}


NOTHING: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"<html>",
    "a list": b"[]",
    "depth": nested(100_000),
    "not UTF-8": b'{"mediaType": "\xff"}',
    "a lone surrogate": b'{"mediaType": "\\ud800"}',
    "attestations alone": encoded(index(attestations=2)),
    "an empty index": encoded(index()),
    "no platform": encoded({"mediaType": INDEX, "manifests": [{"digest": "sha256:1"}]}),
    "an index and a manifest at once": encoded(index(("linux", "amd64")) | {"config": manifest(b"")["config"]}),
    "an index and layers at once": encoded(index(("linux", "amd64")) | {"layers": []}),
    "a manifest that says it is an index": encoded(manifest(b"{}") | {"mediaType": INDEX}),
    "a chart": encoded(manifest(b"{}", "application/vnd.cncf.helm.config.v1+json")),
    "schema 1": encoded(_signed()),
    "a configuration without a digest": encoded(
        {"config": {"mediaType": manifest(b"")["config"]["mediaType"], "digest": "../x"}}
    ),
    "too many entries": encoded(index(*[("linux", "amd64")] * 1025)),
    "far too many entries": b'{"manifests": [' + b"{}," * 1_000_000 + b"{}]}",
    "entries that are none": encoded({"manifests": [1, 2]}),
    "entries that are no list": encoded({"manifests": {"platform": {"os": "linux", "architecture": "amd64"}}}),
    "a configuration that is none": encoded({"config": 3, "layers": []}),
}


@pytest.mark.parametrize("body", NOTHING.values(), ids=NOTHING)
def test_what_says_nothing_is_an_error(body: bytes) -> None:
    with pytest.raises(ImageDocumentError):
        platforms_in(body)


def filled(head: bytes, unit: bytes, tail: bytes) -> bytes:
    """A document as long as one may be, of one part again and again."""
    return head + unit * ((MAX_BYTES - len(head) - len(tail)) // len(unit)) + tail


HUGE = {
    "entries": filled(b'{"manifests":[', b"{},", b"{}]}"),
    "entries with platforms": filled(b'{"manifests":[', b'{"platform":{}},', b"{}]}"),
    "annotations of an entry": b'{"manifests":[{"annotations":{%b}}]}'
    % b",".join(b'"%x":""' % number for number in range(380_000)),
    "annotations of a configuration": filled(b'{"config":{"annotations":{', b'"a":"b",', b'"a":""}}}'),
    "layers": filled(b'{"config":{},"layers":[', b"1,", b"1]}"),
    "layers of schema 1": filled(b'{"fsLayers":[', b"{},", b"{}]}"),
    "words that nobody knows": filled(b"{", b'"x":[],', b'"a":1}'),
    "lists": filled(b'{"manifests":[', b"[],", b"[]]}"),
}


@pytest.mark.parametrize("body", HUGE.values(), ids=HUGE)
def test_the_largest_document_takes_little_more_memory_than_its_text(body: bytes) -> None:
    assert len(body) <= MAX_BYTES
    tracemalloc.start()
    try:
        with pytest.raises(ImageDocumentError):
            platforms_in(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * MAX_BYTES


def test_an_entry_is_an_attestation_by_its_annotations_alone() -> None:
    document = index(("linux", "amd64"), ("linux", "arm64"))
    document["manifests"][0]["annotations"] = {"com.example": "vnd.docker.reference.type"}
    document["manifests"][1]["annotations"] = {"a": "b", "vnd.docker.reference.type": "attestation-manifest", "c": "d"}
    assert platforms_in(encoded(document)) == frozenset({AMD64})


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"os":"linux"}', b'{"os":"linux","architecture":"unknown"}', nested(100_000)]
)
def test_a_configuration_that_says_nothing_is_an_error(body: bytes) -> None:
    with pytest.raises(ImageDocumentError):
        platform_in(body)


def test_a_token_has_either_name() -> None:
    assert token_in(b'{"token": "abc.def-_~+/="}') == "abc.def-_~+/="
    assert token_in(b'{"access_token": "abc"}') == "abc"


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX: y", "é", "a" * 20_000])
def test_a_token_that_may_not_stand_in_a_header_is_an_error(token: str) -> None:
    with pytest.raises(ImageDocumentError):
        token_in(json.dumps({"token": token}).encode())


def test_challenges_are_read() -> None:
    bearer = 'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a:pull,push"'
    assert challenges_in(bearer) == [Challenge("bearer", "https://auth.docker.io/token", "registry.docker.io")]
    assert challenges_in(f'{bearer}, Basic realm="x\\"y"')[1] == Challenge("basic", 'x"y')
    assert challenges_in("Basic") == [Challenge("basic")]
    assert challenges_in("") == challenges_in(",,,") == challenges_in("=") == []


@pytest.mark.parametrize("unit", [" ", ",", "a", 'a="', '"', "\\", 'a="\\', "Bearer ", "a=b,"])
def test_a_hostile_header_costs_little(unit: str) -> None:
    for length in (1, 4096, 1_000_000):
        assert len(challenges_in(unit * length)) <= 4096


def config(**auths: Any) -> dict[str, bytes]:
    return {".dockerconfigjson": json.dumps({"auths": auths}).encode()}


def entry(username: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{username}:{password}".encode()).decode()}


def test_the_credentials_for_a_registry_are_found_and_no_others() -> None:
    data = config(
        **{
            "ghcr.io": entry("a", "1"),
            "https://index.docker.io/v1/": entry("b", "2"),
            "https://quay.io/team": entry("c", "3"),
        }
    )
    assert login_in(data, parse("ghcr.io/x/y")) == Login("a", "1")
    assert login_in(data, parse("nginx")) == Login("b", "2")
    assert login_in(data, parse("quay.io/team/app")) == Login("c", "3")
    for other in ("quay.io/teammate/app", "quay.io/x", "ghcr.io:8443/x", "evil.ghcr.io/x", "ghcr.io.evil.com/x"):
        assert login_in(data, parse(other)) is None


def test_the_longest_name_wins_and_stars_are_for_one_label() -> None:
    data = config(**{"*.corp.io": entry("a", "1"), "r.corp.io/team": entry("b", "2")})
    assert login_in(data, parse("r.corp.io/team/app")) == Login("b", "2")
    assert login_in(data, parse("r.corp.io/x")) == Login("a", "1")
    assert login_in(data, parse("a.r.corp.io/x")) is None
    assert login_in(config(**{"*.io": entry("a", "1")}), parse("r.corp.io/x")) is None


def test_old_secrets_and_plain_fields_are_read() -> None:
    plain = {"username": "a", "password": "1"}
    assert login_in({".dockercfg": json.dumps({"ghcr.io": plain}).encode()}, parse("ghcr.io/x")) == Login("a", "1")
    assert login_in({}, parse("ghcr.io/x")) is None


@pytest.mark.parametrize("data", [b"", b"[]", b'{"auths": 3}', nested(100_000)])
def test_a_secret_that_cannot_be_read_is_an_error_without_its_content(data: bytes) -> None:
    with pytest.raises(ImageDocumentError, match=r"^the pull secret cannot be read$"):
        login_in({".dockerconfigjson": data}, parse("ghcr.io/x"))


def test_hostile_names_in_a_secret_match_nothing_and_cost_little() -> None:
    names = [
        "*" * 100_000,
        "*." * 50_000,
        "[",
        "https://[",
        "a" * 1_000_000,
        "https://ghcr.io:99999999",
        "https://ghcr.io:x",
    ]
    assert login_in(config(**{name: entry("a", "1") for name in names}), parse("ghcr.io/x")) is None
    assert login_in(config(**{"ghcr.io": {"auth": "!"}}), parse("ghcr.io/x")) is None


def test_a_password_is_not_in_the_text_of_a_login() -> None:
    assert "secret" not in f"{Login('user', 'secret')!r} {Login('user', 'secret')}"
