r"""Point estimates inside the proved bounds, by four methods. They carry no guarantee.

- ``projected``: weighted least squares over arm, payload and empty hand within their boxes and the consistent set,
- ``log_cholesky``: PSO's way, consistent by its parameters, then moved inside the box,
- ``centre``: analytic centre of the rows nearest to their bounds, boxes and cone,
- ``bounds``: analytic centre of the published box and the cone; all that it takes from the rows is in the box.

See docs/understand/identification.md for how they compare; all accumulate in constant memory.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import UnknownsLayout
from safe_sysid.errors import ParameterError
from safe_sysid.identification.bounds.consistency import CutSet
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.estimates.centre import NearRows, analytic_centre
from safe_sysid.identification.estimates.newton import fit_log_cholesky
from safe_sysid.identification.estimates.projected import body_margin, make_consistent, opened_hand, solve_convex
from safe_sysid.identification.estimates.quadratic import NormalEquations, Quadratic
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ESTIMATES", "NominalEstimate"]

ESTIMATES = ("projected", "log_cholesky", "centre", "bounds")
_MARGIN = 1e-5  # as far inside the cone as the convex program is asked to go, kg


class NominalEstimate:
    """A point estimate of theta_e from all rows ever seen."""

    def __init__(
        self, prior: ParameterBox, payload_constraints: PayloadConstraints | None = None, method: str = "bounds"
    ) -> None:
        """Start at the prior's centre.

        Args:
            prior: box of all 14 n parameters.
            payload_constraints: of hand and payload: then the payload alone is made consistent, and rows of a tare log
                count; None to make theta_e as a whole consistent.
            method: one of :data:`ESTIMATES`; the default predicts torques of unseen motions best.

        Raises:
            ParameterError: unknown method.
        """
        if method not in ESTIMATES:
            raise ParameterError(f"estimate = {method!r}: expected one of {', '.join(ESTIMATES)}")
        self.method = method
        self.normal = NormalEquations(prior, payload_constraints)
        self._near = NearRows(len(self.normal.mid)) if method == "centre" else None
        self.iterations = 0  # of the last estimate's solver
        self.scale = 1.0  # of the declared errors at which the last centre is one

    def add(self, rows: MomentumRows) -> None:
        """Take rows in."""
        if not len(rows):
            return
        self.normal.add(rows)  # also for the centres: what they fall back on where the box holds no body
        if self._near is not None:
            rows = self.normal.usable(rows)
            columns = self.normal.columns(rows)
            slack = np.where(rows.slack > 0.0, rows.slack, 1e-300)
            point = np.clip(self.normal.quadratic().minimiser(), -1.0, 1.0)
            target = (rows.target - columns @ self.normal.mid) / slack
            self._near.add(columns * (self.normal.scale / slack[:, None]), target, point)

    def estimate(self, box: ParameterBox) -> tuple[FloatArray, bool]:
        """theta_e (10,) inside the box, and whether it (or the payload alone) is physically consistent too.

        ``box``: of all 14 n parameters, inside the prior.
        """
        by_method = {"log_cholesky": self._log_cholesky, "centre": self._centre, "bounds": self._centre}
        try:
            return by_method.get(self.method, self._projected)(box)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            # Weights that differ by more than 10^16 leave no factorisation; a nominal is no reason to lose the bounds.
            middle = 0.5 * (box.payload_lower + box.payload_upper)
            return make_consistent(middle, box.payload_lower, box.payload_upper, self.normal.payload_constraints)

    def body(self) -> tuple[FloatArray, FloatArray]:
        """(10, P), (10,): the parameters that must be a body's are ``body z + offset`` (hand at most opened)."""
        normal, payload = self.normal, self.normal.prior.layout.payload
        body = np.zeros((10, len(normal.mid)))
        body[:, payload] = np.diag(normal.scale[payload])
        offset = normal.mid[payload].copy()
        if normal.payload_constraints is not None:
            hand = UnknownsLayout(normal.prior.layout).hand
            body[:, hand] = -np.diag(normal.scale[hand])
            offset -= normal.mid[hand]
        return body, offset

    def sides(self, box: ParameterBox) -> tuple[FloatArray, FloatArray]:
        """(P,), (P,) bounds of the scaled unknowns; the hand's are opened by its opening."""
        normal, payload_constraints = self.normal, self.normal.payload_constraints
        lower, upper = box.lower, box.upper
        if payload_constraints is not None:
            hand = opened_hand(payload_constraints)
            lower, upper = np.concatenate([lower, hand[0]]), np.concatenate([upper, hand[1]])
        return (lower - normal.mid) / normal.scale, (upper - normal.mid) / normal.scale

    def _projected(self, box: ParameterBox) -> tuple[FloatArray, bool]:
        return self.project(self.normal.quadratic(), box)

    def project(self, quadratic: Quadratic, box: ParameterBox) -> tuple[FloatArray, bool]:
        """Minimum of a function of the scaled unknowns over box and cone: theta_e (10,), and whether it is in both.

        Args:
            quadratic: over :meth:`NormalEquations.unscaled`'s unknowns (P,).
            box: of all 14 n parameters, inside the prior.
        """
        normal, payload = self.normal, box.layout.payload
        lower, upper = self.sides(box)
        body, offset = self.body()
        cuts = None if normal.payload_constraints is None else normal.payload_constraints.fixed
        # Imported here: controller and planner never need it, and start faster without.
        from scipy.optimize import lsq_linear

        # Least squares within the box alone is often consistent already, and then it is the answer.
        factor = np.linalg.cholesky(quadratic.hessian).T
        right = np.linalg.solve(factor.T, quadratic.linear)
        relaxed = lsq_linear(factor, right, (lower, np.maximum(upper, lower + 1e-12)), method="bvls")
        if relaxed.success and _is_body(body @ relaxed.x + offset, cuts):
            self.iterations = 0
            inside = normal.unscaled(np.clip(relaxed.x, lower, upper))[payload]
            return np.clip(inside, box.payload_lower, box.payload_upper), True
        answer = solve_convex(
            quadratic,
            lower,
            upper,
            body,
            offset,
            None if cuts is None else cuts.coefficients(),
            None if cuts is None else cuts.constant,
        )
        self.iterations = answer.iterations
        if not answer.solved:
            start = normal.unscaled(np.clip(quadratic.minimiser(), lower, upper))[payload]
            return make_consistent(start, box.payload_lower, box.payload_upper, normal.payload_constraints)
        z = np.clip(answer.x, lower, upper)
        theta = np.clip(normal.unscaled(z)[payload], box.payload_lower, box.payload_upper)
        return theta, body_margin(body @ z + offset) >= 0.0

    def _log_cholesky(self, box: ParameterBox) -> tuple[FloatArray, bool]:
        quadratic, back = self.normal.payload_quadratic()
        answer = fit_log_cholesky(quadratic)
        self.iterations = answer.iterations
        theta = back[:, :10] @ answer.theta + back[:, 10]
        lower, upper = box.payload_lower, box.payload_upper
        if self.normal.payload_constraints is None and np.all(lower <= theta) and np.all(theta <= upper):
            return theta, body_margin(theta) >= 0.0
        return make_consistent(theta, lower, upper, self.normal.payload_constraints)

    def _centre(self, box: ParameterBox) -> tuple[FloatArray, bool]:
        normal, payload = self.normal, box.layout.payload
        lower, upper = self.sides(box)
        body, offset = self.body()
        start = self._inside(lower, upper, body, offset)
        if start is None:
            return self._projected(box)
        z = start.copy()
        if self._near is None:  # without rows, only what makes up the body matters
            part = np.any(body != 0.0, axis=0)
            nothing = NearRows(int(part.sum()))
            z[part], _ = analytic_centre(nothing, lower[part], upper[part], body[:, part], offset, start[part])
        else:
            z, self.scale = analytic_centre(self._near, lower, upper, body, offset, start)
        theta = np.clip(normal.unscaled(z)[payload], box.payload_lower, box.payload_upper)
        return theta, body_margin(body @ z + offset) >= 0.0

    def _inside(self, lower: FloatArray, upper: FloatArray, body: FloatArray, offset: FloatArray) -> FloatArray | None:
        """A point strictly inside box and cone: the centre of the box, or the consistent point nearest to it."""
        middle = 0.5 * (lower + upper)
        if body_margin(body @ middle + offset) > 0.0:
            return middle
        unit = Quadratic(np.eye(len(middle)), middle)
        shrunk = 0.999
        answer = solve_convex(
            unit, middle + shrunk * (lower - middle), middle + shrunk * (upper - middle), body, offset
        )
        if not answer.solved or body_margin(body @ answer.x + offset) <= 0.0:
            return None
        return np.where(upper > lower, answer.x, lower)


def _is_body(theta: FloatArray, cuts: CutSet | None) -> bool:
    """Whether theta (10,) is well inside the cone, and keeps the cuts."""
    if body_margin(theta) < _MARGIN:
        return False
    return cuts is None or bool(np.all(cuts.coefficients() @ theta >= cuts.constant))
