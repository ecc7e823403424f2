"""Is a trajectory of your own safe, for every tracking error and every possible payload?"""

import safe_sysid

arm = safe_sysid.load_arm("kinova_gen3")
start, rest = arm.home, 0.0 * arm.home
for angle in (0.2, 2.0):
    goal = start + angle
    print(safe_sysid.certify(arm, [0, 3], [[start, rest, rest], [goal, rest, rest]]))
