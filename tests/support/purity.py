"""A contract of import-linter: in a room every module is pure, but for those that it names as shells."""

from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.domain.imports import Module


class PureButShells(Contract):
    """No module of a room reaches what is forbidden, directly or not, unless it is listed as a shell; and no shell is listed in vain."""

    rooms = fields.ListField(subfield=fields.ModuleField())
    shells = fields.ListField(subfield=fields.ModuleField())
    forbidden = fields.ListField(subfield=fields.ModuleField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        rooms, shells = _names(self.rooms), set(_names(self.shells))
        modules = {m for room in rooms for m in (room, *graph.find_descendants(room))}
        names = [one for one in _names(self.forbidden) if one in graph.modules]
        bad = {m for n in names for m in (n, *(() if graph.is_module_squashed(n) else graph.find_descendants(n)))}
        touching = {m for b in bad for m in graph.find_downstream_modules(b)} & modules
        breaches, idle = sorted(touching - shells), sorted(shells - touching)
        return ContractCheck(kept=not breaches and not idle, metadata={"breaches": breaches, "idle": idle})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for one in check.metadata["breaches"]:
            output.print_error(f"{one} is no shell, and reaches what only shells may")
        for one in check.metadata["idle"]:
            output.print_error(f"{one} is listed as a shell, and is pure, or not there")


def _names(field: object) -> list[str]:
    """The modules of a field; import-linter puts lists where the class has fields."""
    return [one.name for one in cast("list[Module]", field)]
