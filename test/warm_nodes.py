"""What a process has loaded that nodes of the tests are forked of: the core, and the kernels that a node begins with.

Nothing of ROS 2: importing it starts threads, which a fork would not have.
"""

from dataclasses import replace

import numpy as np

from safe_sysid.apps import judge  # noqa: F401
from safe_sysid.control.controller import Controller
from safe_sysid.control.design import design_gains
from safe_sysid.control.laws import make_law
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import Identifier
from safe_sysid.robot import load_robot, load_scene
from safe_sysid.simulation import payload_from_spec
from safe_sysid.simulation.assembly import build_plant

_MODEL = load_robot("kinova_gen3")
_HOME, _ZERO = np.array(_MODEL.settings.home), np.zeros(_MODEL.n)


def _controller() -> None:
    gains = design_gains(_MODEL, lockstep=True)
    core = Controller(_MODEL, gains, law=make_law(_MODEL.settings.controller.law, _MODEL, gains))
    core.start(0.0, _HOME, _ZERO)
    for k in range(1, 4):
        core.step(1e-3 * k, _HOME, _ZERO, None)
        core.offer_box(replace(_MODEL.arm_prior, seq=1), 1e-3)


def _identifier() -> None:
    q, zero = np.tile(_HOME, (300, 1)), np.zeros((300, _MODEL.n))
    Identifier(_MODEL).add(Measurements(np.linspace(0.0, 0.299, 300), q, zero, zero))


_controller()
_identifier()
build_plant(_MODEL, payload_from_spec("none"), load_scene("open"), 0).step(None)
