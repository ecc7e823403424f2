"""Installation for pip and for colcon (`ament_python`); docs/refer/development.md says how they differ."""

import os
import sys

from setuptools import find_packages, setup

PACKAGE = "safe_sysid"
#: Executable to the module of safe_sysid.nodes behind it.
NODES = {
    "planner_node": "planner.node",
    "controller_node": "controller.node",
    "identifier_node": "identifier.node",
    "plant_node": "plant.node",
    "recorder_node": "recorder.node",
    "viewer_node": "viewer.node",
}
SHARED_DIRECTORIES = ("config", "urdf", "launch", "rviz")  # installed under share/safe_sysid when they exist


def data_files():
    """Everything that is not Python, as setuptools wants it: [(directory below the prefix, [files])]."""
    share = os.path.join("share", PACKAGE)
    files = [
        (os.path.join("share", "ament_index", "resource_index", "packages"), [os.path.join("resource", PACKAGE)]),
        (share, ["package.xml"]),
    ]
    for top in SHARED_DIRECTORIES:
        for directory, _, names in sorted(os.walk(top)):
            if os.path.basename(directory).startswith((".", "_")):
                continue
            kept = [os.path.join(directory, name) for name in sorted(names) if not name.startswith((".", "_"))]
            if kept:
                files.append((os.path.join(share, directory), kept))
    # `ros2 run` and launch look in lib/<package>. colcon puts the console scripts there (setup.cfg); pip puts
    # them into bin, so a wheel carries one-line scripts that hand over.
    if "bdist_wheel" in sys.argv:
        files.append(
            (os.path.join("lib", PACKAGE), [os.path.join("scripts", "lib", executable) for executable in NODES])
        )
    return files


DOCS = [  # ./safe-sysid docs
    "furo>=2024.8.6",
    "myst-parser>=4.0",
    "sphinx>=8.1,<10",
    "sphinx-copybutton>=0.5.2",
]
TEST = [
    "hypothesis>=6.98",
    "pytest>=7.4,<9",  # pytest 9 breaks the plugin of launch_testing
    "pytest-timeout>=2.2",
    "pytest-xdist>=3.0",
]

setup(
    name=PACKAGE,
    version="0.1.0",
    description="Provably safe online system identification for robot arms, on ROS 2",
    author="safe_sysid maintainers",
    author_email="maintainers@safe-sysid.example",
    license="Apache-2.0",
    packages=find_packages(include=[PACKAGE, f"{PACKAGE}.*"]),
    data_files=data_files(),
    python_requires=">=3.10",
    install_requires=[
        "clarabel>=0.9,<1",
        "coal>=3.0.3,<4",
        "cvxpy>=1.6,<2",
        "defusedxml>=0.7.1",
        "highspy>=1.10,<2",
        "Jinja2>=3.0",
        "matplotlib>=3.8.4",
        "mpmath>=1.3",  # rounding under attack, in many digits
        "numba>=0.60",
        "numpy>=2.0,<3",
        "osqp>=1.0,<2",
        "pin>=4.0,<5",  # wheels of 3.x no longer load beside the cmeel-urdfdom that pip takes for them
        "pydantic>=2.5,<3",
        "PyYAML>=6.0",
        "rich>=13.7",
        "rosbags>=0.11.8,<0.12",
        "scipy>=1.13,<2",
    ],
    extras_require={
        # ROS 2 Jazzy as wheels. Not for machines with ROS 2 installed: there the system's must be used.
        "ros": [
            "ros-rclpy[fastrtps]==7.1.6",
            "ros-diagnostic-msgs==5.3.6",
            "ros-geometry-msgs==5.3.6",
            "ros-lifecycle-msgs==2.0.3",
            "ros-rosgraph-msgs==2.0.3",
            "ros-sensor-msgs==5.3.6",
            "ros-std-msgs==5.3.6",
            "ros-std-srvs==5.3.6",
            "ros-trajectory-msgs==5.3.6",
            "ros-visualization-msgs==5.3.6",
        ],
        "cluster": ["distributed>=2024.2"],  # safe-sysid campaign --scheduler
        "learn": ["torch>=2.6,<3"],  # trains hybrid models; what was trained runs without it
        "sim": ["mujoco>=3.2.6,<5"],
        "dart": ["dartpy>=6.20,<7"],  # the simulated arm in Gazebo's engine; tests of it skip where it is missing
        "view": [  # safe-sysid view
            "msgspec>=0.18.6",
            "trimesh>=4.4,<6",
            "viser>=1.1.1,<1.2",  # the view's server stands before viser's own, and was read for these versions
            "websockets>=15.0,<17",
        ],
        "docs": DOCS,
        "test": TEST,
        "dev": [
            *DOCS,
            *TEST,
            "colcon-package-information>=0.4",
            "colcon-ros>=0.5",
            "distributed>=2024.2",
            "example-robot-data>=4.1",  # URDFs of other arms
            "mcap-ros2-support>=0.5",  # a second reader of our bags
            "pycollada>=0.8",  # trimesh's reader of COLLADA, beside ours
            "playwright>=1.48",  # drives the Chromium of the system
            "pyrefly>=1.5",
            "ruff>=0.9",
            "setuptools>=68",
            "uv>=0.5",  # scripts/versions.py; ./safe-sysid installs by it
            "wheel>=0.42",
            "xacro>=2.0",
        ],
    },
    entry_points={
        "console_scripts": [
            "safe-sysid = safe_sysid.cli:main",
            *(f"{executable} = safe_sysid.nodes.{module}:main" for executable, module in NODES.items()),
        ]
    },
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering",
    ],
    zip_safe=True,  # colcon expects the statement; the package is never zipped
)
