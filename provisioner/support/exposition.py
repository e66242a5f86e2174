"""Prometheus' text format, line by line, for series that are made anew at every scrape."""

from collections.abc import Iterable, Iterator, Mapping

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def header(name: str, kind: str, doc: str) -> str:
    """The HELP and TYPE lines that stand before the series of one family."""
    return f"# HELP {name} {doc.translate(_ESCAPES)}\n# TYPE {name} {kind}\n"


def labels_text(labels: Mapping[str, str]) -> str:
    """`a="x",b="y"`, in the order of the mapping; label values may be anything."""
    return ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()])


def line(name: str, labels: str, value: float) -> str:
    """One sample; `labels` as `labels_text` makes them."""
    return f"{name}{{{labels}}} {value!r}\n" if labels else f"{name} {value!r}\n"


def family(name: str, kind: str, doc: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """A whole family: header, then one line for each (labels, value)."""
    yield header(name, kind, doc)
    for labels, value in samples:
        yield line(name, labels, value)
