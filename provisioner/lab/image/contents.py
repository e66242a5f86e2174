"""What of Debian's packages and of the wheels is left out of the image, and why."""

import ast
import re
from collections.abc import Container, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

PACKAGES: Final = ("certs", "extender", "provisioner", "webhook")
SITE: Final = "usr/local/lib/python3.11/dist-packages"  # which Debian's interpreter searches by itself

NOT_INSTALLED: Final = (  # kubernetes.aio alone imports these, and it is left out
    "aiohappyeyeballs",
    "aiohttp",
    "aiosignal",
    "attrs",
    "frozenlist",
    "multidict",
    "propcache",
    "yarl",
)

OMITTED: Final = {  # shell patterns of paths, * matches / too -> why
    "usr/share/doc/*": "documents; licences are kept",
    "usr/share/man/*": "documents",
    "usr/share/locale/*": "messages are English",
    "usr/share/lintian/*": "for Debian's packagers",
    "usr/share/bug/*": "for Debian's packagers",
    "usr/share/base-files/*": "templates of files in home directories",
    "usr/share/binfmts/*": "no shell starts a program by its name",
    "usr/share/applications/*": "no desktop",
    "usr/share/pixmaps/*": "no desktop",
    "usr/share/gcc/*": "for debuggers",
    "usr/share/gdb/*": "for debuggers",
    "usr/sbin/*": "programs of administrators; the certificates are gathered while the image is built",
    "usr/lib/*/gconv/*": "character sets of iconv; Python has its own",
    "usr/lib/python3.11/curses/*": "needs ncurses, which is not there",
    "usr/lib/python3.11/dbm/*": "needs Berkeley DB, which is not there",
    "usr/lib/python3.11/distutils/*": "nothing is built in the image",
    "usr/lib/python3.11/idlelib/*": "an editor",
    "usr/lib/python3.11/lib2to3/*": "Python 2",
    "usr/lib/python3.11/pydoc_data/*": "documents",
    "usr/lib/python3.11/sqlite3/*": "needs SQLite, which is not there",
    "usr/lib/python3.11/test/*": "tests",
    "usr/lib/python3.11/lib-dynload/_crypt.*": "needs libcrypt, which is not there",
    "usr/lib/python3.11/lib-dynload/_curses*": "needs ncurses, which is not there",
    "usr/lib/python3.11/lib-dynload/_dbm.*": "needs Berkeley DB, which is not there",
    "usr/lib/python3.11/lib-dynload/_sqlite3.*": "needs SQLite, which is not there",
    "usr/lib/python3.11/lib-dynload/nis.*": "needs libnsl, which is not there",
    "usr/lib/python3.11/lib-dynload/readline.*": "needs readline, which is not there",
    f"{SITE}/bin/*": "programs of dependencies; ours is written without the path of the interpreter that builds",
    f"{SITE}/*.dist-info/RECORD": "for uninstalling; depends on where the image is built",
    f"{SITE}/*.dist-info/direct_url.json": "where the project's wheel lay while the image was built",
    f"{SITE}/*/tests/*": "tests",
    f"{SITE}/*.pyi": "types, for checkers",
    f"{SITE}/*.pxd": "for compilers",
    f"{SITE}/*/include/*": "for compilers",
    f"{SITE}/highspy/share/*": "documents",
    f"{SITE}/numpy/distutils/*": "builds extensions",
    f"{SITE}/numpy/f2py/*": "builds extensions",
    f"{SITE}/kubernetes/*": "models of every API object, 14 MB; `provisioner.kube.config` loads the modules that are kept",
    f"{SITE}/botocore/data/*": "models of services that no code here calls, 15 MB",
}

_OFFICIAL_CLIENT: Final = (
    "__init__",
    "client/api_client",
    "client/configuration",
    "client/exceptions",
    "client/rest",
    "config/__init__",
    "config/config_exception",
    "config/dateutil",
    "config/exec_provider",
    "config/incluster_config",
    "config/kube_config",
)

KEPT: Final = (  # before OMITTED
    "usr/share/doc/*/copyright",
    f"{SITE}/botocore/data/[!/]*.json",
    *(f"{SITE}/kubernetes/{module}.py" for module in _OFFICIAL_CLIENT),
)

_CALL: Final = re.compile(r"\.(?:client|create_client|rows)\(")
_CREDENTIALS: Final = frozenset({"signin", "sso", "sso-oidc", "sts"})
"""Services that botocore itself calls for credentials: roles, and profiles of people who run `dovetail plan` from the image."""


def is_kept(path: str, services: Container[str]) -> bool:
    """Whether a file goes into the image; pure.

    Args:
        path: from the root of the image, without a leading slash.
        services: of AWS, by botocore's names.
    """
    head, _, rest = path.partition(f"{SITE}/botocore/data/")
    if not head and "/" in rest:
        return rest.partition("/")[0] in services
    return any(fnmatchcase(path, pattern) for pattern in KEPT) or not any(
        fnmatchcase(path, pattern) for pattern in OMITTED
    )


def services_called(source: Path) -> frozenset[str]:
    """The AWS services that the product's code calls, and those that botocore asks for credentials.

    Args:
        source: the directory of the packages; `provisioner.lab` is not read.
    """
    found = set(_CREDENTIALS)
    for package in PACKAGES:
        for path in sorted((source / package).rglob("*.py")):
            if not path.is_relative_to(source / "provisioner" / "lab"):
                text = path.read_text(encoding="utf-8")
                found.update(_called(ast.parse(text)) if _CALL.search(text) else ())
    return frozenset(found)


def _called(module: ast.Module) -> Iterator[str]:
    constants = {}
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))):
                constants[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(value))):
                constants[name] = value
            case _:
                pass
    for inner in ast.walk(module):
        match inner:
            case ast.Call(
                func=ast.Attribute(attr="client" | "create_client" | "rows"),
                args=[ast.Constant(value=str(service)), *_],
            ):
                yield service
            case ast.Call(
                func=ast.Attribute(attr="client" | "create_client" | "rows"), args=[ast.Name(id=name), *_]
            ) if name in constants:
                yield constants[name]
