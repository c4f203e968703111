"""What a run tells of its own health: its temperature, gradient noise, chains that disagree, digits that are lost."""

import jax
import jax.numpy as jnp
import numpy as np

from strang.coordinates import Diagonal
from strang.data.orders import Stream
from strang.dynamics.fields import at_step, schedules
from strang.sampling import averages
from strang.schedule import LOOKED_AT, sizes_at
from strang.util.trees import Tree, spread, zeros

MAX_RHAT = 1.1  # above which chains disagree, if that is not chance
MIN_CHANCE = 1e-3  # that chance does it to any of the averaged numbers
MAX_HEAT = 0.05  # of a temperature above or below 1 that passes without a word
MIN_DIGITS = 4  # by how many times its last digit a step should move a coordinate


def notes(run) -> list[str]:
    """All that is worth knowing, a line each."""
    return [*temperature(run), *gradient_noise(run), *disagreement(run), *rounding(run)]


def temperature(run) -> list[str]:
    """The mean temperature, and what it means where it is not 1. Of chains with settings of their own, the worst."""
    if run.temperature is None or not run.alive.any():
        return []
    each = np.where(run.alive, averages.means(run.chain.average)["temperature"], 1.0)
    worst = int(np.argmax(np.abs(each - 1)))
    if run.own_settings:
        found, which, error = each[worst], f" of chain {worst}", run.each.error["temperature"][worst]
    else:
        found, which = run.temperature, ""
        error = averages.error_over_chains(run.chain.average, run.alive, shared=False)["temperature"]
    if not (abs(found - 1) > MAX_HEAT + 3 * error or not 1 / 2 < found < 2):
        return [f"temperature {found:.4g}{which} (should be 1)"]
    return [
        f"temperature {found:.4g}{which}, and it should be 1: these averages are those of another distribution, and "
        "their errors do not show it; write a smaller step_size"
    ]


def disagreement(run) -> list[str]:
    """A line if chains differ by more than chance."""
    if run.own_settings or run.job.program.average is None:
        return []
    both = averages.disagreement(run.chain.average, run.alive)
    rhat, chance = (flat(tree["average"], 1)[0] for tree in both)
    apart = (rhat > MAX_RHAT) & (chance * len(chance) < MIN_CHANCE)
    if not apart.any():
        return []
    worst = int(np.argmax(np.where(apart, rhat, 0)))
    more = f" and {apart.sum() - 1} more numbers" if apart.sum() > 1 else ""
    return [
        f"chains disagree: R-hat is {rhat[worst]:.3g} for {name('average', run.average, worst)}{more}; the errors have "
        "their spread in them, but not what no chain has found: run longer, or from other starts"
    ]


def rounding(run) -> list[str]:
    """A line if a step moves a coordinate by few of its last digits, where sums are rounded to nothing."""
    if not run.alive.any():
        return []
    dynamics = jax.tree.map(lambda x: np.ravel(x)[0], at_step(run.job.inputs.dynamics, 1.0))
    h, chains = step_sizes(run)[1].min(), int(run.alive.sum())
    position = jax.tree.map(lambda x: np.asarray(x)[run.alive], run.chain.state.position)
    moved = flat(movements(dynamics, position, h), chains)
    digit = flat(jax.tree.map(lambda x: np.spacing(np.abs(np.asarray(x))), position), chains)
    ratio = moved / digit
    if ratio.min() >= MIN_DIGITS:
        return []
    chain, coordinate = np.unravel_index(np.argmin(ratio), ratio.shape)
    where = name("position", run.gradient_noise, int(coordinate))
    return [
        f"a step moves {where} by about {moved[chain, coordinate]:.2g}, and its last digit is "
        f"{digit[chain, coordinate]:.2g}: what is less is lost; subtract a constant from it, or use double precision "
        "(jax.enable_x64)"
    ]


@jax.jit  # op by op it would take far longer to compile
def movements(dynamics, positions: Tree, h) -> Tree:
    """About how far a step moves each coordinate, without a gradient; chains lead."""

    def one(position):
        state = dynamics.init(position, jax.tree.map(jnp.ones_like, position))
        drift, noise = dynamics.drift(state, zeros)[0], dynamics.diffusion(state)[0]
        return jax.tree.map(lambda d, s: h * abs(d) + jnp.sqrt(h) * abs(s), drift, noise)

    return jax.vmap(one)(positions)


def gradient_noise(run) -> list[str]:
    """The noise of the gradient, and what it does."""
    order, text = run.job.inputs.data.batch_order, []
    noise = flat(run.gradient_noise, 1)
    if np.isfinite(noise).all() and not order.full:  # as it is not where nothing was measured
        text.append(f"gradient noise V {noise.mean():.4g} per coordinate on average ({noise.size} coordinates)")
    if not order.independent and hasattr(run.job.program.model, "likelihood_gradient"):
        text.append("the model's own gradient may be random: its noise, which is not measured, does not cancel")
    elif order.full:
        known = "" if run.job.program.stride else "; the bias of the integrator was not measured"
        text.append(f"full gradients: no gradient noise{known}")
    elif not order.independent:
        length = order.epoch * float(mean_steps(run).max())
        text.append(
            f"{order.name} batches: gradient noise cancels where an epoch is short on the scale of the posterior; its "
            f"length R h is {length:.3g}"
        )
    else:
        stream = isinstance(order, Stream)
        which = "if the loader's batches are independent," if stream else "independent batches:"
        text.extend(f"{which} {line}" for line in heating(run))
    return text


def heating(run) -> list[str]:
    """The temperatures that the noise of independent batches leads to, worst first."""
    found, thermostat = temperatures(run), getattr(run.job.inputs.dynamics, "thermostat", None)
    if thermostat == "coordinate":
        return ["the thermostat of each coordinate absorbs constant gradient noise"]
    if found is None or not np.isfinite(found).all():
        return []
    if thermostat and np.ptp(found) < 0.01 + 2 * uncertainty(run, found):
        return ["the thermostat absorbs gradient noise, which is about equal in all coordinates"]
    extremes = {int(np.argmax(found)): None, int(np.argmin(found)): None}
    worst = sorted(extremes, key=lambda place: -abs(found.flat[place] - 1))
    worst = worst if found.min() < 0.99 else worst[:1]

    def described(place: int) -> str:
        chain, coordinate = np.unravel_index(place, found.shape)
        own = f" of chain {chain}" if len(found) > 1 else ""
        return f"{found.flat[place]:.4g} at {direction(run, int(coordinate))}{own}"

    text = f"gradient noise makes the temperature {' and '.join(map(described, worst))}"
    text += f" ({found.mean():.4g} on average)" if found.size > 1 else ""
    text += ", to first order in h; it should be 1"
    return [text + "; one thermostat cannot absorb unequal noise: write thermostat='coordinate'" * bool(thermostat)]


def temperatures(run) -> np.ndarray | None:
    """1 + h V / 2D by chain and coordinate, the known part of V left out; one row for chains that are alike.

    The friction of a single thermostat settles where the mean of these is 1. With a metric they depend on the position:
    None.
    """
    dynamics, like = run.job.inputs.dynamics, run.gradient_noise
    if hasattr(dynamics, "inverse_metric") or schedules(dynamics):
        return None
    chains = run.job.program.chains if run.own_settings else 1
    noise = flat(like, 1)
    if run.own_settings:
        with np.errstate(invalid="ignore", divide="ignore"):  # of a chain in which nothing was measured
            noise = flat(run.chain.gradient_variance, chains) / np.asarray(run.chain.measured, float)[:, None]
        noise = np.where(run.alive[:, None], noise, flat(like, 1))

    def known(x, like):
        x = np.asarray(x, float)
        x = x.reshape(x.shape + (1,) * (1 + np.ndim(like) - x.ndim)) if run.job.program.grid else x
        return np.broadcast_to(x, (chains, *np.shape(like)))

    variance = jax.tree.map(known, spread(getattr(dynamics, "gradient_noise", 0.0), like), like)
    friction = np.reshape(np.asarray(getattr(dynamics, "friction", 1.0), float), (-1, 1))
    temperature = np.reshape(np.asarray(getattr(dynamics, "temperature", 1.0), float), (-1, 1))
    excess = mean_steps(run)[:, None] * (noise - flat(variance, chains)) / (2 * friction * temperature)
    thermostat = hasattr(dynamics, "thermostat")
    return (1 + excess) / (1 + excess.mean(1, keepdims=True)) if thermostat else 1 + excess


def uncertainty(run, found: np.ndarray) -> float:
    """How far the farthest of these temperatures may be off where all are 1, since V was measured so many times."""
    count = np.asarray(run.chain.measured)[run.alive].sum() / len(found)
    heat = float(mean_steps(run).max() * flat(run.gradient_noise, 1).mean() / 2)
    share = heat / (heat + float(np.mean(run.job.inputs.dynamics.friction)))  # of the temperature that is noise's
    return share * np.sqrt(2 / max(count, 1)) * np.sqrt(2 * np.log(20 * found.size))


def step_sizes(run, first: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Up to 1000 step numbers from `first` to the last, and the sizes of these steps: step, then chain, or 1."""
    numbers = np.unique(np.geomspace(first, max(run.steps, first), LOOKED_AT).round())
    return numbers, sizes_at(run.job.inputs.schedule, numbers).astype(float).reshape(len(numbers), -1)


def mean_steps(run) -> np.ndarray:
    """The mean step size after burn-in of each chain, or of all, with the weights of averages: Σ h² / Σ h."""
    first = int(run.job.inputs.burn_in) + 1
    if run.steps < first:
        return np.array([np.nan])
    numbers, sizes = step_sizes(run, first)
    spans = np.gradient(numbers)[:, None] if len(numbers) > 1 else 1.0
    return (spans * sizes**2).sum(0) / (spans * sizes).sum(0)


def flat(tree: Tree, lead: int) -> np.ndarray:
    """All coordinates side by side: the leading axis, or a new one of length 1, then the coordinates."""
    return np.concatenate([np.asarray(leaf, float).reshape(lead, -1) for leaf in jax.tree.leaves(tree)], axis=1)


def direction(run, coordinate: int) -> str:
    """What a coordinate of the chains' state is called: a parameter, unless coordinates mix parameters."""
    coordinates = run.job.inputs.coordinates
    if coordinates is None or isinstance(coordinates, Diagonal):
        return name("position", run.gradient_noise, coordinate)
    return f"direction {coordinate} of the coordinates"


def name(what: str, tree: Tree, coordinate: int) -> str:
    """How a user would write this coordinate of a tree.

    >>> name("position", {"w": np.zeros((2, 3)), "b": np.zeros(())}, 5)
    "position['w'][1, 1]"
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if coordinate < np.size(leaf):
            index = [int(k) for k in np.unravel_index(coordinate, np.shape(leaf))]
            return f"{what}{jax.tree_util.keystr(path)}{index if index else ''}"
        coordinate -= np.size(leaf)
    raise IndexError(coordinate)
