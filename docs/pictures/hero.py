"""Makes hero.png: a wrong answer with a small error bar, and what Strang says.   python docs/pictures/hero.py

A logistic regression of 1000 rows and ten columns. The reference is NUTS (NumPyro), with 40,000 draws. The step size of
the minibatch run is one that many would pick: its chains agree and mix well, and nothing shows that they are hot.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from look import FILL, INK, MUTED, RIGHT, RULE, WRONG, plt, save
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from scipy.stats import gaussian_kde

import strang

ROWS, COLUMNS, BATCH, STEP_SIZE, FRICTION, STEPS, CHAINS = 1000, 10, 50, 0.01, 10.0, 100_000, 8

rng = np.random.default_rng(0)
x = rng.normal(size=(ROWS, COLUMNS))
x = (x - x.mean(0)) / x.std(0)
y = rng.random(ROWS) < 1 / (1 + np.exp(-x @ np.linspace(1.5, -1.0, COLUMNS)))
model = strang.Model(
    log_prior=lambda q: -jnp.sum(q["w"] ** 2) / 200,
    log_likelihood=lambda q, row: jax.nn.log_sigmoid(jnp.where(row[1], 1, -1) * (row[0] @ q["w"])),
    init={"w": jnp.zeros(COLUMNS)},
)


def reference() -> np.ndarray:
    """Draws of the first coefficient by NUTS."""

    def regression():
        w = numpyro.sample("w", dist.Normal(0, 10).expand([COLUMNS]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

    nuts = MCMC(
        NUTS(regression), num_warmup=1000, num_samples=10_000, num_chains=4, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    nuts.run(jax.random.key(0))
    return np.asarray(nuts.get_samples()["w"], float)[:, 0]  # chain after chain


def by_hand() -> strang.Run:
    """Minibatch SGHMC as people run it; `coupled` changes nothing about its chains, and measures their bias."""
    data = strang.data.arrays((x, y), batch_size=BATCH, batch_order="iid")
    settings = {"step_size": STEP_SIZE, "steps": STEPS, "burn_in": STEPS // 10, "chains": CHAINS, "thin": 20}
    return strang.sample(model, data, strang.SGHMC(friction=FRICTION), coupled=4, **settings)


def first_coefficient(run: strang.Run) -> np.ndarray:
    return np.ravel(np.asarray(run.samples["w"])[..., 0])


def smooth(draws: np.ndarray) -> gaussian_kde:
    return gaussian_kde(draws, bw_method=0.2)


def posteriors(axes: plt.Axes, exact: np.ndarray, hand: strang.Run, own: strang.Run) -> None:
    grid = np.linspace(exact.mean() - 4.6 * exact.std(), exact.mean() + 4.8 * exact.std(), 300)
    height = smooth(exact[::2])(grid)
    axes.fill_between(grid, height, color=FILL, lw=0)
    axes.plot(grid, smooth(first_coefficient(hand))(grid), color=WRONG, lw=2)
    axes.plot(grid, smooth(first_coefficient(own))(grid), color=RIGHT, lw=2, ls=(0, (4, 2)))
    axes.set_ylim(0, 1.12 * height.max())
    axes.set_title("Minibatch noise widens the posterior", pad=10)
    axes.set_xlabel("coefficient w[0]")
    labels = [
        (0.68, 0.95, "posterior\n(NUTS)", MUTED),
        (0.68, 0.75, "Strang,\nno settings", RIGHT),
        (0.68, 0.55, "SGHMC,\nstep by hand", WRONG),
    ]
    for across, up, text, colour in labels:
        axes.text(across, up, text, color=colour, weight="bold", transform=axes.transAxes, fontsize=9, va="top")


def reports(axes: plt.Axes, exact: np.ndarray, hand: strang.Run, own: strang.Run) -> None:
    by_hand, no_settings = (run.summary().to_dict()["w[0]"] for run in (hand, own))
    looks = f"R-hat {by_hand['rhat']:.3f}, {by_hand['ess']:,.0f} effective draws: looks fine"
    rows = [
        (by_hand, False, WRONG, "SGHMC, step by hand", looks),
        (
            by_hand,
            True,
            WRONG,
            "the same run in Strang",
            f"✗ NOT TO BE TRUSTED: temperature {hand.temperature:.2f}, not 1",
        ),
        (no_settings, True, RIGHT, "strang.sample(model, data)", "✓ trusted"),
    ]
    error = exact.std() / np.sqrt(effective_sample_size(exact.reshape(4, -1)))
    for place, (row, with_bias, colour, name, verdict) in zip((2.7, 1.35, 0), rows, strict=True):
        axes.fill_betweenx(
            [place - 0.24, place + 0.24], *(exact.mean() + sign * 2 * error for sign in (-1, 1)), color=FILL
        )
        mean, mc_error, bias = row["mean"], row["mc_error"], row["bias"]
        answer = f"{mean:.4f} ± {mc_error:.4f}"
        if with_bias:
            answer += f" ± {bias:.4f}"
            ends = [mean - mc_error - bias, mean + mc_error + bias]
            axes.plot(ends, [place, place], color=colour, lw=7, alpha=0.3, solid_capstyle="butt")
        axes.errorbar(mean, place, xerr=mc_error, color=colour, fmt="o", ms=4, capsize=4, lw=1.5)
        across = axes.get_yaxis_transform()
        axes.text(0, place + 0.38, name, transform=across, weight="bold", color=colour, fontsize=9)
        axes.text(1, place + 0.38, answer, transform=across, ha="right", color=INK, fontsize=9)
        axes.text(0, place - 0.44, verdict, transform=across, color=INK, fontsize=9)
    axes.text(exact.mean() + 3 * error, 2.55, "truth", color=MUTED, fontsize=9)
    for place in (2.02, 0.67):
        axes.axhline(place, color=RULE, lw=0.8)
    axes.set_ylim(-0.6, 3.3)
    axes.set_title("…and its error bar does not say so", pad=10)
    axes.set_xlabel("mean of w[0]  ± Monte Carlo error  ± bias")


def main() -> None:
    warnings.simplefilter("ignore", strang.TrustWarning)
    exact, hand, own = reference(), by_hand(), strang.sample(model, (x, y))
    print(hand, own, f"NUTS: w[0] has mean {exact.mean():.4f} and sd {exact.std():.4f}", sep="\n\n")
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4), width_ratios=(0.8, 1))
    posteriors(left, exact, hand, own)
    reports(right, exact, hand, own)
    for axes in (left, right):
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    figure.tight_layout(w_pad=2.5)
    save(figure, "hero.png")


if __name__ == "__main__":
    main()
