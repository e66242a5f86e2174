"""What keeps a day from being simulated."""

from provisioner.values.errors import UserError


class SimulationError(UserError):
    """The input cannot be simulated, or the simulation did not come to an end; says what and why."""
