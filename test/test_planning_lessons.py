"""Plans that are certified and teach nothing: found as such, searched for longer, and no run succeeds with them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from safe_sysid.apps.plan.drive import drive
from safe_sysid.apps.plan.plan import PlannedMotion, excite
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.identification.diagnosis.narrowed import not_narrowed, shown_by_motion, why_taught_nothing
from safe_sysid.planning import Planner, PlannerOptions, PlannerResult, PlanStatus, hand_over_state, verify_plan
from safe_sysid.planning.certification.verdicts import PlanVerdict
from safe_sysid.planning.excitation.lessons import next_lesson, why_no_lesson
from safe_sysid.robot import ParameterBox, RobotModel, load_robot, load_scene
from safe_sysid.trajectories import Plan, QuinticTrajectory

pytestmark = pytest.mark.unproved


@pytest.fixture(scope="module")
def model() -> RobotModel:
    return load_robot("three_joint")


def at_rest(model: RobotModel) -> np.ndarray:
    home = np.array(model.settings.home)
    return np.stack([home, 0.0 * home, 0.0 * home])


class BusyMachine:
    """A planner with the real certificate, where every certificate takes as long as there is time for in all."""

    def __init__(self, model: RobotModel, gains: ControllerGains) -> None:
        self.now, self.deadline = 0.0, 1.0
        self.model, self.scene, self.gains = model, load_scene("open"), gains
        self.planner = Planner(model, self.scene, gains, certify=self.certify)

    def certify(self, plan: Plan, box: ParameterBox) -> PlanVerdict:
        self.now += self.deadline
        certificate = verify_plan(plan, self.model, box, self.scene, self.gains)
        return PlanVerdict(certificate.ok, certificate=certificate)

    def lesson(self, *arguments: object, **more: object) -> PlannerResult:
        budget = self.planner.budget(self.now + self.deadline)
        budget.clock = lambda: self.now
        return next_lesson(self.planner, *arguments, budget=budget, **more)


def test_a_solver_that_only_has_time_for_rest_gives_no_lesson(model: RobotModel, gains: ControllerGains) -> None:
    machine, start, box = BusyMachine(model, gains), at_rest(model), model.arm_prior
    told: list[PlannerResult] = []
    answer = machine.lesson(start, 0.0, box, 0, on_certified=told.append)
    assert answer.certificate.ok, "certified it is"
    assert (answer.status, answer.plan) == (PlanStatus.NO_LESSON, None)
    assert [(each.status, each.plan) for each in told] == [(PlanStatus.NO_LESSON, None)]
    assert not answer.information.any()
    for words in ("teaches nothing", "leaves rest by 0 rad", "1 certificates"):
        assert words in answer.reasons[0]
    # In motion the gentlest is what the arm would do without it.
    first = next_lesson(Planner(model, machine.scene, gains), start, 0.0, box, 0)
    state, begin = hand_over_state(first.plan), first.plan.hand_over_time
    answer = machine.lesson(state, begin, box, 1, previous=first.plan)
    assert (answer.status, answer.plan) == (PlanStatus.NO_LESSON, None)
    assert "leaves the rest of the plan under way by" in answer.reasons[0]


def test_a_certificate_that_would_take_longer_than_there_is_time_for_is_no_verdict(
    model: RobotModel, gains: ControllerGains
) -> None:
    """The next plan on a machine whose certificates took longer than the deadline: asked again, not given up."""
    machine, start, box = BusyMachine(model, gains), at_rest(model), model.arm_prior
    slow = machine.lesson(start, 0.0, box, 0).calibration
    assert slow.certificate_s == 1.0
    answer = machine.lesson(start, 0.0, box, 0, calibration=slow)
    assert (answer.status, answer.certificates) == (PlanStatus.STOPPED, 0)
    assert answer.reasons == ("no candidate could be certified in the time given",)


def test_without_a_deadline_the_search_goes_on_until_there_is_a_lesson(
    model: RobotModel, gains: ControllerGains
) -> None:
    planner = Planner(model, load_scene("open"), gains, options=PlannerOptions(certificates=1))
    start, box = at_rest(model), model.arm_prior
    alone = planner.plan_next(start, 0.0, box, 0)
    assert alone.plan is not None
    assert "leaves rest by 0 rad" in why_no_lesson(alone.plan, planner.settings.k_range)
    answer = next_lesson(planner, start, 0.0, box, 0)
    assert answer.status is PlanStatus.PLANNED
    assert np.abs(answer.plan.k).max() > 0.1
    assert 1 < answer.certificates <= 4


@pytest.mark.parametrize(
    ("k_range", "reach", "teaches"),
    [(0.5, 0.0, False), (0.5, 0.0099, False), (0.5, 0.0101, True), (1e-4, 0.0009, False), (1e-4, 0.0011, True)],
)
def test_what_counts_as_moving(k_range: float, reach: float, teaches: bool) -> None:
    start = np.zeros((3, 2))
    way = QuinticTrajectory.to_rest(start, np.array([0.0, -reach]), 1.0)
    plan = Plan(way, 0.0, 0.5, "0:0", 0, np.zeros(2))
    assert (why_no_lesson(plan, k_range) == "") is teaches
    # From the same instant on the plan under way would do just this.
    assert why_no_lesson(plan, k_range, plan)


@pytest.mark.parametrize("simulated", [False, True])
def test_a_planned_or_driven_run_that_does_not_move_fails_and_says_so(simulated: bool) -> None:
    """Half a milliradian is certified at once and shows nothing."""
    model = load_robot("three_joint", **{"planner.k_range": 5e-4, "planner.iteration_budget": 4})
    gains, scene = design_gains(model, lockstep=True), load_scene("open")
    motion = PlannedMotion(model, scene, gains, np.array(model.settings.home), None)
    said: list[str] = []
    if simulated:
        drive(motion, None, "auto", 1, PlannerOptions(), 0, said.append)
        assert any("taught nothing about mcz" in gap for gap in motion.simulated["wrong"])
        assert any("identification failed" in line for line in said)
    else:
        excite(motion, Planner(model, scene, gains), model.arm_prior, 2, said.append)
    assert not motion.reached
    assert motion.steps == []
    assert "teaches nothing" in motion.reasons[0]


# -- intervals ------------------------------------------------------------------------------------------------------


def halves(model: RobotModel, *but: int) -> tuple[np.ndarray, np.ndarray]:
    """Half of every interval of the prior; all of some."""
    lower, upper = np.array(model.arm_prior.payload_lower), np.array(model.arm_prior.payload_upper)
    left = [i for i in range(10) if i not in but]
    upper[left] = 0.5 * (lower + upper)[left]
    return lower, upper


def test_intervals_that_motion_narrows_and_did_not_are_named() -> None:
    model = load_robot("kinova_gen3")
    assert shown_by_motion(model)[:4].all()
    assert not_narrowed(model, *halves(model)) == []
    assert not_narrowed(model, *halves(model, 2)) == ["mcy"]
    assert not_narrowed(model, *halves(model, 0, 3)) == ["m", "mcz"]
    assert "nothing about mcy: still as wide as the prior" in why_taught_nothing(model, *halves(model, 2))
    assert not_narrowed(model, *halves(model, 5, 8)) == [], "small inertias may be out of reach of a short run"


def test_a_prior_that_is_tight_already_and_what_an_arm_cannot_show_is_no_failure(model: RobotModel) -> None:
    middle = np.array([3.0, 0.0, 0.0, -0.4, *np.zeros(6)])
    width = np.array([0.02, 0.002, 0.002, 0.002, *(6 * [0.2])])
    ends = {"payload.prior_lower": (middle - width).tolist(), "payload.prior_upper": (middle + width).tolist()}
    tight = load_robot("kinova_gen3", **ends)
    prior = tight.arm_prior
    assert not_narrowed(tight, prior.payload_lower, prior.payload_upper) == []
    # Gravity of a planar arm knows two directions only.
    planar, column = shown_by_motion(model), slice(1, 4)
    assert planar[column].sum() == 2
    assert not_narrowed(model, *halves(model, 1 + int(np.argmin(planar[column])))) == []
    # Known before the run: intervals are compared with the robot's own prior.
    assert not_narrowed(model, *halves(model)) == []


_NOTHING_LEFT = """
import sys
import numpy as np
from numba.core.registry import CPUDispatcher
from safe_sysid.control.gains.design import design_gains
from safe_sysid.planning.solver_process import jobs
from safe_sysid.planning.planner import Planner, PlannerOptions, hand_over_state
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.scenes.scene import Scene

def kernels():
    modules = [module for name, module in sys.modules.items() if name.startswith("safe_sysid")]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, CPUDispatcher)]
    return {(k.py_func.__module__, k.py_func.__name__, str(s)) for k in found for s in k.signatures}

model = load_robot("three_joint")
options = PlannerOptions(starts=4, keep=1, certificates=3)
planner = Planner(model, Scene("open"), design_gains(model, lockstep=False), options=options)
jobs._warm_up(planner)
warm = kernels()
state = np.zeros((3, model.n))
state[0] = model.settings.home
first = planner.plan_next(state, 0.0, model.arm_prior, 0)
then = {"previous": first.plan, "calibration": first.calibration, "executed_information": first.information}
second = planner.plan_next(hand_over_state(first.plan), first.plan.hand_over_time, model.arm_prior, 1, **then)
assert second.plan is not None and np.abs(second.plan.k).max() > 0.1
print(len(warm), sorted(kernels() - warm))
"""


@pytest.mark.slow
def test_no_deadline_is_spent_on_compiling() -> None:
    """A kernel that the warm-up leaves out takes seconds of the first plans, which are the gentlest then."""
    command = [sys.executable, "-c", _NOTHING_LEFT]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    count, left = answer.stdout.split(maxsplit=1)
    assert int(count) > 10
    assert left.strip() == "[]"
