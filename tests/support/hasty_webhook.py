"""`dovetail webhook` whose trust in an old CA ends seconds after the last replica moved, not a minute: a whole renewal fits into a test.

Run as a program, with the flags of `dovetail webhook`.
"""

from dataclasses import replace
from typing import Final

from certs.rotation import RotationSettings
from webhook import server

OVERLAP_SECONDS: Final = 3.0


class _Config(server.WebhookConfig):
    def rotation(self) -> RotationSettings:
        return replace(super().rotation(), overlap=OVERLAP_SECONDS)


if __name__ == "__main__":
    server.WebhookConfig = _Config  # type: ignore[misc]  # what the command makes
    server.command()
