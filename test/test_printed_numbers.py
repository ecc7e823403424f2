"""No proved number is printed by another way than safe_sysid.decimals: by the texts of all outputs, and by the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import command_support
import pytest

from safe_sysid.cli import main
from safe_sysid.studies.forgeries.printed_numbers import is_sound, run_trial

PACKAGE = Path(__file__).resolve().parent.parent / "safe_sysid"
#: Words that name what is proved.
PROVED = re.compile(
    r"\b(lower|upper|smallest|smallest_m|certified|certified_m|e_bound|de_bound|V_max|half_width|width_share|acceleration_bound|clearance_margin|"
    r"payload_lower|payload_upper|prior_lower|prior_upper|promise|(margin|worst|tightest|claim)\.value)\b"
)
ROUNDED = re.compile(r"\.\d+[gfe]$|^g$|%\.\d+[gfe]")
#: Where such a word is a declared limit, not a bound that was proved, or a count of what was simulated.
DECLARED = {
    "schema/parameter.py",  # a parameter's declared range
    "robot/files/urdf.py",  # joint limits of the file
    "control/checks/start.py",  # limits of the start pose
}


@pytest.mark.parametrize("index", range(20))
def test_texts_of_every_output_say_no_more_than_was_proved(index: int) -> None:
    trial = run_trial(1, index, {})
    assert is_sound(trial), trial["such"]
    assert trial["numbers"] > 150


def test_rounding_to_nearest_would_be_noticed() -> None:
    assert all(run_trial(2, index, {"break": "nearest"})["inward"] > 20 for index in range(5))


def test_the_command_counts_and_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command_support.in_this_process(monkeypatch)
    assert main(["campaign", "printed", "--trials", "2", "--json", str(tmp_path / "p.json")]) == 0
    assert main(["campaign", "printed", "--trials", "2", "--break", "nearest"]) == 0
    assert "noticed in 2 of 2 trials (100 %): a number that says more than was proved" in capsys.readouterr().out


def rounded_otherwise(source: str) -> list[str]:
    """Formatted values of f-strings, and formats of templates, that round a proved number to nearest."""
    found: list[str] = []
    if not PROVED.search(source):
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
            form = "".join(str(part.value) for part in node.format_spec.values if isinstance(part, ast.Constant))
            if ROUNDED.search(form) and PROVED.search(text := ast.unparse(node.value)):
                found.append(f"{node.lineno}: {{{text}:{form}}}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "|format(" in node.value:
            parts = re.findall(r"\{\{.*?\}\}", node.value)
            found += [part for part in parts if ROUNDED.search(part) and PROVED.search(part)]
    return found


def test_no_code_rounds_a_proved_number_to_nearest() -> None:
    paths = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    found = {name: rounded_otherwise(paths[name].read_text(encoding="utf-8")) for name in set(paths) - DECLARED}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    "source", ['f"{box.lower[0]:.4g}"', 'f"{1e3 * margin.value:.1f} mm"', "'{{ \"%.5g\"|format(p.upper) }}'"]
)
def test_the_rule_finds_what_it_forbids(source: str) -> None:
    assert rounded_otherwise(source)
    assert not rounded_otherwise('f"{time:.3f} s"')
