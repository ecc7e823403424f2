"""Import it to have loaded what nodes of a run begin with: modules, messages, compiled kernels, a first set of gains.

Nothing of rclpy: its import starts threads, which a fork would lack.
"""

from __future__ import annotations

import importlib
import inspect

for _package in ("diagnostic", "geometry", "lifecycle", "sensor", "std", "trajectory", "visualization"):
    importlib.import_module(f"{_package}_msgs.msg")  # first: ROS from wheels starts the process anew
for _package in ("lifecycle_msgs", "rcl_interfaces", "std_srvs"):
    importlib.import_module(f"{_package}.srv")

from safe_sysid.apps import judge, rehearsal  # noqa: E402, F401
from safe_sysid.control.checks import activation, tube_activation  # noqa: E402, F401
from safe_sysid.control.feed_forward import by_name  # noqa: E402, F401
from safe_sysid.logs.online import session  # noqa: E402, F401
from safe_sysid.planning.solver_process import jobs  # noqa: E402, F401
from safe_sysid.planning.task import last_resort  # noqa: E402, F401
from safe_sysid.robot import load_robot, load_scene  # noqa: E402
from safe_sysid.simulation import payload_from_spec  # noqa: E402
from safe_sysid.simulation.assembly import build_plant  # noqa: E402

rehearsal.rehearse()  # kernels are the same for all robots
build_plant(load_robot("kinova_gen3"), payload_from_spec("none"), load_scene("open"), 0).step(None)
inspect.getmodule(load_robot)  # rclpy asks for it at a node's first line of log: all modules are looked through, once
