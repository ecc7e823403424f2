"""Tables and figures of [PSDM], with the arms of its Table 1: derivation, evaluation and complexity reduction."""

from __future__ import annotations

import ctypes
import importlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.core.layout import PER_LINK
from safe_sysid.dynamics.generated.c_code import Source, write_c
from safe_sysid.dynamics.generated.chain import Chain
from safe_sysid.dynamics.generated.choice import Candidates, candidates, measure
from safe_sysid.dynamics.generated.compiled import load
from safe_sysid.dynamics.generated.derive import derive
from safe_sysid.dynamics.generated.factored import FactoredArm
from safe_sysid.dynamics.generated.reduce import Ranking, Task, accuracy, fitted, numeric_model, rank
from safe_sysid.dynamics.recursion import RecursiveDynamics
from safe_sysid.studies.experiments.psdm.arms import PSDM_ARMS

__all__ = ["PAPER", "casadi_code", "figure", "table_2", "table_3"]


#: Table 2 of the paper; what cannot be read of the two-link arm is None.
PAPER: dict[str, dict[str, float | None]] = {
    "kr6": {"p": 6086, "l": 36, "multiplications": 6043, "additions": 4142, "derive_s": 5.3, "mean_error": 4.1e-13,
            "mean_error_forward": 1.4e-12, "inverse_us": 2.11, "forward_us": 2.27},
    "lbr7": {"p": 21295, "l": 43, "multiplications": 18387, "additions": 13981, "derive_s": 88.0, "mean_error": 2.8e-13,
             "mean_error_forward": 1.6e-12, "inverse_us": 6.49, "forward_us": 7.28},
    "sr6ia": {"p": 69, "l": 8, "multiplications": 126, "additions": 84, "derive_s": 0.05, "mean_error": 4.1e-15,
              "mean_error_forward": 1.8e-14, "inverse_us": 0.315, "forward_us": 0.370},
    "two_link": {"p": 10, "l": 4, "multiplications": None, "additions": None, "derive_s": 0.011, "mean_error": 5.1e-12,
                 "mean_error_forward": 1.7e-14, "inverse_us": 0.149, "forward_us": 0.166},
}  # fmt: skip
#: Table 3: us of reduced inverse dynamics, (digits, profile) -> at 95 % and 99.9 %.
PAPER_3 = {
    "kr6": {(2, "slow"): (0.62, 0.79), (2, "fast"): (0.91, 1.15), (3, "slow"): (1.04, 1.15), (3, "fast"): (1.43, 1.66)},
    "lbr7": {(2, "slow"): (1.05, 1.76), (2, "fast"): (1.47, 2.44), (3, "slow"): (1.76, 2.44),
             (3, "fast"): (3.77, 4.88)},
}  # fmt: skip
PROFILES = {"slow": (0.1, 1.0), "fast": (1.0, 10.0)}
_STATES = 1000


def _derived(name: str, joints: int | None = None, runs: int = 5) -> tuple[Any, float]:
    """A model, and the median processor time of its derivation, s."""
    arm, times = PSDM_ARMS[name], []
    kin = arm.kinematics(joints)
    zero = arm.zero if joints is None else None
    for _ in range(runs):
        start = time.process_time()
        model = derive(kin, zero)
        times.append(time.process_time() - start)
    return model, statistics.median(times)


def _states(sliding: BoolArray, qd: float, qdd: float) -> Task:
    n = len(sliding)
    reach = np.where(sliding, 0.3, np.pi)
    return Task(np.stack([-reach, reach], axis=1), np.full(n, qd), np.full(n, qdd))


def _call(source: Source, library: ctypes.CDLL, name: str, b: FloatArray, states: list[FloatArray]) -> FloatArray:
    k, out = np.empty(max(source.prepared, 1)), np.empty_like(states[0])
    at = [ctypes.c_void_p(x.ctypes.data) for x in (b, k, *states, out)]
    library.arm_prepare(at[0], at[1])
    getattr(library, f"arm_{name}")(ctypes.c_long(len(out)), at[1], *at[2:])
    return out


def table_2(runs: int = 5) -> dict[str, Any]:
    """Counts, derivation, errors and times of every arm as pseudo-symbolic code; ``best`` is the faster of ours."""
    robots = {}
    for name, arm in PSDM_ARMS.items():
        model, seconds = _derived(name, runs=runs)
        found = candidates(model, False)
        times = measure(found, model.l)
        count = found.count("inverse", "psdm")
        theta, rng = arm.parameters(), np.random.default_rng(1)
        if arm.zero is not None:
            theta[: len(arm.zero)][arm.zero] = 0.0
        states = list(_states(model.chain.sliding, 1.0, 10.0).states(_STATES, rng))
        b = np.ascontiguousarray(model.base_parameters(theta))
        torque = RecursiveDynamics(arm.kinematics()).inverse_dynamics(theta, states[0], states[1], states[2])
        source = write_c(found.graph, model.n, {f: found.values[f, "psdm"] for f in ("inverse", "forward")})
        library = load(source)
        error = np.linalg.norm(_call(source, library, "inverse", b, states) - torque, axis=1)
        back = _call(source, library, "forward", b, [*states[:2], torque])
        inertia = RecursiveDynamics(arm.kinematics()).mass_matrix(theta, states[0])
        forward = np.linalg.norm(np.einsum("kij,kj->ki", inertia, back - states[2]), axis=1)
        robots[name] = {
            "p": model.p, "l": model.l, "multiplications": count.multiplications, "additions": count.additions,
            "derive_s": seconds, "max_error": float(error.max()), "mean_error": float(error.mean()),
            "max_error_forward": float(forward.max()), "mean_error_forward": float(forward.mean()),
            "inverse_us": 1e6 * times["inverse", "psdm"], "forward_us": 1e6 * times["forward", "psdm"],
            "best_inverse_us": 1e6 * min(t for (f, _), t in times.items() if f == "inverse"),
            "best_forward_us": 1e6 * min(t for (f, _), t in times.items() if f == "forward"),
        }  # fmt: skip
    plain = derive(PSDM_ARMS["two_link"].kinematics())
    robots["two_link"] |= {"p_without_assumptions": plain.p, "l_without_assumptions": plain.l}
    return {"robots": robots, "paper": PAPER}


def _time_of(model: Any) -> float:
    """Microseconds of the inverse dynamics of a (reduced) model as pseudo-symbolic code."""
    arm = FactoredArm(model)
    values = arm.torque(arm.qd, arm.qdd)
    return 1e6 * measure(Candidates(arm.graph, model.n, {("inverse", "psdm"): values}), model.l)["inverse", "psdm"]


def _reduced(name: str, profile: str, levels: int) -> tuple[Ranking, list[dict[str, float]]]:
    """Accuracy and time of models of several sizes."""
    model, _ = _derived(name, runs=1)
    ranking = rank(
        model,
        model.base_parameters(PSDM_ARMS[name].parameters()),
        _states(model.chain.sliding, *PROFILES[profile]),
        True,
    )
    counts = sorted({round(model.p ** (k / levels)) for k in range(levels // 3, levels)} | {model.p})
    rows = []
    for count, (digits, _) in zip(counts, accuracy(ranking, counts), strict=True):
        small = numeric_model(model, ranking.order[:count], fitted(ranking, count))
        rows.append({
            "kept": count, "share": count / model.p, "digits_95": digits[0.95], "digits_999": digits[0.999],
            "us": _time_of(small),
        })  # fmt: skip
    return ranking, rows


def table_3(levels: int = 24) -> dict[str, Any]:
    """Times of the fastest models with two and three correct digits at 95 and 99.9 % of states.

    That may be the full one: terms that go take factors with them that others share.
    """
    out: dict[str, Any] = {}
    for name, theirs in PAPER_3.items():
        out[name] = {}
        for profile in PROFILES:
            _, rows = _reduced(name, profile, levels)
            full = rows[-1]["us"]
            for digits in (2, 3):
                entry = {}
                for k, level in enumerate(("digits_95", "digits_999")):
                    row = min((r for r in rows if r[level] >= digits), key=lambda r: r["us"])
                    entry[level] = {
                        "us": row["us"], "less_percent": 100.0 * (1.0 - row["us"] / full), "kept": row["kept"],
                        "paper_us": theirs[digits, profile][k],
                    }  # fmt: skip
                out[name][f"{digits} digits, {profile}"] = entry
    return {"arms": out, "paper": {"states": "1e5 ranked, 1e8 judged"}, "ours": {"states": "2000 ranked, 4000 judged"}}


def _regressor_us(name: str, joints: int) -> float:
    """Inverse dynamics by the package's recursion in regressor form, as Atkeson's: us of a state in a batch."""
    arm = PSDM_ARMS[name]
    dynamics, theta = RecursiveDynamics(arm.kinematics(joints)), arm.parameters(joints)
    q, qd, qdd = np.random.default_rng(2).uniform(-1, 1, (3, _STATES, len(arm.table[:joints])))
    times = []
    for _ in range(8):
        start = time.perf_counter()
        dynamics.torque_regressor(q, qd, qdd) @ theta
        times.append((time.perf_counter() - start) / _STATES)
    return 1e6 * min(times)


def _evaluation(name: str, joints: int) -> dict[str, Any]:
    model, seconds = _derived(name, joints, 3)
    times = measure(found := candidates(model, False), model.l)
    row = {
        "arm": name, "joints": joints, "derive_s": seconds, "p": model.p, "psdm_us": 1e6 * times["inverse", "psdm"],
        "recursion_us": 1e6 * times["inverse", "recursion"], "regressor_recursion_us": _regressor_us(name, joints),
    }  # fmt: skip
    n = found.joints
    start = time.process_time()
    links = model.chain.link_parameters() @ PSDM_ARMS[name].parameters(joints)[: PER_LINK * n]
    text = casadi_code(model.chain, links)
    if text is not None:
        row["symbolic_derive_s"] = time.process_time() - start
        library = load(Source(text, ("inverse_casadi",), 0))
        states = np.random.default_rng(3).uniform(-1, 1, (3, _STATES, n))
        at, out = [ctypes.c_void_p(x.ctypes.data) for x in (states[0], *states)], np.empty((_STATES, n))
        best = np.inf
        for _ in range(8):
            start = time.perf_counter()
            library.arm_inverse_casadi(ctypes.c_long(_STATES), *at, ctypes.c_void_p(out.ctypes.data))
            best = min(best, time.perf_counter() - start)
        row["symbolic_us"] = 1e6 * best / _STATES
    return row


def figure(number: str, out: Path) -> tuple[dict[str, Any], Path]:
    """What a figure shows, as data and as a picture. ``number``: "2", "4", "5", "6" or "7"."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(8.0, 5.0), layout="constrained")
    data = _FIGURES[number](picture)
    path = out / f"psdm_figure_{number}.png"
    picture.savefig(path, dpi=150)
    return data, path


def _figure_2(picture: Any) -> dict[str, Any]:
    data = {}
    model, _ = _derived("kr6", runs=1)
    theta_b = model.base_parameters(PSDM_ARMS["kr6"].parameters())
    for axes, (profile, limits) in zip(picture.subplots(2, 1, sharex=True), PROFILES.items(), strict=True):
        ranking = rank(model, theta_b, _states(model.chain.sliding, *limits))
        bins = np.logspace(-12, 1, 53)
        for label, values in (("median", ranking.median), ("largest", ranking.largest)):
            axes.hist(np.maximum(values, 1e-12), bins, alpha=0.6, label=label)
        axes.set(xscale="log", ylabel=f"functions, {profile}")
        axes.legend()
        data[profile] = {
            "share_below_1e-3_median": float(np.mean(ranking.median < 1e-3)),
            "share_below_1e-3_largest": float(np.mean(ranking.largest < 1e-3)),
        }
    axes.set_xlabel("share of the torque (66)")
    return data


def _chains(picture: Any, arms: dict[str, range], keys: dict[str, str], label: str) -> dict[str, Any]:
    axes = picture.subplots()
    rows = {name: [_evaluation(name, n) for n in ns] for name, ns in arms.items()}
    for name, found in rows.items():
        for key, what in keys.items():
            if key in found[-1]:
                axes.plot([r["joints"] for r in found], [r[key] for r in found], "o-", label=f"{name} {what}")
    axes.set(yscale="log", xlabel="joints", ylabel=label)
    axes.legend()
    return {"rows": rows, "symbolic": "CasADi" if "symbolic_us" in next(iter(rows.values()))[0] else None}


def _figure_4(picture: Any) -> dict[str, Any]:
    arms = {"kr6": range(2, 7), "lbr7": range(2, 8)}
    return _chains(picture, arms, {"derive_s": "PSDM", "symbolic_derive_s": "CasADi"}, "derivation, s")


_EVALUATED = {
    "psdm_us": "PSDM",
    "recursion_us": "specialised recursion",
    "regressor_recursion_us": "regressor recursion (numba)",
    "symbolic_us": "CasADi",
}


def _figure_5(picture: Any) -> dict[str, Any]:
    rows = [_evaluation(name, n) for name, n in (("kr6", 6), ("lbr7", 7), ("sr6ia", 4))]
    axes = picture.subplots()
    for k, (key, label) in enumerate(_EVALUATED.items()):
        if key in rows[0]:
            axes.bar(np.arange(3) + 0.2 * k, [row[key] for row in rows], 0.2, label=label)
    axes.set(
        yscale="log", ylabel="inverse dynamics, us", xticks=np.arange(3) + 0.3, xticklabels=[r["arm"] for r in rows]
    )
    axes.legend()
    paper = {name: PAPER[name]["inverse_us"] for name in ("kr6", "lbr7", "sr6ia")}
    return {"rows": rows, "paper_psdm_us": paper}


def _figure_6(picture: Any) -> dict[str, Any]:
    return _chains(picture, {"lbr7": range(2, 8)}, _EVALUATED, "inverse dynamics, us")


def _figure_7(picture: Any) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for row, name in zip(picture.subplots(2, 2, sharex=True), PAPER_3, strict=True):
        for axes, profile in zip(row, PROFILES, strict=True):
            _, rows = _reduced(name, profile, 18)
            data[f"{name} {profile}"] = rows
            less = [100.0 * (1.0 - r["share"]) for r in rows]
            for key, label in (("digits_95", "95 % of states"), ("digits_999", "99.9 %")):
                axes.plot(less, [r[key] for r in rows], label=label)
            axes.set(title=f"{name}, {profile}", ylabel="correct digits", xlabel="functions left out, %")
            axes.legend()
            right = axes.twinx()
            right.plot(less, [r["us"] for r in rows], "k:")
            right.set_ylabel("us (dotted)")
    return data


_FIGURES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "2": _figure_2, "4": _figure_4, "5": _figure_5, "6": _figure_6, "7": _figure_7,
}  # fmt: skip


def casadi_code(chain: Chain, links: FloatArray) -> str | None:
    """Inverse and forward dynamics of an arm as CasADi generates them, with entry points like ours; None without it.

    ``links``: (10 n,) parameters about its frames.
    """
    try:
        ca = importlib.import_module("casadi")  # a baseline where it is there, no dependency
    except ImportError:
        return None
    n = chain.n
    q, qd, x = (ca.SX.sym(name, n) for name in ("q", "qd", "x"))

    def newton_euler(rate: Any, acceleration: Any) -> Any:
        w, dw, dv = ca.SX(3, 1), ca.SX(3, 1), ca.SX(-chain.gravity)
        steps, z = [], ca.DM([0, 0, 1])
        for j in range(n):
            (c0, s0), (cp, sp) = chain.alpha[j], chain.turn(j)
            twist, slides = ca.DM([[1, 0, 0], [0, c0, -s0], [0, s0, c0]]), bool(chain.sliding[j])
            c, s = (1.0, 0.0) if slides else (ca.cos(q[j]), ca.sin(q[j]))
            c, s = c * cp - s * sp, s * cp + c * sp
            R = ca.mtimes(twist, ca.vertcat(ca.horzcat(c, -s, 0), ca.horzcat(s, c, 0), ca.horzcat(0, 0, 1)))
            along = chain.r[j] + (q[j] if slides else 0.0)
            p = ca.vertcat(chain.a[j], -chain.alpha[j, 1] * along, chain.alpha[j, 0] * along)
            dv = ca.mtimes(R.T, dv + ca.cross(dw, p) + ca.cross(w, ca.cross(w, p)))
            w, dw = ca.mtimes(R.T, w), ca.mtimes(R.T, dw)
            if slides:
                dv = dv + 2 * ca.cross(w, z * rate[j]) + z * acceleration[j]
            else:
                dw = dw + ca.cross(w, z * rate[j]) + z * acceleration[j]
                w = w + z * rate[j]
            m, h, (xx, xy, yy, xz, yz, zz) = (
                links[10 * j],
                links[10 * j + 1 : 10 * j + 4],
                links[10 * j + 4 : 10 * j + 10],
            )
            inertia, h = ca.DM([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), ca.DM(h)
            force = m * dv + ca.cross(dw, h) + ca.cross(w, ca.cross(w, h))
            moment = ca.mtimes(inertia, dw) + ca.cross(w, ca.mtimes(inertia, w)) + ca.cross(h, dv)
            steps.append((R, p, force, moment, slides))
        torque: list[Any] = []
        f, t = ca.SX(3, 1), ca.SX(3, 1)
        for j in range(n - 1, -1, -1):
            R, p, force, moment, slides = steps[j]
            f, t = f + force, t + moment
            torque.insert(0, f[2] if slides else t[2])
            t = ca.mtimes(R, t) + ca.cross(p, ca.mtimes(R, f))
            f = ca.mtimes(R, f)
        return ca.vertcat(*torque)

    inverse = newton_euler(qd, x)
    inertia = ca.jacobian(inverse, x)
    root = ca.chol(inertia)
    forward = ca.solve(root, ca.solve(root.T, x - newton_euler(qd, ca.SX(n, 1))))
    generator = ca.CodeGenerator("casadi_arm.c", {"with_header": False, "casadi_int": "long long int"})
    for name, value in (("ca_inverse", inverse), ("ca_forward", forward)):
        generator.add(ca.Function(name, [q, qd, x], [value]))
    text = generator.dump()
    for name in ("inverse", "forward"):
        text += f"""
void arm_{name}_casadi(long count, const double *k, const double *q, const double *qd, const double *x, double *out)
{{
    static long long iw[1000]; static double w[100000];
    (void)k;
    for (long i = 0; i < count; ++i) {{
        const double *arg[3 + 64] = {{q + {n} * i, qd + {n} * i, x + {n} * i}};
        double *res[1 + 64] = {{out + {n} * i}};
        ca_{name}(arg, res, iw, w, 0);
    }}
}}
"""
    return text
