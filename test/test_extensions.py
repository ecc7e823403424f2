"""What can be added by name is one file and one line: done here as a stranger would; dynamics: test_dynamics.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from safe_sysid import extensions
from safe_sysid.errors import ParameterError

ROOT = Path(__file__).resolve().parent.parent
LAW = """
import numpy as np
from safe_sysid.control.laws.law import Proves

class Springs:
    name = "springs"
    proves = Proves.NOTHING

    def __init__(self, model, gains):
        self.torque, self.residual_bound = np.zeros(model.n), np.zeros(model.n)

    def reset(self, t, q, qd):
        pass

    def step(self, t, q, qd, reference, model):
        self.torque[:] = 100.0 * (reference[0] - q) - qd
        return self.torque
"""
FEED_FORWARD = """
import numpy as np

class HoldUp:
    def __init__(self, model):
        self.torque = np.full(model.n, 0.1)

    def __call__(self, q, qd, q_d, qd_d, qdd_d, t):
        return self.torque, 1.0
"""
RESIDUAL_MODEL = """
import numpy as np

class Dashpots:
    def __init__(self, model, path):
        self.damping = np.loadtxt(path)

    def predict(self, q, qd, qdd):
        return self.damping * qd, 1.0 if np.all(np.abs(qd) < 1.0) else 0.0
"""
COST = """
import numpy as np
from safe_sysid.planning.costs.base import midpoints

class QuietJoint:
    def __init__(self, context):
        self.family = context.family
        self.sampler = self.family.sampler(midpoints(context.horizon, 32))

    def value(self, k):
        return self.value_and_gradient(k)[0]

    def value_and_gradient(self, k):
        _, qd, _ = self.sampler(np.asarray(k, float))
        slope = np.zeros((len(qd), 3, self.family.n))
        slope[:, 1, 1] = 2.0 * qd[:, 1] / len(qd)
        return float(np.mean(qd[:, 1] ** 2)), self.sampler.pull_back(slope)

    def gauss_newton(self, k):
        return None
"""
#: Table, its name for the new one, the file, and what stands in it for the table.
ADDED = {
    "law": ("LAWS", "springs", LAW, "Springs"),
    "feed_forward": ("FEED_FORWARDS", "hold_up", FEED_FORWARD, "HoldUp"),
    "residual_model": ("RESIDUAL_MODELS", "dashpots", RESIDUAL_MODEL, "Dashpots"),
    "cost": ("COSTS", "quiet_joint", COST, "QuietJoint"),
}
USE = {
    "law": """
from safe_sysid.control.laws import make_law
arm = load_robot("three_joint", **{"controller.law": "springs"})
controller = Controller(arm, gains, law=make_law(arm.settings.controller.law, arm, gains))
assert controller.start(0.0, home, zero) == []
assert np.allclose(controller.step(1e-3, home - 1e-4, zero).torque, 0.01)
assert controller.bound_status.text == "not proved: not for the law springs"
""",
    "feed_forward": """
from safe_sysid.control.feed_forward.by_name import make_added_torque
feed_forward = {"controller.feed_forward.name": "hold_up", "controller.feed_forward.bound": 0.3}
arm = load_robot("three_joint", **feed_forward)
gains = design_gains(arm, lockstep=True)
alone, more = Controller(arm, gains), Controller(arm, gains, added=make_added_torque(arm, gains, lockstep=True))
for controller in (alone, more):
    assert controller.start(0.0, home, zero) == []
for k in range(1, 10):
    without, torque = (c.step(1e-3 * k, home, zero).torque for c in (alone, more))
assert np.allclose(torque - without, 0.1, atol=1e-12)
assert more.bound_status.text == "proved, with a feed-forward of up to 0.3 N m"
""",
    "residual_model": """
from safe_sysid.control.feed_forward.by_name import make_feed_forward
open("damping.txt", "w").write("1 2 3")
keys = {"name": "residual", "bound": 1.0, "residual": "dashpots", "file": "damping.txt"}
arm = load_robot("three_joint", **{f"controller.feed_forward.{key}": value for key, value in keys.items()})
torque, trust = make_feed_forward(arm)(zero, zero, zero, zero + 0.5, zero, 0.0)
assert np.allclose(torque, [0.5, 1.0, 1.5]) and trust == 1.0
assert make_feed_forward(arm)(zero, zero, zero, zero + 2.0, zero, 0.0)[1] == 0.0
""",
    "cost": """
from safe_sysid.planning import Planner
from safe_sysid.robot import load_scene
scene, at_rest = load_scene("open"), np.stack([home, zero, zero])
def way_of_second_joint(cost):
    found = Planner(plain, scene, gains, seed=1).plan_next(at_rest, 0.5, plain.arm_prior, sequence=0, cost=cost)
    assert found.plan is not None and found.certificate.ok, found.reasons
    return np.ptp(found.plan.trajectory.states(np.linspace(0.0, 3.0, 50))[:, 0, 1])
assert way_of_second_joint("condition+20*quiet_joint") < 0.5 * way_of_second_joint("condition")
""",
}
#: A term of friction: quadratic drag. Its line goes into a tuple of values, so the file is imported above it, too.
DRAG = """
import numpy as np

def drag(velocity, transition):
    return velocity * np.abs(velocity)

def drag_bounds(lower, upper, transition):
    return drag(lower, 0.0), drag(upper, 0.0)
"""
DRAG_LINE = (
    '    JointTerm("drag", "Fq", "quadratic drag", "N m s^2/rad^2", signed=False, drifts=True, '
    "torque=drag, bounds=drag_bounds),\n"
)
USE_DRAG = """
from safe_sysid.dynamics import dynamics_of
assert plain.layout.size == len(plain.theta_nominal) == 3 * 15
assert plain.layout.names(plain.joint_names)[-1] == f"{plain.joint_names[-1]}.Fq"
theta, qd = np.array(plain.theta_nominal), np.array([0.5, -1.0, 2.0])
theta[plain.layout.block(14)] = 3.0
for backend in ("recursion", "pinocchio"):
    dynamics = dynamics_of(plain.kinematics, backend)
    torque = dynamics.inverse_dynamics(theta, home, qd, zero)
    added = torque - dynamics.inverse_dynamics(plain.theta_nominal, home, qd, zero)
    assert np.allclose(added, 3.0 * qd * np.abs(qd), rtol=0, atol=1e-12)
    assert np.allclose(dynamics.torque_regressor(home, qd, zero) @ theta, torque, rtol=0, atol=1e-12)
controller = Controller(plain, gains)
assert controller.start(0.0, home, zero) == []
assert controller.bound_status.text == "proved"
"""
BEFORE = """
import numpy as np
import safe_sysid
from safe_sysid.control.controller import Controller
from safe_sysid.control.gains.design import design_gains
from safe_sysid.robot.loading import load_robot
plain = load_robot("three_joint")
gains, home, zero = design_gains(plain, lockstep=True), np.array(plain.settings.home), np.zeros(3)
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is installed from a clone, compiled kernels included: files keep their times."""
    place = tmp_path_factory.mktemp("clone")
    for name in ("safe_sysid", "config", "urdf"):
        shutil.copytree(ROOT / name, place / name)
    return place


def run(program: str, folder: Path) -> None:
    """In a process of its own that finds modules of the folder first."""
    path = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr


@pytest.mark.slow
def test_each_is_one_file_and_one_line(tmp_path: Path) -> None:
    """The lines come before anything else is imported, as if they stood in the tables."""
    program = "from safe_sysid import extensions\n"
    for kind, (table, name, content, attribute) in ADDED.items():
        (tmp_path / f"strangers_{kind}.py").write_text(content)
        program += f"extensions.{table}[{name!r}] = 'strangers_{kind}:{attribute}'\n"
    run(program + BEFORE + "".join(USE[kind] for kind in ADDED), tmp_path)


@pytest.mark.slow
def test_a_friction_term_is_one_file_and_one_line_with_its_import(copied: Path) -> None:
    core = copied / "safe_sysid" / "core"
    (core / "drag.py").write_text(DRAG)
    text = (core / "layout.py").read_text()
    table = text.index("JOINT_TERMS = (\n")
    end = text.index("\n)\n", table) + 1
    imported = "from safe_sysid.core.drag import drag, drag_bounds\n"
    (core / "layout.py").write_text(text[:table] + imported + text[table:end] + DRAG_LINE + text[end:])
    run(f"{BEFORE}assert safe_sysid.__file__.startswith({str(copied)!r})\n{USE_DRAG}", copied)


@pytest.mark.parametrize(
    "table",
    [extensions.COSTS, extensions.DYNAMICS, extensions.FEED_FORWARDS, extensions.LAWS, extensions.RESIDUAL_MODELS],
)
def test_everything_is_where_the_tables_say(table: dict[str, str]) -> None:
    for name in table:
        assert callable(extensions.chosen(table, name, "key"))
    for name in ("nonsense", None):
        with pytest.raises(ParameterError, match=f"key = {name!r}: expected one of {next(iter(table))}"):
            extensions.chosen(table, name, "key")
