"""C files made for an arm: its derivation, what that costs for long arms, and the choice of code."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import COULOMB, OFFSET, PER_LINK, ROTOR, VISCOUS
from safe_sysid.decimals import at_most
from safe_sysid.dynamics.generated.backend import drawn_parameters
from safe_sysid.dynamics.generated.choice import Candidates, candidates, measure
from safe_sysid.dynamics.generated.compiled import compiler_here
from safe_sysid.dynamics.generated.derive import derive
from safe_sysid.dynamics.generated.files import STATES, Generated, check_place, write
from safe_sysid.dynamics.generated.model import PseudoSymbolicModel
from safe_sysid.dynamics.generated.reduce import Ranking, Reduced, evaluate
from safe_sysid.dynamics.recursion import RecursiveDynamics
from safe_sysid.errors import ModelError
from safe_sysid.robot.model import Kinematics

__all__ = ["MOST_JOINTS", "ArmToGenerate", "derived", "generate", "predicted", "write_reduced"]


#: More joints than these are derived only when told to.
MOST_JOINTS = 8


@dataclass(frozen=True)
class ArmToGenerate:
    """What code is generated for."""

    name: str
    kin: Kinematics
    theta: FloatArray | None = None  #: (14 n,) parameters that the code holds as nominal ones; None: it holds none
    rotors: bool = False
    friction: bool = False  #: Coulomb and viscous friction and offsets are parameters, after these
    transition: float = 0.0  #: velocity below which the sign of friction is linear, rad/s; 0: it is the sign


def predicted(kin: Kinematics) -> tuple[float, float]:
    """Processor time (s) and memory (GB) that the derivation of a long arm will take, within a factor of some three.

    Its first five and six joints are derived, and what the sixth costs is taken to be what each further one does.
    """
    counts, seconds = [], 0.0
    for n in (5, 6):
        short = Kinematics.chain(kin.rotation[:n], kin.translation[:n], kin.axis[:n], kin.gravity, kin.travel[:n])
        start = time.process_time()
        model = derive(short)
        seconds = time.process_time() - start
        counts.append(sum(matrix.nnz for matrix in model.reduction))
    growth = max(counts[1] / counts[0], 3.0)
    entries = counts[1] * growth ** (len(kin.axis) - 6)
    return seconds + 2e-6 * entries, 0.1 + 3e-7 * entries


def derived(arm: ArmToGenerate, yes: bool = False) -> tuple[PseudoSymbolicModel, float]:
    """The model of an arm, and the processor time that took. ``yes``: derive more than eight joints, too.

    Raises:
        ModelError: a branch, more than eight joints and no ``yes``, or axes too nearly parallel.
    """
    n = len(arm.kin.axis)
    if n > MOST_JOINTS and not yes:
        if list(arm.kin.parent) != list(range(-1, n - 1)):
            yes = True  # refused below, with a better reason
        else:
            seconds, memory = predicted(arm.kin)
            raise ModelError(
                f"{arm.name}: {n} joints: the derivation will take some {seconds:.2g} s and {memory:.2g} GB; "
                f"expected at most {MOST_JOINTS} joints, or --yes to go on"
            )
    start = time.process_time()
    model = derive(arm.kin, rotors=arm.rotors)
    seconds = time.process_time() - start
    _compare(arm, model)
    return model, seconds


def _compare(arm: ArmToGenerate, model: PseudoSymbolicModel) -> None:
    """Refuse a model that is not the package's recursion: nearly parallel axes have frames that are very far away."""
    n, rng = model.n, np.random.default_rng(5)
    theta = drawn_parameters(n, rng)
    theta[PER_LINK * n :] = 0.0
    phi = model.coefficients(model.base_parameters(theta))
    q, qd, qdd = rng.uniform(-3.0, 3.0, (3, STATES, n))
    torque = RecursiveDynamics(arm.kin).inverse_dynamics(theta, q, qd, qdd, 0.0)
    gap = np.abs(evaluate(model, (q, qd, qdd), np.arange(model.p)) @ phi - torque).max()
    if gap <= 1e-9 * np.abs(torque).max():  # NaN is not
        return
    most, parallel = np.abs(torque).max(), ""
    if n > 1:
        axes = np.einsum("jab,jb->ja", arm.kin.rotation, arm.kin.axis)  # each in the frame before
        twist = np.linalg.norm(np.cross(arm.kin.axis[:-1], axes[1:]), axis=1)
        j = int(np.argmin(np.where(twist > 0.0, twist, np.inf)))
        parallel = (
            f"; the axes of joints {j + 1} and {j + 2} are {twist[j]:.1e} rad from parallel: expected parallel ones "
            "(more digits of pi in the URDF?) or at least some 1e-3 rad"
        )
    raise ModelError(f"{arm.name}: the model is off by {gap:.1e} N m of at most {most:.1e}{parallel}")


def generate(arm: ArmToGenerate, out: Path, prefix: str = "arm", yes: bool = False) -> Generated:
    """Write ``PREFIX.c``, ``PREFIX.h``, ``PREFIX_test.c`` and ``README.md``, all or none.

    ``out``: directory to make; an empty one is taken, too; ``yes``: derive more than eight joints, too.

    Raises:
        ModelError: a branch, more than eight joints without ``yes``, a compiler that fails, a self-test that does, a
            directory that holds files or cannot be written.
    """
    check_place(out)
    model, seconds = derived(arm, yes)
    found = candidates(model, arm.rotors, friction=arm.friction)
    base = _map(arm, model)
    names = [f"{name}_{j + 1}" for name in ("Fc", "Fv", "beta") for j in range(model.n)]
    times = measure(found, len(base)) if compiler_here() is not None else {}
    made = Generated(
        name=arm.name,
        model=model,
        found=found,
        chosen=found.least(times) if times else found.fewest(),
        seconds=times,
        expected=_expected(arm, model),
        nominal=base @ arm.theta if arm.theta is not None else None,
        about=model.parameter_names() + (names if arm.friction else []),
        derived_s=seconds,
        transition=arm.transition,
    )
    return write(made, prefix, out)


def _map(arm: ArmToGenerate, model: PseudoSymbolicModel) -> FloatArray:
    """(l or l + 3 n, 14 n): the code's parameters from those of the layout."""
    base, n = model.base_map(), model.n
    if not arm.friction:
        return base
    rows = [np.eye(PER_LINK * n + 4 * n)[k * n : (k + 1) * n] for k in (COULOMB, VISCOUS, OFFSET)]
    return np.concatenate([base, *rows])


def _expected(arm: ArmToGenerate, model: PseudoSymbolicModel) -> dict[str, FloatArray]:
    """Inputs and results at random states, by the package's recursion."""
    n, rng, plain = model.n, np.random.default_rng(11), RecursiveDynamics(arm.kin)
    theta = drawn_parameters(n, rng)
    theta[PER_LINK * n :] = rng.uniform(0.1, 1.0, 4 * n)
    kept = np.arange(len(theta)) < PER_LINK * n
    kept[ROTOR * n : (ROTOR + 1) * n] = arm.rotors
    for k in (COULOMB, VISCOUS, OFFSET):
        kept[k * n : (k + 1) * n] = arm.friction
    theta *= kept
    q, qd, qdd = rng.uniform(-3.0, 3.0, (3, STATES, n))
    base, still = _map(arm, model), np.zeros_like(q)
    torque = plain.inverse_dynamics(theta, q, qd, qdd, arm.transition)
    return {
        "b": base @ theta,
        "q": q,
        "qd": qd,
        "qdd": qdd,
        "torque": torque,
        "inverse": torque,
        "gravity": plain.gravity(theta, q),
        "induced": plain.inverse_dynamics(theta, q, qd, still, arm.transition),
        "mass": plain.mass_matrix(theta, q),
        # Y base = W for all parameters, so Y is W times the pseudo-inverse.
        "regressor": plain.torque_regressor(q, qd, qdd, arm.transition) * kept @ np.linalg.pinv(base),
        "forward": qdd,
    }


def write_reduced(name: str, ranking: Ranking, small: Reduced, out: Path) -> Generated:
    """The files of a reduced model; without functions of the mass matrix if that is reduced, too.

    ``out``: as of :func:`generate`.

    Raises:
        ModelError: as :func:`generate`.
    """
    check_place(out)
    model, task, n = small.model, ranking.task, small.model.n
    whole, rng = candidates(model, False, ("psdm",)), np.random.default_rng(11)
    kept = ("inverse", "gravity", "induced", *(("mass", "forward") if ranking.forced else ()))
    found = Candidates(whole.graph, n, {key: v for key, v in whole.values.items() if key[0] in kept})
    phi = model.coefficients(np.ones(1))
    q, qd, qdd = task.states(STATES, rng)
    still, everything = np.zeros_like(q), np.arange(model.p)

    def torque(rate: FloatArray, acceleration: FloatArray) -> FloatArray:
        return np.asarray(evaluate(model, (q, rate, acceleration), everything) @ phi)

    gravity, induced = torque(still, still), torque(qd, still)
    mass = np.stack([torque(still, still + row) - gravity for row in np.eye(n)], axis=2)
    expected = {
        "b": np.ones(1), "q": q, "qd": qd, "qdd": qdd, "torque": torque(qd, qdd), "inverse": torque(qd, qdd),
        "gravity": gravity, "induced": induced, "mass": mass, "forward": qdd,
    }  # fmt: skip
    times = measure(found, 1) if compiler_here() is not None else {}
    digits = ", ".join(f"{d:.2f} of {100 * level:g} %" for level, d in small.digits.items())
    proved = ", ".join(at_most(float(x), 4) for x in small.proved)
    about = [
        f"one, which is 1: a reduced model of {small.kept[0]} of {small.kept[1]} functions, its parameters are numbers",
        f"correct digits (2-norm of the torque): {digits} of random states of the task",
        f"positions {task.q.tolist()}, velocities up to {task.qd.tolist()}, accelerations up to {task.qdd.tolist()}",
        f"there, no torque is off by more than {proved} N m, joint by joint (proved)",
    ]
    made = Generated(name, model, found, found.fewest(), times, expected, np.ones(1), about, 0.0)
    return write(made, "arm", out)
