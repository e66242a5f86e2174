"""The way back to Karpenter: what `dovetail uninstall --keep-nodes --for karpenter` does, and that the takeover is over."""

from provisioner.cli.takeover.inputs import say
from provisioner.leaving.belongings import Keep
from provisioner.leaving.departure import Departure
from provisioner.values.errors import ExitStatus


def give_back(leaving: Departure) -> int:
    """Stop Dovetail, and leave its nodes to Karpenter; the exit status.

    Raises:
        UserError: something has to be done first.
        ApiError: the server did not answer.
    """
    problems = (*leaving.stop_stamping(), *leaving.keep_nodes(Keep.FOR_KARPENTER))
    for one in problems:
        say(f"To do: {one}")
    return ExitStatus.FOUND if problems else ExitStatus.DONE
