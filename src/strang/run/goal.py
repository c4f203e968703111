"""Runs that go on until their errors are small enough, or until something else ends them."""

import time

import numpy as np

from strang.run.driver import Goal, Look
from strang.run.result import SeriesObserver
from strang.run.verdict import MAX_RHAT
from strang.sampling.estimates import Estimates, estimates
from strang.sampling.job import Job
from strang.sampling.record import Chain
from strang.tuning import Tuning

FIRST_LOOK, GROWTH = 256, 1.25  # steps after burn-in, and the ratio of two looks
LIKELY, SURE = 2.0, 3.0  # standard errors by which a bias must be too large for a run to be given up, late and early
NEARLY = 0.8  # of the error that is wanted, which a bias must not exceed once the Monte Carlo error is small enough
APART = 1.2  # R-hat above which chains are given up, after a quarter of the steps they may take


class GoalObserver(SeriesObserver):
    """Looks at the errors now and then, at steps that do not depend on the machine, and ends the run."""

    def __init__(
        self, job: Job, error: float | None, deadline: float | None, patience: str = "", tuning: Tuning | None = None
    ):
        """`error` is in posterior standard deviations; `deadline` is a time of `time.perf_counter`."""
        super().__init__(job, tuning)
        self.error, self.deadline, self.patience = error, deadline, patience
        self.started = time.perf_counter()

    def next_look(self, step: int) -> int | None:
        if self.error is None:
            return None
        look, burn_in = float(FIRST_LOOK), int(self.job.inputs.burn_in)
        while burn_in + int(look) <= step:
            look *= GROWTH
        return burn_in + int(look)

    def look_first(self, chain: Chain, before: Look) -> Look:
        """A stored run may have reached its goal already."""
        return self.look(chain, before) if int(chain.step) > int(self.job.inputs.burn_in) else before

    def look(self, chain: Chain, before: Look) -> Look:
        step, text, goal = int(chain.step), before.text, None
        if self.error is not None and (step == self.next_look(step - 1) or step >= self.job.steps):
            found = Progress(estimates(self.job, chain), self.error)
            text, excess = found.text, found.excess()
            if found.reached:
                goal = Goal(self.error, True, f"all errors are below {self.error:g} posterior standard deviations")
            elif not np.all(chain.alive):
                goal = Goal(self.error, False, "a chain diverged; a smaller step_size is needed", np.inf)
            elif excess:
                goal = Goal(self.error, False, found.give_up(), excess)
            elif found.rhat > APART and self.job.steps // 4 < step < self.job.steps:
                goal = Goal(self.error, False, f"chains do not come together: {text}", apart=True)
        late = self.deadline is not None and time.perf_counter() > self.deadline
        if goal is None and (late or step >= self.job.steps):
            goal = self.unfinished(chain, late)
        return before._replace(text=text, goal=goal)

    def goal_of(self, chain: Chain) -> Goal | None:
        if self.error is None:
            return None
        found = Progress(estimates(self.job, chain), self.error)
        why = f"not all errors are below {self.error:g} posterior sd yet: {found.text}"
        return Goal(self.error, found.reached, why)

    def unfinished(self, chain: Chain, late: bool) -> Goal:
        """The end of a run that has not reached its errors."""
        why = "the time was up" if late else self.patience or f"all {self.job.steps:,} steps were made"
        if self.error is None:
            return Goal(None, False, f"ended because {why}")
        text = Progress(estimates(self.job, chain), self.error).text
        return Goal(self.error, False, f"{why} before all errors were below {self.error:g} posterior sd: {text}")


class Progress:
    """How far the errors of a run are from what is wanted."""

    def __init__(self, found: Estimates, error: float):
        self.found, self.error = found, error
        self.random, self.bias = found.farthest()
        self.rhat = float(np.nan_to_num(found.rhat, nan=1.0).max())
        self.diverged = bool(np.isinf(found.mean.bias).any())
        self.known = found.sd is not None and bool(np.isfinite(self.random).all() and np.isfinite(self.bias).all())

    @property
    def text(self) -> str:
        """What a progress bar says."""
        if not self.known:
            return "a companion diverged" if self.diverged else "errors are not known yet"
        worst, other, names = int(np.argmax(self.random)), int(np.argmax(self.bias)), self.found.names
        text = f"Monte Carlo {self.random[worst]:.2g} ({names[worst]}), bias {self.bias[other]:.2g} ({names[other]})"
        return text + (f", R-hat {self.rhat:.3f}" if self.rhat > MAX_RHAT else "")

    @property
    def reached(self) -> bool:
        return self.known and max(self.random.max(), self.bias.max()) <= self.error and self.rhat <= MAX_RHAT

    def excess(self) -> float:
        """The bias in units of the error that is wanted, if it is too large for any longer run; otherwise 0."""
        if self.diverged:
            return np.inf
        if not self.known or self.found.sd is None:
            return 0.0
        scale, known = self.found.scale, np.isfinite(self.found.sd.bias)
        pairs = [
            (np.abs(each.bias[known]) / scale[known], each.bias_error[known] / scale[known])
            for each in (self.found.mean, self.found.sd)
        ]
        likely, sure = (max(float((bias - count * error).max()) for bias, error in pairs) for count in (LIKELY, SURE))
        early, late = self.random.max() <= 4 * self.error, self.random.max() <= self.error
        hopeless = (early and sure > self.error) or (late and likely > NEARLY * self.error)
        return max(float(bias.max()) for bias, _ in pairs) / self.error if hopeless else 0.0

    def give_up(self) -> str:
        """Why a longer run would not help."""
        if self.diverged:
            return "a step of twice the size diverges, so the bias is not known; a smaller step_size is needed"
        which = int(np.argmax(self.bias))
        return (
            f"the bias of {self.found.names[which]} is up to {self.bias[which]:.2g} posterior standard deviations, and "
            f"{self.error:g} was wanted: a longer run would not help, a smaller step_size is needed"
        )
