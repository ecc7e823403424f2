"""The attack on the identifier: nothing gets out of an honest one, and a dishonest one is found."""

from dataclasses import replace

import numpy as np
import pytest
from campaign_support import MUTATIONS, each_trial, enough_noticed, is_noticed, make_dishonest, narrower

from safe_sysid.commands import campaign as command
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations import momentum
from safe_sysid.studies.campaign.breaks import BREAKS, Break
from safe_sysid.studies.campaign.summary import is_sound, summarise
from safe_sysid.studies.campaign.trial import CertificateTrail, attack, build_case, run_trial

#: Torque errors that dominate all others, in the worst direction.
WORST = {"noise": "aimed", "level": "coarse", "rate": 1000.0, "source": "motor", "simulated": False, "lost": False}


def trials(count, options, start=0):
    return list(each_trial(run_trial, count, options, start))


def unsound(results):
    return [r for r in results if not is_sound(r)]


def strip(result):
    return {key: value for key, value in result.items() if key != "seconds"}


def test_nothing_gets_out_of_an_honest_identifier():
    results = trials(3, {}, 100)  # sixty below, thousands by the command
    assert unsound(results) == []
    counts = summarise(results)
    assert counts["trials"] == 3
    assert counts["largest_row"] <= 1.0
    assert counts["median_width"] < 1.0


def test_a_trial_depends_on_its_number_alone():
    options = {"fixed": {"joints": 3, "samples": 100}}
    first, again = run_trial(5, 3, options), run_trial(5, 3, options)
    assert strip(first) == strip(again)
    assert strip(first) != strip(run_trial(6, 3, options))


def test_worst_directions_come_nearer_than_chance():
    nearest = {}
    for noise in ("uniform", "aimed"):
        fixed = WORST | {"noise": noise, "motion": "bang", "joints": 3, "samples": 300, "method": "lp"}
        gaps = [r["gap"] for r in trials(4, {"fixed": fixed | {"ridge": 0.1, "prior": "inside"}})]
        nearest[noise] = np.median([gap for gap in gaps if gap is not None])
    assert nearest["aimed"] < 0.05 * nearest["uniform"]
    assert nearest["aimed"] < 1e-3  # of the prior's width


@pytest.mark.parametrize(("floor", "count"), [(3, 6), pytest.param(8, 16, marks=pytest.mark.slow)])
def test_five_percent_beyond_the_declared_bound_is_noticed(floor, count):
    assert enough_noticed(floor, each_trial(run_trial, count, {"beyond": 1.05, "fixed": WORST}))  # 9 of 16
    assert unsound(trials(count // 2, {"fixed": WORST})) == []


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_dishonest_identifier_is_found_by_six_trials(monkeypatch, name):
    fixed, floor = MUTATIONS[name]
    make_dishonest(monkeypatch, name)
    usual = {"noise": "aimed", "method": "lp", "lost": False, "simulated": False, "updates": 1}
    known = {"ratios": False, "zero": 0.0}  # what is not known of the arm would hide some of it
    assert enough_noticed(floor, each_trial(run_trial, 6, {"fixed": usual | known | fixed}))


def test_an_identifier_that_forgets_what_columns_of_zeros_leave_open_is_found(monkeypatch):
    fixed = {
        "zero": 0.02, "level": "tiny", "noise": "aimed", "method": "lp", "joints": 3, "lost": False, "simulated": False,
        "updates": 1, "prismatic": 0.0,
    }  # fmt: skip
    assert unsound(trials(3, {"fixed": fixed})) == []
    original = momentum.RowSource.__init__

    def forgetful(self, kin, box, errors, run, ramps, log=0, unknowns=None):
        small = replace(unknowns, zero=1e-12 * unknowns.zero)
        original(self, kin, box, errors, run, ramps, log, small)

    monkeypatch.setattr(momentum.RowSource, "__init__", forgetful)
    broken = seen = 0
    for result in each_trial(run_trial, 6, {"fixed": fixed}):
        broken += bool(result["broken_rows"])
        seen += is_noticed(result)
        if broken >= 2 and seen >= 1:
            break
    assert broken >= 2
    assert seen >= 1


def test_a_row_that_the_truth_breaks_is_reported_with_its_window(monkeypatch):
    monkeypatch.setattr(momentum.RowSource, "rows", narrower(0.9))
    broken = next((r for r in each_trial(run_trial, 4, {"fixed": WORST | {"method": "lp"}}) if r["broken_rows"]), None)
    assert broken
    entry = broken["broken_rows"][0]
    assert entry["ratio"] > 1.0
    assert entry["end"] > entry["start"]
    assert sum(entry["parts"].values()) == pytest.approx(1.0 / 0.9, rel=1e-3)


def test_ascent_follows_the_published_proof():
    fixed = WORST | {"noise": "ascent", "method": "lp", "joints": 3, "motion": "bang", "updates": 1}
    said = []
    attack(build_case(0, 1, {"fixed": fixed}), said.append)
    assert len([line for line in said if line.startswith("solve")]) >= 3


@pytest.mark.parametrize("name", ["bias", "coulomb", "delay", "gravity", "inertia", "slip"])
def test_broken_assumptions_are_noticed(name):
    fixed = {"level": "usual", "motion": "quintic", "rate": 1000.0, "samples": 300, "method": "lp", "joints": 4}
    options = {"break": name, "fixed": fixed | {"coulomb": 0.5, "chain": "random"}}
    assert enough_noticed(2, each_trial(run_trial, 5, options))


def test_windows_that_contradict_the_acceleration_bound_are_left_out():
    fixed = {"level": "tiny", "motion": "bang", "noise": "zero", "lost": False, "rate": 200.0, "effort": "held"}
    results = trials(4, {"break": "acceleration", "fixed": fixed})
    assert all(r["rejected"] > 0 for r in results)
    assert not any(r["exclusions"] for r in results)


def test_breaks_have_one_list_of_names():
    assert tuple(BREAKS) == command._BREAKS
    with pytest.raises(ParameterError, match="break"):
        Break.named("luck")


def test_certificates_and_tares_are_on_trial_too(monkeypatch):
    fixed = WORST | {"joints": 3, "motion": "bang", "samples": 150, "tare": True, "certified": True, "updates": 2}
    assert is_sound(run_trial(0, 5, {"fixed": fixed}))
    seen = CertificateTrail.add

    def with_another_log(self, result, samples):
        seen(self, result, samples)
        m = self._log
        self._log = replace(m, effort=m.effort + 1e-3)

    monkeypatch.setattr(CertificateTrail, "add", with_another_log)
    assert "certificate" in run_trial(0, 5, {"fixed": fixed})["faults"][0]


@pytest.mark.slow
def test_sixty_trials():
    results = trials(60, {}, 1000)
    assert unsound(results) == []
    assert summarise(results)["largest_row"] > 0.99  # the attack reaches what is allowed
