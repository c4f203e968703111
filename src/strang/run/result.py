"""What comes out of a run: averages with errors, draws, and signs of the chains' health."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.dynamics.fields import PER_CHAIN, at_step, numbers, schedules
from strang.run import arviz, check, health, order, predict, summary, verdict
from strang.run.check import PredictiveCheck
from strang.run.driver import Goal, Observer, Outcome, drive
from strang.run.order import Order
from strang.run.predict import LogDensity, Prediction
from strang.run.table import Table, flat_draws, table
from strang.sampling import averages
from strang.sampling.estimates import Estimates, estimates, shares_noise
from strang.sampling.job import Job, seen_positions
from strang.sampling.record import Chain
from strang.sampling.request import MAX_STEPS
from strang.schedule import as_schedule, counted
from strang.storage.manifest import MAX_SERIES_VALUES
from strang.storage.store import Store
from strang.util.errors import InputError, whole
from strang.util.numbers import finite
from strang.util.trees import Tree, mean, on_device, size


class RunWarning(UserWarning):
    """Something is wrong with what came out."""


class DivergenceWarning(RunWarning):
    """Some chains left the finite numbers and stopped there."""


class DisagreementWarning(RunWarning):
    """The averages of chains differ by more than chance."""


class TrustWarning(RunWarning):
    """The averages are wrong by more than their Monte Carlo errors; `run.reasons` has all that is known of it."""


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """What came out of `strang.sample`.

    Attributes:
        average: the weighted average over steps and the chains that are alive.
        error: its Monte Carlo standard error.
        bias: of the average, δ/(2^p − 1) from the difference δ that steps of twice the size make, at order p; NaN
            where no chain was coupled, and infinite where such steps diverge. The average less its bias is Richardson's
            extrapolation.
        bias_error: its standard error.
        sd: the posterior standard deviation of what was averaged; None where that is many numbers.
        trusted: whether everything that can go wrong was looked for and not found.
        reasons: why it is not trusted, worst first.
        rhat: R-hat of the chains' batch means, coordinate by coordinate; about 1 where chains agree.
        each: averages and errors chain by chain.
        samples: the thinned positions after burn-in, if `thin` was given: chain first, then draw; of schedules with
            cycles those of cold ends.
        positions: where the chains are, chain first.
        temperature: the mean temperature of the momentum; should be 1, and is above where gradients are noisy. None
            for dynamics without momentum.
        configurational_temperature: the mean of (z − centre) ∂U/∂z, and its standard error; should be 1, and shows
            what long steps do to positions.
        gradient_noise: the measured variance V of the minibatch gradient, coordinate by coordinate.
        alive: which chains have not diverged.
        diverged: how many have.
        steps: steps made in all.
        seconds: how long this call took, without compiling.
        speed: steps per second of this call, counting those of every chain.
        waiting: the fraction of the time that was spent waiting for rows; None where they are in memory.
        interrupted: whether Ctrl-C ended the run.
        tuning: what was chosen where something was left out, or None.
        goal: the errors that were asked for, whether they were reached, and why not; None where none were.
        chain: the complete record to go on from.
        job: the checked request.
    """

    job: Job
    chain: Chain
    seconds: float
    draws: Tree  # all thinned positions: draw first, then chain
    interrupted: bool
    waited: float | None = None
    tuning: Any = None
    goal: Goal | None = None

    @property
    def steps(self) -> int:
        return int(self.chain.step)

    @property
    def speed(self) -> float:
        made = self.steps - int(self.job.chain.step)
        return made * self.job.program.chains / max(self.seconds, 1e-9)

    @property
    def alive(self) -> np.ndarray:
        return np.asarray(self.chain.alive)

    @property
    def diverged(self) -> int:
        return int((~self.alive).sum())

    @property
    def each(self) -> averages.Summary:
        return averages.summarise(self.chain.average)

    @property
    def average(self) -> Tree:
        return self.over_chains(self._averaged(averages.means(self.chain.average)))

    @property
    def error(self) -> Tree:
        """1.96 of it are half of a 95 % interval. It has the spread between chains in it, but for chains with settings
        of their own, which differ anyway; and the noise that chains share which are given a loader's batches."""
        if not self.alive.any() or self.own_settings:
            each = self._averaged(self.each.error)
            squares = self.over_chains(jax.tree.map(np.square, each))
            return jax.tree.map(lambda square: np.sqrt(square / max(self.alive.sum(), 1)), squares)
        shared = shares_noise(self.job)
        return self._averaged(averages.error_over_chains(self.chain.average, self.alive, shared=shared))

    @cached_property
    def estimates(self) -> Estimates:
        """Mean and standard deviation of all that was averaged, with both errors, as vectors."""
        self._averaged(self.chain.average.total)
        return estimates(self.job, self.chain)

    @property
    def sd(self) -> Tree:
        return None if self.estimates.sd is None else self._like_average(self.estimates.sd.value)

    @property
    def bias(self) -> Tree:
        return self._like_average(self.estimates.mean.bias)

    @property
    def bias_error(self) -> Tree:
        return self._like_average(self.estimates.mean.bias_error)

    def _like_average(self, vector: np.ndarray) -> Tree:
        leaves, structure = jax.tree.flatten(self.chain.average.total["average"])
        ends = np.cumsum([leaf[0].size for leaf in leaves])[:-1]
        parts = zip(np.split(vector, ends), leaves, strict=True)
        return jax.tree.unflatten(structure, [part.reshape(leaf.shape[1:])[()] for part, leaf in parts])

    @cached_property
    def reasons(self) -> list[str]:
        return verdict.reasons(self)

    @property
    def trusted(self) -> bool:
        return not self.reasons

    def summary(self) -> Table:
        """A table of all that was averaged, by name: mean, sd, quantiles (of draws, if any were kept), the Monte Carlo
        error and the bias of the mean, ESS and R-hat. `print` it, or take its numbers with `to_dict()`."""
        return self._summary

    @cached_property
    def _summary(self) -> Table:
        few = self.estimates.sd is not None and self.samples is not None and self.alive.any()
        some = few and jax.tree.leaves(self.samples)[0].shape[1] > 0
        draws = flat_draws(self.samples, self.job.average, self.alive) if some else None
        return table(self.estimates, draws)

    def by_setting(self) -> list[dict[str, Any]]:
        """Of a grid, what each setting came to: its numbers, chains, how many diverged, estimates and temperature."""
        job, chains = self.job, self.job.program.chains
        sizes = health.mean_steps(self)
        given = {"step_size": np.broadcast_to(sizes, chains)} if len(sizes) > 1 else {}
        if job.program.grid:
            own = per_chain_numbers(job.inputs.dynamics)
            given |= {name: value for name, value in own.items() if np.ptp(value) > 0}
        matrix = np.stack([np.asarray(value, float) for value in given.values()] or [np.zeros(chains)])
        settings, places = np.unique(matrix, axis=1, return_inverse=True)
        heat = averages.means(self.chain.average).get("temperature")
        rows = []
        for k in range(settings.shape[1]):
            which = places.ravel() == k
            living = which & self.alive
            row: dict[str, Any] = {"setting": dict(zip(given, settings[:, k].tolist(), strict=False))}
            row |= {"chains": int(which.sum()), "diverged": int((which & ~self.alive).sum())}
            row |= {"temperature": float(heat[living].mean()) if heat is not None and living.any() else None}
            rows.append({**row, "estimates": estimates(job, self.chain, which)})
        return rows

    @property
    def configurational_temperature(self) -> tuple[float, float]:
        return verdict.configurational_temperature(self)

    @property
    def rhat(self) -> Tree:
        return self._averaged(averages.disagreement(self.chain.average, self.alive)[0])

    @property
    def own_settings(self) -> bool:
        """Whether chains differ by step size or by numbers of their dynamics."""
        shape = jax.eval_shape(self.job.inputs.schedule, np.float32(1)).shape
        return self.job.program.grid or bool(shape)

    @property
    def samples(self) -> Tree:
        if self.job.thin is None or self.draws is None:
            return None
        inputs, count = self.job.inputs, len(jax.tree.leaves(self.draws)[0])
        first = max(0, int(inputs.burn_in) // self.job.thin - self.first_draw)
        chosen: Any = slice(first, None)
        numbers = self.job.thin * (self.first_draw + 1 + np.arange(first, count, dtype=float))
        counts = counted((inputs.schedule, *schedules(inputs.dynamics).values()), on_device(numbers))
        if counts is not None:
            chosen = first + np.flatnonzero(np.asarray(counts))
        return jax.tree.map(lambda draws: np.swapaxes(draws[chosen], 0, 1), self.draws)

    @property
    def positions(self) -> Tree:
        return seen_positions(self.job, self.chain)

    @property
    def first_draw(self) -> int:
        """How many thinned positions were made before those that this run holds."""
        return self.steps // (self.job.thin or 1) - len(jax.tree.leaves(self.draws)[0])

    @property
    def waiting(self) -> float | None:
        return None if self.waited is None else self.waited / max(self.seconds, 1e-9)

    @property
    def temperature(self) -> float | None:
        mean = averages.means(self.chain.average)
        return float(self.over_chains(mean["temperature"])) if "temperature" in mean else None

    @property
    def gradient_noise(self) -> Tree:
        """Measured after burn-in, over the chains that are alive: zero for full gradients, NaN where it was not
        measured, as with a loader of single rows, or a model whose own gradient may be random and full gradients."""
        full = self.job.inputs.data.batch_order.full
        if full and not hasattr(self.job.program.model, "likelihood_gradient"):
            return jax.tree.map(lambda x: np.zeros(x.shape[1:]), self.chain.gradient_variance)
        count = np.asarray(self.chain.measured, float)[self.alive].sum() or np.nan
        return jax.tree.map(lambda x: np.asarray(x, float)[self.alive].sum(0) / count, self.chain.gradient_variance)

    def more(self, steps: int, progress: bool | None = None) -> "Run":
        """Go on for more steps, bit for bit as if they had been asked for at first."""
        last = self.steps + whole("steps", steps, 0, MAX_STEPS - self.steps)
        as_schedule(self.job.inputs.schedule, last, self.job.program.chains)
        return replace(finish(replace(self.job, chain=self.chain, steps=last), progress), tuning=self.tuning)

    def measure_order(self, steps: int | None = None, progress: bool | None = None) -> Order:
        """The order at which the bias falls with the step size, measured by a third level: another run with steps of
        twice the size, whose companions make steps of four times the size. Needs `coupled` chains; takes about half as
        long as the run did.

        Args:
            steps: of the other run after its burn-in; by default as long a time as this one.
            progress: whether to show a progress bar; None: on a terminal.
        """
        return order.measure_order(self, steps, progress)

    def predict(
        self,
        function: Callable | str,
        x: Tree = None,
        *,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        draws: int | None = None,
        keep: bool = False,
        seed: int = 0,
        store: str | Path | None = None,
        progress: bool | None = None,
    ) -> Prediction:
        """Mean, standard deviation and quantiles over draws of any function of the position and of new inputs. Memory
        holds one block of rows, however many rows, draws or parameters there are.

        Args:
            function: of (position, x), or of (position, x, key) where something is to be drawn at random; x is some
                rows, and the value leads with them. Of the position alone where no x is given. For a NumPyro model, the
                name of a site, with x the model's arguments, such as `("y", (X, None))`.
            x: arrays with a common leading axis of rows.
            quantiles: levels.
            draws: at most so many, spread over all; by default all that were kept.
            keep: whether the values at all draws are kept too.
            seed: of what is drawn at random.
            store: a folder for what comes out, in which a prediction that was stopped goes on; by default memory.
            progress: whether to show a progress bar; None: on a terminal.

        Returns:
            A `Prediction`: `mean`, `sd`, `quantiles` by level, and `draws` if they were kept.

        Raises:
            InputError: no draws were kept, or the function does not fit the rows.

        Example:
            >>> import strang, numpy as np
            >>> x = np.random.default_rng(0).normal(1.0, 1.0, 200)
            >>> run = strang.sample(strang.models.Gaussian(), x, error=0.05)
            >>> run.predict(lambda theta, x: theta + x, np.arange(3.0)).mean.round(1)
            array([1., 2., 3.], dtype=float32)
        """
        return predict.predict(
            self, function, x, quantiles=quantiles, draws=draws, keep=keep, seed=seed, store=store, progress=progress
        )

    def log_predictive_density(
        self, rows: Any, *, draws: int | None = None, progress: bool | None = None
    ) -> LogDensity:
        """How well rows that the run has not seen are predicted: the log of the mean over draws of their likelihood,
        with its standard error over rows.

        Args:
            rows: like the data, `(X, y)`, say.
            draws: at most so many, spread over all; by default all that were kept.
            progress: whether to show a progress bar; None: on a terminal.
        """
        return predict.log_predictive_density(self, rows, draws=draws, progress=progress)

    def predictive_check(
        self,
        function: Callable | str,
        x: Tree,
        seen: Any,
        *,
        name: str = "y",
        draws: int = check.DRAWS,
        seed: int = 0,
        progress: bool | None = None,
    ) -> PredictiveCheck:
        """Data that the model would have made, beside those that were seen. `print` it, or give it to the page of the
        run: `strang.report.page(run, checks=[...])`.

        Args:
            function: of (position, x, key) to what would be seen at these rows, one number each; for a NumPyro model,
                the name of the site.
            x: rows, arrays with a common leading axis.
            seen: what was seen there, one number for each.
            name: what it is called.
            draws: how many times data are made, each at another draw.
            seed: of what is drawn at random.
            progress: whether to show a progress bar; None: on a terminal.
        """
        return check.predictive_check(self, function, x, seen, name=name, draws=draws, seed=seed, progress=progress)

    def to_arviz(
        self,
        names: dict[str, str] | None = None,
        dims: dict[str, list[str]] | None = None,
        coords: dict[str, Any] | None = None,
        *,
        log_likelihood: Any = False,
        progress: bool | None = None,
    ) -> Any:
        """The thinned positions after burn-in as an ArviZ DataTree; needs the extra `arviz`.

        Args:
            names: of variables, by what they are called here.
            dims: names of the axes of a variable, by its name.
            coords: the labels along an axis, by its name.
            log_likelihood: True adds the log likelihood of every row of the data at every draw, which `loo` and `waic`
                need; or rows of which to add it.
            progress: whether to show a progress bar; None: on a terminal.
        """
        return arviz.to_arviz(self, names, dims, coords, log_likelihood, progress)

    def warn(self, stacklevel: int) -> None:
        """Warns of chains that diverged or disagree, and of anything else that makes the averages wrong."""
        if self.diverged:
            warnings.warn(self.divergence(), DivergenceWarning, stacklevel=stacklevel + 1)
            return
        disagreement = health.disagreement(self)
        for line in disagreement:
            warnings.warn(line + ".", DisagreementWarning, stacklevel=stacklevel + 1)
        wrong = [] if disagreement else verdict.serious(self)
        if wrong:
            warnings.warn(f"the run is not to be trusted: {wrong[0]}.", TrustWarning, stacklevel=stacklevel + 1)

    def divergence(self) -> str:
        """A sentence on the chains that diverged."""
        which = np.flatnonzero(~self.alive)
        first = which[np.asarray(self.chain.diverged_at)[which].argmin()]
        at = int(self.chain.diverged_at[first])
        h = np.broadcast_to(np.asarray(self.job.inputs.schedule(jnp.asarray(at, float))), len(self.alive))[first]
        more = f" (and {len(which) - 1} more)" if len(which) > 1 else ""
        return f"chain {first}{more} diverged at step {at} with step_size {h:g}; write a smaller step_size."

    def _averaged(self, tree: Tree) -> Tree:
        if "average" not in tree:
            raise InputError("the run averaged nothing (average=None); give it a function of the position to average.")
        return tree["average"]

    def over_chains(self, tree: Tree) -> Tree:
        """The mean over the chains that are alive."""
        if not self.alive.any():
            return jax.tree.map(lambda x: np.full(x.shape[1:], np.nan)[()], tree)
        return jax.tree.map(lambda x: x[self.alive].mean(0), tree)

    def __str__(self) -> str:
        return "\n".join(summary.lines(self))

    def __repr__(self) -> str:
        return f"<Run: {summary.title(self)}>"

    def _repr_html_(self) -> str:
        if self.job.program.average is None or not self.alive.any() or self.own_settings:
            table = f"<pre>{escape(chr(10).join(summary.table(self)))}</pre>"
        else:
            table = self.summary()._repr_html_()
        notes = "".join(f"<div>{escape(line)}</div>" for line in (*summary.judged(self), *summary.notes(self)))
        return f"<div><b>{escape(summary.title(self))}</b></div>{table}{notes}"


def per_chain_numbers(dynamics) -> dict[str, np.ndarray]:
    """The numbers of a dynamics that may differ between chains."""
    return {name: np.asarray(value) for name, value in numbers(dynamics, PER_CHAIN).items() if np.ndim(value)}


class SeriesObserver(Observer):
    """Notes the averages and the health of a stored run at every save, where they are few numbers."""

    def __init__(self, job: Job, tuning: Any = None):
        self.job, self.tuning = job, tuning
        self.before = source.waited if (source := job.inputs.data.source) else 0.0

    def line(self, chain: Chain, look: Any, seconds: float) -> dict[str, Any]:
        source = self.job.inputs.data.source
        run = Run(self.job, chain, seconds, None, False, source.waited - self.before if source else None)
        few = self.job.program.average is not None and size(run.average) <= MAX_SERIES_VALUES

        def values(tree: Tree) -> list[float]:
            return [float(x) for leaf in jax.tree.leaves(tree) for x in np.ravel(leaf)]

        line = {
            "step": run.steps,
            "seconds": seconds,
            "average": values(run.average) if few else None,
            "error": values(run.error) if few else None,
            "temperature": run.temperature,
            "gradient_noise": mean(run.gradient_noise),
            "diverged": run.diverged,
            **self.judged(run, few),
            **({} if getattr(look, "goal", None) is None else {"ended": look.goal.why}),
            **({} if run.waiting is None else {"waiting": run.waiting}),
        }
        return finite(line)

    def judged(self, run: Run, few: bool) -> dict[str, Any]:
        """The verdict as it stands, and the table without what only draws tell."""
        if not few or run.own_settings or run.steps <= int(self.job.inputs.burn_in):
            return {}
        run = replace(run, tuning=self.tuning, goal=self.goal_of(run.chain))
        return {"trusted": run.trusted, "reasons": run.reasons, "summary": table(run.estimates, None).to_dict()}

    def goal_of(self, chain: Chain) -> Goal | None:
        """What the run was to reach, if anything."""
        return None


def finish(job: Job, progress: bool | None, store: Store | None = None, observer: Observer | None = None) -> Run:
    """Advance a job to its end, until Ctrl-C, or until an observer says that its goal is reached."""
    return run_of(job, drive(job, observer or SeriesObserver(job), store=store, progress=progress), store)


def run_of(job: Job, outcome: Outcome, store: Store | None = None) -> Run:
    """The run that has come to this."""
    steps, draws = int(outcome.chain.step), None
    if job.thin and store:
        draws = store.draws(job, steps // job.thin)
    elif job.thin:
        draws = outcome.draws.joined(steps)
        job = replace(job, thin=outcome.draws.thin)
    goal = outcome.look.goal
    return Run(job, outcome.chain, outcome.seconds, draws, outcome.interrupted, outcome.waited, goal=goal)


def temperatures(job: Job, chain: Chain) -> np.ndarray:
    """The temperature of each chain as it stands; NaN where the dynamics have no momentum."""
    dynamics = at_step(job.inputs.dynamics, jnp.asarray(float(max(1, int(chain.step)))))
    if not hasattr(dynamics, "kinetic_temperature"):
        return np.full(len(chain.alive), np.nan)
    axis = 0 if job.program.grid else None
    return np.asarray(jax.vmap(lambda d, state: d.kinetic_temperature(state), (axis, 0))(dynamics, chain.state))
