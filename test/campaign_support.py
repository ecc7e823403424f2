"""Trials of a campaign, what counts as noticed, and dishonest identifiers for it to notice."""

import itertools
from dataclasses import replace

import numpy as np

from safe_sysid.identification.equations import momentum
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES


def each_trial(run_trial, count, options, start=0):
    return (run_trial(0, i, options) for i in range(start, start + count))


def is_noticed(result):
    """By what is published: an empty set, or the truth outside."""
    return bool(result["empty"] or result["exclusions"])


def enough_noticed(floor, results):
    """At least so many: trials after those that decide it are not run."""
    return len(list(itertools.islice(filter(is_noticed, results), floor))) == floor


def narrower(factor):
    """Rows whose error is understated."""
    original = momentum.RowSource.rows

    def rows(self, windows, ramp):
        found = original(self, windows, ramp)
        return replace(found, slack=factor * found.slack)

    return rows


def _without(cause):
    original = momentum.RowSource.rows

    def rows(self, windows, ramp):
        found = original(self, windows, ramp)
        rest = found.slack - found.parts[:, ERROR_CAUSES.index(cause)]
        return replace(found, slack=np.maximum(rest, 1e-12))

    return rows


def _share_of_the_measured(tau_m, e):
    tau_m = np.asarray(tau_m, float)
    return tau_m, e.torque_abs + e.torque_drift + e.torque_rel * np.abs(tau_m)


#: Ways of an identifier to be dishonest: settings of trials that find it, and how many of six do.
MUTATIONS = {
    "quadrature": ({"level": "tiny", "motion": "bang", "rate": 100.0}, 3),
    "coulomb": (
        {"level": "tiny", "motion": "creep", "law": "stick", "source": "motor", "coulomb": 4.0, "transition": 0.02},
        4,
    ),
    "momentum": ({"level": "states"}, 3),
    "stamps": ({"level": "clock", "effort": "held"}, 2),
    "slack * 0.9": ({"level": "coarse"}, 4),
    "b, not b/(1-b)": ({"level": "coarse", "source": "motor", "rate": 1000.0}, 4),
}  # fmt: skip


def make_dishonest(monkeypatch, name):
    """One of the above."""
    if name == "b, not b/(1-b)":
        monkeypatch.setattr(momentum, "torque_interval", _share_of_the_measured)
    else:
        monkeypatch.setattr(momentum.RowSource, "rows", narrower(0.9) if "*" in name else _without(name))
