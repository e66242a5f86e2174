"""What can go wrong with a dev cluster, each with the sentence that says what to do about it."""

from provisioner.values.errors import ExitStatus, UserError


class DevClusterError(UserError):
    """A dev cluster cannot be built, started, reached or stopped.

    Attributes:
        problem: what is wrong, one sentence without its full stop.
        fix: what to do about it, likewise.
    """

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem, fix)
        self.problem, self.fix = problem, fix

    def __str__(self) -> str:
        return f"{self.problem}. {self.fix}."


class ToolchainError(DevClusterError):
    """No usable Go compiler, and none could be installed."""


class BuildError(DevClusterError):
    """A program could not be built or downloaded."""


class ChecksumError(BuildError):
    """A downloaded file is not the one that its publisher announced."""


class BinaryError(DevClusterError):
    """A program is there but does not run, or is not what it should be."""


class PortError(DevClusterError):
    """A port that the cluster needs is taken by another program."""


class StartError(DevClusterError):
    """A component did not become ready."""


class StateError(DevClusterError):
    """The cluster's directory does not hold what it should, or the cluster is not in the state asked for."""


class NoSuchClusterError(StateError):
    """There is no cluster of this name."""

    exit_status = ExitStatus.FOUND
