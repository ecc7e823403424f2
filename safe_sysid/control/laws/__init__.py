"""Control laws behind one interface (:class:`~safe_sysid.control.laws.law.ControlLaw`): docs/understand/laws.md."""

from __future__ import annotations

from typing import cast

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.laws.law import ControlLaw
from safe_sysid.extensions import LAWS, chosen
from safe_sysid.robot.model import RobotModel

__all__ = ["make_law"]


def make_law(name: str, model: RobotModel, gains: ControllerGains) -> ControlLaw:
    """Make a control law by name, with the configuration's ``controller.laws``.

    Args:
        name: one of :data:`safe_sysid.extensions.LAWS`.
        gains: of the controller, for laws without a section of their own in ``controller.laws``.

    Raises:
        ParameterError: unknown name, or a parameter that laws know nothing of.
    """
    model.layout.require_compiled("a control law", model.arm_prior.lower, model.arm_prior.upper)
    maker = chosen(LAWS, name, "controller.law")
    return cast(ControlLaw, maker(model, getattr(model.settings.controller.laws, name, gains)))
