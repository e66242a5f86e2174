"""What a long step tells whoever watches; the renderers are in provisioner.lab.progress."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


class StepProgress:
    """Hears of long steps, one at a time: begin, any number of details, then done or failed. This one tells nobody."""

    def begin(self, index: int, total: int, what: str) -> None:
        """Step `index` (from 1) of `total` begins."""

    def detail(self, text: str) -> None:
        """What the step does just now, one line; may come often and from another thread."""

    def done(self) -> None:
        """The step is finished."""

    def failed(self) -> None:
        """The step is given up; an exception follows."""


SILENT: Final = StepProgress()


@contextmanager
def reported(progress: StepProgress) -> Iterator[None]:
    """End a step the way its block ends."""
    try:
        yield
    except BaseException:
        progress.failed()
        raise
    progress.done()
