"""`strang.BNNClassifier` and `strang.BNNRegressor`: Bayesian neural networks by scikit-learn's conventions."""

from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from strang.nn.fitting import Fitted, continued, fit_network
from strang.nn.network import Net, built_in, from_module, scaled
from strang.nn.predictive import Code, mixture_moments, mixture_quantile, mixtures, probabilities, sharpened
from strang.nn.saved import stored
from strang.nn.scales import with_learnt_scales
from strang.nn.settings import settings_of
from strang.nn.tables import checked, checked_rows, is_path, scaling_of
from strang.util.compiled import keep_compiled_code
from strang.util.errors import InputError, whole


class _BNN(BaseEstimator):
    """What the two estimators share."""

    _output: str
    _seen: tuple[np.ndarray, np.ndarray] | None

    def __init__(
        self,
        hidden_layer_sizes=(50, 50),
        *,
        activation="silu",
        prior="normal",
        prior_sd=None,
        temperature=None,
        network=None,
        starts=4,
        draws=100,
        steps=None,
        batch_size=None,
        learning_rate=3e-3,
        seconds=None,
        store=None,
        random_state=None,
        verbose=False,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.prior = prior
        self.prior_sd = prior_sd
        self.temperature = temperature
        self.network = network
        self.starts = starts
        self.draws = draws
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seconds = seconds
        self.store = store
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y):
        """Optimise the starts and sample about each.

        Args:
            X: rows of numbers, or the path of a `.npy` file of them, which stays on disk.
            y: one class, or one number, per row.

        Returns:
            The estimator.

        Raises:
            ValueError: in scikit-learn's words, X or y is not as it should be; or an `InputError`.
        """
        x, y = self._checked(X, y, reset=True)
        self._scaling = scaling_of(x)
        return self._fit(x, self._encoded(y, None), None)

    def _partial_fit(self, X, y, classes=None):
        """See `partial_fit`."""
        known, seen = hasattr(self, "_fitted"), getattr(self, "_seen", None)
        if is_path(X):
            raise InputError("partial_fit keeps the rows that it has seen in memory; give arrays, or use fit.")
        x, y = self._checked(X, y, reset=not known)
        if not known:
            self._scaling = scaling_of(x)
        target = self._encoded(y, classes if not known else False)
        if seen is not None:
            x, target = np.concatenate([seen[0], x]), np.concatenate([seen[1], target])
        self._fit(x, target, self._fitted if known else None, keep=False)
        self._seen = x, target
        return self

    def _fit(self, x: np.ndarray, target: np.ndarray, before: Fitted | None, keep: bool = True):
        keep_compiled_code()
        given = self.get_params(deep=False) | ({} if keep else {"store": None})
        settings = settings_of(given, self._output, len(x), self._seed(given["store"]))
        net = self._net(x)
        on_disk = isinstance(x, np.memmap)
        rows = x if on_disk else self._scaling(x)
        # The network sees standardised inputs, or standardises them itself where they stay on disk.
        sampled = scaled(net, *(part.astype(np.float32) for part in self._scaling)) if on_disk else net
        sampled = sampled if self.prior_sd is not None else with_learnt_scales(sampled, len(x))
        run = fit_network if before is None else continued(before)
        fitted = run(sampled, (rows, target), settings)
        self._fitted, self._built = fitted, self._arguments()
        self.settings_, self.health_ = settings.chosen(fitted), fitted.health
        self.n_iter_ = int(fitted.search_steps + settings.settling + settings.steps)
        self._seen = None
        return self

    def _net(self, x: np.ndarray, arguments: dict[str, Any] | None = None) -> Net:
        """The network for inputs like these, as the estimator's arguments are now, or as they were."""
        outputs = len(self.classes_) if self._output == "classes" else 2
        if self.network is not None:
            return from_module(self.network, output=self._output, outputs=outputs, prior_sd=self.prior_sd, x=x)
        if x.ndim != 2:
            raise InputError(f"X has shape {x.shape}; give a network for inputs of several axes, or flatten them.")
        given = dict(arguments or self._arguments())
        widths = x.shape[1], *given.pop("sizes"), outputs
        return built_in(widths, output=self._output, **given)

    def _arguments(self) -> dict[str, Any]:
        """What a built-in network is made of."""
        sizes = [whole("hidden_layer_sizes", size) for size in np.ravel(self.hidden_layer_sizes).tolist()]
        return {"sizes": sizes, "activation": self.activation, "prior": self.prior, "prior_sd": self.prior_sd}

    def _seed(self, store: Any) -> int:
        seed = self.random_state
        if seed is None and is_path(store):  # a fit goes on with the seed that it began with
            known = stored(Path(store))
            seed = known["seed"] if known else None
        return int(seed) if isinstance(seed, Integral) else int(check_random_state(seed).randint(2**31 - 1))

    def _checked(self, X, y, *, reset: bool):
        """Rows and targets, as scikit-learn checks them."""
        settings = {"allow_nd": self.network is not None, "y_numeric": self._output == "number"}
        return checked(self, X, y, reset=reset, **settings)

    def _forecast(self, X) -> tuple[Code, Any, Any, Any]:
        """What is needed to predict: code, draws, rows, and what standardises them."""
        check_is_fitted(self, "_fitted")
        keep_compiled_code()
        x = checked_rows(self, X, allow_nd=self.network is not None)
        net = self._net(np.asarray(x[:2]), self._built)
        net = net if self._built["prior_sd"] is not None else with_learnt_scales(net, 1)
        return Code(net.outputs, net.output), self._fitted.flat_draws(), x, self._scaling


class BNNClassifier(ClassifierMixin, _BNN):
    """A Bayesian neural network that classifies, as a scikit-learn estimator.

    Several starts are optimised (AdamW, stopped early on held-out rows, with averaged weights), and a chain samples
    about each; probabilities are the mean over the draws of all chains. Inputs are standardised. What is None is chosen
    from the data, and `settings_` says what was.

    Args:
        hidden_layer_sizes (tuple, default (50, 50)): units in each hidden layer; () is softmax regression.
        activation (str or function, default "silu"): `silu`, `tanh`, `gelu`, `relu`, or a function.
        prior (str, default "normal"): `normal`, `student-t` or `laplace`.
        prior_sd (float, tuple or None, default None): scale of a bias, and of a weight times the square root of its
            layer's inputs; or one per layer. None: each layer's scale is learnt, as part of the posterior.
        temperature (float or None, default None): T of the density exp(−U/T) that is sampled; None: 1, the posterior;
            for classes 0.01, unless 0.1 or 1 forecasts held-out rows clearly better, and 1 with minibatches.
        network (module or None, default None): a module of Flax NNX or Equinox in place of layers of units, or a
            function from a `jax.random` key to one.
        starts (int, default 4): starts, each with a chain.
        draws (int, default 100): draws of each chain that are kept.
        steps (int or None, default None): steps of each chain that draws are taken from; half as many come before.
        batch_size (int or None, default None): rows per step of the chains; None: all, or a 10th of many rows.
        learning_rate (float, default 3e-3): of AdamW.
        seconds (float or None, default None): about how long a fit may take.
        store (path or None, default None): a folder in which a fit is saved as it goes. The same fit again goes on from
            there after a kill, bit for bit.
        random_state (int, RandomState or None, default None): the seed.
        verbose (bool, default False): whether to show progress; None: on a terminal.

    Attributes:
        classes_: the classes.
        settings_: all that was chosen.
        health_: temperatures by layer, R-hat of predictions, how far chains moved, the bias of predictions.
        n_iter_: steps of each start, of its optimisation and of its chain.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = BNNClassifier((8,), starts=2, steps=200, random_state=0).fit(X, y)
        >>> bool(model.score(X, y) > 0.9), model.predict_proba(X[:1]).shape
        (True, (1, 3))
    """

    _output = "classes"

    def partial_fit(self, X, y, classes=None):
        """Go on with more rows: the chains continue, with the posterior of all rows seen so far.

        These rows are kept in memory, and standardised as those of the first call. Nothing is stored. `fit` keeps no
        rows: after it, the chains go on with the posterior of the rows given here alone.

        Args:
            X: rows.
            y: their classes.
            classes: all classes, if the first call does not have them all.
        """
        return self._partial_fit(X, y, classes)

    def _encoded(self, y, classes) -> np.ndarray:
        """The numbers of classes; `classes` False keeps those of the first call."""
        check_classification_targets(y)
        if classes is not False:
            self.classes_ = np.unique(y if classes is None else classes)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y contains previously unseen labels: {unknown.tolist()}")
        if len(self.classes_) < 2:
            raise ValueError(
                "This solver needs samples of at least 2 classes in the data, but the data contains only one class: "
                f"{self.classes_[0]!r}"
            )
        return np.searchsorted(self.classes_, y).astype(np.int32)

    def predict_proba(self, X):
        """The probability of each class, for each row: the average over draws, to the power `settings_["sharpness"]`;
        it is 1 at temperatures below 1, and if a temperature was given."""
        return sharpened(probabilities(*self._forecast(X)), self._fitted.choice.sharpness)

    def predict_log_proba(self, X):
        """Its logarithm."""
        return np.log(self.predict_proba(X))

    def predict(self, X):
        """The most probable class of each row."""
        check_is_fitted(self, "_fitted")
        return self.classes_[self.predict_proba(X).argmax(1)]


class BNNRegressor(RegressorMixin, _BNN):
    """A Bayesian neural network that predicts a number and its noise, as a scikit-learn estimator.

    The forecast is a mixture of normals, one per draw, whose mean and noise both depend on x. Targets are standardised.
    Arguments are those of `BNNClassifier`.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(-2, 2, 60)[:, None]
        >>> model = BNNRegressor((8,), starts=2, steps=200, random_state=0).fit(X, np.sin(2 * X[:, 0]))
        >>> mean, sd = model.predict(X[:3], return_std=True)
        >>> mean.shape, bool((sd > 0).all()), model.predict_quantiles(X[:3], (0.1, 0.9)).shape
        ((3,), True, (3, 2))
    """

    _output = "number"

    def partial_fit(self, X, y):
        """Go on with more rows: the chains continue, with the posterior of all rows seen so far.

        These rows are kept in memory, and standardised as those of the first call. Nothing is stored. `fit` keeps no
        rows: after it, the chains go on with the posterior of the rows given here alone.
        """
        return self._partial_fit(X, y)

    def _encoded(self, y, classes) -> np.ndarray:
        y = np.asarray(y, float)
        if classes is not False:
            centre, spread = float(y.mean()), float(y.std())
            constant = spread <= 1e-12 * max(abs(centre), 1e-300)
            self._target = centre, 1.0 if constant else spread
        return ((y - self._target[0]) / self._target[1]).astype(np.float32)

    def predict(self, X, return_std=False):
        """The predictive mean of each row, and the standard deviation if asked for, noise included."""
        centre, spread = self._target_checked()
        each = [mixture_moments(*mixture) for mixture in mixtures(*self._forecast(X))]
        mean, sd = (np.concatenate(parts) for parts in zip(*each, strict=True))
        mean, sd = centre + spread * mean, spread * sd
        return (mean, sd) if return_std else mean

    def predict_quantiles(self, X, quantiles=(0.05, 0.5, 0.95)):
        """Quantiles of the predictive distribution: one column per level."""
        centre, spread = self._target_checked()
        levels = [float(level) for level in np.atleast_1d(quantiles)]
        if not all(0 < level < 1 for level in levels):
            raise InputError(f"quantiles are {quantiles}; write levels between 0 and 1.")
        parts = [
            np.stack([mixture_quantile(*mixture, level) for level in levels], axis=1)
            for mixture in mixtures(*self._forecast(X))
        ]
        return centre + spread * np.concatenate(parts)

    def predict_mixture(self, X):
        """The predictive distribution itself: a `strang.calibration.NormalMixture`, draws first."""
        from strang.calibration import NormalMixture

        centre, spread = self._target_checked()
        each = list(mixtures(*self._forecast(X)))
        means, sds = (np.concatenate(parts, axis=1) for parts in zip(*each, strict=True))
        return NormalMixture(centre + spread * means, spread * sds)

    def _target_checked(self) -> tuple[float, float]:
        check_is_fitted(self, "_fitted")
        return self._target
