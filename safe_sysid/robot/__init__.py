"""What the arm is: model from URDF and YAML, inertial parameters and their boxes, frames, geometry, scenes."""

from safe_sysid.robot.config import Settings, load_settings, per_joint
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import Body, JointLimits, Kinematics, RobotModel
from safe_sysid.robot.parameters import (
    ParameterBox,
    com_and_inertia,
    from_log_cholesky,
    inertia_from_com,
    is_consistent,
    log_cholesky,
    pseudo_inertia,
    transform_inertial,
)
from safe_sysid.robot.scenes.obstacles import Obstacle, SceneBox, SceneCapsule, SceneMesh, SceneSphere, SceneZonotope
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.robot.shapes.geometry import PAYLOAD_BODY, build_bodies
from safe_sysid.robot.shapes.pairs import unchecked

__all__ = [
    "PAYLOAD_BODY",
    "Body",
    "JointLimits",
    "Kinematics",
    "Obstacle",
    "ParameterBox",
    "RobotModel",
    "Scene",
    "SceneBox",
    "SceneCapsule",
    "SceneMesh",
    "SceneSphere",
    "SceneZonotope",
    "Settings",
    "build_bodies",
    "com_and_inertia",
    "forward_kinematics",
    "from_log_cholesky",
    "inertia_from_com",
    "is_consistent",
    "load_robot",
    "load_scene",
    "load_settings",
    "log_cholesky",
    "per_joint",
    "pseudo_inertia",
    "transform_inertial",
    "unchecked",
]
