"""Every command that README and docs show is run; what cannot be is named, with the test that stands for it."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_commands.checks import disagreement, unknown_options
from docs_commands.launch_files import declared, why_not
from docs_commands.pages import OTHER, ROOT, SESSION, SHELL, Command, commands, escaped, fences, pages, spans, text_of
from docs_commands.programs import NotCoveredError, covered, run
from docs_commands.table import ELSEWHERE, SHORTER, Ledger
from docs_commands.workspace import Outcome, Shared, Workspace

from safe_sysid.cli import COMMANDS, build_parser, main

HAS_ROS = importlib.util.find_spec("rclpy") is not None
needs_ros = pytest.mark.skipif(not HAS_ROS, reason="rclpy is not installed")
PAGES = [page for page in pages() if any(f.language in (*SHELL, SESSION) for f in fences(page, text_of(page)))]


def all_commands() -> list[Command]:
    return [command for page in PAGES for command in commands(page, text_of(page))]


def own(words: tuple[str, ...]) -> list[str] | None:
    """The arguments, if it is this package's program (and not what sets up its environment)."""
    bootstrap = words[1:2] in (("test",), ("docs",))
    return list(words[1:]) if words[:1] in (("safe-sysid",), ("./safe-sysid",)) and not bootstrap else None


def parse(arguments: list[str]) -> None:
    """Fails where the program would refuse the options."""
    with contextlib.suppress(SystemExit) if "--help" in arguments else contextlib.nullcontext():
        build_parser().parse_args(arguments)


# ----------------------------------------------------------------------------------------------- what there is


@pytest.mark.parametrize("page", pages())
def test_every_block_says_its_language_and_no_command_hides(page: str) -> None:
    text, known = text_of(page), {*SHELL, SESSION, *OTHER}
    strange = [f"{f.page}:{f.line}: {f.language!r}" for f in fences(page, text) if f.language not in known]
    assert strange == []
    assert escaped(page, text) == []


def test_every_command_is_run_or_explained_and_no_entry_of_the_table_is_left_over() -> None:
    ledger, missing = Ledger(), []
    for command in all_commands():
        ledger.shorten(command.words)
        try:
            covered(command, ledger)
        except NotCoveredError as error:
            missing.append(str(error))
    assert missing == []
    unused = [entry for entry in (*SHORTER, *ELSEWHERE) if entry not in ledger.used]
    assert unused == [], "no page needs these any more"


def test_the_tests_that_the_table_names_exist() -> None:
    for entry in ELSEWHERE:
        assert entry.why
        if entry.test:
            file, _, function = entry.test.partition("::")
            assert f"def {function}(" in (ROOT / "test" / file).read_text(encoding="utf-8"), entry.test


def test_every_command_line_of_this_program_is_one_that_it_takes() -> None:
    found = 0
    for command in all_commands():
        for words in (command.words, Ledger().shorten(command.words)):
            if (arguments := own(tuple(word for word in words if word != "..."))) is not None:
                found += 1
                try:
                    parse(arguments)
                except SystemExit as stop:
                    pytest.fail(f"{command.place}: refused ({stop.code}): {shlex.join(words)}")
    assert found > 50


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_and_the_examples_in_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: safe-sysid {name}")
    for example in re.findall(r"^  safe-sysid (.+?)(?:  #.*)?$", told, re.M):
        parse(shlex.split(example, comments=True))


@pytest.mark.parametrize("page", pages())
def test_options_in_prose_exist(page: str) -> None:
    """Code spans: commands of this program with their options, scripts of benchmarks, options alone."""
    assert [f"{page}:{line}: {what}" for line, span in spans(text_of(page)) for what in unknown_options(span)] == []


@needs_ros
def test_every_ros2_command_is_one_that_the_stock_tools_take() -> None:
    from docs_commands.ros2 import refused

    found = [command for command in all_commands() if command.words[:1] == ("ros2",)]
    assert len(found) > 50
    wrong = [
        f"{command.place}: {reason}"
        for command in found
        if covered(command, Ledger()) != "elsewhere" and (reason := refused(command.words))
    ]
    assert wrong == []


@needs_ros
@pytest.mark.parametrize(
    "text",
    [
        "ros2 topic pub /a std_msgs/msg/String '{dat: x}'",
        "ros2 service call /a std_srvs/srv/Triger",
        "ros2 topic ecko /a",
        "ros2 run safe_sysid dancer_node",
        "ros2 launch safe_sysid sim.launch.py color:=red",
    ],
)
def test_a_ros2_command_with_an_error_is_found(text: str) -> None:
    from docs_commands.ros2 import refused

    assert refused(tuple(shlex.split(text)))


# ------------------------------------------------------------------------------------------ tests of these tests

HIDDEN = "# P\n\n```text\nsafe-sysid demo --plan 3\n```\n\n    ros2 topic list\n\n```\n$ pip install x\n```\n"


def test_a_command_in_a_block_that_is_no_shell_is_found() -> None:
    assert [line.split(": in ")[0] for line in escaped("p.md", HIDDEN)] == ["p.md:4", "p.md:10", "p.md:7"]
    assert escaped("p.md", "```text\nsafe-sysid plan: error: what a program says\n```\n") == []


@pytest.mark.parametrize("text", ["make install", "curl example.org", "./other-program"])
def test_a_command_that_nobody_runs_is_not_covered(text: str) -> None:
    (command,) = commands("p.md", f"```sh\n{text}\n```\n")
    with pytest.raises(NotCoveredError, match=re.escape(text)):
        covered(command, Ledger())


@pytest.mark.parametrize(
    ("span", "exists"),
    [
        ("safe-sysid demo --pace-of-life 3", False),
        ("./safe-sysid plan --trials", False),
        ("--no-such-option", False),
        ("python benchmarks/kernels.py --colour", False),
        ("safe-sysid dance", False),
        ("safe-sysid demo --real-time", True),
        ("--payload-box LX,LY", True),
        ("safe-sysid verify DIR --lockstep", True),
        ("a --b c", True),
    ],
)
def test_an_option_in_prose_is_found_if_and_only_if_it_does_not_exist(span: str, exists: bool) -> None:
    assert (unknown_options(span) == []) is exists


def test_launch_files_are_asked_what_they_declare() -> None:
    assert {"payload", "namespace", "lockstep"} <= set(declared("sim.launch.py"))
    assert "payload" in why_not("real_arm.launch.py", {"robot": "x.yaml", "payload": "8lb"})
    assert "needs" in why_not("real_arm.launch.py", {})
    assert "one of" in why_not("sim.launch.py", {"lockstep": "maybe"})
    assert "there are" in why_not("moon.launch.py", {})


def test_a_status_that_the_page_does_not_show_is_found() -> None:
    (command,) = commands("p.md", "```console\n$ safe-sysid verify x\nsafe-sysid verify: error: no such\n```\n")
    assert disagreement(command, Outcome(2, "safe-sysid verify: error: no such")) == ""
    assert disagreement(command, Outcome(0, "PASS"))
    (command,) = commands("p.md", "```sh\nsafe-sysid verify x\n```\n")
    assert disagreement(command, Outcome(1, "FAIL"))


# ------------------------------------------------------------------------------------------------ all are run


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Runs that pages share; says at the end what everything cost."""
    found = Shared(tmp_path_factory.mktemp("shared"))
    yield found
    total = sum(seconds for seconds, _ in found.costs)
    print(f"\ncommands of the docs: {len(found.costs)} run, {total:.0f} s of processor time; the dearest:")
    for seconds, text in sorted(found.costs, reverse=True)[:25]:
        print(f"  {seconds:6.1f} s  {text[:110]}")


@needs_ros
@pytest.mark.ros
@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_it_says(page: str, shared: Shared, tmp_path: Path) -> None:
    """Those of `ros2` need live nodes and a stock ROS 2; what they ask of the nodes is tested with the nodes."""
    space, ledger, wrong, fence = Workspace(tmp_path / "page", shared), Ledger(), [], -1
    for command in commands(page, text_of(page)):
        if covered(command, ledger) in ("elsewhere", "ros2"):
            continue
        if command.fence != fence:
            fence = command.fence
            space.variables.clear()
        if problem := disagreement(command, run(space, command, ledger)):
            wrong.append(f"{command.place}: {command.text}\n    {problem}")
    assert not wrong, "\n".join(wrong)
