"""Bags of an identification without ROS: a session that keeps a journal, as messages that a test may then change."""

from __future__ import annotations

import argparse
import functools
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from identification_plant import exciting_plans, noisy, simulate
from log_support import joint_state, outcome
from rosbags.typesys import Stores, get_typestore

from safe_sysid.commands import replay as command
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.bags.bag_writer import BagWriter
from safe_sysid.logs.online.configuration import configuration_text
from safe_sysid.logs.online.session import IdentifierSession
from safe_sysid.robot import load_robot

STORE = get_typestore(Stores.ROS2_JAZZY)
TEXT, ARRAY, STATE = "std_msgs/msg/String", "std_msgs/msg/Float64MultiArray", "sensor_msgs/msg/JointState"
PIECE = 250
ROBOT = "three_joint"  # three joints: linear programs of milliseconds


@functools.lru_cache(maxsize=1)
def robot():
    return load_robot(ROBOT)


def truth():
    """(42,) what the arm is: all in the middle of what is known."""
    model = robot()
    theta = model.theta_nominal.copy()
    theta[model.layout.payload] = model.arm_prior.mid[model.layout.payload]
    return theta


@functools.lru_cache(maxsize=2)
def measured(scale=1.0):
    """1.5 s of a motion, with noise of ``scale`` times the declared bounds."""
    model, rng, theta = robot(), np.random.default_rng(0), truth()
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=1, t_f=2.0, t_p=1.5, amplitude=0.3)
    log = simulate(model.kinematics, theta, model.friction_transition_velocity, plans, rng=rng)
    m = model.settings.measurement
    return noisy(log, scale * m.torque_abs, scale * m.torque_rel, rng)


@dataclass(frozen=True)
class Message:
    """What a bag has: a topic, its type, and either a text or bytes."""

    topic: str
    kind: str
    data: bytes
    text: str = ""


def text_message(topic, text):
    return Message(topic, TEXT, STORE.serialize_cdr(STORE.types[TEXT](text), TEXT), text)


def bounds_message(topic, box, nominal, batch):
    types = STORE.types
    dim, layout = types["std_msgs/msg/MultiArrayDimension"], types["std_msgs/msg/MultiArrayLayout"]
    middle = box.mid.copy()
    middle[box.layout.payload] = nominal
    data = np.concatenate([box.lower, middle, box.upper])
    label = "digest:abc" if batch is None else f"batch:{batch};digest:abc"
    dims = [dim(box.identity, 3, 3 * box.size), dim(label, box.size, box.size)]
    return Message(topic, ARRAY, STORE.serialize_cdr(types[ARRAY](layout(dims, 0), data), ARRAY), box.identity)


class Run:
    """A session whose samples, journal and bounds are kept as messages, in the order in which they were sent."""

    def __init__(self, namespace="", origin_ns=0, **options):
        self.namespace, self.origin = namespace, origin_ns
        self.messages = []
        self.session = IdentifierSession(robot(), "lp", tell=self._tell, **options)
        if self.session.known is not None:
            self.publish(self.session.current_result(), None)

    def _tell(self, entry):
        self.messages.append(text_message(f"{self.namespace}/identifier/journal", entry))

    def configuration(self, lockstep=True, **changes):
        model = robot()
        text = configuration_text(
            f"{self.namespace}/identifier", "identifier", model, robot=ROBOT, lockstep=lockstep, parameters={}
        )
        for old, new in changes.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        return text_message(f"{self.namespace}/identifier/configuration", text)

    def add(self, measurements, stray=()):
        """Samples, as messages first and then as a piece; ``stray``: indices that the identifier never gets."""
        stamps = self.origin + np.rint(measurements.stamps * 1e9).astype(np.int64)
        for k, stamp in enumerate(stamps.tolist()):
            rows = (measurements.q[k], measurements.qd[k], measurements.effort[k])
            raw = joint_state(STORE, stamp, robot().joint_names, *rows)
            self.messages.append(Message(f"{self.namespace}/joint_states", STATE, bytes(raw)))
        kept = np.setdiff1d(np.arange(len(measurements)), stray)
        # As the node does: seconds are made of the whole nanoseconds of a message.
        seconds = (stamps[kept] - self.origin) / 1e9
        piece = Measurements(seconds, measurements.q[kept], measurements.qd[kept], measurements.effort[kept])
        self.session.add(piece, self.origin)

    def update(self, batch):
        self.publish(self.session.update(batch), batch)

    def reset(self, epoch):
        self.session.reset(epoch)
        self.publish(self.session.current_result(), None)

    def publish(self, result, batch):
        self.messages.append(bounds_message(f"{self.namespace}/bounds", result.box, result.nominal, batch))


def pieces(count, start=0):
    log = measured()
    return [log[k * PIECE : (k + 1) * PIECE] for k in range(start, start + count)]


def two_epochs(**options):
    """Two updates, another payload, one more update; the end."""
    run = Run(**options)
    for batch, part in enumerate((pieces(2), pieces(2, 2)), 1):
        for piece in part:
            run.add(piece, stray=(7, 8) if batch == 2 else ())
        run.update(batch)
    run.reset(1)
    for piece in pieces(2, 4):
        run.add(piece)
    run.update(3)
    run.session.close()
    return run, [run.configuration(), *run.messages]


def write(path, messages, compression="none", close=True):
    """A bag of messages, a millisecond apart."""
    writer = BagWriter(path, compression)
    topics = {}
    for k, message in enumerate(messages):
        if message.topic not in topics:
            topics[message.topic] = writer.topic(message.topic, message.kind)
        writer.write(topics[message.topic], 10**9 + 10**6 * k, message.data)
    if close:
        writer.close()
    else:
        writer.flush()
    return Path(path)


def run_replay(*arguments):
    """(exit status, or the one line of an error)."""
    parser = argparse.ArgumentParser()
    command.configure(parser)
    before = dict(os.environ)
    try:
        status, text = outcome(command.run, parser.parse_args([str(argument) for argument in arguments]))
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert text is None or "\n" not in text
    return status if text is None else text


def changed(message, at, value):
    """The message with one byte replaced."""
    return replace(message, data=message.data[:at] + bytes([value]) + message.data[at + 1 :])
