"""CloudFormation templates as values, with their functions carried out for one partition, region and account."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Short forms of functions become their long forms."""


def _function(loader: yaml.Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    name = suffix if suffix == "Ref" else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        raise NotImplementedError(f"!{suffix} of a mapping")
    return {name: value}


_Loader.add_multi_constructor("!", _function)


@functools.cache
def load(path: Path) -> dict[str, Any]:
    """The template with long forms."""
    found = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    assert isinstance(found, dict)
    return found


class Stack:
    """A template with its parameters: `value` carries functions out, `resources` are those whose condition holds.

    Args:
        template: with long forms.
        pseudo: of the place: AWS::Partition, AWS::Region, AWS::AccountId, AWS::URLSuffix.
        parameters: those that have no default, and others.
        references: what Ref and GetAtt of resources give, as `Name` and `Name.Attribute`.
    """

    def __init__(
        self,
        template: Mapping[str, Any],
        pseudo: Mapping[str, str],
        parameters: Mapping[str, str],
        references: Mapping[str, str],
    ) -> None:
        self._template = template
        defaults = {name: one["Default"] for name, one in template["Parameters"].items() if "Default" in one}
        self._names = {**defaults, **parameters, **pseudo, **references}

    @property
    def resources(self) -> dict[str, Any]:
        """Resources that are made, as written, by logical name."""
        return {
            name: one
            for name, one in self._template["Resources"].items()
            if "Condition" not in one or self._condition(one["Condition"])
        }

    def value(self, written: Any) -> Any:
        """What is written with its functions carried out; `AWS::NoValue` leaves out the item that it stands for."""
        match written:
            case {"Ref": "AWS::NoValue"}:
                return None
            case {"Ref": str(name)}:
                return self._names.get(name, f"<{name}>")
            case {"Fn::GetAtt": str(name)}:
                return self._names.get(name, f"<{name}>")
            case {"Fn::Sub": str(text)}:
                return re.sub(r"\$\{([^}]+)\}", lambda found: self._names[found[1]], text)
            case {"Fn::If": [condition, then, otherwise]}:
                return self.value(then if self._condition(condition) else otherwise)
            case {"Fn::Join": [separator, items]}:
                return separator.join(self.value(items))
            case dict():
                return {key: self.value(inner) for key, inner in written.items()}
            case list():
                return [value for value in map(self.value, written) if value is not None]
            case _:
                return written

    def _condition(self, name: str) -> bool:
        return self._test(self._template["Conditions"][name])

    def _test(self, written: Any) -> bool:
        match written:
            case {"Fn::Equals": [left, right]}:
                return bool(self.value(left) == self.value(right))
            case {"Fn::Not": [inner]}:
                return not self._test(inner)
            case _:
                raise NotImplementedError(f"the condition {written}")
