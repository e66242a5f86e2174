"""The page as a document: its files as they are served, or all of them in one file with the page in it. Nothing of it comes from outside."""

import base64
import functools
import hashlib
import re
from pathlib import Path
from typing import Final

_STATIC: Final = Path(__file__).with_name("static")
_STYLES: Final = ("vendor/uplot.css", "page.css")
_LIBRARIES: Final = ("vendor/htm-preact.js", "vendor/uplot.js")
_SCRIPTS: Final = (*_LIBRARIES, "page.js")
_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_STYLE_MARK, _SCRIPT_MARK = "<!-- styles -->", "<!-- scripts -->"
HTML: Final = "text/html; charset=utf-8"
_NOTHING_ELSE: Final = "base-uri 'none'; form-action 'none'"
SERVED_POLICY: Final = f"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'; {_NOTHING_ELSE}"
"""Content-Security-Policy of the page as it is served."""
_SCRIPT_ENDS: Final = re.compile("<(?=/script|!--|script)", re.IGNORECASE)


@functools.cache
def _text(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


@functools.cache
def served() -> dict[str, tuple[str, bytes]]:
    """By path, the content type and the bytes of everything that the page consists of."""
    styles = "".join(f'<link rel="stylesheet" href="/{name}">\n' for name in _STYLES)
    scripts = "".join(f'<script src="/{name}" defer></script>\n' for name in _SCRIPTS)
    index = _text("index.html").replace(_STYLE_MARK, styles).replace(_SCRIPT_MARK, scripts)
    files = {f"/{name}": (_TYPES[Path(name).suffix], _text(name).encode()) for name in (*_STYLES, *_SCRIPTS)}
    return {"/": (HTML, index.encode()), **files}


def alone(page: bytes, script: str = "page.js") -> bytes:
    """One file that shows a page without a server, and loads nothing.

    Args:
        page: as JSON; whatever it says stays text.
        script: shows it.
    """
    data = _SCRIPT_ENDS.sub(r"\\u003c", page.decode())
    styles, scripts = [_text(name) for name in _STYLES], [_text(name) for name in (*_LIBRARIES, script)]
    policy = f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; img-src data:; {_NOTHING_ELSE}"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    head += "".join(f"<style>{one}</style>\n" for one in styles)
    body = f'<script type="application/json" id="data">{data}</script>\n'
    body += "".join(f"<script>{one}</script>\n" for one in scripts)
    before, between, after = re.split(f"{_STYLE_MARK}|{_SCRIPT_MARK}", _text("index.html"))
    return f"{before}{head}{between}{body}{after}".encode()


def _hashes(texts: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in texts)
    return " ".join(f"'sha256-{one}'" for one in digests)
