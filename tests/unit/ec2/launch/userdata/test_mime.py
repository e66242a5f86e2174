"""Multipart documents: read as they are written, and as the standard library reads them."""

import pytest

from provisioner.ec2.launch.userdata.inputs import UserDataError
from provisioner.ec2.launch.userdata.mime import MimePart, is_mime, read, write

TWO = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="BOUNDARY"

a preamble that counts for nothing
--BOUNDARY
Content-Type: text/x-shellscript; charset="us-ascii"
Content-Disposition: attachment; filename="a.sh"

#!/bin/bash
echo one

--BOUNDARY
Content-Type: text/cloud-config

packages: [jq]
--BOUNDARY--
an epilogue
"""
PARTS = (
    MimePart(
        (
            ("Content-Type", 'text/x-shellscript; charset="us-ascii"'),
            ("Content-Disposition", 'attachment; filename="a.sh"'),
        ),
        "#!/bin/bash\necho one\n",
    ),
    MimePart((("Content-Type", "text/cloud-config"),), "packages: [jq]"),
)


def test_parts_are_read_with_their_headers() -> None:
    assert read(TWO) == PARTS


@pytest.mark.parametrize(
    "text",
    [
        TWO.replace("\n", "\r\n"),
        "\n\n  " + TWO,
        TWO.replace('"BOUNDARY"', "BOUNDARY"),
        TWO.replace('; boundary="BOUNDARY"', ';\n boundary="BOUNDARY"'),
        TWO.replace("--BOUNDARY\n", "--BOUNDARY  \n"),
        TWO.replace("MIME-Version: 1.0\n", ""),
    ],
    ids=["carriage returns", "space in front", "bare boundary", "folded header", "space behind", "no version"],
)
def test_other_spellings_are_the_same(text: str) -> None:
    assert is_mime(text)
    assert read(text) == PARTS


BROKEN: dict[str, tuple[str, str]] = {
    "no type": ("MIME-Version: 1.0\n\nx", "no Content-Type"),
    "not multipart": ("Content-Type: text/plain\n\nx", "text/plain, not multipart"),
    "no boundary": ("Content-Type: multipart/mixed\n\nx", "has no boundary"),
    "a boundary in parts that do not go together": (
        "Content-Type: multipart/mixed; boundary*=a; boundary*1=b\n\nx",
        "boundary parameter is malformed",
    ),
    "a boundary of another charset": (
        "Content-Type: multipart/mixed; boundary*=punycode''a%ff\n\nx",
        "boundary parameter is malformed",
    ),
    "a header that is too long": (
        f'Content-Type: multipart/mixed; a="{";" * 5000}\n\nx',
        "longer than 4096 characters",
    ),
    "no end": (TWO.replace("--BOUNDARY--", ""), "does not end with --BOUNDARY--"),
    "no part and no end": ('Content-Type: multipart/mixed; boundary="a"\n\nx', "does not end with --a--"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read(name: str) -> None:
    text, words = BROKEN[name]
    with pytest.raises(UserDataError, match=words):
        read(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("MIME-Version: 1.0\n", True),
        ("  \nContent-Type: x", True),
        ("#!/bin/bash\n# Content-Type: x", False),
        ("spec: {}", False),
        ("", False),
    ],
)
def test_what_counts_as_mime(text: str, want: bool) -> None:
    assert is_mime(text) is want


def test_a_part_without_headers() -> None:
    (part,) = read('Content-Type: multipart/mixed; boundary="a"\n\n--a\n\nhello\n--a--')
    assert (part, part.media_type) == (MimePart((), "hello"), "text/plain")


def test_a_document_of_nothing() -> None:
    assert read('Content-Type: multipart/mixed; boundary="a"\n\n--a--\n') == ()


def test_it_is_written_with_the_usual_boundary() -> None:
    assert write([MimePart.of("text/a", "x"), MimePart.of("text/b", "y\n")]) == (
        'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n'
        "--//\nContent-Type: text/a\n\nx\n"
        "--//\nContent-Type: text/b\n\ny\n\n"
        "--//--\n"
    )


@pytest.mark.parametrize("line", ["--//", "--//--", "--//  ", "a\n--//\n--///"])
def test_a_text_that_contains_the_delimiter_gets_another(line: str) -> None:
    parts = (MimePart.of("text/a", f"before\n{line}\nafter"), MimePart.of("text/b", "y"))
    assert read(write(parts)) == parts


def test_carriage_returns_are_left_out() -> None:
    assert "\r" not in write([MimePart.of("text/a", "x\r\ny\r")])
