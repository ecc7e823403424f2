"""What a process has loaded that nodes of the tests are forked of: the core, and the kernels that a node begins with.

Nothing of rclpy: importing it starts threads, which a fork would not have.
"""

import importlib
import inspect

from safe_sysid.apps import judge, rehearsal  # noqa: F401
from safe_sysid.control.checks import activation, tube_activation  # noqa: F401
from safe_sysid.control.feed_forward import by_name  # noqa: F401
from safe_sysid.control.gains.design import design_gains
from safe_sysid.logs.online import session  # noqa: F401
from safe_sysid.planning.solver_process import jobs  # noqa: F401
from safe_sysid.planning.task import last_resort  # noqa: F401
from safe_sysid.robot import load_robot, load_scene
from safe_sysid.simulation import payload_from_spec
from safe_sysid.simulation.assembly import build_plant

for package in ("diagnostic", "geometry", "lifecycle", "sensor", "std", "trajectory", "visualization"):
    importlib.import_module(f"{package}_msgs.msg")
for package in ("lifecycle_msgs", "rcl_interfaces", "std_srvs"):
    importlib.import_module(f"{package}.srv")
rehearsal.main()
design_gains(load_robot("three_joint"), lockstep=True)
build_plant(load_robot("kinova_gen3"), payload_from_spec("none"), load_scene("open"), 0).step(None)
inspect.getmodule(load_robot)  # rclpy asks for it at a node's first line of log: all modules are looked through, once
