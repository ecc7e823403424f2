"""``safe-sysid plan``: motions with a certificate, to a goal or to learn from."""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safe_sysid.commands.shared.arguments import add_settings, at_least, check_directory, check_output, numbers
from safe_sysid.errors import ConfigError

if TYPE_CHECKING:
    from safe_sysid.apps.plan.plan import PlannedMotion
    from safe_sysid.robot.parameters import ParameterBox

__all__ = ["DESCRIPTION", "FORMATTER", "HELP", "configure", "run"]

#: Costs of a criterion, about the payload and about the arm.
_CRITERIA = {"logdet": ("log_determinant", "arm"), "condition": ("condition", "arm_condition")}
#: Options that say nothing where loops are sampled, and their defaults.
_NOT_WITH_LOOPS: dict[str, Any] = {
    "robot": "kinova_gen3", "scene": "open", "start": "start", "bounds": None, "set": [], "real_time": False,
    "simulate": False, "payload": None,
}  # fmt: skip

HELP = "plan certified motions to a goal around obstacles, or to learn from"
FORMATTER = argparse.RawDescriptionHelpFormatter
DESCRIPTION = """Plans a motion in certified steps: every joint, torque and clearance limit holds for every instant,
every tracking error of the controller and every payload that the bounds allow, and the arm may stop after each step.
Writes one plan_NNNNN.json per step, a picture and motion.json. `safe-sysid verify DIR --lockstep` certifies the steps
again (without --lockstep: those of --real-time).

A goal is Q: joint angles in rad, separated by commas, or one of: start, goal (both of the scene), home (of the robot);
or a pose of the tool frame in the world, X,Y,Z,ROLL,PITCH,YAW in m and rad.

Exit status: 0 the whole motion is certified (and, with --simulate, nothing was violated); 1 no certified way was found,
no trajectory that teaches anything, or the simulation found a violation; 2 a file or option cannot be used; 130
interrupted.

examples:
  safe-sysid plan --scene six_boxes --to goal
  safe-sysid plan --scene cell.yaml --bounds runs/20260504-identify-run/bounds.yaml --to goal --to start
  safe-sysid plan --scene six_boxes --to-pose 0.4,-0.3,0.4,3.1416,0,0 --simulate --payload 5lb
  safe-sysid plan --scene open --excite 4 --cost width
  safe-sysid plan --scene open --excite-arm 8
  safe-sysid plan --scene open --excite-arm 3 --motion fourier --criterion condition
  safe-sysid plan --excite-arm 2 --motion fourier --loops leg      # closed loops: sampled, not certified
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    what = parser.add_argument_group("what to plan").add_mutually_exclusive_group(required=True)
    what.add_argument("--to", action="append", metavar="Q", help="go there; may be given again: one after the other")
    what.add_argument(
        "--to-pose",
        action="append",
        type=numbers(6, "0.4,-0.3,0.4,3.1416,0,0"),
        metavar="POSE",
        help="bring the tool frame there; may be given again",
    )
    what.add_argument("--excite", type=at_least(1), metavar="N", help="N trajectories that teach about the payload")
    what.add_argument(
        "--excite-arm",
        type=at_least(1),
        metavar="N",
        help="N trajectories that teach about the arm itself, for `safe-sysid identify-arm`",
    )
    where = parser.add_argument_group("arm and surroundings")
    where.add_argument("--robot", default="kinova_gen3", metavar="NAME|FILE", help="(default: %(default)s)")
    where.add_argument(
        "--loops",
        metavar="NAME|FILE",
        help="an arm with closed loops instead (docs/understand/closed_chains.md): --excite-arm N --motion fourier; "
        "limits and loops are looked at in samples, nothing is certified",
    )
    where.add_argument("--scene", default="open", metavar="NAME|FILE", help="(default: %(default)s)")
    where.add_argument("--start", default="start", metavar="Q", help="where the arm rests (default: the scene's)")
    where.add_argument(
        "--bounds",
        type=Path,
        metavar="FILE",
        help="bounds.yaml of `safe-sysid identify` for what the hand holds (default: the robot's prior)",
    )
    add_settings(
        where, "setting of the robot instead of its file's, as planner.clearance_margin=0.01; may be given again"
    )
    where.add_argument(
        "--real-time",
        action="store_true",
        help="for the controller's gains of a real arm, with its delays, instead of those of the simulated one",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--cost", metavar="COST", help="of exciting trajectories, as condition or width (docs/use/planning.md)"
    )
    how.add_argument(
        "--criterion",
        choices=tuple(_CRITERIA),
        help="of exciting trajectories: log-determinant of the information, or condition number of the regressor "
        "(default: logdet with --excite-arm)",
    )
    how.add_argument(
        "--motion",
        choices=("quintic", "fourier"),
        default="quintic",
        help="of exciting trajectories: planner's quintics, or one Fourier series from rest to rest each "
        "(default: %(default)s)",
    )
    how.add_argument(
        "--period", type=at_least(1, 60), default=10, metavar="S", help="of Fourier series, s (default: %(default)s)"
    )
    how.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="(default: %(default)s)")
    simulate = parser.add_argument_group("try it")
    simulate.add_argument(
        "--simulate", action="store_true", help="drive it in MuJoCo and judge every tick by the truth"
    )
    simulate.add_argument(
        "--payload", metavar="SPEC", help="in the simulated hand: as of `safe-sysid demo` (default: auto)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--out", type=Path, metavar="DIR", help="(default: runs/<date>-plan-<scene>)")
    output.add_argument("--json", type=Path, metavar="FILE", help="write motion.json there too")
    output.add_argument("--quiet", action="store_true", help="only the last line")


def run(options: argparse.Namespace) -> int:
    """Plan; progress goes to stderr, the result to stdout."""
    _check_excitation(options)
    check_output("--json", options.json)
    if options.payload is not None and not options.simulate:
        raise ConfigError("--payload", "payload", options.payload, "--simulate with it: plans hold for all payloads")
    if options.simulate and options.real_time:
        raise ConfigError("--real-time", "gains", True, "no --simulate with it: the simulation has no delays")
    if options.cost is not None and options.excite is None:
        raise ConfigError(
            "--cost",
            "cost",
            options.cost,
            "--excite with it: steps towards a goal are chosen by how far they come along a way that is free, and a "
            "cost that mixes in excitation would lead away from it; plan exciting trajectories first",
        )
    out = options.out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-plan-{Path(options.scene).stem}"
    check_directory("--out", out)
    if out.exists() and not _is_free(out):
        raise ConfigError("--out", "directory", str(out), "a new or empty directory")
    if options.loops is not None:
        return _run_loops(options, out)
    began = time.monotonic()

    def say(text: str) -> None:
        if not options.quiet:
            print(f"[{time.monotonic() - began:6.1f} s] {text}", file=sys.stderr, flush=True)

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # read when numpy is imported, a few lines from here
        os.environ.setdefault(name, "1")
    say(f"reading {options.robot} and scene {options.scene}, computing gains")
    motion, box = _prepare(options, say)
    if options.simulate:
        _simulate(motion, box, options, say)
    else:
        _plan(motion, box, options, say)
    return _tell(motion, options, out)


def _check_excitation(options: argparse.Namespace) -> None:
    """Settle on a cost; refuse options that do not go together."""
    about_arm, asked = options.excite_arm is not None, options.excite_arm or options.excite
    if about_arm and options.cost is not None:
        raise ConfigError("--cost", "cost", options.cost, "none with --excite-arm: choose by --criterion")
    if options.criterion is not None and options.cost is not None:
        raise ConfigError("--criterion", "cost", options.cost, "no --cost with it: it names one")
    for name in ("criterion", "motion", "period"):
        given = getattr(options, name)
        if asked is None and given not in (None, "quintic", 10):
            raise ConfigError(f"--{name}", name, given, "--excite or --excite-arm with it")
    if options.period != 10 and options.motion != "fourier":
        raise ConfigError("--period", "period", options.period, "--motion fourier with it")
    if options.loops is not None:
        if not about_arm or options.motion != "fourier":
            raise ConfigError("--loops", "loops", options.loops, "--excite-arm N --motion fourier with it")
        for name, default in _NOT_WITH_LOOPS.items():
            if getattr(options, name) != default:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(option, name, getattr(options, name), "none with --loops: nothing is certified there")
    options.about = "" if asked is None else "arm" if about_arm else "payload"
    if about_arm:
        options.excite = options.excite_arm
    if about_arm or options.criterion is not None:
        options.cost = _CRITERIA[options.criterion or "logdet"][about_arm]


def _run_loops(options: argparse.Namespace, out: Path) -> int:
    """Fourier series of an arm with closed loops, in samples."""
    import json

    from safe_sysid.apps.plan.plan_loops import plan_loops
    from safe_sysid.whole_files import write_text

    told = plan_loops(options.loops, options.excite, options.period, options.criterion or "logdet", options.seed, out)
    if options.json is not None:
        write_text(options.json, json.dumps(told, indent=1) + "\n")
    if not options.quiet:
        for part in told["motions"]:
            print(f"{part['file']}: {part['seconds']:.1f} s, up to {max(part['velocity']):.2f} rad/s")
    print(
        f"{out}: {len(told['motions'])} motions of {told['mechanism']}; condition number of its base parameters along "
        f"all of them, columns of length one: {told['condition']:.3g}; NOT CERTIFIED: {told['checked']}"
    )
    return 0


def _is_free(out: Path) -> bool:
    """Whether a directory holds nothing, or only what a run without a plan left there."""
    import json

    from safe_sysid.input_limits import MAX_JSON_BYTES, read_regular_text

    names = {path.name for path in out.iterdir()}
    if names != {"motion.json"}:
        return not names
    try:
        content = json.loads(read_regular_text(out / "motion.json", MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "waypoints_rad" in content and content.get("steps") == []


def _prepare(options: argparse.Namespace, say: Any) -> tuple[PlannedMotion, ParameterBox]:
    """Everything that can be wrong is found before planning begins."""
    import numpy as np

    from safe_sysid.apps.plan.plan import PlannedMotion, goals_of, known_box, pose_named
    from safe_sysid.control.tube import tracking_tube
    from safe_sysid.planning.costs import CostSpec
    from safe_sysid.robot.loading import load_robot
    from safe_sysid.robot.scenes.scene import load_scene

    if options.cost is not None and CostSpec.parse(options.cost).uses("goal"):
        raise ConfigError("--cost", "cost", options.cost, "no term goal: exciting trajectories lead to none")
    model = load_robot(options.robot, **dict(options.set))
    scene = load_scene(options.scene)
    scene.check(model)
    start = pose_named("--start", options.start, model, scene)
    gains = tracking_tube(model, lockstep=not options.real_time)
    box = known_box(model, options.bounds)
    motion = PlannedMotion(model, scene, gains, start, None, about=options.about)
    if options.to:
        motion.waypoints = np.array([pose_named("--to", text, model, scene) for text in options.to])
    elif options.to_pose:
        motion.waypoints = goals_of(motion, options.to_pose, box, say, options.seed)
    return motion, box


def _plan(motion: PlannedMotion, box: ParameterBox, options: argparse.Namespace, say: Any) -> None:
    from safe_sysid.apps.plan.plan import excite, go
    from safe_sysid.planning.excitation.fourier_excitation import FourierPlanner
    from safe_sysid.planning.planner import Planner, PlannerOptions

    chosen = PlannerOptions() if options.cost is None else PlannerOptions(cost=options.cost)
    make = Planner if options.motion == "quintic" else partial(FourierPlanner, period=options.period)
    planner = make(motion.model, motion.scene, motion.gains, options=chosen, seed=options.seed)
    if options.excite:
        excite(motion, planner, box, options.excite, say)
    else:
        go(motion, planner, box, say, options.seed)


def _simulate(motion: PlannedMotion, box: ParameterBox, options: argparse.Namespace, say: Any) -> None:
    from safe_sysid.apps.plan.drive import drive
    from safe_sysid.planning.certification.certificate import start_check
    from safe_sysid.planning.planner import PlannerOptions

    reasons = start_check(motion.model, box, motion.scene, motion.gains, motion.start)
    if reasons:
        motion.reasons = tuple(f"start may not be rested at: {reason}" for reason in reasons)
        return
    chosen = PlannerOptions() if options.cost is None else PlannerOptions(cost=options.cost)
    known = None if options.bounds is None else box
    period = options.period if options.motion == "fourier" else None
    drive(motion, known, options.payload or "auto", options.excite or 0, chosen, options.seed, say, period)


def _tell(motion: PlannedMotion, options: argparse.Namespace, out: Path) -> int:
    import json

    from rich.console import Console

    from safe_sysid.apps.plan.plan import describe, write_motion
    from safe_sysid.report.verify_command import plans_command
    from safe_sysid.whole_files import write_text

    what = f"{options.excite} exciting trajectories" if options.excite else "to the goal"
    title = f"{motion.model.name} in scene {motion.scene.name}: {what}"
    try:
        content = write_motion(motion, out, title)
        if options.json is not None:
            write_text(options.json, json.dumps(content, indent=1) + "\n")
    except OSError as error:  # it could be written when planning began
        raise ConfigError("--out, --json", "file", str(error.filename), f"room for it ({error.strerror})") from None
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    if not options.quiet:
        describe(motion, console, out)
    wrong = motion.reasons if not motion.reached else ()
    if motion.simulated is not None and motion.simulated["wrong"]:
        wrong = (*wrong, *motion.simulated["wrong"])
    if wrong:
        print(f"safe-sysid plan: REFUSED: {'; '.join(wrong)}", file=sys.stderr)
        return 1
    if not motion.steps:
        print("already there: nothing to drive, nothing to check")
        return 0
    settings = dict(options.set)
    check = plans_command(out, options.robot, options.scene, settings, lockstep=not options.real_time)
    judged = ", driven in simulation without a violation" if motion.simulated is not None else ""
    console.print(
        f"certified: {len(motion.steps)} plans, {motion.duration:.1f} s of motion, planned in {motion.seconds:.1f} s"
        f"{judged}; check with: {check}",
        soft_wrap=True,
        markup=False,
    )
    return 0
