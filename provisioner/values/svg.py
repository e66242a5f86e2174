"""An SVG as text: what every picture of ours begins and ends with. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final
from xml.sax.saxutils import escape

from provisioner.values.printable import one_line

_LONGEST: Final = 60
_LONGEST_TITLE: Final = 140
_STYLE: Final = "text{font:12px sans-serif;fill:#222}.h{font-size:16px;font-weight:bold}.s{fill:#666;font-size:11px}"


def document(title: str, width: int, height: int, style: str, body: Iterable[str]) -> str:
    """An XML document: a title on white, and `body`, whose classes `style` adds to `h` (headings) and `s` (small print)."""
    return "\n".join(_lines(title, width, height, style, body)) + "\n"


def _lines(title: str, width: int, height: int, style: str, body: Iterable[str]) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    yield f"<style>{_STYLE}{style}</style>"
    yield f'<rect width="{width}" height="{height}" fill="#fff"/>'
    yield f'<text class="h" x="16" y="28">{text(title, _LONGEST_TITLE)}</text>'
    yield from body
    yield "</svg>"


def text(content: str, longest: int = _LONGEST) -> str:
    """Escaped, without what XML 1.0 cannot hold, and not too long."""
    plain = one_line(content)  # neither controls nor lone surrogates
    return escape(plain if len(plain) <= longest else plain[: longest - 1] + "…")
