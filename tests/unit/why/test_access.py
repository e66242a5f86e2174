"""Whose a token is and what they may, as the API server says."""

import pytest

from provisioner.kube.client import Client
from provisioner.why.access import (
    ACCESS_REVIEWS,
    MOST_REMEMBERED,
    REMEMBERED_SECONDS,
    STRANGERS,
    TOKEN_REVIEWS,
    Access,
    AccessError,
    Right,
    User,
)
from tests.support.kube import FakeAnswer, FakeApi, Sent, ok, refusal

TOKENS = {"good": {"username": "jane", "uid": "u1", "groups": ["dev"], "extra": {"scopes": ["a", "b"]}}, "nameless": {}}
RIGHT = Right("get", "pods", namespace="mine", name="web")


class Reviews:
    """An API server that knows the tokens, and lets everybody in namespace `mine` alone."""

    def __init__(self) -> None:
        self.api = FakeApi(respond=self._review)
        self.access = Access(Client(self.api, self.api.clock), self.api.clock)
        self.answer: FakeAnswer | None = None

    def _review(self, sent: Sent) -> FakeAnswer:
        if self.answer is not None:
            return self.answer
        spec = sent.body["spec"]
        if sent.path == TOKEN_REVIEWS:
            user = TOKENS.get(spec["token"])
            return ok(
                {"status": {"authenticated": user is not None, **({"user": user} if user is not None else {})}}, 201
            )
        assert sent.path == ACCESS_REVIEWS
        return ok({"status": {"allowed": spec["resourceAttributes"].get("namespace") == "mine"}}, 201)


def test_a_user_is_who_the_api_server_says_and_is_reviewed_once_in_a_while() -> None:
    reviews = Reviews()
    user = reviews.access.user("Bearer good")
    assert user == User("jane", "u1", ("dev",), (("scopes", ("a", "b")),))
    assert reviews.access.user("bearer good") == user
    assert len(reviews.api.sent) == 1
    reviews.api.clock.sleep(REMEMBERED_SECONDS + 1)
    reviews.answer = ok({"status": {"authenticated": False}})
    with pytest.raises(AccessError) as refused:
        reviews.access.user("Bearer good")
    assert refused.value.status == 401, "a revoked token is refused after some seconds"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic amFuZTpwYXNz",
        "Bearer a b",
        "Bearer \u00e9",
        "Bearer " + "x" * 20_000,
        "Bearer a\nb",
    ],
)
def test_what_is_no_token_is_refused_without_asking_anybody(header: str | None) -> None:
    reviews = Reviews()
    with pytest.raises(AccessError) as refused:
        reviews.access.user(header)
    assert (refused.value.status, reviews.api.sent) == (401, [])


@pytest.mark.parametrize("token", ["forged", "nameless"])
def test_a_token_that_is_nobody_s_is_refused_and_its_refusal_remembered(token: str) -> None:
    reviews = Reviews()
    for _ in range(3):
        with pytest.raises(AccessError) as refused:
            reviews.access.user(f"Bearer {token}")
        assert refused.value.status == 401
        assert token not in str(refused.value)
    assert len(reviews.api.sent) == 1


def test_strangers_use_up_their_own_reviews_and_not_those_of_who_is_known() -> None:
    reviews = Reviews()
    reviews.access.user("Bearer good")
    told: list[int] = []
    for number in range(200):
        with pytest.raises(AccessError) as refused:
            reviews.access.user(f"Bearer forged-{number}")
        told.append(refused.value.status)
    assert told.count(429) >= 200 - STRANGERS[1] - 1
    assert len(reviews.api.sent) <= STRANGERS[1] + 1
    assert reviews.access.user("Bearer good").name == "jane"


def test_a_right_is_asked_for_the_whole_user_and_remembered() -> None:
    reviews = Reviews()
    user = reviews.access.user("Bearer good")
    assert reviews.access.may(user, RIGHT)
    assert reviews.access.may(user, RIGHT)
    assert not reviews.access.may(user, Right("get", "pods", namespace="theirs", name="web"))
    assert not reviews.access.may(user, Right("get", "nodes", name="n"))
    spec = reviews.api.sent[1].body["spec"]
    assert spec == {
        "user": "jane",
        "uid": "u1",
        "groups": ["dev"],
        "extra": {"scopes": ["a", "b"]},
        "resourceAttributes": {
            "verb": "get",
            "group": "",
            "version": "*",
            "resource": "pods",
            "namespace": "mine",
            "name": "web",
        },
    }
    assert len(reviews.api.sent) == 4


def test_an_explicit_denial_counts() -> None:
    reviews = Reviews()
    user = reviews.access.user("Bearer good")
    reviews.answer = ok({"status": {"allowed": True, "denied": True}})
    assert not reviews.access.may(user, RIGHT)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (refusal(403, "Forbidden"), "its role does not allow it"),
        (refusal(500, "InternalError"), "could not ask"),
        (FakeAnswer(200, b"no JSON"), "could not ask"),
    ],
)
def test_an_api_server_that_does_not_answer_lets_nobody_in_and_its_words_are_not_repeated(
    answer: FakeAnswer, says: str
) -> None:
    reviews = Reviews()
    user = User("jane")
    reviews.answer = answer
    for question in (lambda: reviews.access.user("Bearer good"), lambda: reviews.access.may(user, RIGHT)):
        with pytest.raises(AccessError, match=says) as refused:
            question()
        assert refused.value.status == 503
    reviews.answer = None
    assert reviews.access.may(user, RIGHT), "a failure is not remembered"


def test_memory_is_bounded_and_holds_no_token() -> None:
    reviews = Reviews()
    user = reviews.access.user("Bearer good")
    for number in range(MOST_REMEMBERED + 100):
        reviews.api.clock.sleep(0.1)
        reviews.access.may(user, Right("get", "pods", namespace="mine", name=str(number)))
    assert len(reviews.access._rights) == MOST_REMEMBERED
    assert "good" not in repr(vars(reviews.access))


def test_strangers_keep_nobody_out_whose_token_was_accepted_before() -> None:
    reviews = Reviews()
    reviews.access.user("Bearer good")
    reviews.api.clock.sleep(REMEMBERED_SECONDS + 1)
    for number in range(50):
        with pytest.raises(AccessError):
            reviews.access.user(f"Bearer forged-{number}")
    assert reviews.access.user("Bearer good").name == "jane", "it is reviewed again, on an account of its own"
    reviews.api.clock.sleep(REMEMBERED_SECONDS + 1)
    reviews.answer = ok({"status": {"authenticated": False}})
    with pytest.raises(AccessError):
        reviews.access.user("Bearer good")
    reviews.api.clock.sleep(REMEMBERED_SECONDS + 1)
    for number in range(50):
        with pytest.raises(AccessError):
            reviews.access.user(f"Bearer other-{number}")
    with pytest.raises(AccessError) as refused:
        reviews.access.user("Bearer good")
    assert refused.value.status == 429, "revoked, it is a stranger's again"
