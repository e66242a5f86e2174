"""EC2's filters, wildcards and pages.

At most 50 filters a request and 200 values a filter. Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html
The code is in https://docs.aws.amazon.com/ec2/latest/devguide/errors-overview.html
"""

import base64
import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from tests.support.ec2.protocol import AwsError

T = TypeVar("T")
Tags = Mapping[str, str]
Facts = Callable[[T], Mapping[str, Iterable[str]]]


def _pattern(text: str) -> Callable[[str], bool]:
    if not any(sign in text for sign in "*?"):
        return lambda value: value == text
    compiled = re.compile(fnmatch.translate(text.replace("[", "[[]")))
    return lambda value: compiled.match(value) is not None


def selected(
    things: Iterable[T],
    filters: Sequence[Mapping[str, Any]] | None,
    facts: Facts[T],
    tags: Callable[[T], Tags],
) -> list[T]:
    """Those that pass every filter.

    Args:
        things: in order.
        filters: as in requests: Name and Values.
        facts: filter names other than those of tags, with the values of one thing.
        tags: of one thing.

    Raises:
        AwsError: a filter has no such name.
    """
    check_filters(filters)
    found = list(things)
    for one in filters or ():
        name, patterns = one["Name"], [_pattern(str(value)) for value in one.get("Values", ())]
        found = [
            thing
            for thing in found
            if any(pattern(value) for value in _values(name, thing, facts, tags) for pattern in patterns)
        ]
    return found


MAX_FILTERS: Final = 50
MAX_VALUES: Final = 200


def check_filters(filters: Sequence[Mapping[str, Any]] | None) -> None:
    """See that EC2 would take so many.

    Raises:
        AwsError: it would not.
    """
    if len(filters or ()) > MAX_FILTERS:
        raise AwsError("FilterLimitExceeded", f"The maximum number of filters is {MAX_FILTERS}.")
    for one in filters or ():
        if len(one.get("Values") or ()) > MAX_VALUES:
            raise AwsError(
                "FilterLimitExceeded",
                f"The maximum number of filter values specified on a single call is {MAX_VALUES}.",
            )


def _values(name: str, thing: T, facts: Facts[T], tags: Callable[[T], Tags]) -> Iterable[str]:
    if name.startswith("tag:"):
        held = tags(thing)
        return (held[name[4:]],) if name[4:] in held else ()
    if name == "tag-key":
        return tags(thing).keys()
    if name == "tag-value":
        return tags(thing).values()
    known = facts(thing)
    if name not in known:
        raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return known[name]


def paged(rows: Sequence[T], request: Mapping[str, Any], *, most: int = 1000, least: int = 5) -> tuple[list[T], str]:
    """One page of the rows, and the token of the next, "" after the last.

    Raises:
        AwsError: MaxResults is out of range, or the token is none of ours.
    """
    size = request.get("MaxResults")
    if size is not None and not least <= size <= most:
        raise AwsError(
            "InvalidParameterValue",
            f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value between {least} and {most}.",
        )
    start = 0
    if token := request.get("NextToken"):
        try:
            start = int(base64.b64decode(token, validate=True))
        except ValueError:
            raise AwsError("InvalidNextToken", "The token '" + str(token) + "' is invalid") from None
    if size is None:
        return list(rows[start:]), ""
    end = start + size
    return list(rows[start:end]), (base64.b64encode(str(end).encode()).decode() if end < len(rows) else "")


def next_token(token: str) -> dict[str, str]:
    """The member of an answer that names the next page."""
    return {"NextToken": token} if token else {}


def tag_list(tags: Tags) -> list[dict[str, str]]:
    """Tags as in answers."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def tags_of(request: Mapping[str, Any], resource: str) -> dict[str, str]:
    """The tags that a request gives to a kind of resource.

    Raises:
        AwsError: more than 50, or one that is AWS's own.
    """
    tags: dict[str, str] = {}
    for specification in request.get("TagSpecifications", ()):
        if specification.get("ResourceType") == resource:
            tags |= {one["Key"]: one.get("Value", "") for one in specification.get("Tags", ())}
    check_tags(tags)
    return tags


def check_tags(tags: Tags) -> None:
    """See that EC2 would take these as all the tags of one resource.

    Raises:
        AwsError: it would not.
    """
    for key in tags:
        if key.lower().startswith("aws:"):
            raise AwsError(
                "InvalidParameterValue",
                f"Value ( {key} ) for parameter key is invalid. Tag keys starting with 'aws:' are reserved for internal use",
            )
        if not 1 <= len(key) <= 128:
            raise AwsError(
                "InvalidParameterValue",
                f"Value ( {key} ) for parameter key is invalid. Tag key exceeds the maximum length of 128 characters",
            )
    for value in tags.values():
        if len(value) > 256:
            raise AwsError(
                "InvalidParameterValue",
                f"Value ( {value} ) for parameter value is invalid. Tag value exceeds the maximum length of 256 characters",
            )
    if len(tags) > 50:
        raise AwsError("TagLimitExceeded", "You have reached the maximum number of tags (50) on this resource.")
