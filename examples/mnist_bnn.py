"""A Bayesian neural network on MNIST: what averaging over the posterior does for accuracy and calibration.

    python examples/mnist_bnn.py             all images, 784-100-10: some minutes
    python examples/mnist_bnn.py --quick     2,000 images, 784-30-10: seconds

The run is kept in a folder: after a kill, the same command goes on where it was. The last lines compare the average
over the posterior with one draw from it, with the posterior's mode, and with what people train, maximum likelihood;
these two are found by Adam with as many gradients. Averaging makes much of single draws; against an optimiser that
suits the problem it has more to win where data are few. reliability.png shows how often each is right when it says that
it is so sure.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
import optax

import strang
from strang import calibration
from strang.gradients.full import batch_gradient
from strang.report.figures import png
from strang.report.panels import Panel, Series


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few images and a small network")
    parser.add_argument("--data", type=Path, help="a folder of MNIST's files; by default they are fetched")
    parser.add_argument("--out", type=Path, help="the run's folder; by default runs/mnist or runs/mnist-quick")
    given = parser.parse_args()
    out = given.out or Path("runs") / ("mnist-quick" if given.quick else "mnist")

    digits = strang.data.images.digits(given.data)
    rows = len(digits.train[0]) if not given.quick else 2000
    train = tuple(array[:rows] for array in digits.train)
    images, labels = digits.test
    hidden, chains, steps = (30, 2, 1500) if given.quick else (100, 2, 9000)

    widths = (images.shape[1], hidden, 10)
    model = strang.models.BNN(widths, prior_sd=5.0)
    data = strang.data.arrays(train, batch_size=100, batch_order="symmetric")

    # A posterior narrows as 1/√N, and its time scales with it. The step falls to a quarter, so that the latter half of
    # the run, from which the draws are taken, is cool: look at the temperature that is printed.
    scale = len(train[0]) ** 0.5
    run = strang.sample(
        model,
        data,
        strang.SGHMC(friction=0.2 * scale),
        integrator="chen:ABOBA",
        step_size=optax.cosine_decay_schedule(0.15 / scale, steps, alpha=1 / 4),
        steps=steps,
        burn_in=steps // 2,
        chains=chains,
        average=None,
        thin=steps // 50,
        store=out,
    )
    print(run)
    draws = jax.tree.map(lambda leaf: leaf[:, -25:], run.samples)  # the latter half, of all chains

    without_prior = strang.models.BNN(widths, prior_sd=1e6)
    predictions = {
        "maximum likelihood": model.predict(mode(without_prior, data, chains * steps), images),
        "posterior mode": model.predict(mode(model, data, chains * steps), images),
        "one draw": model.predict(jax.tree.map(lambda leaf: leaf[-1, 0], draws), images),
        f"mean of {25 * chains} draws": model.predict(draws, images),
    }
    print(f"{'':24}{'accuracy':>10}{'nats':>10}{'ECE':>10}")
    for name, probabilities in predictions.items():
        score = calibration.score(probabilities, labels)
        print(f"{name:24}{score.accuracy:>10.4f}{score.nll:>10.4f}{score.ece:>10.4f}")
    png([panel(predictions, labels)], out / "reliability.png")
    print(f"the calibration plot is {out / 'reliability.png'}")


def mode(model, data, steps):
    """The most probable weights, by Adam on the same minibatches, one gradient a step."""
    optimiser = optax.adam(optax.cosine_decay_schedule(1e-3, steps))
    keys = strang.util.random.chain_keys(0, 1)

    @jax.jit
    def descend(data):
        start = model.init(strang.util.random.jax_key(keys.start[0]))

        def step(l, carry):
            position, state = carry
            slope = batch_gradient(model, position, data.get(keys.batch[0], l.astype("uint32")), None)
            updates, state = optimiser.update(slope, state)
            return optax.apply_updates(position, updates), state

        return jax.lax.fori_loop(0, steps, step, (start, optimiser.init(start)))[0]

    return descend(data)


def panel(predictions, labels):
    """Accuracy against confidence, with standard errors; whoever is calibrated lies on the diagonal."""
    series = [Series("calibrated", [{"x": x, "exact": x} for x in (0.0, 1.0)])]
    for name, probabilities in predictions.items():
        bins = [each for each in calibration.reliability(probabilities, labels) if each.cases >= 10]
        points = [
            {"x": b.confidence, "value": b.accuracy, "se": np.sqrt(b.accuracy * (1 - b.accuracy) / b.cases)}
            for b in bins
        ]
        series.append(Series(name, points))
    return Panel("Reliability on test images", "confidence", "share right", series, log_x=False, log_y=False)


if __name__ == "__main__":
    main()
