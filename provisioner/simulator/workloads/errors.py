"""What keeps a day from being made."""

from provisioner.values.errors import UserError


class WorkloadError(UserError):
    """Settings or a file of which no day can be made; says where, and what to do."""
