"""What `dovetail simulate` changes by `--set` and `--variant`: flags of the provisioner, and fields of NodePools."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from provisioner.cli.documents import documents
from provisioner.options import HelpRequested, Options, OptionsError
from provisioner.values.errors import UserError
from provisioner.values.yamltext import YamlDocumentError

MOST_VARIANTS: Final = 20
_NAME: Final = re.compile("[A-Za-z0-9][-A-Za-z0-9._]{0,39}")


class GivenSetting(NamedTuple):
    """NAME=VALUE, and how the user has said it."""

    option: str
    text: str

    @property
    def is_field(self) -> bool:
        """Whether it is of a NodePool."""
        return self.text.partition("=")[0].startswith("nodepool/")

    def __str__(self) -> str:
        return f"{self.option} {self.text}"


@dataclass(frozen=True, slots=True)
class Variant:
    """`name`: "" where the user names none."""

    name: str
    settings: tuple[GivenSetting, ...]


def variants_of(changes: Iterable[str], named: Iterable[str]) -> tuple[Variant, ...]:
    """One for each name, in the order of their first settings; what `--set` says is part of all.

    Args:
        changes: values of `--set`.
        named: values of `--variant`.

    Raises:
        UserError: a name or the form is wrong, or there are too many.
    """
    common = tuple(GivenSetting("--set", one) for one in changes)
    found: dict[str, tuple[GivenSetting, ...]] = {}
    for one in named:
        name, colon, text = one.partition(":")
        if not colon or not _NAME.fullmatch(name):
            raise UserError(
                f"--variant {one[:80]}: write NAME:SETTING, as in eager:nodepool/default.spec.disruption.consolidateAfter=0s, or NAME: for no change"
            )
        own = (GivenSetting(f"--variant {name}:", text),) if text else ()
        found[name] = (*found.get(name, common), *own)
    if len(found) > MOST_VARIANTS:
        raise UserError(f"there are {len(found)} variants; give at most {MOST_VARIANTS}")
    return tuple(Variant(name, settings) for name, settings in found.items()) or (Variant("", common),)


def with_fields(found: Sequence[dict[str, Any]], settings: Iterable[GivenSetting]) -> list[dict[str, Any]]:
    """The objects with other values of fields of NodePools.

    Raises:
        UserError: a setting does not say that, or there is no such NodePool.
    """
    made = list(found)
    for one in settings:
        _set_field(made, one)
    return made


def _set_field(found: list[dict[str, Any]], change: GivenSetting) -> None:
    place, equals, text = change.text.partition("=")
    name, _, path = place.removeprefix("nodepool/").partition(".")
    parts = path.split(".")
    if not equals or not all(parts):
        raise UserError(f"{change}: write nodepool/NAME.spec.FIELD=VALUE")
    try:
        values = list(documents(text.encode(), is_yaml=True))
    except YamlDocumentError as error:
        raise UserError(f"{change}: the value {error.problem}") from None
    number = next(
        (at for at, one in enumerate(found) if one.get("kind") == "NodePool" and one["metadata"].get("name") == name),
        None,
    )
    if number is None:
        raise UserError(f"{change}: there is no NodePool {name}; name one of those in -f")
    found[number] = _with(found[number], parts, values[0] if values else "", change)


def _with(value: Any, parts: Sequence[str], wanted: object, change: GivenSetting) -> Any:
    """The same with another value at a path."""
    if not parts:
        return wanted
    if not isinstance(value, dict):
        raise UserError(
            f"{change}: {parts[0]} is not a field of what stands before it; only fields of objects can be set"
        )
    return {**value, parts[0]: _with(value.get(parts[0], {}), parts[1:], wanted, change)}


def options_of(settings: Iterable[GivenSetting], *, is_kwok: bool) -> Options:
    """The provisioner's options with these flags.

    Raises:
        UserError: one is wrong.
    """
    own = ["--provider=kwok"] if is_kwok else ["--provider=aws", "--cluster-name=simulated"]
    flags = tuple(settings)
    more = ["--history-duration=0s", *own]
    for one in flags:  # each by itself, to name the one that is wrong
        _parsed([f"--{one.text}", *more], str(one))
    return _parsed([*(f"--{one.text}" for one in flags), *more], ", ".join(map(str, flags)))


def _parsed(arguments: list[str], given: str) -> Options:
    try:
        return Options.parse(arguments, {})
    except HelpRequested:
        raise UserError(f"{given}: this is no setting; write NAME=VALUE, as in batch-idle-duration=5s") from None
    except OptionsError as error:
        raise UserError(f"{given}: {error}") from None
