"""What a process has loaded that nodes of the tests are forked of: the core, and the kernels that a node begins with.

Nothing of ROS 2: importing it starts threads, which a fork would not have.
"""

from safe_sysid.apps import judge, rehearsal  # noqa: F401
from safe_sysid.robot import load_robot, load_scene
from safe_sysid.simulation import payload_from_spec
from safe_sysid.simulation.assembly import build_plant

rehearsal.main()
build_plant(load_robot("kinova_gen3"), payload_from_spec("none"), load_scene("open"), 0).step(None)
