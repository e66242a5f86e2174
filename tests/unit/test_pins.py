"""What is installed is what the project needs: two packages disagree about a third, and pip gives way silently."""

import importlib.metadata

import pytest

WANTED = {
    "boto3 that is current, which pip leaves for 0.0.3 where kubernetes 37 comes in": ("boto3", (1, 44), (2, 0)),
    "botocore beside it": ("botocore", (1, 44), (2, 0)),
    "kubernetes before it demanded dateutil 3": ("kubernetes", (36, 0), (37, 0)),
    "gunicorn whose Worker ours extends": ("gunicorn", (27, 0), (28, 0)),
    "h11 whose states our server asks for": ("h11", (0, 16), (0, 17)),
}


@pytest.mark.parametrize(("package", "least", "below"), WANTED.values(), ids=WANTED.keys())
def test_installed_is(package: str, least: tuple[int, int], below: tuple[int, int]) -> None:
    major, minor = importlib.metadata.version(package).split(".")[:2]
    assert least <= (int(major), int(minor)) < below
