"""What is known of a kind of object that not every API server has. Pure."""

import enum


class KindKnowledge(enum.Enum):
    """How far the objects of such a kind are known.

    NOT_YET: nobody has asked, or the first answer is still to come.
    UNREADABLE: they may not be read, or their watch is behind.
    READ: they are as the watch tells them.
    NOT_SERVED: the API server has none.
    """

    NOT_YET = enum.auto()
    UNREADABLE = enum.auto()
    READ = enum.auto()
    NOT_SERVED = enum.auto()
