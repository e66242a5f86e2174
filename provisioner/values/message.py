"""What an event and a condition say, as values for publishers, and the mark of texts that are parts of others."""

from typing import Literal, NamedTuple, NewType

Said = NewType("Said", str)
"""A text that is part of another one or of a field, or stands in a variable before it is published: docs/reference/messages.md lists it. A str."""


class EventMessage(NamedTuple):
    """One event without the object that it is about; unpacked into `Recorder.publish`.

    Attributes:
        type: as the API has it.
        reason: one CamelCase word.
        text: a sentence: actor, fact, remedy.
    """

    type: Literal["Normal", "Warning"]
    reason: str
    text: str


class ConditionMessage(NamedTuple):
    """One condition without times; unpacked into `ConditionSet.set`.

    Attributes:
        type: of the condition.
        status: "True", "False" or "Unknown".
        reason: one CamelCase word; "" is the type's name.
        text: a sentence; "" where type and reason say all.
    """

    type: str
    status: str
    reason: str = ""
    text: str = ""
