"""The whole loop in one process: the arm grips 8 lb, moves, and says what it holds. The simulation knows the truth."""

import safe_sysid

arm = safe_sysid.load_arm("kinova_gen3")
run = safe_sysid.simulate(arm, payload="8lb")
print(run.found)
print(f"truth: {run.truth[0]:.4g} kg with hand; bounds held: {run.bounds_held}; violations: {len(run.wrong)}")
