"""Intervals of a payload from a log: rosbag2, CSV or npz. `python identify_log.py LOG [ROBOT]`."""

import sys

import safe_sysid

arm = safe_sysid.load_arm(*sys.argv[2:])
log = safe_sysid.read_log(arm, sys.argv[1])
found = safe_sysid.identify(arm, log)
print(found)
low, estimate, high = found.payload_mass
print(f"the payload weighs {estimate:.2f} kg, and certainly between {low:.2f} and {high:.2f} kg")
