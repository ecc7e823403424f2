"""``safe-sysid demo``: the main job, on a simulated arm."""

from __future__ import annotations

import argparse
from pathlib import Path

from safe_sysid.commands.shared.arguments import at_least, non_negative, pair
from safe_sysid.extensions import ENGINES

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "identify an unknown payload on a simulated arm"
DESCRIPTION = """Starts four processes that talk over ROS 2 topics only: a simulated arm with an unknown payload in its
hand, the controller, the planner and the identifier. Shows what they do, judges the run by the plant's own record, and
leaves a run directory with summary.json, logs and pictures. Exit status: 0 every bound held and nothing was violated, 1
otherwise, 2 wrong arguments, 130 interrupted."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    task = parser.add_argument_group("task")
    task.add_argument(
        "--payload",
        default="auto",
        metavar='NAME|URDF|"NUMBERS"',
        help="4lb to 8lb, none, a URDF file, or ten numbers m,cx,cy,cz,Ixx,Ixy,Iyy,Ixz,Iyz,Izz: centre in the tool "
        "flange frame, inertia about that centre, same axes; auto: the heaviest dumbbell that the robot's prior holds, "
        "else a ball in the middle of it (default: auto, 8lb for kinova_gen3)",
    )
    task.add_argument(
        "--robot", metavar="NAME|FILE", help="(default: kinova_gen3; with --engine dart kinova_gen3_gazebo)"
    )
    task.add_argument("--scene", default="open", metavar="NAME|FILE", help="open, six_boxes or a file (default: open)")
    task.add_argument("--plans", type=at_least(1), default=4, metavar="N", help="exciting trajectories (default: 4)")
    task.add_argument(
        "--then-goal",
        action="store_true",
        help="afterwards drive to the scene's goal with what is known of the payload then (of the packaged: six_boxes)",
    )
    task.add_argument(
        "--interface",
        choices=("torque", "trajectory"),
        help="trajectory: the arm is as it is sold, a position servo behind a trajectory controller; its tube is "
        "measured first, then plans go out as trajectories (default: as the robot's file says, torque for most)",
    )
    task.add_argument(
        "--driver-rate",
        type=non_negative,
        default=500.0,
        metavar="HZ",
        help="with --interface trajectory: of set points and samples; divides 1000 (default: %(default)g)",
    )
    world = parser.add_argument_group("what the nodes do not know")
    world.add_argument(
        "--engine",
        choices=tuple(ENGINES),
        default="mujoco",
        help="physics of the simulated arm; dart: Gazebo's, for arms without rotors, needs the extra of that name "
        "(default: %(default)s)",
    )
    world.add_argument("--seed", type=at_least(0), default=0, metavar="N", help="of every random choice (default: 0)")
    world.add_argument(
        "--arm",
        choices=("random", "corner", "nominal"),
        default="random",
        help="the true arm: anywhere in its tolerances, in a corner of them, or nominal (default: %(default)s)",
    )
    world.add_argument(
        "--noise",
        choices=("uniform", "adversarial", "none"),
        default="uniform",
        help="of the measurements, inside the declared bounds or sitting on them (default: %(default)s)",
    )
    noise = parser.add_argument_group("declared error bounds, instead of the robot file's; the noise fills them")
    noise.add_argument("--torque-noise", type=pair, metavar="A,B", help="|error| <= A N m + B |torque|")
    noise.add_argument("--velocity-error", type=non_negative, metavar="V", help="rad/s")
    noise.add_argument("--position-error", type=non_negative, metavar="Q", help="rad")
    mode = parser.add_argument_group("mode").add_mutually_exclusive_group()
    mode.add_argument(
        "--lockstep",
        dest="lockstep",
        action="store_true",
        default=True,
        help="simulated time waits for everyone: same result on any machine (default)",
    )
    mode.add_argument("--real-time", dest="lockstep", action="store_false", help="1 kHz on the wall clock")
    look = parser.add_argument_group("look")
    look.add_argument(
        "--view",
        nargs="?",
        type=at_least(0, 65535),
        const=8080,
        metavar="PORT",
        help="show the run in a browser, at the address that is printed; the page stays, with the results, until "
        "Ctrl-C (default port: 8080; 0 takes one that is free)",
    )
    look.add_argument(
        "--pace",
        type=non_negative,
        metavar="X",
        help="lock-step: at most X simulated seconds per second (default: 1 with --view, else 0: as fast as it goes)",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", type=Path, metavar="FILE", help="write the summary there too")
    output.add_argument("--out", type=Path, metavar="DIR", help="run directory (default: runs/<date>-<payload>-<seed>)")
    output.add_argument(
        "--record", action="store_true", help="write all topics to a rosbag2 bag in the run directory (mcap)"
    )
    output.add_argument(
        "--compression", choices=("none", "zstd"), default="none", help="of the bag's chunks (default: %(default)s)"
    )
    output.add_argument("--quiet", action="store_true", help="no progress, only the result")
    output.add_argument(
        "--timeout",
        type=non_negative,
        default=900.0,
        metavar="S",
        help="give up after so long, s (default: %(default)g)",
    )


def run(options: argparse.Namespace) -> int:
    """Run it; the first line comes before anything heavy is imported."""
    if options.robot is None:
        options.robot = "kinova_gen3_gazebo" if options.engine == "dart" else "kinova_gen3"
    mode = "lock-step" if options.lockstep else "real time"
    grips = "what suits it" if options.payload == "auto" else repr(options.payload)
    if not options.quiet:
        print(
            f"safe-sysid demo: {options.robot} grips {grips} in scene {options.scene}; "
            f"{options.noise if options.noise != 'none' else 'no'} noise, seed {options.seed}, {mode}",
            flush=True,
        )
    from safe_sysid.demo.options import DemoOptions

    values = {k: v for k, v in vars(options).items() if k != "command"}
    values["json_file"] = values.pop("json")
    from safe_sysid.demo.run import run_demo

    return run_demo(DemoOptions(**values))
