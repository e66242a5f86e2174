"""What the `image` of a container refers to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.images.references import Host, Reference, UnusableReferenceError, parse

SHA = "sha256:" + "a" * 64
READ = {
    "a name": ("nginx", Reference(Host("docker.io"), "library/nginx", "latest", "")),
    "a name with a tag": ("nginx:1.27", Reference(Host("docker.io"), "library/nginx", "1.27", "")),
    "a user of the Hub": ("grafana/grafana:11", Reference(Host("docker.io"), "grafana/grafana", "11", "")),
    "the Hub by its other name": ("index.docker.io/nginx", Reference(Host("docker.io"), "library/nginx", "latest", "")),
    "a registry": ("ghcr.io/a/b/c:v1", Reference(Host("ghcr.io"), "a/b/c", "v1", "")),
    "a registry with a port": ("localhost:5000/app", Reference(Host("localhost", 5000), "app", "latest", "")),
    "a digest": (f"quay.io/a@{SHA}", Reference(Host("quay.io"), "a", "", SHA)),
    "a digest wins over a tag": (f"quay.io/a:v1@{SHA}", Reference(Host("quay.io"), "a", "", SHA)),
    "capital letters in a host": ("GHCR.IO/a", Reference(Host("ghcr.io"), "a", "latest", "")),
}


@pytest.mark.parametrize(("text", "wanted"), READ.values(), ids=READ)
def test_a_reference_is_read_as_runtimes_read_it(text: str, wanted: Reference) -> None:
    assert parse(text) == wanted


REFUSED = (
    "", ":", "@", "a@sha256:12", "A/b", "a//b", "a/../b", "a b", "a:tag with spaces", "[::1]:5000/a", "h.x:0/a", "h.x:99999/a", "user@h.x/a",
    "h.x:443:1/a", "-h.x/a", "h..x/a", f"a:{'t' * 129}", "a" * 600, "http://h.x/a", "h.x/a?b", "h.x/a#b", "h.x/é", "a\r\nHost: b",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(UnusableReferenceError):
        parse(text)


@given(st.text(max_size=700))
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    try:
        found = parse(text)
    except UnusableReferenceError:
        return
    assert parse(str(found)) == found
