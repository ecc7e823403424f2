"""A certified motion to a pose of the tool, around boxes, for every payload that is possible."""

import numpy as np

import safe_sysid

arm = safe_sysid.load_arm("kinova_gen3")
pose = [0.4, -0.3, 0.4, np.pi, 0, 0]  # x, y, z in m; roll, pitch, yaw in rad
motion = safe_sysid.plan(arm, pose, tool=True, scene="six_boxes")
print(motion)
position, velocity, acceleration = motion.at(np.linspace(0, motion.duration, 100)).swapaxes(0, 1)
print(f"fastest joint: {abs(velocity).max():.2f} rad/s; ends at {position[-1].round(3)}")
