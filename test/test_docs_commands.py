"""Every command that README and docs show is run; what cannot be is named, with the test that stands for it."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs_commands.checks import disagreement, unknown_options
from docs_commands.launch_files import declared, why_not
from docs_commands.pages import (
    OTHER,
    ROOT,
    SESSION,
    SHELL,
    Command,
    PageError,
    commands,
    escaped,
    fences,
    pages,
    spans,
    text_of,
)
from docs_commands.programs import NotCoveredError, covered, run
from docs_commands.table import ELSEWHERE, SHORTER, Ledger
from docs_commands.workspace import Outcome, Shared, Workspace

from safe_sysid.cli import COMMANDS, build_parser, main

HAS_ROS = importlib.util.find_spec("rclpy") is not None
needs_ros = pytest.mark.skipif(not HAS_ROS, reason="rclpy is not installed")
PAGES = [
    page for page in pages() if any(f.language in (*SHELL, SESSION) for f in fences(page, text_of(page)))
]


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
    text = text_of(page)
    strange = [
        f"{f.page}:{f.line}: {f.language!r}"
        for f in fences(page, text)
        if f.language not in {*SHELL, SESSION, *OTHER}
    ]
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
    assert [
        f"{page}:{line}: {what}" for line, span in spans(text_of(page)) for what in unknown_options(span)
    ] == []


@needs_ros
def test_every_ros2_command_is_one_that_the_stock_tools_take() -> None:
    from docs_commands.ros2 import executables, parsed

    wrong = []
    for command in all_commands():
        if command.words[:1] != ("ros2",) or covered(command, Ledger()) == "elsewhere":
            continue
        area, *rest = command.words[1:]
        if area == "launch":
            arguments = dict(word.split(":=", 1) for word in rest[2:] if ":=" in word)
            if (
                rest[0] == "safe_sysid"
                and "--show-args" not in rest
                and (reason := why_not(rest[1], arguments))
            ):
                wrong.append(f"{command.place}: {reason}")
        elif area == "run":
            if rest[1] not in executables():
                wrong.append(f"{command.place}: no executable {rest[1]}")
        else:
            try:
                parsed(list(command.words))
            except ValueError as error:
                wrong.append(f"{command.place}: {error}")
    assert wrong == []


# ------------------------------------------------------------------------------------------ tests of these tests

HIDDEN = "# P\n\n```text\nsafe-sysid demo --plan 3\n```\n\n    ros2 topic list\n\n```\n$ pip install x\n```\n"


def test_a_command_in_a_block_that_is_no_shell_is_found() -> None:
    assert [line.split(": in ")[0] for line in escaped("p.md", HIDDEN)] == ["p.md:4", "p.md:10", "p.md:7"]
    assert escaped("p.md", "```text\nsafe-sysid plan: error: what a program says\n```\n") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  # c", [("a", "b")]),
        ("a \\\n  b", [("a", "b")]),
        ("a 'b\n  c'", [("a", "b\n  c")]),
        ("A=1 b && c; d &", [("b",), ("c",), ("d",)]),
        ("verify runs/<that run>/bag", [("verify", "runs/@that_run@/bag")]),
        ("a > b", [("a",)]),
        ("# nothing", []),
        ('a "x # y"', [("a", "x # y")]),
    ],
)
def test_a_block_is_taken_apart_as_a_shell_would(text: str, expected: list[tuple[str, ...]]) -> None:
    found = commands("p.md", f"```sh\n{text}\n```\n")
    assert [command.words for command in found] == expected


@pytest.mark.parametrize("text", ["a > b > c", "a >> b", "a | b", "a < b", "a $(b)", "a 'b"])
def test_shell_syntax_that_nothing_here_runs_is_refused(text: str) -> None:
    with pytest.raises(PageError, match=r"no test runs|do not end"):
        commands("p.md", f"```sh\n{text}\n```\n")


def test_a_session_is_commands_and_what_they_printed() -> None:
    first, second = commands("p.md", "```console\n$ a \\\n    b\nsaid\n$ c &\n```\n")
    assert (first.words, first.shown) == (("a", "b"), ("said",))
    assert (second.words, second.background) == (("c",), True)
    with pytest.raises(PageError, match="begins with"):
        commands("p.md", "```console\nls\n```\n")
    with pytest.raises(PageError, match="does not end"):
        fences("p.md", "```sh\nls\n")


@pytest.mark.parametrize("text", ["make install", "curl example.org", "./other-program"])
def test_a_command_that_nobody_runs_is_not_covered(text: str) -> None:
    (command,) = commands("p.md", f"```sh\n{text}\n```\n")
    with pytest.raises(NotCoveredError, match=re.escape(text)):
        covered(command, Ledger())


@pytest.mark.parametrize(
    "span",
    [
        "safe-sysid demo --pace-of-life 3",
        "./safe-sysid plan --trials",
        "--no-such-option",
        "python benchmarks/startup.py --colour",
        "safe-sysid dance",
    ],
)
def test_an_option_that_does_not_exist_is_found_in_prose(span: str) -> None:
    assert unknown_options(span) != []


@pytest.mark.parametrize(
    "span",
    ["safe-sysid demo --real-time", "--payload-box LX,LY", "safe-sysid verify DIR --lockstep", "a --b c"],
)
def test_an_option_that_exists_is_not(span: str) -> None:
    assert unknown_options(span) == []


def test_launch_files_are_asked_what_they_declare() -> None:
    assert {"payload", "namespace", "lockstep"} <= set(declared("sim.launch.py"))
    assert "payload" in why_not("real_arm.launch.py", {"robot": "x.yaml", "payload": "8lb"})
    assert "needs" in why_not("real_arm.launch.py", {})
    assert "one of" in why_not("sim.launch.py", {"lockstep": "maybe"})
    assert "there are" in why_not("moon.launch.py", {})


def test_what_a_session_shows_is_compared() -> None:
    (command,) = commands(
        "p.md", "```console\n$ ros2 lifecycle set /a activate\nTransitioning successful\n```\n"
    )
    assert disagreement(command, Outcome(0, "Transitioning successful")) == ""
    assert disagreement(command, Outcome(1, "Transitioning failed"))
    (command,) = commands("p.md", "```console\n$ ros2 node list\n/a\n...\n/b\n```\n")
    assert disagreement(command, Outcome(0, "/a\n/b\n/c")) == ""
    assert "/b" in disagreement(command, Outcome(0, "/a\n/c"))
    (command,) = commands("p.md", "```sh\nros2 service call /a/stop std_srvs/srv/Trigger\n```\n")
    assert disagreement(command, Outcome(0, "Trigger_Response(success=False, message='no')"))


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


@pytest.fixture(scope="module")
def ros(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """Live nodes, started by the first page that needs them."""
    found: list[Any] = []
    yield found
    for one in found:
        one.graph.close()


def arms_of(page: str) -> set[str]:
    """Namespaces of arms that a page names."""
    return {f"/{name}" for name in re.findall(r"namespace:=(\w+)", text_of(page))}


@needs_ros
@pytest.mark.ros
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "page", sorted(PAGES, key=lambda page: (not arms_of(page), "ros2 " not in text_of(page), page))
)
def test_the_commands_of_a_page_do_what_it_says(
    page: str, shared: Shared, ros: list[Any], tmp_path: Path
) -> None:
    from docs_commands.live_nodes import Graph
    from docs_commands.ros2 import Ros2

    space, ledger, wrong = Workspace(tmp_path / "page", shared), Ledger(), []
    found = [command for command in commands(page, text_of(page)) if covered(command, ledger) != "elsewhere"]
    fence, ready, begun = -1, False, False
    if ros:
        ros[0].graph.keep({"", *arms_of(page)})
    for number, command in enumerate(found):
        if command.fence != fence:
            fence, ready = command.fence, False
            space.variables.clear()
        if command.words[:1] != ("ros2",):
            # Simulated arms run as fast as they can, and would take what this command needs.
            if ros and not (begun and any(other.words[:1] == ("ros2",) for other in found[number:])):
                ros.pop().graph.close()
            outcome = run(space, command, ledger)
        else:
            if not ros:
                ros.append(Ros2(Graph(shared.root / "live")))
            if not ready:
                ready = True
                ros[0].prepare([other for other in found if other.fence == fence])
            begun = True
            outcome = ros[0].run(space, list(command.words))
        if problem := disagreement(command, outcome):
            wrong.append(f"{command.place}: {command.text}\n    {problem}")
    assert not wrong, "\n".join(wrong)
