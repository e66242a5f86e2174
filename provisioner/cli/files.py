"""Files that commands write where their users say."""

from pathlib import Path

from provisioner.values.errors import UserError


def write_file(path: Path, data: bytes, option: str) -> None:
    """Write a file.

    Args:
        path: of the file.
        data: all of it.
        option: that named the file, for whoever has to name another.

    Raises:
        UserError: it cannot be written.
    """
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}. Give a path that this user may write with {option}"
        ) from None
