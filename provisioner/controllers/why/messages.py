"""Texts that `controllers.why` logs; docs/reference/messages.md is generated from them."""

from typing import Final

# server.py
ANSWERED: Final = "Answered why"
ANSWER_FAILED: Final = "Failed to answer why"
