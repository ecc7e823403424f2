"""What the tests do to the commands of the pages: shorten some, leave some to other tests, end some by Ctrl-C."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Shorter:
    """Where ``where`` is found in a command, ``old`` is replaced by ``new``; an empty ``old`` appends."""

    where: str
    old: str
    new: str
    why: str


@dataclass(frozen=True)
class Elsewhere:
    """A command that is not run here: ``where`` is found in it; ``test`` (file::function) or ``why`` says the rest."""

    where: str
    test: str
    why: str


#: In order; all that fit are applied.
SHORTER = (
    Shorter(r"^\S*safe-sysid demo(?!.* --plans)(?!.* --help)", "", "--plans 1", "one trajectory instead of four"),
    Shorter(r"^./safe-sysid demo --plans 1$", "", "--record", "one run for those with and without a bag"),
    Shorter(r"demo --robot my_arm.yaml --plans", "--plans", "--payload 4lb --plans", "one run with the tutorial's"),
    Shorter(r"config init(?!.* --payload-kg)", "", "--payload-kg 2", "one file with the tutorial's"),
    Shorter(r"campaign \w+ .*--trials \d+", r"--trials \d+", "--trials 2", "two trials instead of thousands"),
    Shorter(r"campaign reachability(?!.* --trial)", "", "--trials 2", "two trials instead of thousands"),
    Shorter(r"campaign (?!.* --jobs)(?!.* --trial \d)", "", "--jobs 1", "one core"),
    Shorter(r"experiment pso .*--table 3(?!.* --trials)", "", "--trials 1", "one repeat"),
    Shorter(r"experiment .*--table 3.*--methods ours,", r"ours,wrong,grav-pid", "wrong,grav-pid", "nothing to learn"),
    Shorter(r"experiment .*--table 3.*--methods ours ", "ours", "wrong", "nothing to learn, nothing to search"),
    Shorter(r"experiment pso .*--table 3(?!.* --methods)", "", "--methods conservative", "one method of eleven"),
    Shorter(r"experiment pso .*--table 3(?!.* --experiments)", "", "--experiments a", "one work cell of three"),
    Shorter(r"experiment pso .*--table 3(?!.* --payloads)", "", "--payloads 4lb", "one dumbbell of five"),
    Shorter(r"experiment .*--payloads 7lb,8lb", "7lb,8lb", "8lb", "one dumbbell of two"),
    Shorter(r"experiment pso .*--table 4(?!.* --trials)", "", "--trials 3", "three motions instead of a hundred"),
    Shorter(r"experiment pso .*--table 5(?!.* --trials)", "", "--trials 1 --payloads 4lb", "one run of 25"),
    Shorter(r"experiment .*--table fig(5|11|12)", "", "--payloads 4lb", "one dumbbell of five"),
    Shorter(
        r"experiment constrained .*--table \d",
        r"constrained (.*?)( --seeds \d+)?(?= --json| --resume| --figure|$)",
        r"constrained \1 --seeds 1 --limbs four_joint_arm",
        "one arm of twenty",
    ),
    Shorter(r"experiment (?!psdm|lip)(?!.* --jobs)", "", "--jobs 1", "one core"),
    Shorter(r"realtime.py (run|drives)", "", "--seconds 2 --load idle --scheduling normal", "one row of 2 s"),
    Shorter(r"realtime.py drives", "", "--drives thread", "one way to drive the loop of five"),
    Shorter(r"demo .*--view(?! \d)", "--view", "--view 0", "any free port"),
    Shorter(r"safe-sysid view .*--port \d+", r"--port \d+", "--port 0", "any free port"),
    Shorter(r"safe-sysid view (?!.*--port)", "", "--port 0", "any free port"),
    Shorter(r"safe-sysid view (?!.*--no-browser)", "", "--no-browser", "there is nobody to look at it"),
    Shorter(r" \.\.\.$", r" \.\.\.$", "", "the dots stand for the other joints"),
)

_ROS = "part of ROS 2 and in no registry"
#: The first that fits counts. No test: nothing of ours is in the command, and why it cannot be run.
ELSEWHERE = (
    Elsewhere(
        r"demo --interface trajectory",
        "test_trajectory_interface.py::test_demo_identifies_a_payload_through_an_arm_as_it_is_sold",
        "one trajectory teaches too little for its verdict",
    ),
    Elsewhere(
        r"safe-sysid tube ",
        "test_trajectory_interface.py::test_tube_measures_both_loads_and_writes_the_robot_file",
        "with tables of its own",
    ),
    Elsewhere(
        r"^./safe-sysid test( --all)?$",
        "test_packaging.py::test_ci_calls_exactly_the_readme_command",
        "it is what runs this test",
    ),
    Elsewhere(
        r"^(\./)?safe-sysid identify-arm ",
        "test_identify_arm.py::test_held_out_torques_are_those_of_the_noise",
        "the same command on a log of a motion that excites everything",
    ),
    Elsewhere(
        r"^(\./)?safe-sysid verify found ",
        "test_arm_bounds_command.py::test_lower_and_upper_hold_the_truth_and_are_verified",
        "the same command on what the same command found",
    ),
    Elsewhere(
        r"^(\./)?safe-sysid learn lip ",
        "test_learn_lip.py::test_held_out_torques_and_friction_are_found",
        "the same command on a log of two joints",
    ),
    Elsewhere(
        r"^(\./)?safe-sysid learn hybrid ",
        "test_learn_hybrid.py::test_from_logs_to_a_network",
        "the same command on two logs of three joints, for six seconds",
    ),
    Elsewhere(
        r"^(\./)?safe-sysid experiment lip ",
        "test_lip_experiment.py::test_the_command_resumes_and_draws",
        "the same command with two joints and three epochs",
    ),
    Elsewhere(
        r"^(\./)?safe-sysid dynamics generate ",
        "test_generated_code.py::test_files_compile_and_their_self_test_tells_right_from_wrong",
        "the same command on an arm with a DH table",
    ),
    Elsewhere(
        r"^(\./)?safe-sysid realtime-check ",
        "test_realtime_check.py::test_a_run_is_measured_and_written",
        "the same command for two seconds",
    ),
    Elsewhere(
        r"^(\./)?safe-sysid dynamics law ",
        "test_law_code.py::test_the_command_writes_it_and_compilers_that_drop_the_checks_are_refused",
        "the same command on the same arm",
    ),
    Elsewhere(
        r"^(\./)?safe-sysid dynamics reduce ",
        "test_reduced_dynamics.py::test_the_command_prints_bounds_and_writes_code_that_passes_its_test",
        "the same command with other ranges",
    ),
    Elsewhere(
        r"^(\./)?safe-sysid experiment psdm ",
        "test_psdm_experiment.py::test_table_2_of_the_small_arms",
        "the same command on the small arms; the others are slow",
    ),
    Elsewhere(
        r"^(\./)?safe-sysid experiment hybrid ",
        "test_hybrid_tracking.py::test_command_prints_base_parameters_and_refuses",
        "the same command on data of some seconds; half an hour of data takes minutes",
    ),
    Elsewhere(
        r"^(\./)?safe-sysid errors ",
        "test_needed_errors.py::test_the_command_writes_what_a_robot_file_takes",
        "the same command on two simulated logs",
    ),
    Elsewhere(
        r"safe-sysid demo --robot (three_joint|ur5e|franka_panda) ",
        "test_arms.py::test_the_demo_holds_every_bound",
        "the same command for every packaged arm",
    ),
    Elsewhere(
        r"safe-sysid (config (init|check)|demo|verify) .*talos",
        "test_one_of_two_arms.py::test_one_arm_of_a_robot_with_two_goes_the_whole_way",
        "the same four commands, and the same for a robot with two arms of its own",
    ),
    Elsewhere(
        r"^rm -rf .venv$|scripts/constraints.txt$",
        "test_packaging.py::test_tested_versions_are_within_the_declared_bounds",
        "replaces the environment that the tests run in; what it wrote is tested",
    ),
    Elsewhere(
        r"safe-sysid demo --scene six_boxes --then-goal$",
        "test_demo.py::test_the_run_succeeds_and_says_what_it_does",
        "a minute of processor time; there with two plans, another scene and a certificate of the way",
    ),
    Elsewhere(r"^mkdir -p \S*ros2_ws/src'?$|^cd \S*ros2_ws'?$", "", "makes an empty folder at home"),
    Elsewhere(
        r"real_arm.launch.py namespace:=left|plant_node .*__ns:=/left|/left/controller",
        "",
        "a session in real time on a busy machine: what it says depends on the load",
    ),
    Elsewhere(r"^git clone @", "", "the address is the reader's"),
    Elsewhere(r"^rosdep install ", "test_packaging.py::test_rosdep_knows_every_key", "needs apt and the network"),
    Elsewhere(
        r"pip install --user -r \S*scripts/requirements.txt$",
        "test_architecture.py::test_what_rosdep_cannot_deliver_is_in_a_file_for_pip",
        "installs into the user's Python",
    ),
    Elsewhere(
        r"^colcon build ",
        "test_packaging.py::test_colcon_builds_an_ament_python_package",
        "the same in a workspace of its own",
    ),
    Elsewhere(r"^source install/setup.bash$", "", "made by colcon, nothing of ours is in it"),
    Elsewhere(r"^ros2 run (tf2_ros|controller_manager) ", "", f"another package's program, {_ROS}"),
    Elsewhere(
        r"^ros2 security ",
        "test_docs_messages.py::test_nodes_create_what_the_policy_allows_and_nothing_else",
        f"sros2's program, {_ROS}; the policy file is tested",
    ),
    Elsewhere(r"^ros2 (control|bag) ", "", f"another package's program, {_ROS}"),
)

#: Programs that go on until Ctrl-C: command, what they print when they are at work.
UNTIL_CTRL_C = (
    ("safe-sysid view", "http://"),
    ("safe-sysid demo .*--view", "http://"),
    ("docs --serve", "http://"),
    ("benchmarks/outsider.py", "never"),
)


class Ledger:
    """Which entries were of use, so that those that no page needs any more are found."""

    def __init__(self) -> None:
        self.used: set[object] = set()

    def shorten(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The command as it is run."""
        text = shlex.join(words).replace("'...'", "...")
        for entry in SHORTER:
            if re.search(entry.where, text):
                self.used.add(entry)
                text = re.sub(entry.old, entry.new, text, count=1) if entry.old else f"{text} {entry.new}"
        return tuple(shlex.split(text))

    def elsewhere(self, text: str) -> Elsewhere | None:
        """The entry that says where a command is run instead."""
        for entry in ELSEWHERE:
            if re.search(entry.where, text):
                self.used.add(entry)
                return entry
        return None
