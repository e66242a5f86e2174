"""Lookups over real TLS: the protocol, and everything that a tenant, a registry or a resolver could try."""

import base64
import hashlib
import ssl
import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from provisioner.kube.client import Client
from tests.support.clock import FakeClock
from tests.support.imagehosts import (
    ECR,
    ECR_STORE,
    INDEX,
    PUBLIC_ECR,
    PUBLIC_ECR_STORE,
    Answer,
    Asked,
    Forwarded,
    Hosts,
    Store,
    basic,
    digest_of,
    encoded,
    hosts,
    index,
    silent_listener,
)
from tests.support.kube import FakeApi
from webhook.images import registry as module
from webhook.images.credentials import Credentials
from webhook.images.documents import MAX_BYTES, Login, Platform
from webhook.images.lookups import Key
from webhook.images.references import Host, parse
from webhook.images.registry import FoundImage, LookupFailedError, Registry, client_context
from webhook.images.transport import RegistryRefusedError, Transport, TransportError
from webhook.images.trust import Trust, parse_accounts, parse_networks, parse_registries

AMD64, ARM64 = Platform("linux", "amd64"), Platform("linux", "arm64")
LOGIN = Login("user", "secret")


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(Store(), tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture
def at(everywhere: Hosts) -> Hosts:
    """The hosts, with nothing asked and nothing changed."""
    everywhere.asked.clear()
    everywhere.resolved.clear()
    everywhere.addresses = lambda _: ["127.0.0.1"]
    return everywhere


def nobody() -> Login | None:
    return None


def fails(
    registry: Registry,
    reference: object,
    words: str,
    login: Callable[[], Login | None] = nobody,
    known: FoundImage | None = None,
) -> LookupFailedError:
    with pytest.raises(LookupFailedError, match=words) as caught:
        registry.look(reference, login, known)  # type: ignore[arg-type]
    return caught.value


# --- what images are ------------------------------------------------------------------------------------------------


def test_an_image_for_many_platforms_costs_one_request(at: Hosts) -> None:
    at.respond = store = Store()
    digest = store.list("team/app", "1", index(("linux", "amd64"), ("linux", "arm64"), attestations=2))
    found = at.registry().look(at.reference(), nobody)
    assert (set(found.platforms), found.digest) == ({AMD64, ARM64}, digest)
    assert [one.path for one in at.asked] == ["/v2/team/app/manifests/1"]
    assert INDEX in at.asked[0].headers["accept"]


def test_an_image_for_one_platform_is_known_by_its_configuration(at: Hosts) -> None:
    at.respond = store = Store()
    digest = store.image("team/app", "1", "linux", "arm64")
    found = at.registry().look(at.reference(), nobody)
    assert (set(found.platforms), found.digest) == ({ARM64}, digest)
    assert at.registry().look(at.reference(f"app@{digest}"), nobody).platforms == {ARM64}


def test_a_tag_that_still_means_the_same_costs_no_pull(at: Hosts) -> None:
    """Docker Hub counts GET of a manifest, and limits it; it does not count HEAD."""
    at.respond = store = Store()
    store.image("team/app", "1", "linux", "arm64")
    known = at.registry().look(at.reference(), nobody)
    at.asked.clear()
    assert at.registry().look(at.reference(), nobody, known) is known
    assert [(one.method, one.path) for one in at.asked] == [("HEAD", "/v2/team/app/manifests/1")]
    assert INDEX in at.asked[0].headers["accept"], "else the registry may name another document"
    digest = store.list("team/app", "1", index(("linux", "amd64")))
    found = at.registry().look(at.reference(), nobody, known)
    assert (set(found.platforms), found.digest) == ({AMD64}, digest)
    assert [one.method for one in at.asked] == ["HEAD", "HEAD", "GET"]


NO_DIGEST = {
    "without the digest": Answer(200),
    "with an empty digest": Answer(200, headers={"docker-content-digest": ""}),
    "with a long body that does not come": Answer(200, headers={"content-length": str(1 << 40)}),
    "that it knows no HEAD": Answer(405),
    "that there is no such image": Answer(404),
}


@pytest.mark.parametrize("answer", NO_DIGEST.values(), ids=NO_DIGEST)
def test_a_registry_that_answers_head_with_nothing_useful_is_asked_as_ever(at: Hosts, answer: Answer) -> None:
    store = Store()
    store.list("team/app", "1", index(("linux", "amd64")))
    known = FoundImage(frozenset({ARM64}), "sha256:" + "0" * 64)
    at.respond = lambda asked: answer if asked.method == "HEAD" else store(asked)
    assert at.registry().look(at.reference(), nobody, known).platforms == {AMD64}
    at.respond = lambda asked: Answer(429) if asked.method == "HEAD" else store(asked)
    at.asked.clear()
    fails(at.registry(), at.reference(), "answers 429", known=known)
    assert len(at.asked) == 1, "a registry that is busy is not asked twice"


def test_what_is_known_of_a_tag_is_refreshed_with_the_same_credentials(at: Hosts) -> None:
    store, password = Store(), basic("user", "secret")
    store.list("team/app", "1", index(("linux", "amd64")))
    at.respond = lambda one: (
        store(one)
        if one.headers.get("authorization") == password
        else Answer(401, headers={"www-authenticate": "Basic"})
    )
    known = at.registry().look(at.reference(), lambda: LOGIN)
    assert at.registry().look(at.reference(), lambda: LOGIN, known) is known
    at.asked.clear()
    fails(at.registry(), at.reference(), "denies access", known=known)
    assert all("authorization" not in one.headers for one in at.asked)


# --- attacks --------------------------------------------------------------------------------------------------------


def test_a_registry_that_is_not_listed_is_never_resolved_nor_asked(at: Hosts) -> None:
    fails(at.registry(), at.reference(host="evil.test"), "is not in --image-registries")
    assert (at.resolved, at.asked) == ([], [])


PRIVATE = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00:ec2::254", "0.0.0.0")


@pytest.mark.parametrize("address", PRIVATE)
def test_a_listed_name_that_leads_inside_is_not_connected_to(at: Hosts, address: str) -> None:
    at.addresses = lambda _: [address]
    fails(at.registry(at.trust(networks="")), at.reference(), "which is not public")
    assert at.asked == []


def test_of_several_addresses_only_the_public_ones_are_tried(at: Hosts) -> None:
    """The name has a harmless address (here: the one that is allowed) beside one inside."""
    at.respond = store = Store()
    store.list("team/app", "1", index(("linux", "amd64")))
    at.addresses = lambda _: ["169.254.169.254", "10.0.0.1", "127.0.0.1"]
    assert at.registry().look(at.reference(), nobody).platforms == {AMD64}


def test_a_second_answer_of_the_resolver_changes_nothing(at: Hosts) -> None:
    """DNS rebinding: the name is resolved once a request, and the address that was judged is the one that is connected to."""
    at.respond = store = Store()
    store.list("team/app", "1", index(("linux", "amd64")))
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])
    at.addresses = lambda _: next(answers)
    assert at.registry().look(at.reference(), nobody).platforms == {AMD64}
    assert at.resolved == ["registry.test"]
    fails(at.registry(), at.reference(), "169.254.169.254")  # and the next request is judged anew


def test_a_registry_that_is_named_by_its_address_must_be_listed_and_public(at: Hosts) -> None:
    reference = parse(f"127.0.0.1:{at.port}/team/app")
    fails(at.registry(), reference, "is not in --image-registries")
    fails(at.registry(at.trust(f"127.0.0.1:{at.port}", networks="")), reference, "which is not public")


@pytest.mark.parametrize("name", ["2130706433", "0x7f000001", "017700000001", "127.1"])
def test_other_ways_to_write_an_address_are_seen_through(at: Hosts, name: str) -> None:
    trust = Trust(parse_registries(f"{name}:{at.port}"))
    transport = Transport(trust, at.context(), time.monotonic)
    with pytest.raises((RegistryRefusedError, TransportError)):
        transport.ask("GET", Host(name, at.port), "/v2/", {}, 10, time.monotonic() + 5)
    assert at.asked == []


def test_a_certificate_for_another_name_or_of_an_unknown_authority_is_refused(at: Hosts) -> None:
    trust = at.trust(f"nobody.test:{at.port}")
    error = fails(at.registry(trust), parse(f"nobody.test:{at.port}/team/app"), "CERTIFICATE_VERIFY_FAILED")
    assert not error.ours
    trust = at.trust()
    strangers = Registry(
        Transport(trust, client_context(None), time.monotonic, lambda *_: ["127.0.0.1"]), trust, time.monotonic
    )
    fails(strangers, at.reference(), "CERTIFICATE_VERIFY_FAILED")
    assert client_context(None).verify_mode is ssl.CERT_REQUIRED
    assert at.asked == []


@pytest.mark.parametrize(
    "place",
    [
        "http://registry.test:{port}/x",
        "http://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd",
        "//evil.test/x",
    ],
)
def test_a_redirect_to_plain_http_or_elsewhere_is_not_followed(at: Hosts, place: str) -> None:
    at.respond = lambda _: Answer(307, headers={"location": place.format(port=at.port)})
    fails(at.registry(), at.reference(), "is not HTTPS|cannot be read|does not allow")
    assert len(at.asked) == 1


def test_a_redirect_to_a_host_that_is_not_allowed_is_not_followed(at: Hosts) -> None:
    at.respond = lambda one: Answer(307, headers={"location": f"https://{at.at('evil.test')}{one.path}"})
    fails(at.registry(), at.reference(), r"redirects to evil\.test:\d+, which --image-registries does not allow")
    assert [one.host for one in at.asked] == ["registry.test"]


def test_a_redirect_with_a_user_in_it_is_not_followed(at: Hosts) -> None:
    at.respond = lambda _: Answer(307, headers={"location": f"https://{at.at('registry.test')}@evil.test/x"})
    fails(at.registry(), at.reference(), "cannot be read")
    assert len(at.asked) == 1


def test_the_address_behind_a_redirect_is_judged_too(at: Hosts) -> None:
    at.respond = lambda one: Answer(307, headers={"location": f"https://{at.at('store.test')}{one.path}"})
    at.addresses = lambda name: ["127.0.0.1" if name == "registry.test" else "169.254.169.254"]
    trust = at.trust(f"{at.at('registry.test')}={at.at('store.test')}")
    fails(at.registry(trust), at.reference(), "169.254.169.254")
    assert [one.host for one in at.asked] == ["registry.test"]


def test_redirects_end(at: Hosts) -> None:
    at.respond = lambda one: Answer(302, headers={"location": f"{one.path}x"})
    fails(at.registry(), at.reference(), "answers 302")
    assert len(at.asked) == 1 + module.MAX_REDIRECTS


def test_a_store_hears_neither_token_nor_password(at: Hosts) -> None:
    store = Store()
    store.image("team/app", "1", "linux", "arm64")

    def respond(asked: Asked) -> Answer:
        if asked.host == "store.test":
            return store(asked)
        if "authorization" not in asked.headers:
            return Answer(401, headers={"www-authenticate": "Basic"})
        return Answer(307, headers={"location": f"https://{at.at('store.test')}{asked.path}"})

    at.respond = respond
    trust = at.trust(f"{at.at('registry.test')}={at.at('store.test')}")
    assert at.registry(trust).look(at.reference(), lambda: LOGIN).platforms == {ARM64}
    assert at.authorizations("registry.test") == [LOGIN.header] * 2
    assert at.authorizations("store.test") == []


def stored_at(store: Store, host: str, asked: Asked) -> Answer:
    """What a registry answers that has its blobs elsewhere: a store that refuses an Authorization beside the signature in the URL, as S3 does."""
    if asked.host == host:
        is_plain = asked.query == {"signature": ["s"]} and "authorization" not in asked.headers
        return store(asked) if is_plain else Answer(400)
    if "/blobs/" in asked.path:
        return Answer(307, headers={"location": f"https://{host}{asked.path}?signature=s"})
    return store(asked)


def test_an_image_in_ecr_is_read_with_the_login_of_our_role_and_its_store_hears_nothing_of_it(at: Hosts) -> None:
    store, password = Store(), basic("AWS", "made-for-eu-central-1")
    store.image("team/app", "1", "linux", "arm64")

    def respond(asked: Asked) -> Answer:
        if asked.host == ECR and asked.headers.get("authorization") != password:
            challenge = f'Basic realm="https://{ECR}/",service="ecr.amazonaws.com"'
            return Answer(401, headers={"www-authenticate": challenge})
        return stored_at(store, ECR_STORE, asked)

    def token(region: str) -> str:
        return base64.b64encode(f"AWS:made-for-{region}".encode()).decode()

    at.respond = respond
    trust = Trust(networks=parse_networks("127.0.0.0/8"), accounts=parse_accounts("123456789012"))
    own = Credentials(Client(FakeApi(), FakeClock()), trust, FakeClock(), token)
    reference = parse(f"{ECR}/team/app:1")
    registry = Registry(Forwarded(at, trust), trust, time.monotonic)
    assert registry.look(reference, lambda: own.login(Key(reference))).platforms == {ARM64}
    assert [one.host for one in at.asked] == [ECR, ECR, ECR, ECR_STORE]
    assert at.authorizations(ECR) == [password] * 2
    fails(registry, reference, "denies access")


def test_an_image_in_public_ecr_is_read_with_a_token_for_anybody(at: Hosts) -> None:
    store = Store()
    store.image("team/app", "1", "linux", "arm64")

    def respond(asked: Asked) -> Answer:
        if asked.path == "/token/":
            return Answer(200, encoded({"token": "t0ken"}))
        if asked.host == PUBLIC_ECR and asked.headers.get("authorization") != "Bearer t0ken":
            challenge = f'Bearer realm="https://{PUBLIC_ECR}/token/",service="{PUBLIC_ECR}",scope="aws"'
            return Answer(401, headers={"www-authenticate": challenge})
        return stored_at(store, PUBLIC_ECR_STORE, asked)

    at.respond = respond
    trust = Trust(parse_registries(PUBLIC_ECR), parse_networks("127.0.0.0/8"))
    registry = Registry(Forwarded(at, trust), trust, time.monotonic)
    assert registry.look(parse(f"{PUBLIC_ECR}/team/app:1"), nobody).platforms == {ARM64}
    assert [one.host for one in at.asked] == [PUBLIC_ECR] * 4 + [PUBLIC_ECR_STORE]
    assert at.authorizations(PUBLIC_ECR) == ["Bearer t0ken"] * 2


def realm(at: Hosts, host: str, path: str = "/token") -> Callable[[Asked], Answer]:
    """A registry that wants a token of a host."""
    store = Store()
    store.list("team/app", "1", index(("linux", "amd64")))

    def respond(asked: Asked) -> Answer:
        if asked.path == "/token":
            return Answer(200, encoded({"token": "t0ken"}))
        if asked.headers.get("authorization") == "Bearer t0ken":
            return store(asked)
        return Answer(401, headers={"www-authenticate": f'Bearer realm="https://{at.at(host)}{path}",service="r e&g"'})

    return respond


def test_a_token_is_fetched_with_the_password_of_the_registry(at: Hosts) -> None:
    at.respond = realm(at, "registry.test")
    assert at.registry().look(at.reference(), lambda: LOGIN).platforms == {AMD64}
    assert at.authorizations("registry.test") == [basic("user", "secret"), "Bearer t0ken"]
    assert at.asked[1].query == {"scope": ["repository:team/app:pull"], "service": ["r e&g"]}


@pytest.mark.parametrize("first", ["Bearer", "Basic"])
def test_of_two_challenges_in_a_header_each_the_one_for_a_token_is_taken(at: Hosts, first: str) -> None:
    """Gitea offers both; without a password there is nothing to say to Basic."""
    with_token = realm(at, "registry.test")

    def respond(asked: Asked) -> Answer:
        answer = with_token(asked)
        if answer.status != 401:
            return answer
        both = [answer.headers["www-authenticate"], 'Basic realm="registry"']
        one, other = both if first == "Bearer" else reversed(both)
        return Answer(401, headers={"www-authenticate": one, "WWW-Authenticate": other})

    at.respond = respond
    assert at.registry().look(at.reference(), nobody).platforms == {AMD64}


def test_without_a_password_the_token_is_for_anybody(at: Hosts) -> None:
    at.respond = realm(at, "registry.test")
    assert at.registry().look(at.reference(), nobody).platforms == {AMD64}
    assert at.authorizations("registry.test") == ["Bearer t0ken"]


def test_a_realm_elsewhere_hears_nothing_unless_it_is_listed(at: Hosts) -> None:
    at.respond = realm(at, "evil.test")
    fails(at.registry(), at.reference(), r"requests tokens from evil\.test:\d+", lambda: LOGIN)
    assert [one.host for one in at.asked] == ["registry.test"]
    at.respond = realm(at, "tokens.test")
    trust = at.trust(f"{at.at('registry.test')}={at.at('tokens.test')}")
    assert at.registry(trust).look(at.reference(), lambda: LOGIN).platforms == {AMD64}
    assert at.authorizations("tokens.test") == [LOGIN.header]


def test_the_address_behind_a_realm_is_judged_too(at: Hosts) -> None:
    at.respond = realm(at, "tokens.test")
    at.addresses = lambda name: ["127.0.0.1" if name == "registry.test" else "10.0.0.1"]
    trust = at.trust(f"{at.at('registry.test')}={at.at('tokens.test')}")
    fails(at.registry(trust), at.reference(), r"10\.0\.0\.1", lambda: LOGIN)
    assert [one.host for one in at.asked] == ["registry.test"]


@pytest.mark.parametrize(
    "url", ["http://registry.test:{port}/token", "ftp://registry.test/token", "", "https://", "javascript:alert(1)"]
)
def test_a_realm_that_is_not_https_hears_nothing(at: Hosts, url: str) -> None:
    at.respond = lambda _: Answer(401, headers={"www-authenticate": f'Bearer realm="{url.format(port=at.port)}"'})
    fails(at.registry(), at.reference(), "is not HTTPS|cannot be read", lambda: LOGIN)
    assert len(at.asked) == 1


def test_a_realm_that_redirects_is_not_followed(at: Hosts) -> None:
    answers = realm(at, "registry.test")

    def respond(asked: Asked) -> Answer:
        if asked.path == "/token":
            return Answer(302, headers={"location": f"https://{at.at('evil.test')}/token"})
        return answers(asked)

    at.respond = respond
    fails(at.registry(), at.reference(), "answers 302", lambda: LOGIN)
    assert at.authorizations("evil.test") == []


def test_a_registry_that_does_not_ask_is_told_nothing(at: Hosts) -> None:
    at.respond = store = Store()
    store.list("team/app", "1", index(("linux", "amd64")))
    at.registry().look(at.reference(), lambda: LOGIN)
    assert at.authorizations("registry.test") == []


@pytest.mark.parametrize("stated", [True, False], ids=["stated", "not stated"])
def test_a_body_of_more_than_four_megabytes_is_given_up(at: Hosts, stated: bool) -> None:
    body = b" " * (MAX_BYTES + 1)
    headers = {} if stated else {"content-length": str(1 << 40)}
    at.respond = lambda _: Answer(200, body, headers)
    error = fails(at.registry(), at.reference(), "larger than")
    assert error.ours, "whoever pushed the image is at fault: other images can be looked up"


def test_a_compressed_body_is_not_unpacked(at: Hosts) -> None:
    at.respond = lambda _: Answer(200, b"\x1f\x8b" + b"\0" * 100, {"content-encoding": "gzip"})
    fails(at.registry(), at.reference(), "cannot be read")


def test_headers_without_end_are_given_up(at: Hosts) -> None:
    at.respond = lambda _: Answer(200, b"", {f"x-{number}": "y" * 4000 for number in range(20)})
    assert not fails(at.registry(), at.reference(), "RemoteProtocolError").ours


@pytest.mark.parametrize(
    ("status", "piece"), [(200, b"1\r\n \r\n"), (103, b"HTTP/1.1 103 -\r\n\r\n")], ids=["chunks", "information"]
)
def test_an_answer_in_too_many_pieces_is_given_up(at: Hosts, status: int, piece: bytes) -> None:
    """Four megabytes in chunks of a byte took seconds, in which hardly a pod was admitted."""
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" if status == 103 else b"2\r\n{}\r\n0\r\n\r\n"
    at.respond = lambda _: Answer(status, piece * 17_000 + answer, {"transfer-encoding": "chunked"})
    assert fails(at.registry(), at.reference(), "too many pieces").ours
    at.respond = lambda _: Answer(status, piece * 7_000 + answer, {"transfer-encoding": "chunked"})
    fails(at.registry(), at.reference(), "neither an index nor a manifest")


def test_bytes_that_drip_end_with_the_deadline(at: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.5)
    at.respond = lambda _: Answer(200, b"x" * 1000, drip=0.05)
    error = fails(at.registry(), at.reference(), "timed out")
    assert not error.ours


def test_a_host_that_takes_the_connection_and_says_nothing_ends_with_the_deadline(
    at: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.3)
    with silent_listener() as port:
        trust = at.trust(f"registry.test:{port}")
        fails(at.registry(trust), parse(f"registry.test:{port}/team/app"), "timed out|time for one lookup")


def test_after_the_deadline_nothing_is_begun(at: Hosts) -> None:
    transport = Transport(at.trust(), at.context(), time.monotonic, lambda *_: ["127.0.0.1"])
    with pytest.raises(TransportError, match="the lookup timed out"):
        transport.ask("GET", Host("registry.test", at.port), "/v2/", {}, 10, time.monotonic() - 1)
    assert at.asked == []


def test_another_document_than_the_digest_names_is_refused(at: Hosts) -> None:
    at.respond = store = Store()
    digest = store.list("team/app", "1", index(("linux", "amd64")))
    store.put(f"/v2/team/app/manifests/{digest}", encoded(index(("linux", "arm64"))))
    fails(at.registry(), at.reference(f"app@{digest}"), "does not match the digest")


def test_another_configuration_than_the_manifest_names_is_refused(at: Hosts) -> None:
    at.respond = store = Store()
    store.image("team/app", "1", "linux", "arm64")
    (blob,) = (path for path in store.documents if "/blobs/" in path)
    store.put(blob, encoded({"os": "linux", "architecture": "amd64"}))
    fails(at.registry(), at.reference(), "does not match the digest")


def test_a_digest_of_sha512_is_checked_too(at: Hosts) -> None:
    at.respond = store = Store()
    body = encoded(index(("linux", "amd64")))
    digest = f"sha512:{hashlib.sha512(body).hexdigest()}"
    store.put(f"/v2/team/app/manifests/{digest}", body)
    assert at.registry().look(at.reference(f"app@{digest}"), nobody).digest == digest


REFUSALS = {
    "not there": (Answer(404), "does not have the image", True),
    "forbidden": (Answer(403), r"denies access \(403\)", True),
    "a token for nobody": (Answer(401), "no credentials", True),
    "a name that the registry does not take": (Answer(400), "answers 400", True),
    "a document that it cannot give": (Answer(406), "answers 406", True),
    "an image that was blocked": (Answer(451), "answers 451", True),
    "too slow for it": (Answer(408), "answers 408", False),
    "rate limit": (Answer(429, headers={"retry-after": "120"}), "answers 429", False),
    "broken": (Answer(503), "answers 503", False),
}


@pytest.mark.parametrize(("answer", "words", "ours"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_says_who_is_at_fault(at: Hosts, answer: Answer, words: str, ours: bool) -> None:
    at.respond = lambda _: answer
    error = fails(at.registry(), at.reference(), words)
    assert (error.ours, error.retry_after) == (ours, 120.0 if answer.status == 429 else 0.0)


@pytest.mark.parametrize("text", ["-1", "1e9", "9" * 30, "Wed, 21 Oct 2026 07:28:00 GMT", ""])
def test_an_absurd_time_to_wait_is_none(at: Hosts, text: str) -> None:
    at.respond = lambda _: Answer(429, headers={"retry-after": text})
    assert fails(at.registry(), at.reference(), "answers 429").retry_after == 0.0


def test_no_failure_tells_a_password(at: Hosts) -> None:
    for respond in (realm(at, "evil.test"), lambda _: Answer(401, headers={"www-authenticate": "Basic"})):
        at.respond = respond
        error = fails(at.registry(), at.reference(), "requests tokens from|denies access", lambda: LOGIN)
        assert "secret" not in str(error)
        assert quote(LOGIN.header) not in str(error)


def test_a_private_network_that_is_listed_is_asked() -> None:
    assert Trust(networks=parse_networks("127.0.0.0/8")).reaches(parse_networks("127.0.0.1/32")[0].network_address)
    assert digest_of(b"").startswith("sha256:e3b0")
