r"""The robust law as one C file: regressor of two velocities, support function, gains and the monitor of V.

The regressor is traced and specialised to the arm (:func:`~safe_sysid.dynamics.generated.recursion
.two_velocity_regressor`). What :mod:`safe_sysid.control.laws.robust` does with it is C written by hand, with the gains
as constants. Both are compared in the self-test, and in test/test_law_code.py under attack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from safe_sysid.control.checks.start import tracking_energy
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.laws.c_texts import HEADER, LAW, LOOP, README, TEST, TOP
from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.control.laws.robust import make_robust_law
from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import COULOMB, OFFSET, PER_LINK, ROTOR, VISCOUS
from safe_sysid.decimals import at_least, at_most
from safe_sysid.dynamics.generated.c_code import Graph, write_c
from safe_sysid.dynamics.generated.compiled import FLAGS as COMPILER_FLAGS
from safe_sysid.dynamics.generated.compiled import compiler_here
from safe_sysid.dynamics.generated.files import array, plain, put
from safe_sysid.dynamics.generated.recursion import two_velocity_regressor
from safe_sysid.intervals import mid_rad
from safe_sysid.robot.model import RobotModel

__all__ = ["FLAGS", "Example", "drawn", "examples", "law_source", "most_uncertainty", "write_law"]


#: Bits of what a step returns, in the order of the header.
FLAGS = {"CLIPPED": 1, "UNPROVED": 2, "BAD_INPUT": 4, "ABOVE_V_MAX": 8}
#: What the self-test allows, of the largest number expected.
_ALLOWED = 1e-12
_STATES, _TICKS = 8, 200_000


@dataclass(frozen=True)
class Example:
    """States with what the Python law does there; see the header for names. ``box``: (2, P) lower and upper."""

    box: FloatArray
    state: FloatArray  # (5, n) q, qd, q_d, qd_d, qdd_d
    torque: FloatArray
    r: FloatArray
    V: float
    S: float
    flags: int


def examples(
    model: RobotModel, gains: ControllerGains, boxes: Sequence[FloatArray], states: Sequence[FloatArray]
) -> list[Example]:
    """What the Python law and the controller's monitor of V say.

    Args:
        boxes: (2, P) each, lower and upper.
        states: (5, n) each: measured q and qd, desired q, qd and qdd.
    """
    law, n, a, out = make_robust_law(model, gains), model.n, gains.assumptions, []
    noise = np.array(np.broadcast_to(a.velocity_error + gains.K_r * a.position_error, (n,)))
    for box, state in zip(boxes, states, strict=True):
        q, qd, reference = state[0].copy(), state[1].copy(), np.vstack([state[2:], np.zeros((1, n))])
        mid, half = mid_rad(*box)
        e, de, r = np.empty((3, n))
        energy = tracking_energy(q, qd, reference, gains.K_r, noise, gains.inertia_lower, e, de, r)
        torque = law.step(0.0, q, qd, reference, ModelInUse(mid, mid, half)).copy()
        flags = 0
        if energy > gains.V_max:
            flags, torque = FLAGS["ABOVE_V_MAX"], np.zeros(n)
        else:
            flags |= FLAGS["CLIPPED"] * bool(np.any(np.abs(torque) > a.torque_limit))
            flags |= FLAGS["UNPROVED"] * (not law.uncertainty <= most_uncertainty(gains))
            torque = np.clip(torque, -a.torque_limit, a.torque_limit)
        out.append(Example(np.asarray(box), state, torque, r, energy, law.uncertainty, flags))
    return out


def drawn(
    model: RobotModel, gains: ControllerGains, count: int, rng: np.random.Generator, share: float = 0.9
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Random boxes (2, P) in the prior, and states (5, n) with V up to ``share`` of V_max."""
    n, a, box, boxes, states = model.n, gains.assumptions, gains.box, [], []
    reach = np.where(model.sliding, 0.0, np.pi)
    low, high = (
        np.where(np.isfinite(x), x, y)
        for x, y in ((model.limits.position_lower, -reach), (model.limits.position_upper, reach))
    )
    for _ in range(count):
        shares = np.sort(rng.uniform(0.0, 1.0, (2, box.size)), axis=0) * rng.choice([0.0, 1.0], box.size, p=[0.1, 0.9])
        boxes.append(np.clip(box.lower + shares * (box.upper - box.lower), box.lower, box.upper))
        q_d, qd_d = rng.uniform(low, high), rng.uniform(-1.0, 1.0, n) * a.velocity
        r = rng.standard_normal(n)
        r *= np.sqrt(2.0 * share * rng.uniform() * gains.V_max / np.sum(gains.inertia_lower * r * r))
        e = rng.uniform(-1.0, 1.0, n) * gains.e_bound
        qdd_d = rng.uniform(-1.0, 1.0, n) * a.acceleration
        states.append(np.array([q_d - e, qd_d - (r - gains.K_r * e), q_d, qd_d, qdd_d]))
    return boxes, states


def most_uncertainty(gains: ControllerGains) -> float:
    """S up to which the tracking bound is claimed, as the controller has it, sqrt(W/s)."""
    return gains.assumptions.uncertainty * (1.0 + 1e-9)


def law_source(model: RobotModel, gains: ControllerGains, prefix: str = "law") -> str:
    """The C file, without the header that it includes.

    Args:
        gains: of :func:`safe_sysid.control.gains.design.design_gains`.
        prefix: of the names in it.

    Raises:
        ModelError: the arm has a branch.
        ParameterError: it has friction that compiled code has no columns for.
    """
    n, a, layout, box = model.n, gains.assumptions, model.layout, gains.box
    layout.require_compiled("the law in C", box.lower, box.upper)
    graph = Graph()
    rows = two_velocity_regressor(model.kinematics, graph)
    packed = [value for j, row in enumerate(rows) for value in row[PER_LINK * j :]]
    starts = np.cumsum([0] + [(PER_LINK + 1) * n - PER_LINK * j for j in range(n - 1)]) - PER_LINK * np.arange(n)
    order = np.concatenate(
        [np.arange(PER_LINK * n), *(k * n + np.arange(n) for k in (ROTOR, COULOMB, VISCOUS, OFFSET))]
    )
    width = model.friction_transition_velocity
    noise = a.velocity_error + gains.K_r * a.position_error
    per_joint = {
        "K_r": gains.K_r, "K_d": gains.K_d, "inertia_lower": gains.inertia_lower, "inertia_upper": a.inertia_upper,
        "r_noise": noise, "q_noise": a.position_error, "r_bound": gains.r_bound, "torque_limit": model.limits.torque,
        "q_lower": model.limits.position_lower + a.position_error,
        "q_upper": model.limits.position_upper - a.position_error,
    }  # fmt: skip
    numbers = {
        "GAIN": gains.robust_gain * a.hold_max, "LEAD": gains.lead, "OWN_DAMPING": gains.own_damping,
        "V_MAX": gains.V_max, "V_START": gains.V_start,
        "S_MAX": most_uncertainty(gains),
    }  # fmt: skip
    sign = f"clamp((v) / {width!r})" if width > 0.0 else "(((v) > 0.0) - ((v) < 0.0))"
    head = [
        write_c(graph, n, {"regressor": packed}, inner=True).text,
        array(f"{prefix}_prior_lower", box.lower), array(f"{prefix}_prior_upper", box.upper),
        *(f"static {array(name, np.broadcast_to(x, (n,)))}" for name, x in per_joint.items()),
        f"/* Of this file's order: where they lie in the package's. */\nstatic const int order[{layout.size}] = "
        f"{{{', '.join(map(str, order))}}};",
        f"/* Row j has columns 10 j to 11 N. */\nstatic const int first[{n}] = {{{', '.join(map(str, starts))}}};", "",
        *(f"#define {name} {float(x)!r}" for name, x in numbers.items()),
        f"#define NUMBERS {len(packed)}", f"#define SIGN(v) {sign}",
        "#define LARGEST 1e6 /* rad: the sines hold up to there */",
    ]  # fmt: skip
    return _named(TOP + "\n".join(head) + "\n" + LAW, prefix)


def _named(text: str, prefix: str) -> str:
    return text.replace("@p@", prefix).replace("@P@", prefix.upper())


def _self_test(found: Sequence[Example], prefix: str) -> str:
    data = {
        "lower": np.array([x.box[0] for x in found]), "upper": np.array([x.box[1] for x in found]),
        **{name: np.array([x.state[k] for x in found]) for k, name in enumerate(("q", "qd", "q_d", "qd_d", "qdd_d"))},
        "torque": np.array([x.torque for x in found]), "r": np.array([x.r for x in found]),
        "V": np.array([x.V for x in found]), "S": np.array([x.S for x in found]),
    }  # fmt: skip
    flags = ", ".join(str(x.flags) for x in found)
    text = "".join(f"static {array(name, x)}" for name, x in data.items())
    text = (
        f"#define STATES {len(found)}\n#define TICKS {_TICKS}\n{text}static const int expected_flags[] = {{{flags}}};\n"
    )
    return _named(TEST, prefix).replace("@ALLOWED@", repr(_ALLOWED)).replace("@DATA@", text)


def write_law(model: RobotModel, gains: ControllerGains, out: Path, prefix: str = "law") -> str | None:
    """Write ``PREFIX.c``, ``.h``, ``_test.c``, ``_loop.c`` and ``README.md``, all or none; what the self-test said.

    Args:
        gains: of :func:`safe_sysid.control.gains.design.design_gains`.
        out: directory to make; an empty one is taken, too.
        prefix: of files and names.

    Returns:
        None without a compiler: nothing is tested then.

    Raises:
        ModelError: a compiler or the self-test fails, or the directory cannot be written; or as of
            :func:`law_source`.
        ParameterError: as of :func:`law_source`.
    """
    a, name = gains.assumptions, plain(model.name)
    header = HEADER.replace("@NAME@", name).replace("@N@", str(model.n)).replace("@SIZE@", str(model.layout.size))
    boxes, states = drawn(model, gains, _STATES, np.random.default_rng(3))
    states[0][4] *= 1000.0  # a torque beyond its limit
    found = examples(model, gains, boxes, states)
    texts = {
        f"{prefix}.c": law_source(model, gains, prefix),
        f"{prefix}.h": _named(header, prefix),
        f"{prefix}_test.c": _self_test(found, prefix),
        f"{prefix}_loop.c": _named(LOOP, prefix),
    }

    def readme(tested: str | None) -> str:
        return README.format(
            name=name, p=prefix, P=prefix.upper(), n=model.n, joints=", ".join(map(plain, model.joint_names)),
            size=model.layout.size, hold=repr(a.hold_max), delay=repr(a.delay_max), S=repr(a.uncertainty),
            V_max=at_most(gains.V_max), V_start=at_least(gains.V_start), flags=" ".join(COMPILER_FLAGS[:4]),
            test=f"Self-test, where these files were made: {tested}." if tested else "The self-test has not been run.",
        )  # fmt: skip

    return put(out, prefix, texts, readme, compiler_here() is not None)
