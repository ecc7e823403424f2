"""`python -m safe_sysid`: the same as the console script `safe-sysid`."""

from __future__ import annotations

import sys

from safe_sysid.cli import main

if __name__ == "__main__":
    sys.exit(main())
