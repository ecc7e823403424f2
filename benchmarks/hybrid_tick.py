"""What a tick of a hybrid model costs on one core, of the paper's sizes and seven joints, as a controller calls it.

    taskset -c 0 python benchmarks/hybrid_tick.py --ticks 20000

Wall time between calls of `HybridResidual.predict`, which knows the desired motion and remembers the ticks before;
weights are random, which costs the same. `--write FILE` keeps the model with memory, for `realtime.py run --robots`:
with a copy of config/kinova_gen3.yaml that has, below `controller`, `feed_forward: {name: residual, residual: hybrid,
file: FILE, bound: 0.2}` (an absolute path; larger bounds leave that arm no torque to hold every payload).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from safe_sysid.learning.neural.file import write_hybrid
from safe_sysid.learning.neural.models import Learned, Scaling
from safe_sysid.learning.neural.stepping import HybridResidual, SteppingModel
from safe_sysid.robot import load_robot


def weights(network: str, n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random ones, of the shapes of Table IV."""
    width, memory = (200, 0) if network == "mlp" else (100, 50)
    shapes = {"first.weight": (width, 3 * n), "first.bias": (width,), "slope.weight": (1,)}
    if network == "mlp":
        shapes |= {"second.weight": (width, width), "second.bias": (width,), "last.weight": (n, width)}
    else:
        shapes |= {f"{a}.{b}": (width,) for a in ("norm", "norm_after") for b in ("weight", "bias")}
        shapes |= {"memory.weight_ih_l0": (4 * memory, width), "memory.weight_hh_l0": (4 * memory, memory)}
        shapes |= {"memory.bias_ih_l0": (4 * memory,), "memory.bias_hh_l0": (4 * memory,), "last.weight": (n, memory)}
    return {name: 0.1 * rng.normal(size=shape) for name, shape in {**shapes, "last.bias": (n,)}.items()}


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--ticks", type=int, default=20_000)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    model, rng = load_robot(options.robot), np.random.default_rng(0)
    n, told = model.n, {}
    scaling = Scaling(
        np.zeros(3 * n), np.ones(3 * n), np.full(3 * n, -9.0), np.full(3 * n, 9.0), np.zeros(n), np.ones(n)
    )
    for name in ("rbd_sign_lstm", "rbd_sign_mlp", "rbd_sign"):
        network = None if name == "rbd_sign" else name.rpartition("_")[2]
        learned = Learned(
            name, "e2e", 0, tuple(model.joint_names), 1000.0, np.array(model.theta_nominal), scaling,
            {} if network is None else weights(network, n, rng),
        )  # fmt: skip
        if options.write is not None and network == "lstm":
            write_hybrid(options.write, learned)
        stepping = SteppingModel(learned, model.kinematics, model.theta_nominal, model.friction_transition_velocity)
        residual, taken = HybridResidual(stepping), np.empty(options.ticks)
        motion = 0.5 * np.sin(1e-3 * np.arange(options.ticks)[:, None] + np.arange(n))
        for k in range(options.ticks):
            start = time.perf_counter()
            residual.predict(motion[k], motion[k], motion[k])
            taken[k] = time.perf_counter() - start
        told[name] = {"median_us": 1e6 * float(np.median(taken)), "p99_us": 1e6 * float(np.quantile(taken, 0.99))}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
