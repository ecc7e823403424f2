"""Command line ``safe-sysid``. Imports nothing heavy before it has said something: every command answers at once."""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
from collections.abc import Sequence
from functools import cache

from safe_sysid import __version__
from safe_sysid.commands.shared.arguments import OneLineParser
from safe_sysid.errors import SafeSysIdError

__all__ = ["main"]

#: Modules of safe_sysid.commands, in the order of the help text.
COMMANDS = (
    "demo",
    "view",
    "plan",
    "identify",
    "identify-arm",
    "learn",
    "errors",
    "tube",
    "tare",
    "verify",
    "report",
    "replay",
    "campaign",
    "experiment",
    "dynamics",
    "realtime-check",
    "config",
)

#: What a full, broken or locked disk says: no fault of the program, so no traceback.
_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG)


@cache
def build_parser() -> argparse.ArgumentParser:
    """All commands and options; made once, as it takes a thirtieth of a second."""
    parser = OneLineParser(
        prog="safe-sysid",
        description="Provably safe online system identification for robot arms.",
        epilog="safe-sysid COMMAND --help says more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"safe-sysid {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=OneLineParser)
    for name in COMMANDS:
        module = importlib.import_module(f"safe_sysid.commands.{name.replace('-', '_')}")
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.DESCRIPTION,
            formatter_class=getattr(module, "FORMATTER", argparse.HelpFormatter),
        )
        module.configure(command)
        command.set_defaults(module=module)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parser = build_parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    if options.command is None:
        parser.print_help()
        return 2
    module = vars(options).pop("module")
    try:
        return int(module.run(options))
    except SafeSysIdError as error:
        text = " ".join(str(error).split())
        print(f"safe-sysid {options.command}: error: {text}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"safe-sysid {options.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads: keep Python from complaining when it flushes
        return 141  # as a process that SIGPIPE ended
    except OSError as error:
        if error.errno not in _MACHINE:
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(f"safe-sysid {options.command}: error: {where}{error.strerror}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
