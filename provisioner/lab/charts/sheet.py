"""A document that becomes a template of Helm: YAML, with marks that are replaced by what only a template can say."""

import re
from typing import Any, Final

from provisioner.apis.names import OWN_NAMESPACE
from provisioner.cli.documents import plain_yaml

Document = dict[str, Any]

_BLOCK: Final = re.compile(r"^( *)(?:- )?BLOCK(\d+)MARK(?:: null)?$")
_DEPTH: Final = re.compile(r"«(\d)»")
_INLINE: Final = re.compile(r"'?INLINE(\d+)MARK'?")


class Sheet:
    """Marks of one document, and what stands in their place."""

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._inlines: list[str] = []

    def inline(self, text: str) -> str:
        """A mark in place of a scalar."""
        self._inlines.append(text)
        return f"INLINE{len(self._inlines) - 1}MARK"

    def block(self, text: str) -> str:
        """A mark in place of an item of a list, or a key without a value: lines, indented as the mark is. `«N»` in them is that many spaces and N more."""
        self._blocks.append(text)
        return f"BLOCK{len(self._blocks) - 1}MARK"

    def only_if(self, condition: str, *values: Any) -> str:
        """A mark in place of items of a list that are there under a condition."""
        return self.block(f"{{{{- if {condition} }}}}\n{plain_yaml(list(values)).rstrip()}\n{{{{- end }}}}")  # type: ignore[arg-type]

    def text(self, document: Document) -> str:
        """The template."""
        found = self._filled(_escaped(plain_yaml(document)), 0)
        found = re.sub(rf"(: |- ){OWN_NAMESPACE}$", r"\1{{ $.Release.Namespace | quote }}", found, flags=re.MULTILINE)
        return found.replace(OWN_NAMESPACE, "{{ $.Release.Namespace }}")

    def _filled(self, text: str, base: int) -> str:
        lines = []
        for line in text.splitlines():
            found = _BLOCK.match(line)
            if found is None:
                filled = _INLINE.sub(lambda mark: self._inlines[int(mark[1])], line)
                lines.append(_DEPTH.sub(lambda mark: str(base + int(mark[1])), filled))
                continue
            indent = found[1]
            block = self._filled(self._blocks[int(found[2])], base + len(indent))
            lines += [f"{indent}{one}".rstrip() for one in block.splitlines()]
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """What would be an action of a template, and is none."""
    return text.replace("{{", '{{ "{{" }}')
