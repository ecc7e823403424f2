r"""Tares: the equations that a motion with the empty hand gives about the arm.

Rows of the tare hold for the arm's own parameters and, where theta_e stands otherwise, for ``theta_h``, the last link
with the empty hand. Friction may change until the next run by a declared drift f: ``theta_tare = theta + f`` in the
``drifting`` columns of :class:`~safe_sysid.core.layout.ParameterLayout`, ``|f| <= drift``. The identifier takes
:attr:`Tare.log_rows` with f as unknowns of the joint set, the same in every row. Where equations are only compared with
parameters of now, one at a time (:attr:`Tare.rows`), slack is enlarged instead: ``|A theta - T| <= w + |A| drift``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.decimals import share_at_most
from safe_sysid.errors import SafeSysIdError, short
from safe_sysid.identification.bounds.drift import checked_drift, drift_of, enlarged
from safe_sysid.identification.bounds.dual_bounds import is_proved_empty
from safe_sysid.identification.certificates.files.robot_identity import errors_to_json
from safe_sysid.identification.digest import log_digest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.stream import MomentumStream, default_windows
from safe_sysid.identification.tare.selection import RowSelection, select_rows
from safe_sysid.robot.identity import differences, identity
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array

__all__ = ["MAX_ROWS", "Tare", "TareError", "TareRecorder", "drift_of", "gained", "make_tare"]

#: Rows of a tare. 400 keep 99 % of the gain (docs/use/tare.md).
MAX_ROWS = 1000
_PIECE = 4000  # samples turned into rows at once
_CANDIDATES = 150_000  # rows held before they are reduced


class TareError(SafeSysIdError):
    """A tare cannot be made, read, or used for this run; the message says which and why."""

    def __init__(self, message: str, rows: MomentumRows | None = None) -> None:
        """Remember the equations that contradict each other, for a diagnosis; None where that is not the reason."""
        super().__init__(message)
        self.rows = rows


@dataclass(frozen=True, eq=False)
class Tare:
    """Selected equations of a motion with the empty hand."""

    #: as the log proves them, for the friction of then; (M, 14 n) matrix with theta_h's columns where theta_e's are
    #: otherwise; ``log`` is 1
    log_rows: MomentumRows
    drift: FloatArray  #: (3 n,) by how much Fc, Fv (relative parts multiplied out) and beta may have changed since
    robot: str
    arm: Mapping[str, Any]  #: what the equations rest on, scope ``tare`` of :mod:`safe_sysid.robot.identity`
    errors: Mapping[str, Any]  #: what was declared about the measurements, by name
    log_hash: str  #: of the whole log. samples: their number.
    samples: int
    joint_names: tuple[str, ...]
    created: datetime
    temperature: float | None  #: degrees Celsius, None if not known
    #: before, after: (14 n,) widths of the unknowns, theta_h's in theta_e's place, without and with the tare; by the
    #: solver, for people
    before: FloatArray
    after: FloatArray
    _enlarged: MomentumRows = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check shapes, freeze, enlarge.

        Raises:
            TareError: parts that do not fit together.
            ParameterError: a drift or widths of another shape, or a negative drift.
        """
        layout, found = ParameterLayout(len(self.joint_names)), self.log_rows.matrix.shape[1]
        if found != layout.size:
            raise TareError(f"Tare: rows over {found} parameters: expected {layout.size}, of {layout.n} joints")
        if self.created.tzinfo is None:
            raise TareError(f"Tare.created = {self.created}: expected a time with its time zone")
        object.__setattr__(self, "drift", checked_drift(self.drift, layout))
        for name in ("before", "after"):
            object.__setattr__(self, name, frozen_array(getattr(self, name), (layout.size,), f"Tare.{name}"))
        object.__setattr__(self, "_enlarged", enlarged(self.log_rows, self.drift))

    @property
    def rows(self) -> MomentumRows:
        """Rows that hold for the friction of now: slack enlarged by ``|coefficients| . drift``, rounded up."""
        return self._enlarged

    def options(self) -> dict[str, Any]:
        """Arguments of :class:`~safe_sysid.identification.identifier.Identifier` that make it use this tare."""
        return {"tare_rows": self.log_rows, "tare_drift": self.drift}

    def with_drift(self, drift: FloatArray) -> Tare:
        """The same equations under another declared drift (3 n,)."""
        return replace(self, drift=drift)

    def refusal(
        self,
        model: RobotModel,
        errors: MeasurementErrors,
        now: datetime | None = None,
        temperature: float | None = None,
    ) -> str | None:
        """Why this tare must not be used for a run; None if it may.

        Args:
            model: the arm of the run; its settings say how old a tare may be.
            now: UTC; None for the clock's.
            temperature: degrees Celsius at the run; None if not known.
        """
        settings = model.settings.tare
        if self.joint_names != model.joint_names:
            return f"joints {', '.join(self.joint_names)}: expected {', '.join(model.joint_names)}"
        for name, theirs, here in differences(dict(self.errors), errors_to_json(errors)):
            return (
                f"made with measurement error {name} = {short(theirs, 80)}: expected {short(here, 80)} as declared "
                "now; make a new tare"
            )
        different = list(differences(dict(self.arm), identity(model, "tare")))
        if different:
            key, theirs, here = different[0]
            more = f" (and {len(different) - 1} more)" if different[1:] else ""
            return (
                f"made for robot {self.robot!r} with {key} = {short(theirs, 80)}: expected {short(here, 80)}, as "
                f"{model.name!r} is configured now{more}; make a new tare"
            )
        age = ((now or datetime.now(timezone.utc)) - self.created).total_seconds() / 3600.0
        if not -0.1 <= age <= settings.max_age_h:
            when = f"{age:.1f} h old" if age > 0 else f"from {-age:.1f} h in the future"
            return f"{when}: expected at most max_age_h = {settings.max_age_h:g} h"
        limit = settings.max_temperature_difference
        if limit is not None and temperature is not None and self.temperature is not None:
            difference = abs(temperature - self.temperature)
            if not difference <= limit:
                return (
                    f"made at {self.temperature:g} C, the run is at {temperature:g} C: expected a difference of "
                    f"at most max_temperature_difference = {limit:g} K"
                )
        return None

    def check(
        self,
        model: RobotModel,
        errors: MeasurementErrors,
        now: datetime | None = None,
        temperature: float | None = None,
    ) -> None:
        """Like :meth:`refusal`.

        Raises:
            TareError: why it must not be used.
        """
        reason = self.refusal(model, errors, now, temperature)
        if reason is not None:
            raise TareError(f"tare of {self.created:%Y-%m-%d %H:%M} UTC refused: {reason}")


class TareRecorder:
    """Collects samples while the hand is empty."""

    def __init__(self, model: RobotModel, errors: MeasurementErrors, max_samples: int = 600_000) -> None:
        """Start empty. ``max_samples``: after which no more are taken, so that memory stays bounded."""
        self._model, self._errors, self._max = model, errors, max_samples
        self._parts: list[Measurements] = []
        self.samples, self.ignored = 0, 0

    def add(self, measurements: Measurements) -> None:
        """Take samples in, in order of arrival."""
        room = self._max - self.samples
        self.ignored += max(len(measurements) - room, 0)
        if room > 0 and len(measurements):
            self._parts.append(measurements[:room])
            self.samples += len(self._parts[-1])

    @property
    def log(self) -> Measurements:
        """All samples so far.

        Raises:
            TareError: there is none.
        """
        if not self._parts:
            raise TareError("tare: no sample came while the hand was empty: expected a motion of some seconds")
        return Measurements.concatenate(self._parts)

    def finish(self, temperature: float | None = None, created: datetime | None = None) -> Tare:
        """The tare of all samples. ``temperature``: degrees Celsius, None if not known; ``created``: UTC; None for now.

        Raises:
            TareError: of :func:`make_tare`, or no sample.
        """
        return make_tare(self._model, self._errors, self.log, temperature=temperature, created=created)


def gained(tare: Tare) -> str:
    """One line that says how much better the arm is known after the tare."""
    n = len(tare.joint_names)
    words = []
    for k, name in enumerate(("Coulomb friction", "viscous friction", "rotor inertia", "torque offset")):
        part = slice((10 + k) * n, (11 + k) * n)
        before, after = tare.before[part], tare.after[part]
        known = before > 0.0
        if np.any(known):
            share = float(np.median(after[known] / before[known]))
            words.append(f"{name} to {share_at_most(share, 2)}")
    head = f"{len(tare.log_rows)} equations of {tare.samples} samples"
    return f"{head}; widths, of the prior's (median): {', '.join(words)}"


def make_tare(
    model: RobotModel,
    errors: MeasurementErrors,
    measurements: Measurements,
    created: datetime | None = None,
    temperature: float | None = None,
    max_rows: int = MAX_ROWS,
    progress: Callable[[float], None] | None = None,
) -> Tare:
    """Equations of a log of the arm with the empty hand.

    Args:
        measurements: samples in order of arrival.
        created: UTC; None for now.
        temperature: degrees Celsius, None if not known.
        progress: called with the share that is done, 0 to 1.

    Raises:
        TareError: no equation, or no parameters agree with all of them: then ``error.rows`` are the equations.
        ParameterError: the number of joints is not the arm's.
    """
    tell = progress or (lambda share: None)
    # Equations are sized by the parameters alone; their unknown offsets include the sensors' bias.
    box, drift = model.empty_handed_prior, drift_of(model, errors)
    wide = sensor_prior(box, errors)
    prior = model.arm_prior
    payload = (prior.payload_lower, prior.payload_upper)
    stream = MomentumStream(model, errors, default_windows(model, errors), log=1)
    rows = MomentumRows.none(model.layout.size)
    for start in range(0, len(measurements), _PIECE):
        more = stream.push(measurements[start : start + _PIECE], box)
        if more is not None:
            rows = MomentumRows.concatenate([rows, _useful(more, wide)])
        if len(rows) > _CANDIDATES:
            rows = rows.take(_agreeing(model, rows, wide, select_rows(rows, wide, payload, drift)).order)
        tell(0.2 * min(1.0, (start + _PIECE) / len(measurements)))
    if not len(rows):
        raise TareError(
            f"tare: {len(measurements)} samples gave no equation (rejected: {dict(stream.rejected) or 'none'}): "
            "expected a motion of at least 0.1 s without gaps"
        )
    selection = _agreeing(
        model, rows, wide, select_rows(rows, wide, payload, drift, lambda share: tell(0.2 + 0.8 * share))
    )
    return Tare(
        log_rows=rows.take(np.sort(selection.order[:max_rows])),
        drift=drift,
        robot=model.name,
        arm=identity(model, "tare"),
        errors=errors_to_json(errors),
        log_hash=log_digest(model.joint_names, measurements),
        samples=len(measurements),
        joint_names=model.joint_names,
        created=created or datetime.now(timezone.utc),
        temperature=temperature,
        before=wide.upper - wide.lower,
        after=np.maximum(selection.upper - selection.lower, 0.0),
    )


def _useful(rows: MomentumRows, box: ParameterBox) -> MomentumRows:
    """Without those that no point of the box can break."""
    reach = np.abs(rows.matrix) @ box.rad + np.abs(rows.target - rows.matrix @ box.mid)
    return rows.take(reach > rows.slack)


def _agreeing(model: RobotModel, rows: MomentumRows, box: ParameterBox, selection: RowSelection) -> RowSelection:
    if selection.margin > 0.0:
        return selection
    lower = np.nextafter(rows.target - rows.slack, -np.inf)
    upper = np.nextafter(rows.target + rows.slack, np.inf)
    if not is_proved_empty(rows.matrix, lower, upper, box.lower, box.upper, selection.multipliers / rows.slack):
        raise TareError(
            "tare: the solver found no arm that agrees with all equations, nor a proof that there is none: expected a "
            "motion that excites more, or errors declared larger"
        )
    worst = int(np.argmax(np.abs(selection.multipliers)))
    raise TareError(
        "tare: no parameters of an arm with the empty hand agree with all measurements: a declared assumption is false "
        f"(errors would have to be {1.0 - selection.margin:.3g} times as large as declared; largest part: "
        f"{model.joint_names[int(rows.joint[worst])]}, window {rows.start[worst]:.4f} .. {rows.end[worst]:.4f} s). "
        "Was the hand empty?",
        rows,
    )
