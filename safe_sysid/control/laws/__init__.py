"""Control laws behind one interface (:class:`safe_sysid.control.law.ControlLaw`); docs/laws.md says what each is."""

from __future__ import annotations

from collections.abc import Callable

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.law import ControlLaw
from safe_sysid.control.laws.adaptive_robust import AdaptiveRobustLaw
from safe_sysid.control.laws.armour import ArmourLaw
from safe_sysid.control.laws.gravity_pid import GravityPidLaw
from safe_sysid.control.laws.inverse_dynamics import ComputedTorqueLaw, ImpedanceLaw
from safe_sysid.control.laws.passivity_adaptive import PassivityAdaptiveLaw
from safe_sysid.control.robust import RobustLaw
from safe_sysid.control.settings import LawsSettings
from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import RobotModel

__all__ = [
    "LAW_NAMES",
    "AdaptiveRobustLaw",
    "ArmourLaw",
    "ComputedTorqueLaw",
    "GravityPidLaw",
    "ImpedanceLaw",
    "PassivityAdaptiveLaw",
    "make_law",
]

_Maker = Callable[[RobotModel, ControllerGains, LawsSettings], ControlLaw]

_MAKERS: dict[str, _Maker] = {
    "robust": lambda m, g, s: RobustLaw(m.kinematics, g, m.friction_transition_velocity),
    "armour": lambda m, g, s: ArmourLaw(m, s.armour),
    "passivity_adaptive": lambda m, g, s: PassivityAdaptiveLaw(m, s.passivity_adaptive),
    "adaptive_robust": lambda m, g, s: AdaptiveRobustLaw(m, s.adaptive_robust),
    "gravity_pid": lambda m, g, s: GravityPidLaw(m, s.gravity_pid),
    "computed_torque": lambda m, g, s: ComputedTorqueLaw(m, s.computed_torque),
    "impedance": lambda m, g, s: ImpedanceLaw(m, s.impedance),
}
#: Names that ``controller.law`` may have; the first is the law that the tracking theorem is about.
LAW_NAMES = tuple(_MAKERS)


def make_law(
    name: str, model: RobotModel, gains: ControllerGains, settings: LawsSettings | None = None
) -> ControlLaw:
    """Make a control law by name.

    Args:
        name: one of :data:`LAW_NAMES`.
        model: of the arm.
        gains: of the robust law.
        settings: gains of the other laws; None for the configuration's ``controller.laws``.

    Raises:
        ParameterError: unknown name.
    """
    maker = _MAKERS.get(name)
    if maker is None:
        raise ParameterError(f"controller.law = {name!r}: expected one of {', '.join(LAW_NAMES)}")
    return maker(model, gains, settings or model.settings.controller.laws)
