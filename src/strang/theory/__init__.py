"""What theory knows: linear maps on Gaussians, closed forms, exact finite-time errors, optimal rates and step sizes."""

from .closed import stability_limit as stability_limit
from .closed import variance_ratio as variance_ratio
from .exact import Exact as Exact
from .exact import finite_time as finite_time
from .optimal import Best as Best
from .optimal import Rates as Rates
from .optimal import best_exact_step_size as best_exact_step_size
from .optimal import best_step_size as best_step_size
from .optimal import exponents as exponents
from .optimal import power_sum_bounds as power_sum_bounds
from .optimal import rates as rates
from .optimal import richardson as richardson
from .optimal import schedule_sums as schedule_sums
