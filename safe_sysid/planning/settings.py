"""Planning settings of a robot's file."""

from __future__ import annotations

from pydantic import model_validator

from safe_sysid.schema import Section, setting
from safe_sysid.schema.fields import PerJointNumbers, problem

__all__ = ["PlannerSettings"]


class PlannerSettings(Section):
    """Exciting trajectories."""

    t_f: float = setting(
        "duration of one trajectory; its second part is the braking manoeuvre", "s", "(0, inf)", default=3.0
    )
    t_p: float = setting("a new plan takes over after this time; below t_f", "s", "(0, inf)", default=1.5)
    intervals: int = setting("pieces of time of one trajectory in the certificate", range="[2, 4096]", default=128)
    k_range: PerJointNumbers = setting(
        "how far from its start a trajectory may end", "rad or m", "(0, inf)", default=0.785
    )
    clearance_margin: float = setting("asked for on top of the certified clearance", "m", "[0, inf)", default=0.005)
    iteration_budget: int = setting("optimiser iterations for one plan", range="[1, 100000]", default=72)
    plans: int = setting("exciting trajectories of one identification run", range="[1, 100000]", default=4)

    @model_validator(mode="after")
    def _ordered(self) -> PlannerSettings:
        if not self.t_p < self.t_f:
            raise problem(f"t_p < t_f = {self.t_f:g}", below=("t_p",), value=self.t_p)
        return self
