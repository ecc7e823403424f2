"""``safe-sysid campaign``: many adversarial trials, and whether the truth was ever outside what was published."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safe_sysid.commands.shared.arguments import OneLineParser, at_least, check_output, non_negative
from safe_sysid.commands.shared.batch import add_places, collect, one_thread, show_table

if TYPE_CHECKING:
    from rich.console import Console

    from safe_sysid.studies.campaign.runner import Campaign

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "attack the guarantees with thousands of adversarial trials"
DESCRIPTION = "Runs many trials, each from its number alone, and counts what should never happen."
_IDENTIFICATION = """Each trial makes up an arm, a payload, a motion and errors within (mostly: on) their declared
bounds, many of them in the worst direction, lets the identifier answer, and looks whether the truth is outside any box
that it published, any equation is broken, or the set is declared empty. Exit status: 0 nothing of this happened, 1
something did, 2 wrong arguments, 130 interrupted. With assumptions broken on purpose: 0, and the table says how many
were noticed."""
_ARM = """Each trial takes arm, motion and errors of the identification campaign's trial of its number, as a log of the
arm alone (what it holds counts as its last link), has every base parameter of the arm bounded, and compares the bounds
with the truth in exact fractions. Exit status as of `campaign identification`."""
_REACHABILITY = """Each trial makes up an arm, a motion, a box of parameters, tracking and measurement errors, bodies
and obstacles, has everything enclosed and the plan certified, and climbs, from many starts, towards states, errors and
parameters that leave an enclosure or break a margin; what floats cannot decide is computed in 40 digits. Some 95
enclosures each. Exit status: 0 nothing was violated, 1 something was, 2 wrong arguments, 130 interrupted. With --break:
0, and the table says in how many trials it was noticed."""
_PRINTED = """Each trial makes up ten intervals, a payload and margins of random magnitude and width, has the real
outputs print them (last line and table of `identify`, its page and drawings, payload.urdf, table of a run, view,
margins), reads every number back and compares it with the float behind it, exactly. Exit status: 0 none was rounded
inward, 1 some were, 2 wrong arguments, 130 interrupted. With --break: 0, and it says in how many trials it was
noticed."""
_FORGERIES = """Each trial takes the run directory of a made-up arm, forges it in one way (a published number, a key
that is gone or there twice, a bound that is better in every file, a file of another run, more samples than
certificates, all hashes made right), and asks `verify`. A hundred in a row are of one arm. Exit status: 0 none passed,
1 one did."""
_CONTRADICTIONS = """Each trial identifies a log in which the payload slips, is let go of, or friction grows half-way.
Where no parameters agree with all of it, nothing may be left that passes, nor may what had been certified before, put
back beside the log. Exit status: 0 nothing passed, 1 something did."""
#: As in safe_sysid.studies.campaign.cases.noise, .breaks and .reachability.breaks, which are not imported before they
#: are needed; tests compare them.
_NOISES = ("uniform", "random_sign", "constant", "grow", "shrink", "alternate", "zero", "aimed", "ascent")
_NOTICED = {
    "identification": "an empty set or the truth outside",
    "arm": "an empty set or the truth outside",
    "reachability": "a violated enclosure or margin",
    "printed": "a number that says more than was proved",
}
_TOLD_WRONGLY = (
    "tracking", "measurement", "actuator", "feed_forward", "box", "coulomb", "axis", "gravity", "radius", "payload",
    "inertia", "gears",
)  # fmt: skip
_BREAKS = (
    "bias", "coulomb", "slip", "exchange", "wear", "acceleration", "delay", "gravity", "inertia", "reaction",
    "zero",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what can be attacked, and the options."""
    actions = parser.add_subparsers(dest="action", metavar="WHAT", required=True, parser_class=OneLineParser)
    for name, help_, description in (
        ("identification", "do all published bounds hold the truth?", _IDENTIFICATION),
        ("arm", "do the intervals of an arm's own base parameters hold the truth?", _ARM),
    ):
        parser_of = actions.add_parser(name, help=help_, description=description)
        _add_common(parser_of)
        teeth = parser_of.add_argument_group("break an assumption, to see whether it is noticed")
        teeth.add_argument(
            "--beyond", type=non_negative, default=1.0, metavar="F",
            help="true errors are F times what would be on the declared bound (default: 1)",
        )  # fmt: skip
        teeth.add_argument(
            "--break", dest="broken", choices=_BREAKS, help="docs/understand/campaign.md says by how much"
        )
        if name == "identification":
            parser_of.add_argument(
                "--save-log", type=Path, metavar="FILE.npz",
                help="with --trial: its measurements, with the truth",
            )  # fmt: skip
        parser_of.add_argument("--noise", choices=_NOISES, help="only trials with this kind of errors")
    reachability = actions.add_parser(
        "reachability",
        help="does anything that can happen leave an enclosure or break a certificate?",
        description=_REACHABILITY,
    )
    _add_common(reachability, trials=250)
    reachability.add_argument(
        "--break", dest="broken", choices=_TOLD_WRONGLY,
        help="tell the enclosures something wrong, to see whether it is noticed; docs/understand/campaign.md says what",
    )  # fmt: skip
    printed = actions.add_parser(
        "printed", help="does any number that people read say more than was proved?", description=_PRINTED
    )
    _add_common(printed, trials=1000)
    printed.add_argument(
        "--break", dest="broken", choices=("nearest",), help="round to nearest, to see whether it is noticed"
    )

    for name, help_, description in (
        ("forgeries", "does a forged run directory pass `verify`?", _FORGERIES),
        ("contradictions", "does anything of a log that ends in contradiction pass?", _CONTRADICTIONS),
    ):
        _add_common(actions.add_parser(name, help=help_, description=description), trials=1000)


def _add_common(parser: argparse.ArgumentParser, trials: int = 100) -> None:
    parser.add_argument("--trials", type=at_least(1), default=trials, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="of all trials (default: 0)")
    add_places(parser)
    files = parser.add_argument_group("results")
    files.add_argument("--json", type=Path, metavar="FILE", help="summary and all trials, at the end")
    files.add_argument(
        "--out", type=Path, metavar="FILE",
        help="results as they come, one line each (default: that of --json, ending in .jsonl)",
    )  # fmt: skip
    files.add_argument("--resume", action="store_true", help="go on with the results there are")
    parser.add_argument(
        "--trial", "--only", dest="only", type=at_least(0), metavar="INDEX",
        help="repeat one trial and tell all about it",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run, or go on with, a campaign, or repeat one of its trials."""
    from safe_sysid.studies.campaign.runner import Campaign

    one_thread()
    settings = _settings(options)
    campaign = Campaign(options.action, options.seed, settings)
    if options.only is not None:
        return _repeat(campaign, options)
    return _run(campaign, options)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Options of the kind of trial that the command line asks for."""
    settings: dict[str, Any] = {}
    if options.action in ("forgeries", "contradictions"):
        return settings
    if options.broken:
        settings["break"] = options.broken
    if options.action not in ("identification", "arm"):
        return settings
    if options.beyond != 1.0:
        settings["beyond"] = options.beyond
    if options.noise:
        settings["fixed"] = {"noise": options.noise}
    return settings


def _run(campaign: Campaign, options: argparse.Namespace) -> int:
    from rich.console import Console

    from safe_sysid.studies.campaign.results import CampaignError, write_summary

    summary = campaign.summary()
    out = options.out or (options.json.with_suffix(".jsonl") if options.json else None)
    if options.resume and out is None:
        raise CampaignError("--resume: expected --out FILE or --json FILE, to say what to go on with")
    check_output("--json", options.json)
    check_output("--out", out)
    found, interrupted = collect(campaign, options.trials, out, summary.is_sound, options)
    if options.json is not None:
        write_summary(options.json, summary.as_json(campaign.header(), found))
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    _tell(console, campaign, found)
    if found:
        told = campaign.options or "no options"
        title = f"campaign {campaign.kind}, seed {campaign.seed}, {told}"
        show_table(console, summary.table(found, title))
    attacked = "beyond" in campaign.options or "break" in campaign.options
    if attacked:
        noticed = summary.summarise(found)["noticed"]
        share = 100.0 * noticed / max(len(found), 1)
        console.print(f"noticed in {noticed} of {len(found)} trials ({share:.0f} %): {_NOTICED[campaign.kind]}")
    if interrupted:
        told = f"; go on with --resume (results in {out})" if out else ""
        console.print(f"interrupted after {len(found)} of {options.trials} trials{told}", soft_wrap=True)
        return 130
    wrong = [trial for trial in found if "error" in trial or not (attacked or summary.is_sound(trial))]
    return 1 if wrong else 0


def _tell(console: Console, campaign: Campaign, trials: list[dict[str, Any]], most: int = 20) -> None:
    """The trials in which something was wrong, and how to repeat them; not those that were made to be wrong."""
    summary = campaign.summary()
    if campaign.options.keys() & {"beyond", "break"}:
        wrong = [trial for trial in trials if "error" in trial]
    else:
        wrong = [trial for trial in trials if not summary.is_sound(trial)]
    for trial in wrong[:most]:
        repeat = f"safe-sysid campaign {campaign.kind} --seed {campaign.seed} --trial {trial['index']}"
        console.print(f"trial {trial['index']}: {summary.complaint(trial)}  ({repeat})", soft_wrap=True, markup=False)
    if len(wrong) > most:
        console.print(f"and {len(wrong) - most} more")


def _repeat(campaign: Campaign, options: argparse.Namespace) -> int:
    import json

    if campaign.kind == "identification":
        from safe_sysid.studies.campaign.trial import repeat_trial

        check_output("--save-log", options.save_log)
        result = repeat_trial(campaign.seed, options.only, campaign.options, print, options.save_log)
    else:
        result = campaign.function()(campaign.seed, options.only, campaign.options)
    print(json.dumps(result, indent=1))
    return 0 if campaign.summary().is_sound(result) or campaign.options else 1
