"""What is remembered of images, what is looked up behind an answer, and the bounds of both."""

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from provisioner.apis.stamping import Images, ImagesAsked
from tests.support.clock import FakeClock
from tests.support.eventually import eventually
from tests.support.imagehosts import encoded, index
from webhook.images import lookups as module
from webhook.images.documents import Login, Platform, platforms_in
from webhook.images.lookups import Key, Lookups
from webhook.images.references import Host, Reference, parse
from webhook.images.registry import FoundImage, LookupFailedError

AMD64, ARM64 = Platform("linux", "amd64"), Platform("linux", "arm64")
SHA = "sha256:" + "a" * 64
NOBODY: frozenset[str] = frozenset()


class Registries:
    """Answers lookups from a dict; `held` makes them wait."""

    def __init__(self, **images: frozenset[Platform] | LookupFailedError) -> None:
        self.images: dict[str, frozenset[Platform] | LookupFailedError] = dict(images)
        self.asked: list[str] = []
        self.known: list[FoundImage | None] = []
        self.logins: list[Login | None] = []
        self.free = threading.Event()
        self.free.set()

    def look(self, reference: Reference, login: Callable[[], Login | None], known: FoundImage | None) -> FoundImage:
        self.asked.append(str(reference))
        self.known.append(known)
        self.logins.append(login())
        assert self.free.wait(20)
        answer = self.images.get(reference.repository.removeprefix("library/"), LookupFailedError("no", ours=True))
        if isinstance(answer, LookupFailedError):
            raise answer
        return FoundImage(answer, SHA)


class Bench:
    """Lookups over such registries."""

    def __init__(
        self, registries: Registries, proved: Callable[[str, str], frozenset[str]] = lambda *_: NOBODY
    ) -> None:
        self.registries, self.clock = registries, FakeClock()
        self.logins: list[Key] = []
        self.told: list[Key] = []
        self.lookups = Lookups(registries.look, lambda host: host != Host("evil.io"), self._login, proved, self.clock)
        self.lookups.listen(self.told.append)

    def _login(self, key: Key) -> Login | None:
        self.logins.append(key)
        return Login("u", "p") if key.secrets else None

    def ask(self, *images: str, namespace: str = "shop", secrets: tuple[str, ...] = (), keep: bool = True) -> Images:
        return self.lookups.images(ImagesAsked(namespace, images, secrets), keep=keep)

    def learned(self, *images: str, **more: object) -> Images:
        """What is known once nothing is looked up any more."""
        self.ask(*images, **more)  # type: ignore[arg-type]
        self.idle()
        return self.ask(*images, keep=False, **more)  # type: ignore[arg-type]

    def idle(self) -> None:
        eventually(lambda: not self.lookups.waiting(), "nothing is looked up any more", pause=0.005)


@contextmanager
def bench(registries: Registries, proved: Callable[[str, str], frozenset[str]] = lambda *_: NOBODY) -> Iterator[Bench]:
    made = Bench(registries, proved)
    made.lookups.start()
    try:
        yield made
    finally:
        registries.free.set()
        made.lookups.stop()


def test_the_first_answer_is_pending_and_the_next_knows() -> None:
    with bench(Registries(web=frozenset({AMD64}))) as at:
        assert at.ask("web") == Images({}, frozenset({"web"}))
        at.idle()
        assert at.ask("web") == Images({"web": frozenset({AMD64})})
        assert at.registries.asked == ["docker.io/library/web:latest"]
        assert at.told == [Key(parse("web"))]


def test_nothing_is_looked_up_for_a_pod_that_will_not_be_made() -> None:
    with bench(Registries(web=frozenset({AMD64}))) as at:
        assert at.ask("web", keep=False) == Images()
        assert at.lookups.waiting() == 0


def test_what_nobody_may_ask_is_neither_known_nor_pending() -> None:
    with bench(Registries()) as at:
        assert at.ask("evil.io/web", "a b", "", "x" * 100_000) == Images()
        assert at.registries.asked == []


def test_many_who_want_one_image_cost_one_lookup() -> None:
    registries = Registries(web=frozenset({AMD64}))
    registries.free.clear()
    with bench(registries) as at:
        for _ in range(100):
            assert at.ask("web", "docker.io/library/web:latest").pending == {"web", "docker.io/library/web:latest"}
        registries.free.set()
        at.idle()
        assert len(registries.asked) == 1


def test_a_tag_is_looked_up_again_while_what_is_known_still_counts_and_a_digest_never() -> None:
    registries = Registries(web=frozenset({AMD64}), pinned=frozenset({ARM64}))
    with bench(registries) as at:
        at.learned("web", f"pinned@{SHA}")
        registries.images["web"] = frozenset({ARM64})
        at.clock.advance(module.FRESH_SECONDS)
        assert at.ask("web").found == {"web": {AMD64}}
        at.idle()
        assert at.ask("web").found == {"web": {ARM64}}
        at.clock.advance(10 * module.TAG_SECONDS)
        assert at.ask("web", keep=False).found == {}
        assert at.ask(f"pinned@{SHA}").found == {f"pinned@{SHA}": {ARM64}}
        assert sum("pinned" in one for one in registries.asked) == 1
        assert registries.known[:3] == [None, None, FoundImage(frozenset({AMD64}), SHA)], "which the registry is told"


def test_a_tag_that_cannot_be_looked_up_again_counts_until_its_time_is_over() -> None:
    registries = Registries(web=frozenset({AMD64}))
    with bench(registries) as at:
        at.learned("web")
        registries.images["web"] = LookupFailedError("away", ours=False)
        at.clock.advance(module.FRESH_SECONDS)
        assert at.learned("web").found == {"web": {AMD64}}
        at.clock.advance(module.TAG_SECONDS)
        assert at.ask("web", keep=False) == Images()


def test_a_failure_is_remembered_for_a_minute() -> None:
    registries = Registries()
    with bench(registries) as at:
        assert at.learned("web") == Images()
        assert at.ask("web") == Images()
        assert len(registries.asked) == 1
        at.clock.advance(module.FAILED_SECONDS)
        registries.images["web"] = frozenset({AMD64})
        assert at.learned("web").found == {"web": {AMD64}}


def test_nobody_learns_by_the_credentials_of_another_namespace() -> None:
    registries = Registries(web=frozenset({AMD64}))
    with bench(registries) as at:
        assert at.learned("web", namespace="shop", secrets=("pull",)).found == {"web": {AMD64}}
        registries.images["web"] = LookupFailedError("denied", ours=True)
        assert at.learned("web", namespace="evil", secrets=("pull",)).found == {}
        assert at.learned("web", namespace="evil").found == {}
        assert at.learned("web", namespace="shop", secrets=("other",)).found == {}
        assert at.ask("web", namespace="shop", secrets=("pull",)).found == {"web": {AMD64}}
        assert registries.logins[0] == Login("u", "p")
        assert [(key.namespace, key.secrets) for key in at.logins] == [
            ("shop", ("pull",)),
            ("evil", ("pull",)),
            ("", ()),
            ("shop", ("other",)),
        ]


def test_a_registry_that_fails_is_left_alone_longer_and_longer_and_others_are_not() -> None:
    registries = Registries(web=frozenset({AMD64}))
    away = LookupFailedError("away", ours=False)
    registries.images |= {f"x{number}": away for number in range(10)}
    with bench(registries) as at:
        for number in range(module.FAILURES_IN_A_ROW):
            at.learned(f"quay.io/x{number}")
        asked = len(registries.asked)
        assert at.ask("quay.io/x7") == Images(), "nobody waits for it"
        assert len(registries.asked) == asked
        assert at.learned("web").found == {"web": {AMD64}}
        at.clock.advance(module.PAUSE_SECONDS)
        at.learned("quay.io/x8")  # one tries
        at.clock.advance(module.PAUSE_SECONDS)
        assert at.ask("quay.io/x9") == Images(), "the second pause is longer"
        at.clock.advance(module.PAUSE_SECONDS)
        registries.images["x9"] = frozenset({ARM64})
        assert at.learned("quay.io/x9").found == {"quay.io/x9": {ARM64}}


def test_a_rate_limit_is_kept() -> None:
    registries = Registries(web=LookupFailedError("429", ours=False, retry_after=500.0), api=frozenset({AMD64}))
    with bench(registries) as at:
        at.learned("web")
        at.clock.advance(499)
        assert at.ask("api") == Images()
        at.clock.advance(1)
        assert at.learned("api").found == {"api": {AMD64}}


def test_what_is_remembered_is_bounded_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN", 3)
    with bench(Registries(**{f"x{number}": frozenset({AMD64}) for number in range(5)})) as at:
        for number in range(3):
            at.learned(f"x{number}")
        at.ask("x0")  # the one that is used stays
        for number in range(3, 5):
            at.learned(f"x{number}")
        assert len(at.lookups) == 3
        assert set(at.ask(*(f"x{number}" for number in range(5)), keep=False).found) == {"x0", "x3", "x4"}


def test_a_namespace_of_many_images_pushes_out_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN", 6)
    many = [f"many{number}" for number in range(20)]
    with bench(Registries(**{name: frozenset({AMD64}) for name in ("web", "shared", *many)})) as at:
        assert at.learned("web", "shared", namespace="shop").found
        at.ask("shared", namespace="crowd")
        for name in many:
            at.learned(name, namespace="crowd")
        assert {*at.ask("web", "shared", keep=False).found} == {"web", "shared"}
        assert {*at.ask(*many, namespace="crowd", keep=False).found} == {*many[-4:]}
        assert len(at.lookups) == 6


def test_what_waits_is_bounded_of_one_namespace_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 8)
    monkeypatch.setattr(module, "MAX_OF_NAMESPACE", 4)
    registries = Registries()
    registries.free.clear()
    with bench(registries) as at:
        assert len(at.ask(*(f"a{number}" for number in range(20)), namespace="evil").pending) == 4
        assert len(at.ask(*(f"b{number}" for number in range(3)), namespace="shop").pending) == 3
        assert len(at.ask(*(f"c{number}" for number in range(3)), namespace="more").pending) == 1
        assert at.lookups.waiting() == 8
        registries.free.set()
        at.idle()
        assert len(at.ask("d0", namespace="evil").pending) == 1, "there is room again"


def test_namespaces_take_turns() -> None:
    at = Bench(Registries())
    at.ask(*(f"a{number}" for number in range(200)), namespace="evil")
    at.ask("b0", "b1", namespace="shop")
    at.ask("c0", namespace="more")
    order = []
    while (key := at.lookups._next()) is not None:
        order.append(key.reference.repository.removeprefix("library/"))
        at.lookups._look_up(key)
    assert order[:7] == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]
    assert len(order) == 203
    assert at.lookups.waiting() == 0


def test_an_image_comes_as_soon_for_a_namespace_as_if_nobody_else_had_asked_for_it() -> None:
    at = Bench(Registries(shared=frozenset({AMD64})))
    at.ask(*(f"a{number}" for number in range(100)), "shared", namespace="evil")
    assert at.ask("shared", namespace="shop").pending == {"shared"}
    for _ in range(2):
        key = at.lookups._next()
        assert key is not None
        at.lookups._look_up(key)
    assert at.ask("shared", namespace="shop").found == {"shared": {AMD64}}
    assert at.lookups.waiting() == 99, "and it is looked up once"
    while (key := at.lookups._next()) is not None:
        at.lookups._look_up(key)
    assert at.registries.asked.count("docker.io/library/shared:latest") == 1
    assert (at.lookups._work.waiting, at.lookups._work.of_namespace, at.lookups._work.places) == ({}, {}, 0)


def test_places_of_many_namespaces_for_the_same_images_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 4)
    monkeypatch.setattr(module, "MAX_PLACES", 6)
    at = Bench(Registries())
    for number in range(20):
        assert len(at.ask("a", "b", "c", namespace=f"n{number}").pending) == 3, "it is coming all the same"
    assert at.lookups._work.places == 6


def test_what_a_registry_refuses_to_the_credentials_of_one_namespace_closes_it_for_these_alone() -> None:
    """A rate limit is one of an account, and tenants have accounts of their own."""
    registries = Registries(web=LookupFailedError("429", ours=False, retry_after=500.0))
    with bench(registries) as at:
        at.learned("web", namespace="evil", secrets=("pull",))
        registries.images["web"] = frozenset({AMD64})
        assert at.learned("web", namespace="evil", secrets=("other",)) == Images(), "it is closed"
        assert at.learned("web", namespace="shop", secrets=("pull",)).found == {"web": {AMD64}}
        assert at.learned("web", namespace="shop").found == {"web": {AMD64}}


def test_a_slow_registry_leaves_threads_for_the_others() -> None:
    registries = Registries(web=frozenset({AMD64}))
    registries.free.clear()
    with bench(registries) as at:
        at.ask(*(f"quay.io/x{number}" for number in range(10)))
        eventually(lambda: len(registries.asked) == module.AT_ONCE_OF_ONE, "some are asked")
        at.ask("web")
        eventually(lambda: "docker.io/library/web:latest" in registries.asked, "the other registry is asked")
        assert sum("quay.io" in one for one in registries.asked) == module.AT_ONCE_OF_ONE


def test_registries_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REGISTRIES", 4)
    with bench(Registries(x=LookupFailedError("away", ours=False))) as at:
        for number in range(20):
            at.learned(f"r{number}.io/x")
        assert [host.name for host, _ in at.lookups._lines] == ["r16.io", "r17.io", "r18.io", "r19.io"]


def test_where_an_image_was_seen_to_run_widens_what_its_configuration_says_to_that_namespace_alone() -> None:
    def proved(namespace: str, digest: str) -> frozenset[str]:
        return frozenset({"arm64"}) if (namespace, digest) == ("shop", SHA) else NOBODY

    with bench(Registries(web=frozenset({AMD64})), proved) as at:
        assert at.learned("web").found == {"web": {AMD64, ARM64}}
        assert at.ask("web", namespace="other").found == {"web": {AMD64}}
        assert at.learned("gone") == Images(), "a proof alone restricts nobody"


def test_an_error_that_nobody_thought_of_ends_no_thread() -> None:
    class Broken(Registries):
        def look(self, reference: Reference, login: Callable[[], Login | None], known: FoundImage | None) -> FoundImage:
            self.asked.append(str(reference))
            raise ZeroDivisionError

    with bench(Broken()) as at:
        for number in range(2 * module.THREADS):
            assert at.learned(f"x{number}") == Images()
        assert len(at.registries.asked) == 2 * module.THREADS


def test_a_full_memory_of_the_longest_names_is_small() -> None:
    """Whoever creates pods fills it: each with another image, another namespace and all the secrets that are looked at."""
    architectures = [
        "386",
        "amd64",
        "arm",
        "arm64",
        "loong64",
        "mips",
        "mips64",
        "mips64le",
        "mipsle",
        "ppc64",
        "ppc64le",
        "riscv64",
        "s390x",
    ]
    document = encoded(index(*((os, one) for one in architectures for os in ("linux", "windows"))))
    with bench(Registries()) as at:
        tracemalloc.start()
        try:
            for number in range(module.MAX_KNOWN + 100):
                image = parse(f"quay.io/{'a' * 200}{number:08}:{'t' * 128}")
                key = Key(image, f"{number:063}", tuple(f"{number:04}{secret:0249}" for secret in range(4)))
                found = FoundImage(platforms_in(document), f"sha256:{number:064}")  # type: ignore[arg-type]
                at.lookups._keep(key, found, "found", 0.0, 0.0)
            taken = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert len(at.lookups) == module.MAX_KNOWN
        assert taken < 14e6
