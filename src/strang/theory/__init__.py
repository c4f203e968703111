"""What theory knows: linear maps on Gaussians, closed forms, exact finite-time errors, optimal rates and step sizes."""

from strang.theory.closed import stability_limit as stability_limit
from strang.theory.closed import variance_ratio as variance_ratio
from strang.theory.exact import Exact as Exact
from strang.theory.exact import finite_time as finite_time
from strang.theory.optimal import Best as Best
from strang.theory.optimal import Rates as Rates
from strang.theory.optimal import best_exact_step_size as best_exact_step_size
from strang.theory.optimal import best_step_size as best_step_size
from strang.theory.optimal import exponents as exponents
from strang.theory.optimal import power_sum_bounds as power_sum_bounds
from strang.theory.optimal import rates as rates
from strang.theory.optimal import richardson as richardson
from strang.theory.optimal import schedule_sums as schedule_sums
