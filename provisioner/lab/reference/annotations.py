"""The page of annotations, labels and taints."""

from collections.abc import Iterator

from provisioner.apis.keys import KARPENTER, OWN, Groups
from provisioner.lab.reference.markdown import code, page, table


def _rows(groups: Groups) -> Iterator[tuple[str, str, str, str]]:
    for place, keys in groups.items():
        for name, meaning in keys.items():
            yield code(name), *place, meaning


def text() -> str:
    """docs/reference/annotations-and-labels.md."""
    columns = ("key", "on", "written by", "meaning")
    return page(
        "Annotations, labels and taints",
        "## Dovetail's own\n",
        table(columns, _rows(OWN)),
        "## Karpenter's\n",
        table(columns, _rows(KARPENTER)),
    )
