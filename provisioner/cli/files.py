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
        raise _refused(path, error, option) from None


def check_writable(path: Path, option: str) -> None:
    """Whoever computes for long before it writes asks first; nothing is changed, and no file is left.

    Args:
        path: of the file that is to be written.
        option: as of `write_file`.

    Raises:
        UserError: it could not be written now.
    """
    there = path.exists()
    try:
        path.open("ab").close()
        if not there:
            path.unlink()
    except OSError as error:
        raise _refused(path, error, option) from None


def _refused(path: Path, error: OSError, option: str) -> UserError:
    return UserError(f"{path} cannot be written: {error.strerror}. Give a path that this user may write with {option}")
