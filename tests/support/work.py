"""How much is done, in lines of Python that are run: the same on every machine, however busy."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Self


class Lines:
    """Counts lines while it is entered; garbage is not collected then, since callbacks of that would count."""

    def __init__(self) -> None:
        self.count = 0
        self._before, self._collected = sys.gettrace(), gc.isenabled()

    def _called(self, _frame: FrameType, _event: str, _arg: object) -> Callable[[FrameType, str, Any], Any]:
        return self._traced

    def _traced(self, _frame: FrameType, event: str, _arg: object) -> Callable[[FrameType, str, Any], Any]:
        if event == "line":
            self.count += 1
        return self._traced

    def __enter__(self) -> Self:
        self._before, self._collected = sys.gettrace(), gc.isenabled()
        gc.disable()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.settrace(self._before)
        if self._collected:
            gc.enable()
