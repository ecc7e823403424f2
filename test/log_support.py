"""Logs for the tests of `safe_sysid.logs`: one simulated run, and writers of every format in any order of joints."""

from __future__ import annotations

import contextlib
import functools

import numpy as np
import pytest
from identification_plant import exciting_plans, noisy, simulate

from safe_sysid.cli import main
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.robot import load_robot
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import dumbbell

JOINTS = tuple(f"joint_{i + 1}" for i in range(7))
EPOCH_NS = 1_700_000_000_000_000_000


@functools.lru_cache(maxsize=1)
def robot():
    return load_robot("kinova_gen3")


@functools.lru_cache(maxsize=2)
def true_log(seed=0, chatter=0.5):
    """(theta, log without noise) of a 3 s run with an 8 lb dumbbell."""
    model, rng = robot(), np.random.default_rng(seed)
    theta = draw_truth(model, dumbbell(8), rng, "uniform")
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=2, t_f=2.0, t_p=1.0, amplitude=0.4)
    v_c = model.friction_transition_velocity
    return theta, simulate(model.kinematics, theta, v_c, plans, rng=rng, chatter=chatter)


@functools.lru_cache(maxsize=4)
def measured(scale=1.0, link=False):
    """The run with noise of ``scale`` times the declared bounds."""
    return noisy(true_log()[1], 0.05 * scale, 0.025 * scale, np.random.default_rng(1), link=link)


def random_measurements(rng, count=50, n=7):
    """Numbers without meaning, for round trips."""
    stamps = np.cumsum(rng.uniform(0.5e-3, 1.5e-3, count))
    return Measurements(stamps, *rng.normal(size=(3, count, n)))


def write_csv(path, stamps, columns, delimiter=","):
    """``columns``: {name: (N,)}; every number with all its digits."""
    names = list(columns)
    with path.open("w") as file:
        file.write(delimiter.join(["time", *names]) + "\n")
        for k, stamp in enumerate(stamps):
            cells = [stamp, *(columns[name][k] for name in names)]
            file.write(delimiter.join(c if isinstance(c, str) else repr(float(c)) for c in cells) + "\n")


def csv_columns(measurements, style, order=None, joints=JOINTS):
    """Columns named in one of the known styles: a function (word, joint, index) -> name."""
    order = range(len(joints)) if order is None else order
    words = {"position": measurements.q, "velocity": measurements.qd, "effort": measurements.effort}
    return {style(word, joints[j], j): values[:, j] for j in order for word, values in words.items()}


def write_bag(path, measurements, names, columns, plugin="mcap", topic="/joint_states", more=(), compression=None):
    """A bag; ``columns[i]`` says which joint ``names[i]`` is, -1 for a stranger. ``more``: (topic, type, messages)."""
    from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    plugins = {"mcap": StoragePlugin.MCAP, "sqlite3": StoragePlugin.SQLITE3}
    writer = Writer(path, version=9, storage_plugin=plugins[plugin])
    if compression is not None:
        writer.set_compression(CompressionMode[compression], CompressionFormat.ZSTD)
    with writer:
        connection = writer.add_connection(topic, "sensor_msgs/msg/JointState", typestore=store)
        for k in range(len(measurements)):
            stamp = EPOCH_NS + round(float(measurements.stamps[k]) * 1e9)
            rows = [
                np.array([0.5 if c < 0 else x[k, c] for c in columns])
                for x in (measurements.q, measurements.qd, measurements.effort)
            ]
            raw = joint_state(store, stamp, names, *rows)
            # Receive times are later, and shuffled a little: they must not be taken for stamps.
            writer.write(connection, EPOCH_NS + 10**6 * (k + 1) + 50_000, raw)
        for name, kind, messages in more:
            other = writer.add_connection(name, kind, typestore=store)
            for at, raw in messages:
                writer.write(other, at, raw)
    return path


def joint_state(store, stamp_ns, names, q, qd, effort, frame="base"):
    kind = store.types["sensor_msgs/msg/JointState"]
    header, time = store.types["std_msgs/msg/Header"], store.types["builtin_interfaces/msg/Time"]
    head = header(time(stamp_ns // 10**9, stamp_ns % 10**9), frame)
    arrays = [np.asarray(x, np.float64) for x in (q, qd, effort)]
    return store.serialize_cdr(kind(head, list(names), *arrays), "sensor_msgs/msg/JointState")


@contextlib.contextmanager
def without_pictures():
    """Reports have no pictures, a third of an identification's time; those of arms have empty ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)
        patch.setattr("safe_sysid.report.identification.output.residuals", lambda log, model, box: None)
        patch.setattr("safe_sysid.report.identification.html.narrowing_drawing", lambda *arguments: None)
        yield


def run_identify(*arguments, pictures=False, command="identify"):
    """Exit status of the command."""
    with contextlib.nullcontext() if pictures else without_pictures():
        return main([command, *(str(argument) for argument in arguments)])


def outcome(function, *arguments):
    """(result, None), or (None, the one line that says why not); any other exception passes through."""
    try:
        return function(*arguments), None
    except SafeSysIdError as error:
        return None, str(error)
