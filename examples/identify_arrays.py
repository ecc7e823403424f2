"""Intervals of a payload from arrays; here a simulated arm measures them."""

import safe_sysid

arm = safe_sysid.load_arm("kinova_gen3")
measured = safe_sysid.simulate(arm, payload="2kg", plans=2).log.measurements
log = safe_sysid.log_from_arrays(arm, measured.stamps, measured.q, measured.qd, measured.effort)
print(safe_sysid.identify(arm, log))
