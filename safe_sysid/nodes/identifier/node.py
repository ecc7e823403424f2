"""Identifier node: collects joint states, hands them to the identifier, publishes proved bounds."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import InertiaStamped
from rclpy.duration import Duration
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, String
from visualization_msgs.msg import MarkerArray

from safe_sysid.apps.rehearsal import rehearse_identifier
from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.decimals import estimate_in
from safe_sysid.errors import ParameterError
from safe_sysid.identification.certificates.files.update import CertificateError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import UpdateResult, UpdateStatus
from safe_sysid.identification.inertia_shapes import payload_shapes
from safe_sysid.logs.online.session import IdentifierSession
from safe_sysid.nodes.common.base import ERROR, JOURNAL, LATCHED, LATCHED_INPUT, OK, WARN, measurement_qos
from safe_sysid.nodes.common.digest import difference
from safe_sysid.nodes.common.lifecycle import ManagedNode
from safe_sysid.nodes.common.messages import conversions
from safe_sysid.nodes.common.messages.contents import JointSample, MessageRefusedError
from safe_sysid.nodes.common.messages.time_base import TimeBase, to_ns
from safe_sysid.nodes.common.process import Worker, run_node
from safe_sysid.nodes.identifier.payload_forward import PayloadForward
from safe_sysid.nodes.identifier.payload_markers import no_payload_markers, payload_markers
from safe_sysid.nodes.identifier.payload_message import intervals_message, last_link_message, payload_message
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["IdentifierNode", "main"]


#: Samples go to the worker in pieces of this length, so that little is left to do when a batch ends, ns.
_PIECE = 250_000_000
#: Updates that ``identifier.json`` has at most: the last ones.
_MOST_UPDATES = 2000
#: For so long the end of the node waits for an update that is under way, s.
_LAST_UPDATE = 4.0
#: And for the word that there is no payload any more to reach who draws it.
_DELIVERY = Duration(seconds=0.5)
#: Real time: an update that a later one follows is left out, unless there was none for so long, s.
_WITHOUT = 10.0
#: A payload is told at rest alone: slower than this, rad/s or m/s, besides the sensors' errors; heard so long ago, s.
_REST, _SILENCE = 0.01, 0.5
_LEVELS = {UpdateStatus.EMPTY_SET: ERROR, UpdateStatus.SOLVER_FAILED: WARN}
#: Lock-step: further than this no two measurements are apart, s.
_LONGEST_JUMP = 60.0
#: Lock-step: for no longer simulated time can have gone on when an identifier hears of it first, s.
_LONGEST_RUN = 86_400.0


class IdentifierNode(ManagedNode):
    """Callbacks only collect; equations and linear programs are the worker's, in the order of the data."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        super().__init__("identifier")

    def configure(self) -> None:
        """Prior, tare and known bounds; rehearsed; topics."""
        self._running = False
        self._journal = self.create_publisher(String, "~/journal", JOURNAL)
        self._session = self._new_session()
        rehearse_identifier(self.model)
        self._time = TimeBase(self.options.lockstep)
        self._reader = conversions.JointReader(self.model.joint_names)
        self._samples: list[JointSample] = []
        self._update_ns = to_ns(self.model.settings.identification.update_s)
        self._take_ns = to_ns(self.model.settings.identification.take_after_s)
        self._batch, self._batch_end, self._piece_end, self._last_stamp = 1, 0, 0, 0
        # Batch that is to be updated last, and when the last update was done.
        self._newest, self._updated, self._taken_ns = 0, -1e9, 0
        self._was_active = False
        self._updates: deque[dict[str, Any]] = deque(maxlen=_MOST_UPDATES)
        self._latest: UpdateResult | None = None
        self._epoch, self._tare_wanted = 0, False
        self._worker = Worker(lambda text: self.refuse("update", "failed", text))
        self._bounds = self.create_publisher(Float64MultiArray, "bounds", LATCHED)
        self._payload = self.create_publisher(InertiaStamped, "payload", LATCHED)
        self._last_link = self.create_publisher(InertiaStamped, "last_link_with_payload", LATCHED)
        self._intervals = self.create_publisher(DiagnosticArray, "intervals", LATCHED)
        self._markers = self.create_publisher(MarkerArray, "markers", LATCHED)
        prior = self.model.arm_prior
        self._last_bounds = prior, prior.mid[prior.layout.payload]  # what was told, or taken over, last
        self._draw(*self._last_bounds)
        self._tell_intervals(OK, "nothing measured yet: the prior")
        self.listen(Float64MultiArray, "bounds_active", self._on_active, LATCHED_INPUT)
        # Late callbacks must not lose samples.
        qos = measurement_qos(self.options.lockstep, depth=2000, history=True)
        self.listen(JointState, "joint_states", self._on_measurement, qos)
        self.exclusive_publishers.watch("bounds_active")
        self.exclusive_publishers.watch("bounds")
        self.exclusive_publishers.watch("joint_states", shared=True)
        self.serve("start", partial(self._run, True))
        self.serve("stop", partial(self._run, False))
        self.serve("tare_start", self._start_tare)
        self.serve("tare_finish", self._finish_tare)
        self._forward = PayloadForward(self)
        self._speed, self._heard = np.zeros(self.model.n), -np.inf  # of the last measurement, and when it came
        self.serve_later("forward_payload", self._forward_payload)

    def _new_session(self) -> IdentifierSession:
        values, run_dir = self.values, self.options.run_dir

        def path(name: str) -> Path | None:
            return None if values[name] is None else Path(values[name])

        return IdentifierSession(
            self.model,
            values["method"],
            path("tare_file"),
            path("certificates") or run_dir,
            run_dir,
            values["temperature"],
            path("bounds_file"),
            tell=self._tell_journal,
            rest_s=values["rest_s"],
            log_s=self.options.log_s,
        )

    def _tell_journal(self, entry: str) -> None:
        """What the session does, in the order in which it does it: what a replay needs (docs/use/recording.md)."""
        self._journal.publish(String(data=entry))

    def files(self) -> dict[str, Path | None]:
        """Tare and known bounds."""
        tare = self.values["tare_file"] or self.model.settings.tare.file
        files = {"tare_file": tare, "bounds_file": self.values["bounds_file"]}
        return {name: Path(file) if file else None for name, file in files.items()}

    # -- transitions --------------------------------------------------------------------------------------------

    def activate(self) -> list[str]:
        """Identify from the next measurement on, unless the controller works with another configuration."""
        return self.foreign

    def activated(self) -> None:
        """What is known of the payload before the first measurement is told at once."""
        self._was_active = True
        if self._session.known is not None and self._latest is None:
            self._publish(self._session.current_result(), None, None, 0.0)
        if self.values["start_on_activation"]:
            self._run(True)

    def deactivate(self) -> list[str]:
        """Take in nothing more; bounds stand."""
        self._run(False)
        return []

    # -- inputs -------------------------------------------------------------------------------------------------

    def _on_measurement(self, msg: JointState) -> None:
        sample = self._reader.read(msg)
        self._speed, self._heard = sample.qd, time.monotonic()
        if self.options.lockstep and sample.stamp_ns == self._last_stamp:
            return  # the plant says again what was not answered
        works = self.active and self._running
        if self.foreign or not (works or self._is_awaited()):
            self._forget_time()  # whatever comes later does not continue this
            return
        self._check_stamp(sample.stamp_ns)
        self._last_stamp = sample.stamp_ns
        if not self._batch_end:
            self._time.seconds(sample.stamp_ns)
            self._begin_at(sample.stamp_ns)
        if not works:
            self._let_pass(sample.stamp_ns)
            return
        self._samples.append(sample)
        if sample.stamp_ns >= self._piece_end or sample.stamp_ns >= self._batch_end:
            self._hand_over(sample.stamp_ns)

    def _begin_at(self, stamp_ns: int) -> None:
        """The first batch: in lock-step that of this number, in real time one that begins now."""
        start = stamp_ns
        if self.options.lockstep:
            past = max(stamp_ns - 1, 0) // self._update_ns
            start, self._batch = past * self._update_ns, past + 1
            for batch in range(max((stamp_ns - self._take_ns) // self._update_ns, 1), past + 1):
                self._submit(partial(self._stand, batch))  # time may stand still for it
        self._batch_end, self._piece_end = start + self._update_ns, stamp_ns + _PIECE

    def _is_awaited(self) -> bool:
        """Lock-step: whether batches are to be answered by one that identifies nothing (any more).

        Before it was active for the first time it is waited for: nodes may start in any order.
        """
        return self.options.lockstep and (self._was_active or self.active)

    def _forget_time(self) -> None:
        self._samples, self._last_stamp, self._batch_end = [], 0, 0

    def _let_pass(self, stamp_ns: int) -> None:
        """Say that bounds stand."""
        if stamp_ns >= self._batch_end:
            past = stamp_ns // self._update_ns
            self._submit(partial(self._stand, past))
            self._batch, self._batch_end = past + 1, (past + 1) * self._update_ns

    def _check_stamp(self, stamp_ns: int) -> None:
        """A time that cannot be: batches would end with it, or be made up until then. One that went back is another."""
        back = 1e-9 * (self._last_stamp - stamp_ns)
        if back > (0.0 if self.options.lockstep else self.model.settings.measurement.max_age_s):
            self.refuse(
                "joint_states",
                "time went back",
                f"by {back:.3f} s: what comes is taken in once that is over, or the bounds are reset",
            )
            self._forget_time()
        if self.options.lockstep:
            most = _LONGEST_JUMP if self._last_stamp else _LONGEST_RUN
            ahead = 1e-9 * (stamp_ns - self._last_stamp)
        else:
            ahead, most = 1e-9 * (stamp_ns - self.now_ns()), self.model.settings.measurement.max_age_s
        if ahead > most:
            raise MessageRefusedError("from the future", f"stamp {ahead:.3f} s ahead: expected at most {most:g} s")

    def _hand_over(self, now: int) -> None:
        """Give the worker what there is; at the end of a batch also the order to update.

        In lock-step one update per batch, however many went by: they are awaited by number. In real time one is enough
        for all that came after a pause of the measurements.
        """
        samples, self._samples = self._samples, []
        self._submit(partial(self._add, samples))
        self._piece_end = now + _PIECE
        while now >= self._batch_end:
            self._newest = self._batch
            self._submit(partial(self._update, self._batch, now))
            self._batch, self._batch_end = self._batch + 1, self._batch_end + self._update_ns
            if not self.options.lockstep and self._batch_end <= now:
                self._batch_end = now + self._update_ns

    def _submit(self, job: Callable[[], None]) -> None:
        if self._worker is not None:
            self._worker.submit(job)

    def _on_active(self, msg: Float64MultiArray) -> None:
        """A new epoch: the controller was told that the hand holds something else now."""
        answer = conversions.read_bounds(msg, self.model.arm_prior.size)
        self.trust("bounds_active")
        self._samples = self._samples if not difference(answer.digest, self.digest) else []
        self.check_digest("the controller", answer.digest)
        box, epoch = answer.box, answer.box.epoch
        if epoch > self._epoch:
            self._epoch, self._samples, self._tare_wanted = epoch, [], False
            self._submit(partial(self._reset, epoch))
        if epoch == self._epoch and box.seq:
            self._submit(partial(self._resume, box))

    def _run(self, running: bool) -> str | None:
        self._running, self._samples, self._updated = running, [], time.monotonic()
        self._begin_batch()
        if running:
            self._submit(self._session.start)
        return None

    def _begin_batch(self) -> None:
        """In real time a batch begins with the next measurement: the pause before it has none to be updated with."""
        if not self.options.lockstep:
            self._batch_end = 0

    def _start_tare(self) -> str | None:
        if self._tare_wanted:
            return "refused: a tare is under way"
        reason = self._session.why_no_tare(starting=True)
        if reason is None:
            self._tare_wanted, self._running, self._samples = True, True, []
            self._begin_batch()
            self._submit(self._session.start_tare)
        return reason

    def _finish_tare(self) -> str | None:
        if not self._tare_wanted:
            return self._session.why_no_tare(starting=False) or "refused: no tare was started"
        self._tare_wanted = False
        samples, self._samples = self._samples, []
        self._submit(partial(self._add, samples))
        self._submit(self._make_tare)
        return None

    # -- in the worker ------------------------------------------------------------------------------------------

    def _make_tare(self) -> None:
        self._session.finish_tare()
        self.say(f"tare {self._session.tare_text}; ~/start when the hand holds something")

    def _add(self, samples: list[JointSample]) -> None:
        if not samples:
            return
        stamps = np.array([self._time.seconds(sample.stamp_ns) for sample in samples], dtype=float)
        q, qd, effort = (np.array([sample[i] for sample in samples], dtype=float) for i in (1, 2, 3))
        full, self._taken_ns = self._session.log_is_full, samples[-1].stamp_ns
        self._session.take(Measurements(stamps, q, qd, effort), self._time.origin_ns)
        if self._session.log_is_full and not full:
            self.say(_full(self.options.log_s), WARN)

    def _is_overtaken(self, batch: int) -> bool:
        """Whether another update waits already, of more data: its bounds say all that those of this one would.

        On a busy machine an update takes longer than a batch. Were each of them done, all would be later and later, and
        the first bounds of a motion would come after those of all the rest before it. In lock-step time waits for each.
        """
        late = time.monotonic() - self._updated > _WITHOUT
        return not self.options.lockstep and batch < self._newest and not late

    def _update(self, batch: int, stamp_ns: int) -> None:
        if self._is_overtaken(batch):
            return
        began, session = time.monotonic(), self._session
        try:
            result = session.update(batch)
        except CertificateError as error:  # what could not be written was proved all the same
            self.refuse("certificate", "not written", str(error))
            result = session.current_result()
        except Exception:
            self._stand(batch)  # in lock-step it is waited for
            raise
        if session is not self._session:
            return  # it took so long that the node was cleaned up, and is another one now
        if self._says_nothing(result):
            if self.options.lockstep:  # it is waited for
                self._stand(batch)
            return
        self._publish(result, batch, stamp_ns, time.monotonic() - began)
        self._updated = time.monotonic()
        if not self._is_overtaken(batch):
            session.explain(result)
        self._changed = True

    @property
    def _contradicted(self) -> bool:
        """Whether no parameters fit what was measured, as told last."""
        return self._latest is not None and self._latest.status is UpdateStatus.EMPTY_SET

    def _says_nothing(self, result: UpdateResult) -> bool:
        """Whether nothing was learnt, or a contradiction that was told already."""
        return result.status is UpdateStatus.NO_DATA or (self._contradicted and result.status is UpdateStatus.EMPTY_SET)

    def _stand(self, batch: int) -> None:
        """The answer to a batch that nothing was learnt from."""
        self._tell_bounds(*self._last_bounds, batch)

    def _reset(self, epoch: int) -> None:
        began = time.monotonic()
        self._record_last(self._session.reset(epoch), began)
        self._publish(self._session.current_result(), None, None, 0.0)
        self.say(f"epoch {epoch}: bounds are the prior's again")

    def _resume(self, box: ParameterBox) -> None:
        """An identifier before this one has proved more than this one knows."""
        if self._session.resume(box):
            self._last_bounds = box, box.mid[box.layout.payload]
            self._tell_intervals(OK, "taken over from the controller")
            self.say(f"going on from box {box.identity}, which the controller works with")

    def _publish(self, result: UpdateResult, batch: int | None, stamp_ns: int | None, seconds: float) -> None:
        box, self._last_bounds = result.box, (result.box, result.nominal)
        self._latest = result
        self._tell_bounds(box, result.nominal, batch)
        stamp = stamp_ns or self.get_clock().now().nanoseconds
        alone = payload_message(self.model, box, result.nominal, stamp)
        if alone is not None:
            self._payload.publish(alone)
        self._last_link.publish(last_link_message(self.model, result.nominal, stamp))
        self._draw(box, result.nominal, result.status is UpdateStatus.EMPTY_SET)
        self._tell_intervals(_LEVELS.get(result.status, OK), result.status.value, stamp)
        self._record(result, batch, stamp_ns, seconds)
        level = _LEVELS.get(result.status, OK)
        self.say(f"box {box.identity} in {seconds:.2f} s: {_mass(result)}; {result.message}", level)

    def _record(self, result: UpdateResult, batch: int | None, stamp_ns: int | None, seconds: float) -> None:
        box = result.box
        self._updates.append(
            {
                "stamp_ns": stamp_ns or 0, "batch": batch, "identity": box.identity, "status": result.status.name,
                "message": result.message, "lower": box.payload_lower.tolist(), "upper": box.payload_upper.tolist(),
                "nominal": result.nominal.tolist(), "rejected": dict(result.rejected), "rows": result.rows,
                "timings": dict(result.timings), "seconds": seconds,
            }
        )  # fmt: skip

    def _record_last(self, result: UpdateResult | None, began: float) -> None:
        """What an epoch's last equations prove once it is over: recorded as its certificate is, and told to nobody."""
        if result is not None and not self._says_nothing(result):
            self._record(result, None, self._taken_ns, time.monotonic() - began)

    def _tell_bounds(self, box: ParameterBox, payload: FloatArray, batch: int | None) -> None:
        nominal = box.mid.copy()
        nominal[box.layout.payload] = payload
        self._bounds.publish(conversions.bounds_message(box, nominal, batch, self.digest, self._contradicted))

    def _tell_intervals(self, level: bytes, status: str, stamp: int | None = None) -> None:
        """For people and programs that know nothing of the order of parameters. ``stamp``: of the data, ns."""
        box, nominal = self._last_bounds
        stamp = self.get_clock().now().nanoseconds if stamp is None else stamp
        try:
            self._intervals.publish(intervals_message(self.model, box, nominal, level, status, stamp))
        except ParameterError as error:
            self.refuse("intervals", "not told", str(error))

    def _forward_payload(self, answer: Callable[[bool, str], None]) -> None:
        """Tell an arm's own controller what its hand holds, as ``forward.*`` says."""
        result = self._latest
        if result is None or result.status is UpdateStatus.EMPTY_SET:
            answer(False, "refused: there is no payload that could be told" if result is None else result.message)
            return
        most = per_joint(self.model.settings.measurement.velocity_error, self.model.n) + _REST
        if time.monotonic() - self._heard > _SILENCE or np.any(np.abs(self._speed) > most):
            answer(False, "refused: expected an arm at rest whose measurements come")
            return
        message = payload_message(self.model, result.box, result.nominal, self.get_clock().now().nanoseconds)
        self._forward.send(message, answer)

    def _draw(self, box: ParameterBox, nominal: FloatArray, contradiction: bool = False) -> None:
        """What is known of the payload alone, for rviz; a picture is nothing that may stop the identification."""
        try:
            shapes = payload_shapes(self.model, box.payload_lower, nominal, box.payload_upper)
        except ParameterError as error:
            self.refuse("markers", "not drawn", str(error))
            return
        self._markers.publish(payload_markers(shapes, self.model.payload_link, contradiction))

    # -- telling ------------------------------------------------------------------------------------------------

    def status(self) -> tuple[bytes, str, dict[str, object]]:
        """The ten intervals, and what was rejected."""
        result, session = self._latest, self._session
        more: dict[str, object] = {"state": session.state if self._running else "stopped", "tare": session.tare_text}
        if result is None:
            return OK, "collecting" if self._running else "stopped", {"batch": self._batch, **more}
        lower, upper = result.box.payload_lower, result.box.payload_upper
        values: dict[str, object] = {
            name: estimate_in(low, nominal, high, unit)
            for name, unit, low, nominal, high in zip(
                PAYLOAD_NAMES, PAYLOAD_UNITS, lower, result.nominal, upper, strict=True
            )
        }
        values |= {"box": result.box.identity, "status": result.status.value, "equations": result.rows}
        values |= {f"rejected {reason}": count for reason, count in result.rejected.items()}
        values |= {**more, "slack": session.slack.text()}
        values |= {f"diagnosis {i + 1}": line for i, line in enumerate(session.lines)}
        level = _LEVELS.get(result.status, OK)
        if level == OK and session.log_is_full:
            return WARN, f"{_mass(result)}; {_full(self.options.log_s)}", values
        if level == OK and session.slack.falling:
            return WARN, f"{_mass(result)}; {session.slack.text()}", values
        return level, _mass(result) if level == OK else result.message, values

    def cleanup(self) -> None:
        """Write ``identifier.json``, and the log that the certificates name."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        ended, began = worker.stop(_LAST_UPDATE), time.monotonic()
        if not ended:
            self.say(f"the last update took longer than {_LAST_UPDATE:g} s: what it would have proved is lost", WARN)
        try:
            self._record_last(self._session.close(prove=ended), began)
        finally:
            self._markers.publish(no_payload_markers())
            self._markers.wait_for_all_acked(_DELIVERY)  # its publisher goes next, and with it what has not arrived
            self._write_record()

    def _write_record(self) -> None:
        if self.options.run_dir is None:
            return
        record: dict[str, Any] = {
            "payload_names": PAYLOAD_NAMES,
            "payload_units": PAYLOAD_UNITS,
            "updates": list(self._updates),
        }
        record |= {"prior_lower": self.model.arm_prior.payload_lower.tolist()}
        record |= {"prior_upper": self.model.arm_prior.payload_upper.tolist()}
        record |= {"refused": dict(self.refusals)}
        (self.options.run_dir / "identifier.json").write_text(json.dumps(record, indent=1))


def _full(log_s: float) -> str:
    return f"the log holds {log_s:g} s (log_s), nothing more is taken in: the bounds stand until they are reset"


def _mass(result: UpdateResult) -> str:
    lower, upper = result.box.payload_lower[0], result.box.payload_upper[0]
    return f"mass {estimate_in(lower, result.nominal[0], upper, 'kg')}"


def main(args: list[str] | None = None) -> int:
    """Entry point of the executable ``identifier_node``."""
    return run_node(IdentifierNode, args)


if __name__ == "__main__":
    sys.exit(main())
