"""Writes certificates, and checks them with code that shares nothing with what wrote them."""

import safe_sysid

arm = safe_sysid.load_arm("kinova_gen3")
run = safe_sysid.simulate(arm, payload="8lb", plans=1)
found = safe_sysid.identify(arm, run.log, folder="found")
safe_sysid.plan(arm, arm.home + 0.2, payload=found).save("moved")
verdict = safe_sysid.verify("found", "moved", scene="open")
print(verdict)
assert verdict
