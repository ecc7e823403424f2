"""What an arm is, and what is known of its hand before anything is measured."""

import safe_sysid

arm = safe_sysid.load_arm("kinova_gen3")  # or the YAML file that `safe-sysid config init` made
print(arm, arm.joints, arm.home, sep="\n")
print(arm.prior)
noisy = safe_sysid.load_arm("kinova_gen3", measurement__torque_abs=0.5)  # any key of the file
print(noisy)
