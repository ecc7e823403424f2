"""Training of hybrid models: Adam over batches of sequences, early stopping, checkpoints that survive a kill."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ConfigError, ParameterError
from safe_sysid.learning.neural.dataset import INDEX, Dataset, MeasuredMotion
from safe_sysid.learning.neural.models import MODELS, SEEN, Learned, ModelKind
from safe_sysid.learning.neural.scaling import scaling_of
from safe_sysid.learning.neural.training.delan import DeLaN
from safe_sysid.learning.neural.training.networks import Feedforward, Recurrent
from safe_sysid.learning.neural.training.rigid import Barycentric, NewtonEuler, SmoothCoulombFriction
from safe_sysid.learning.neural.training.sequences import Batch, Sequences, arm_basis, torques_of
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import pseudo_inertia
from safe_sysid.whole_files import replacing

__all__ = ["Epoch", "HybridNetwork", "Schedule", "Trained", "check_device", "fit"]

#: Updates of an epoch of the paper: 135,210 sequences in batches of 1000.
_UPDATES = 135
CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True)
class Schedule:
    """How it is trained [Hybrid section IV, Table IV]."""

    rate: float | None = None  #: of Adam; None: 0.004, or 0.001 of a Deep Lagrangian network
    #: sequences of a batch; None: 1000, or fewer where there is less data, so that an epoch has as many updates as the
    #: paper's
    batch: int | None = None
    steps: int = 100  #: of a sequence; models without memory learn from single samples
    patience: int = 30  #: epochs without a better validation loss after which it ends: 10 of Table I, 30 of Table II
    slower_after: int = 30  #: epochs after which the rate is a tenth
    epochs: int = 1000  #: at most
    #: of a step of the network, s; 0: a tick, as in [Hybrid], where 100 steps are a tenth of a second, and a joint that
    #: sticks is forgotten before it slips
    period: float = 0.01
    #: what a network beside a rigid arm sees, one of :data:`~safe_sysid.learning.neural.models.SEEN`; one alone sees
    #: positions
    sees: str = SEEN[0]

    @classmethod
    def as_paper(cls, patience: int = 30) -> Schedule:
        """Networks see positions and step at every tick, as in [Hybrid]. ``patience``: as the attribute."""
        return cls(patience=patience, period=0.0, sees="positions")

    def __post_init__(self) -> None:
        """Validate.

        Raises:
            ParameterError: a number that has no meaning.
        """
        for name in ("batch", "steps", "patience", "slower_after", "epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ParameterError(f"{name} = {value!r}: expected at least 1")
        if self.rate is not None and not 0.0 < self.rate < np.inf:
            raise ParameterError(f"rate = {self.rate!r}: expected a number > 0")
        if not 0.0 <= self.period < np.inf or self.sees not in SEEN:
            raise ParameterError(
                f"period = {self.period!r}, sees = {self.sees!r}: expected a number >= 0 and {' or '.join(SEEN)}"
            )


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to."""

    number: int  #: from 1
    train: float  #: mean loss of its batches
    validation: float  #: loss after it
    rigid: float | None  #: validation loss of the rigid part (with friction) alone; None without one
    #: smallest of all links' pseudo-inertias, relative to the link's largest; None without a rigid part
    eigenvalue: float | None
    seconds: float  #: since training began, earlier runs included


@dataclass(frozen=True, eq=False)
class Trained:
    """The best epoch of a training."""

    learned: Learned  #: the model; of a Deep Lagrangian network only its residual network
    history: tuple[Epoch, ...]  #: of all epochs
    #: (N, n) torque along a motion where ``learned`` does not say all of it; None where it does
    predict: Callable[[MeasuredMotion], FloatArray] | None
    ended: str  #: why: "early stopping", "epochs" or "time"


class HybridNetwork(nn.Module):
    """Rigid part, friction and network of one kind, in units of the torque's range."""

    def __init__(
        self, kind: ModelKind, model: RobotModel, basis: FloatArray | None, torque_range: FloatArray, frozen: bool
    ) -> None:
        """At the start of training.

        Args:
            kind: what it consists of.
            model: of the arm.
            basis: of regressors.
            torque_range: (n,) N m.
            frozen: the rigid part and friction are known, and not here.
        """
        super().__init__()
        n = model.n
        self.rigid: nn.Module | None = None
        if not frozen and kind.rigid == "bary" and basis is not None:
            self.rigid = Barycentric(n, basis).double()
        elif not frozen and kind.rigid == "nea":
            self.rigid = NewtonEuler(model.kinematics).double()
        elif not frozen and kind.rigid == "delan":
            self.rigid = DeLaN(n)
        self.friction = SmoothCoulombFriction(n) if kind.friction and not frozen else None
        self.network: nn.Module | None = None
        if kind.network is not None:
            self.network = (Recurrent if kind.network == "lstm" else Feedforward)(3 * n, n)
        self.register_buffer("unit", torch.as_tensor(1.0 / torque_range, dtype=torch.float32))
        self.unit: Tensor

    def parts(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Torque (B, T, n) in units of its range: of rigid part and friction, and of the network."""
        torque = torch.zeros_like(batch.target)
        if isinstance(self.rigid, Barycentric) and batch.regressor is not None:
            links = self.rigid.links().reshape(-1) @ self.rigid.basis
            torque = torque + (batch.regressor @ links.to(torque.dtype)) * self.unit
        elif isinstance(self.rigid, NewtonEuler):
            q, qd, qdd = (x.flatten(0, 1).double() for x in batch.states)
            torque = torque + self.rigid(q, qd, qdd).to(torque.dtype).reshape(torque.shape) * self.unit
        elif self.rigid is not None:
            # In units of the range: one network for torques of very different sizes learns the small ones, too.
            q, qd, qdd = (x.flatten(0, 1) for x in batch.states)
            torque = torque + self.rigid(q, qd, qdd).reshape(torque.shape)
        if self.friction is not None:
            torque = torque + self.friction(batch.sign) * self.unit
        if self.network is None:
            return torque, torch.zeros_like(torque)
        return torque, self.network(batch.x)[0]

    def theta(self, known: FloatArray) -> FloatArray | None:
        """(14 n,) rigid parameters; None without a rigid part of bodies. ``known``: (14 n,) of what was not learned."""
        if not isinstance(self.rigid, Barycentric | NewtonEuler):
            return None
        theta = np.array(known)
        layout = ParameterLayout.of_size(len(theta))
        theta[layout.links] = self.rigid.links().detach().cpu().numpy().ravel()
        if self.friction is not None:
            theta[layout.coulomb] += self.friction.coulomb().detach().cpu().numpy()
        return theta


def smallest_eigenvalue(theta: FloatArray) -> float:
    """Of all links' pseudo-inertias, each divided by its largest one. ``theta``: (14 n,)."""
    layout = ParameterLayout.of_size(len(theta))
    values = [np.linalg.eigvalsh(pseudo_inertia(theta[layout.link(j)])) for j in range(layout.n)]
    return float(min(v[0] / v[-1] for v in values))


def check_device(device: str) -> None:
    """Refuse a graphics card that torch does not find.

    Raises:
        ParameterError: it does not.
    """
    if device != "cpu" and not torch.cuda.is_available():
        raise ParameterError(f"--device {device}: torch {torch.__version__} finds none here: expected cpu")


@contextmanager
def _deterministic(seed: int) -> Iterator[None]:
    """Within, the same numbers every time on one device with one number of threads."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)


def fit(
    name: str,
    dataset: Dataset,
    model: RobotModel,
    *,
    seed: int,
    theta: FloatArray | None = None,
    schedule: Schedule | None = None,
    out: Path | None = None,
    progress: Callable[[Epoch], None] | None = None,
    max_minutes: float | None = None,
    device: str = "cpu",
    threads: int | None = None,
) -> Trained:
    """Train a model.

    Args:
        name: in :data:`~safe_sysid.learning.neural.models.MODELS`.
        dataset: with trajectories for training and validation.
        model: of the arm: its kinematics, and rotor inertias, which are not learned.
        seed: of weights and of the order of batches.
        theta: (14 n,) rigid parameters and friction of two steps; None: learned end to end.
        schedule: of training; None: the paper's.
        out: directory of the checkpoint, from which an interrupted training goes on; None: none.
        progress: called after each epoch.
        max_minutes: the training ends after this time; None: when validation does not get better any more.
        device: "cpu" or "cuda".
        threads: of torch on the processor; None: as torch has them.

    Raises:
        ParameterError: an unknown model, other joints, a loss that is not finite, or too little data.
        ConfigError: the data cannot be used, or the checkpoint is of another training.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    if name not in MODELS:
        raise ParameterError(f"model {name!r}: expected one of {', '.join(MODELS)}")
    if dataset.joints != tuple(model.joint_names):
        ours, theirs = ", ".join(dataset.joints), ", ".join(model.joint_names)
        raise ParameterError(f"{dataset.folder}: joints {ours}: expected those of {model.name}, {theirs}")
    return _TrainingRun(name, dataset, model, seed, theta, schedule or Schedule(), out, device).run(
        progress, max_minutes
    )


class _TrainingRun:
    """One training, from its data on."""

    def __init__(
        self,
        name: str,
        dataset: Dataset,
        model: RobotModel,
        seed: int,
        theta: FloatArray | None,
        schedule: Schedule,
        out: Path | None,
        device: str,
    ) -> None:
        self.name, self.dataset, self.model, self.seed, self.theta = name, dataset, model, seed, theta
        self.kind, self.device = MODELS[name], device
        self.schedule = schedule
        self.scaling = scaling_of(dataset)
        self.known = rotors_alone(model)
        self.path = None if out is None else out / CHECKPOINT
        frozen = theta is not None
        needs = self.kind.rigid == "bary" and not frozen
        basis = arm_basis(model.kinematics) if needs else None
        subtracted = theta if frozen else self.known if self.kind.rigid is not None else None
        steps = schedule.steps if self.kind.network == "lstm" else 1
        self.sees = schedule.sees if self.kind.rigid is not None else "positions"
        self.every = max(1, round(schedule.period * dataset.rate_hz))
        self.train, self.validation = (
            Sequences(
                dataset, split, steps, self.scaling, model.kinematics,
                lambda motion: torques_of(model.kinematics, subtracted, motion), basis, device,
                sees=self.sees, every=self.every,
            )
            for split in ("train", "validation")
        )  # fmt: skip
        most = 1000 if schedule.batch is None else schedule.batch
        self.batch = most if schedule.batch else max(1, min(most, len(self.train) // _UPDATES))
        with _deterministic(seed):
            self.net = HybridNetwork(self.kind, model, basis, self.scaling.torque_range, frozen).to(device)
        rate = schedule.rate or (0.001 if self.kind.rigid == "delan" else 0.004)
        self.adam = torch.optim.Adam(self.net.parameters(), lr=rate)
        self.slower = torch.optim.lr_scheduler.MultiStepLR(self.adam, [schedule.slower_after], 0.1)
        self.order = torch.Generator().manual_seed(seed)
        self.history: list[Epoch] = []
        self.best: dict[str, Tensor] = {}
        self.header = json.dumps(
            {
                "name": name, "seed": seed, "schedule": asdict(schedule), "batch": self.batch,
                "data": hashlib.sha256((dataset.folder / INDEX).read_bytes()).hexdigest(),
                "units": hashlib.sha256(self.scaling.deviation.tobytes()).hexdigest(),
                "theta": None if theta is None else hashlib.sha256(theta.tobytes()).hexdigest(),
            },
            sort_keys=True,
        )  # fmt: skip

    def run(self, progress: Callable[[Epoch], None] | None, max_minutes: float | None) -> Trained:
        if next(self.net.parameters(), None) is None:
            raise ParameterError(f"model {self.name} in two steps: nothing is left to train")
        self._resume()
        begin = time.perf_counter() - (self.history[-1].seconds if self.history else 0.0)
        end = np.inf if max_minutes is None else time.perf_counter() + 60.0 * max_minutes
        with _deterministic(self.seed):
            while not (ended := self._ended()):
                train = self._epoch(end)
                validation, rigid = self._validate()
                theta = self.net.theta(self.known)
                eigenvalue = None if theta is None else smallest_eigenvalue(theta)
                if eigenvalue is not None and not eigenvalue > 0.0:
                    raise ParameterError(
                        f"epoch {len(self.history) + 1}: links that no arm has: a defect of this program"
                    )
                epoch = Epoch(len(self.history) + 1, train, validation, rigid, eigenvalue, time.perf_counter() - begin)
                if not np.isfinite(validation):
                    raise ParameterError(f"epoch {epoch.number}: validation loss {validation}: expected a smaller rate")
                if not self.history or validation < min(e.validation for e in self.history):
                    self.best = {k: v.detach().clone() for k, v in self.net.state_dict().items()}
                self.history.append(epoch)
                self.slower.step()
                self._keep()
                if progress is not None:
                    progress(epoch)
                if time.perf_counter() > end:
                    ended = "time"
                    break
        self.net.load_state_dict(self.best)
        return self._trained(ended)

    def _ended(self) -> str:
        losses = [epoch.validation for epoch in self.history]
        if losses and len(losses) - 1 - int(np.argmin(losses)) >= self.schedule.patience:
            return "early stopping"
        return "epochs" if len(losses) >= self.schedule.epochs else ""

    def _epoch(self, end: float) -> float:
        self.net.train()
        order = torch.randperm(len(self.train), generator=self.order).to(self.device)
        losses = []
        for index in order.split(self.batch):
            batch = self.train.batch(index)
            self.adam.zero_grad()
            rigid, network = self.net.parts(batch)
            loss = torch.mean((rigid + network - batch.target) ** 2)
            loss.backward()
            self.adam.step()
            losses.append(loss.detach())
            if time.perf_counter() > end:
                break
        return float(torch.stack(losses).mean())

    def _validate(self) -> tuple[float, float | None]:
        self.net.eval()
        whole, alone, count = 0.0, 0.0, len(self.validation)
        size = 1000 if self.kind.network == "lstm" else 20_000
        with torch.no_grad():
            for index in torch.arange(count, device=self.device).split(size):
                batch = self.validation.batch(index)
                rigid, network = self.net.parts(batch)
                whole += len(index) * float(torch.mean((rigid + network - batch.target) ** 2))
                alone += len(index) * float(torch.mean((rigid - batch.target) ** 2))
        has_rigid = self.kind.rigid is not None
        return whole / count, alone / count if has_rigid else None

    def _keep(self) -> None:
        if self.path is None:
            return
        told = {
            "header": self.header, "net": self.net.state_dict(), "best": self.best, "adam": self.adam.state_dict(),
            "slower": self.slower.state_dict(), "order": self.order.get_state(),
            "history": json.dumps([asdict(epoch) for epoch in self.history]),
        }  # fmt: skip
        with replacing(self.path) as temporary:
            torch.save(told, temporary)

    def _resume(self) -> None:
        if self.path is None or not self.path.exists():
            return
        try:
            told = torch.load(self.path, map_location=self.device, weights_only=True)
            same = told["header"] == self.header
        except Exception as error:  # whatever torch says of a file that it did not write
            raise ConfigError(str(self.path), "checkpoint", type(error).__name__, "one that was written here") from None
        if not same:
            raise ConfigError(str(self.path), "checkpoint", told["header"], f"that of the same training, {self.header}")
        self.net.load_state_dict(told["net"])
        self.adam.load_state_dict(told["adam"])
        self.slower.load_state_dict(told["slower"])
        self.order.set_state(told["order"].cpu())
        self.best = told["best"]
        self.history = [Epoch(**epoch) for epoch in json.loads(told["history"])]

    def _trained(self, ended: str) -> Trained:
        theta = self.theta if self.theta is not None else self.net.theta(self.known)
        weights: dict[str, FloatArray] = {}
        if self.net.network is not None:
            weights = {k: v.double().cpu().numpy() for k, v in self.net.network.state_dict().items()}
        learned = Learned(
            self.name,
            "e2e" if self.theta is None else "2s",
            self.seed,
            self.dataset.joints,
            self.dataset.rate_hz,
            theta,
            self.scaling,
            weights,
            {"robot": self.dataset.robot, "epochs": str(len(self.history)), "ended": ended},
            self.sees,
            self.every if weights else 1,
        )
        delan = self.net.rigid
        predict = None
        if isinstance(delan, DeLaN):
            net, scale = delan.cpu(), self.scaling.torque_range

            def predict(motion: MeasuredMotion) -> FloatArray:
                known = torques_of(self.model.kinematics, self.known, motion)
                parts = []
                for at in range(0, len(motion), 10_000):
                    state = [
                        torch.tensor(x[at : at + 10_000], dtype=torch.float32)
                        for x in (motion.q, motion.qd, motion.qdd)
                    ]
                    parts.append(net(*state).detach().double().numpy() * scale)
                return known + np.concatenate(parts)

        return Trained(learned, tuple(self.history), predict, ended)


def rotors_alone(model: RobotModel) -> FloatArray:
    """(14 n,) the arm's rotor inertias as its file says, and nothing else. ``model``: of the arm."""
    theta = np.zeros(model.layout.size)
    theta[model.layout.rotor_inertia] = model.theta_nominal[model.layout.rotor_inertia]
    return theta
