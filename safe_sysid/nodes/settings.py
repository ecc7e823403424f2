"""ROS parameters of the nodes, each declared once: descriptors, validation and docs are made from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Final

from safe_sysid.extensions import ENGINES, LAWS
from safe_sysid.identification.settings import METHODS
from safe_sysid.schema import Parameter, SchemaError, Section, parameters, setting
from safe_sysid.schema.fields import Kind

__all__ = ["KINDS", "ManagedSettings", "parameters_of"]

Numbers = Annotated[tuple[float, ...], Kind("floats")]


class _ProcessRealtime(Section):
    """Scheduling of every node."""

    nice: int = setting("how much nicer than others all threads are", range="[0, 19]", default=0, when="start")


class ProcessSettings(Section):
    """All nodes but the viewer."""

    diagnostics_period_s: float = setting(
        "between two messages on /diagnostics where nothing changes", "s", "[0.05, 60]", default=0.5, when="live"
    )
    realtime: _ProcessRealtime = _ProcessRealtime()


class _Realtime(Section):
    """Scheduling of nodes of an arm."""

    priority: int = setting(
        "SCHED_FIFO priority of the 1 kHz loop; 0: normal scheduling", range="[0, 99]", default=0, when="start"
    )
    cpus: str = setting("processors to run on, as 0,1", default="", unset="all", when="start")
    lock_memory: bool = setting("keep memory from being swapped out", default=False, when="start")


class CommonSettings(Section):
    """Controller, planner, identifier and plant."""

    robot: str = setting("robot: name of a packaged one, or path of a YAML file", default="kinova_gen3")
    scene: str = setting("scene: name of a packaged one, or path of a YAML file", default="", unset="nothing around")
    lockstep: bool = setting("simulated time waits for every node; else real time", default=False)
    lockstep_patience_s: float = setting(
        "lock-step: wall time after which a node that is waited for is taken for dead", "s", "(0, 1e6]", default=60.0
    )
    run_dir: str = setting("directory for logs", default="", unset="nothing is written")
    log_s: float = setting(
        "time that logs of a run hold: of plant and controller the oldest rows go; an identifier with a "
        "run_dir takes in no more samples of an epoch, for its certificates name all of them",
        "s",
        "[1, 1e6]",
        default=300.0,
    )
    seed: int = setting("of every random choice", range="[0, 4294967295]", default=0)
    realtime: _Realtime = _Realtime()


class ManagedSettings(Section):
    """Managed nodes: controller, planner and identifier."""

    autostart: bool = setting(
        "configure and activate by itself, without a lifecycle manager", default=False, when="start"
    )
    start_on_activation: bool = setting("activation does what ~/start does", default=True)


class _Law(Section):
    """Settings of the robot's file that the node may replace."""

    law: str = setting(
        "law of control; the tracking bound is proved for robust only; planner and identifier work with "
        "another law only if they are told too, by robot_settings.controller.law",
        default="",
        unset="the robot file's controller.law",
        choices=tuple(LAWS),
    )


class ControllerNodeSettings(Section):
    """Controller."""

    reference_every: int = setting("between two messages on reference", "ticks", "[1, 100000]", default=10, when="live")
    first_plan_time: float = setting(
        "lock-step: first hand-over", "s", "[0, 1e6]", default=0.0, unset="the robot file's planner.t_p"
    )
    await_plans: bool = setting("lock-step: wait for the planner's answers", default=True)
    await_bounds: bool = setting("lock-step: wait for the identifier's answers", default=True)
    controller: _Law = _Law()


class PlannerNodeSettings(Section):
    """Planner."""

    plans: int = setting(
        "exciting trajectories of one run at most; fewer if two updates in a row narrow no interval by 10 %",
        range="[0, 100000]",
        default=0,
        unset="the robot file's planner.plans",
        when="live",
    )
    cost: str = setting(
        "what a trajectory is chosen by: a cost, or a sum as `condition + 0.1*width` "
        "(docs/understand/planning_costs.md)",
        default="condition",
    )
    iteration_budget: int = setting(
        "optimiser iterations for one plan",
        range="[0, 100000]",
        default=0,
        unset="the robot file's planner.iteration_budget",
    )
    markers: bool = setting("draw plans, swept volumes and obstacles on markers", default=True, when="live")
    then_goal: bool = setting("after the exciting trajectories, drive to the scene's goal", default=False)
    first_plan_time: float = setting(
        "lock-step: first hand-over", "s", "[0, 1e6]", default=0.0, unset="the robot file's planner.t_p"
    )
    deadline_margin_s: float = setting(
        "real time: a plan is published so long before its hand-over", "s", "[0, 60]", default=0.15
    )


class _Forward(Section):
    """Whom ``~/forward_payload`` tells what the hand holds."""

    service: str = setting("service of the arm's driver", default="", unset="nobody is told")
    type: str = setting("of that service, as ur_msgs/srv/SetPayload", default="", unset="needed with a service")
    hand: Numbers = setting(
        "mass of the hand and its centre x, y, z in the payload's frame, where the driver does not know it: is "
        "added to the payload",
        "kg, m",
        default=(),
        unset="nothing is added",
    )


class IdentifierNodeSettings(Section):
    """Identifier."""

    bounds_file: str = setting(
        "proved bounds of what the hand holds at the start: bounds.yaml of safe-sysid identify",
        default="",
        unset="none",
    )
    tare_file: str = setting("tare to use, and to write", default="", unset="the robot file's tare.file")
    method: str = setting("of bounding", default="", unset="the robot file's identification.method", choices=METHODS)
    certificates: str = setting("directory of one certificate per update", default="", unset="run_dir")
    rest_s: float = setting(
        "so much is taken in of an arm that rests with unchanged efforts: more of the same teaches nothing",
        "s",
        "[0.1, 1e6]",
        default=5.0,
    )
    temperature: float = setting(
        "of the arm, to judge a tare", "degC", "(-273.15, 1000]", default=math.nan, unset="not known"
    )
    forward: _Forward = _Forward()


class PlantNodeSettings(Section):
    """Plant."""

    payload: str = setting(
        "what the hand holds at the start: none, a weight (8lb), ten numbers, a URDF file, or auto: "
        "what suits the robot",
        default="none",
    )
    payload_to_attach: str = setting("what ~/attach takes up, as payload", default="4lb", when="live")
    noise: str = setting("errors of the measurements", default="uniform", choices=("none", "uniform", "adversarial"))
    arm: str = setting(
        "where in its tolerances the true arm lies",
        default="uniform",
        choices=("nominal", "uniform", "corner", "random"),
    )
    actuator: str = setting(
        "errors of the applied torque", default="random", choices=("none", "constant", "slow", "random", "adversarial")
    )
    start_q: Numbers = setting(
        "start position", "rad or m", default=(), unset="the scene's start, else the robot file's home"
    )
    lockstep_pace: float = setting(
        "lock-step: simulated seconds per second of wall time at most, for people who look on",
        range="[0, 1e6]",
        default=0.0,
        unset="as fast as it goes",
    )
    lockstep_rest_pace: float = setting(
        "lock-step: simulated seconds per second of wall time at most once the arm has rested for 5 s; "
        "a plan, another box or motion ends that",
        range="[0.01, 1e6]",
        default=0.1,
    )
    engine: str = setting("physics engine; dart takes the extra of that name", default="mujoco", choices=tuple(ENGINES))
    watchdog_s: float = setting("age of a command at which the drives brake", "s", "(0, 1e6]", default=0.02)


class RecorderNodeSettings(Section):
    """Recorder."""

    bag: str = setting(
        "directory of the bag, which must not exist", default="", unset="rosbag2_<date> in the working directory"
    )
    compression: str = setting("of the bag's chunks", default="none", choices=("none", "zstd"))
    exclude: str = setting(
        "regular expression of topics that are not recorded, matched in full", default="", unset="nothing"
    )
    all_namespaces: bool = setting("topics of other namespaces too", default=False)
    flush_s: float = setting("between two writes: what a recorder that is killed loses", "s", "[0.05, 60]", default=1.0)


class ViewerNodeSettings(Section):
    """Viewer."""

    robot: str = setting("robot: name of a packaged one, or path of a YAML file", default="kinova_gen3")
    host: str = setting(
        "address to listen at; 127.0.0.1: browsers of this machine only", default="127.0.0.1", when="start"
    )
    port: int = setting("to listen at; 0 takes any that is free", range="[0, 65535]", default=8080, when="start")
    names: str = setting(
        "names by which browsers may call this machine, as robot.local,robot",
        default="",
        unset="localhost and addresses only",
        when="start",
    )
    key: bool = setting("a browser must have opened the printed address once", default=True, when="start")
    read_only: bool = setting("no buttons", default=False, when="start")
    results: str = setting(
        "a demo's summary.json: shown as soon as it is written", default="", unset="none", when="start"
    )
    nice: int = setting("how much nicer than others all threads are", range="[0, 19]", default=10, when="start")


#: Kinds of nodes, and the classes that declare what each has.
KINDS: Final[Mapping[str, tuple[type[Section], ...]]] = {
    "controller": (ProcessSettings, CommonSettings, ManagedSettings, ControllerNodeSettings),
    "planner": (ProcessSettings, CommonSettings, ManagedSettings, PlannerNodeSettings),
    "identifier": (ProcessSettings, CommonSettings, ManagedSettings, IdentifierNodeSettings),
    "plant": (ProcessSettings, CommonSettings, PlantNodeSettings),
    "recorder": (ProcessSettings, RecorderNodeSettings),
    "viewer": (ViewerNodeSettings,),
}


@cache
def parameters_of(kind: str) -> tuple[Parameter, ...]:
    """Parameters of a kind of node. ``kind``: one of :data:`KINDS`.

    Raises:
        SchemaError: no such kind.
    """
    if kind not in KINDS:
        raise SchemaError(f"kind of node {kind!r}: expected one of {', '.join(KINDS)}")
    declared = (parameter for section in KINDS[kind] for parameter in parameters(section))
    return tuple(parameter for parameter in declared if parameter.type != "section")
