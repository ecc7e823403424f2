"""What room for a feed-forward costs: tracking tube, damping torque, acceleration, and the torque of one motion.

``python benchmarks/feed_forward.py [--robot kinova_gen3] [--bounds 0,0.5,1,2,3]``: one line per bound and timing; the
table of docs/understand/laws.md. The motion is the same in all lines, an exciting plan certified without a
feed-forward; its demand is what its certificate encloses, actuator error and feed-forward included.
"""

from __future__ import annotations

import argparse

import numpy as np

from safe_sysid.control.design import check_acceleration, design_gains
from safe_sysid.errors import ParameterError
from safe_sysid.planning import Planner
from safe_sysid.planning.certification.certificate import verify_plan
from safe_sysid.robot import load_robot, load_scene
from safe_sysid.trajectories import Plan

HEADER = "| bound, N m | timing | V_max, mJ | e, mrad | K_d r, N m | abs(qdd), rad/s^2 | demand of limits | certified |"


def motion(robot: str) -> Plan:
    """The plan that all lines are about."""
    model, scene = load_robot(robot), load_scene("open")
    home = np.array(model.settings.home)
    planner = Planner(model, scene, design_gains(model), seed=1)
    found = planner.plan_next(np.stack([home, 0 * home, 0 * home]), 0.5, model.arm_prior, 0)
    if found.plan is None:
        raise SystemExit(f"no plan: {'; '.join(found.reasons)}")
    return found.plan


def line(robot: str, plan: Plan, bound: float, lockstep: bool) -> str:
    """One row of the table; what is refused says why."""
    model = load_robot(robot, **{"controller.feed_forward.bound": bound})
    timing = "lock-step" if lockstep else "declared"
    try:
        gains = design_gains(model, lockstep)
        check_acceleration(model, gains)
    except ParameterError as error:
        return f"| {bound:g} | {timing} | refused: {error} |"
    certificate = verify_plan(plan, model, model.arm_prior, load_scene("open"), gains)
    left = np.min(certificate.margins["torque"], axis=0)
    damping, demand = gains.K_d * gains.r_bound, 1.0 - left / model.limits.torque
    why = sorted(name for name, family in certificate.families.items() if not family.ok)
    return (
        f"| {bound:g} | {timing} | {1e3 * gains.V_max:.1f} | {1e3 * gains.e_bound.max():.0f} | "
        f"{damping.min():.1f} to {damping.max():.1f} | {gains.acceleration_bound.max():.1f} | "
        f"{100 * demand.min():.0f} to {100 * demand.max():.0f} % | {'no: ' + ', '.join(why) if why else 'yes'} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--bounds", default="0,0.25,0.5,1,2,3")
    options = parser.parse_args()
    plan = motion(options.robot)
    print(HEADER)
    print("|---" * 8 + "|")
    for lockstep in (True, False):
        for bound in map(float, options.bounds.split(",")):
            print(line(options.robot, plan, bound, lockstep), flush=True)


if __name__ == "__main__":
    main()
