"""What the LIP kernel costs on one core: the kernel matrix, a step of training, a prediction, its variance.

Compiled, as in a controller: a prediction, and its deviation from 60 samples.

    taskset -c 0 python benchmarks/learned_torque.py --joints 7 --samples 500 --batch 100

Times are of the processor, all threads together, so that what else the machine does counts little; set
OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable

import numpy as np

from safe_sysid.learning.gaussian_process.kernels import lip_kernel
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import TorqueProcess, likelihood_gradient
from safe_sysid.learning.lip import TorquePredictor


def seconds(work: Callable[[], object], repeats: int) -> dict[str, float]:
    """Median and 99th percentile, s, after a first call that compiles."""
    work()
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return {"median_s": float(np.median(taken)), "p99_s": float(np.quantile(taken, 0.99))}


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joints", type=int, default=7)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    n, rng = options.joints, np.random.default_rng(0)
    x = MotionSamples(*rng.uniform(-1.5, 1.5, (3, options.samples, n)), [False] * n)
    torque, kernel = rng.normal(size=(options.samples, n)), lip_kernel(n)
    log, noise = kernel.start(x), np.full(n, -4.0)
    some = x[: options.batch]
    result = {"joints": n, "samples": options.samples, "batch": options.batch}
    result["matrix"] = seconds(lambda: kernel.matrix(log, x), options.repeats)
    result["step"] = seconds(
        lambda: likelihood_gradient(kernel, log, noise, some, torque[: options.batch]), options.repeats
    )
    process, one = TorqueProcess(kernel, log, noise, x, torque), x[:1]
    result["prediction"] = seconds(lambda: process.predict(one), 20 * options.repeats)
    result["prediction_with_variance"] = seconds(lambda: process.covariance(one), options.repeats)
    motion = (x.q[0], x.qd[0], x.qdd[0])
    predictor = TorquePredictor(process, np.arange(min(60, options.samples)))
    result["compiled_prediction"] = seconds(lambda: predictor.torque(*motion), 100 * options.repeats)
    result["compiled_deviation"] = seconds(lambda: predictor.deviation(*motion), 10 * options.repeats)
    result["peak_memory_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(result))


if __name__ == "__main__":
    main()
