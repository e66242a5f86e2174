"""Where `dovetail` and `kubectl dovetail` begin. Importing this costs nothing, so that Ctrl-C is quiet from the first moment on.

The version is asked in scripts and probes, and is answered before anything is imported.
"""

import sys

from provisioner import __version__


def main() -> None:
    """Print the version, or run the command of `sys.argv` and exit with its status."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"dovetail, version {__version__}\n")
        return
    try:
        status = _run()
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


def _run() -> int:
    import signal  # noqa: PLC0415 - not for the version

    # a job in the background may be told to ignore it
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from provisioner.cli.main import run  # noqa: PLC0415 - this is what takes time

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    status = run(sys.argv)
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the interpreter ends with a trace otherwise
    return status
