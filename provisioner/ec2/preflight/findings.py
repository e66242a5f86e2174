"""What was found out, as values; the command prints them. Pure."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from provisioner.values.errors import ExitStatus
from provisioner.values.printable import counted


class CheckVerdict(enum.StrEnum):
    """How it stands. What could not be found out is never called missing."""

    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"
    RISK = "risk"
    """It works without, until something happens."""


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One thing that was looked at.

    Attributes:
        about: what it belongs to: "cluster", "EC2NodeClass default", "permissions".
        what: the thing, e.g. "subnets" or "ec2:CreateFleet".
        found: what was discovered, or why it is missing or unknown.
        advice: what to do; "" where all is well.
    """

    about: str
    what: str
    verdict: CheckVerdict
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All findings, in the order in which they are told."""

    findings: tuple[CheckFinding, ...]

    @classmethod
    def of(cls, findings: Iterable[CheckFinding]) -> "CheckReport":
        """Grouped by what they are about, in the order of the first of each."""
        kept = tuple(findings)
        order = {about: number for number, about in enumerate(dict.fromkeys(one.about for one in kept))}
        return cls(tuple(sorted(kept, key=lambda one: order[one.about])))

    def having(self, verdict: CheckVerdict) -> tuple[CheckFinding, ...]:
        """Those of one verdict."""
        return tuple(one for one in self.findings if one.verdict is verdict)

    @property
    def exit_code(self) -> ExitStatus:
        """That something is missing comes before that something could not be told."""
        if self.having(CheckVerdict.MISSING):
            return ExitStatus.FOUND
        return ExitStatus.UNDETERMINED if self.having(CheckVerdict.UNKNOWN) else ExitStatus.DONE

    def summary(self) -> str:
        """One sentence."""
        missing, unknown = len(self.having(CheckVerdict.MISSING)), len(self.having(CheckVerdict.UNKNOWN))
        risks = f"; {counted(risky, 'risk')}" if (risky := len(self.having(CheckVerdict.RISK))) else ""
        if not missing and not unknown:
            return f"all {len(self.findings)} checks passed{risks}"
        said = [f"{missing} missing"] * bool(missing) + [f"{unknown} could not be determined"] * bool(unknown)
        return f"{', '.join(said)}, of {len(self.findings)} checks{risks}"
