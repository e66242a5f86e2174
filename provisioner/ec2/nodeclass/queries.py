"""Questions to EC2 as values, so that equal ones are asked once, whoever asks. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Filters = tuple[tuple[str, tuple[str, ...]], ...]
"""Names and values, in order; all of them must hold."""

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Query:
    """One describing call.

    Attributes:
        operation: boto3's method, e.g. "describe_subnets".
        member: of the answer that has the rows.
        filters: of the call.
        extra: other parameters; values are scalars or tuples.
        page: rows a page; 0 where the call does not take it.
    """

    operation: str
    member: str
    filters: Filters = ()
    extra: tuple[tuple[str, Any], ...] = ()
    page: int = _PAGE

    def parameters(self) -> dict[str, Any]:
        """As boto3 takes them."""
        made: dict[str, Any] = {key: list(value) if isinstance(value, tuple) else value for key, value in self.extra}
        if self.filters:
            made["Filters"] = [{"Name": name, "Values": list(values)} for name, values in self.filters]
        if self.page:
            made["MaxResults"] = self.page
        return made


def tag_filters(tags: Mapping[str, str]) -> Filters:
    """Tags that all must be there; the value * means any. EC2's own wildcards within values work."""
    return tuple(
        ("tag-key", (key,)) if value == "*" else (f"tag:{key}", (value,)) for key, value in sorted(tags.items())
    )
