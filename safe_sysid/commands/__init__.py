"""One module per command of ``safe-sysid``: HELP, DESCRIPTION, ``configure(parser)``, ``run(options) -> exit status``.

A module imports at its top only what is light (argparse, pathlib, safe_sysid.commands.shared.arguments): every command
answers at once, and ``--help`` loads nothing.
"""
