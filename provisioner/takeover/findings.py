"""What `dovetail takeover check` finds, as values. Pure."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

EXIT_FINE: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_NOT_DETERMINED: Final = 3
"""As in `support.errors.ExitStatus`, which a pure module must not import; a test compares them."""


class NotDeterminedError(Exception):
    """Something could not be read, so that nothing may be concluded or done; a sentence for people."""


class TakeoverVerdict(enum.StrEnum):
    """How something stands. NOTE is worth knowing, and nothing needs to be done."""

    OK = "ok"
    NOTE = "note"
    FINDING = "finding"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TakeoverFinding:
    """One thing that was looked at.

    Attributes:
        about: what it belongs to, such as "NodeClaims".
        text: a sentence without a full stop.
        advice: what to do; "" where nothing is.
        blocks: whether `takeover start` refuses as long as it stands.
        objects: names of what is meant, all of them.
    """

    about: str
    verdict: TakeoverVerdict
    text: str
    advice: str = ""
    blocks: bool = False
    objects: tuple[str, ...] = ()

    def for_programs(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "about": self.about,
            "verdict": str(self.verdict),
            "found": self.text,
            "advice": self.advice,
            "blocksStart": self.blocks,
            "objects": list(self.objects),
        }


@dataclass(frozen=True, slots=True)
class TakeoverReport:
    """All findings, grouped by what they are about."""

    source: str
    findings: tuple[TakeoverFinding, ...]

    def having(self, verdict: TakeoverVerdict) -> tuple[TakeoverFinding, ...]:
        """Those of one verdict."""
        return tuple(one for one in self.findings if one.verdict is verdict)

    @property
    def blocking(self) -> tuple[TakeoverFinding, ...]:
        """Those for which `takeover start` refuses."""
        return tuple(one for one in self.findings if one.blocks)

    @property
    def exit_status(self) -> int:
        return exit_status_of(self.findings)

    def summary(self) -> str:
        """One sentence."""
        found, unknown = len(self.having(TakeoverVerdict.FINDING)), len(self.having(TakeoverVerdict.UNKNOWN))
        said = []
        if found:
            said.append(f"{found} finding{'' if found == 1 else 's'}")
        if unknown:
            said.append(f"{unknown} not determined")
        return (
            f"{', '.join(said)}, of {len(self.findings)} checks" if said else f"all {len(self.findings)} checks passed"
        )

    def for_programs(self) -> dict[str, Any]:
        """As JSON; fields may be added to it, never changed or removed."""
        return {
            "version": 1,
            "source": self.source,
            "summary": self.summary(),
            "exitCode": self.exit_status,
            "findings": [one.for_programs() for one in self.findings],
        }


def exit_status_of(findings: Iterable[TakeoverFinding]) -> int:
    """3 where something is not determined, else 1 where something was found, else 0."""
    verdicts = {one.verdict for one in findings}
    if TakeoverVerdict.UNKNOWN in verdicts:
        return EXIT_NOT_DETERMINED
    return EXIT_FINDINGS if TakeoverVerdict.FINDING in verdicts else EXIT_FINE
