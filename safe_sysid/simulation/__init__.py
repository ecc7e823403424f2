"""The simulated world: plant, payloads, sensor and actuator errors, draws of the true arm. Free of ROS."""

from safe_sysid.simulation.actuator import ACTUATOR_MODES
from safe_sysid.simulation.arms import DRAW_MODES, draw_truth, hand_box
from safe_sysid.simulation.assembly import build_plant
from safe_sysid.simulation.hand import payload_in_hand
from safe_sysid.simulation.noise import NOISE_MODES, PATTERNS, NoiseModel
from safe_sysid.simulation.payloads import (
    DUMBBELLS,
    NO_PAYLOAD,
    Payload,
    check_inside_prior,
    dumbbell,
    payload_from_spec,
    theta_e_with_payload,
)
from safe_sysid.simulation.plant import Plant
from safe_sysid.simulation.shapes import Shape

__all__ = [
    "ACTUATOR_MODES",
    "DRAW_MODES",
    "DUMBBELLS",
    "NOISE_MODES",
    "NO_PAYLOAD",
    "PATTERNS",
    "NoiseModel",
    "Payload",
    "Plant",
    "Shape",
    "build_plant",
    "check_inside_prior",
    "draw_truth",
    "dumbbell",
    "hand_box",
    "payload_from_spec",
    "payload_in_hand",
    "theta_e_with_payload",
]
