"""Tests of the theorems and the mean flow: the verdicts, the numbers behind them, and that verdicts follow numbers."""

import copy
import json
from dataclasses import asdict

import numpy as np
import pytest

from strang.data.orders import make_order
from strang.paper import mean_flow, theorems
from strang.paper.figure import NOT_REPRODUCED, REPRODUCED, UNDER_READING, Effort, Figure
from strang.paper.reproduce import agreement
from strang.paper.verdicts import exponent

TINY = Effort("tiny", runs=10, steps=1000, trace_runs=100, longest=1000)
FEW_SCHEMES = {"SGHMC": ["chen:ABOBA", "chen:OBABO", "leimkuhler:BAOAB"]}  # all are certified in test_certificate


def run(parts) -> list:
    """The results of the parts as they are read back from disk."""
    return [json.loads(json.dumps(part.function(**part.settings), allow_nan=False)) for part in parts]


def verdict_on(figure: Figure, claim: str):
    """The only verdict whose claim begins so."""
    (verdict,) = [verdict for verdict in figure.verdicts if verdict.claim.startswith(claim)]
    return verdict


@pytest.fixture(scope="module")
def flows() -> list:
    return run(mean_flow.parts(TINY))


@pytest.fixture(scope="module")
def proved() -> list:
    parts = theorems.parts(TINY)
    few = [part._replace(settings={"schemes": FEW_SCHEMES}) for part in parts[:1]]
    rest = parts[len(theorems.SYMMETRIC) :]
    return [run(few)[0], *[[] for _ in range(len(theorems.SYMMETRIC) - 1)], *run(rest)]


@pytest.mark.parametrize(("module", "made"), [(mean_flow, "flows"), (theorems, "proved")])
def test_a_figure_is_plain_data(module, made, request):
    figure = module.figure(TINY, request.getfixturevalue(made))
    json.dumps(asdict(figure), allow_nan=False)
    for verdict in figure.verdicts:
        assert verdict.verdict in (REPRODUCED, UNDER_READING, NOT_REPRODUCED)
        assert verdict.numbers
        assert all((verdict.claim, verdict.where, verdict.reading, verdict.why))


# The mean flow.


def test_every_drawn_point_agrees_with_its_exact_value(flows):
    """180 points, few of them independent: 4.5 standard errors are passed by chance once in 800 times at most."""
    points = agreement([mean_flow.figure(TINY, flows)])
    assert points["count"] == 180
    assert points["within"] == points["count"]


def test_wrong_exact_values_are_detected(flows):
    """Negative control: reshuffled epochs against the values of independent ones."""
    wrong = copy.deepcopy(flows)
    for name in ("theta", "p"):
        for point, other in zip(wrong[1][name], flows[0][name], strict=True):
            point["exact"] = other["exact"]
    points = agreement([mean_flow.figure(TINY, wrong)])
    assert points["within"] < points["count"] - 10


def test_drawn_batches_of_a_fixed_order_match_the_exact_values(flows):
    cyclic = dict(zip(mean_flow.ORDERS, flows, strict=False))["cyclic"]
    for point in (*cyclic["theta"], *cyclic["p"]):
        assert point["se"] == 0
        assert point["value"] == pytest.approx(point["exact"], rel=1e-8)


def test_powers_of_the_step_size_in_the_mean_flow(flows):
    powers = {
        order: [exponent(points[name]) for name in ("theta", "p", "distance")]
        for order, points in zip(mean_flow.ORDERS, flows, strict=False)
    }
    expected = {"iid": [2, 1, 0.5], "reshuffled": [2, 2, 1.5], "symmetric": [3, 3, 2.5], "cyclic": [2, 2, 1]}
    for order, measured in powers.items():
        np.testing.assert_allclose(measured, expected[order], atol=0.03)


def test_exact_second_moments_equal_the_average_over_all_orders():
    """Three batches in all six orders, against the formula for exchangeable sums."""
    data = np.array([-1.0, 0.5, 3.0])
    period = mean_flow.sweep_period(data, make_order(len(data), 1, "reshuffled"), 1.0, 1.0)
    errors = 3 * (data.mean() - data)
    rows = np.array([[1.0, 2.0, 5.0], [0.5, -1.0, 0.3]])
    orders = np.array([(a, b, 3 - a - b) for a in range(3) for b in range(3) if a != b])
    enumerated = rows @ errors[orders].T
    exact = mean_flow.covariances(rows @ period.draw, period.moments)
    np.testing.assert_allclose(exact, enumerated @ enumerated.T / 6, atol=1e-12)


def test_the_corrected_commutator_accounts_for_the_difference(flows):
    figure = mean_flow.figure(TINY, flows)
    first, second = verdict_on(figure, "The flows differ"), verdict_on(figure, "The next term")
    assert first.verdict == REPRODUCED
    assert second.verdict == NOT_REPRODUCED
    last = {key: mean_flow.smallest(points) for key, points in flows[-1].items()}
    for name in ("theta", "p"):
        assert last[f"corrected {name}"]["ratio"] == pytest.approx(1, abs=0.01)
        assert last[f"corrected {name}"]["correlation"] == pytest.approx(1, abs=1e-5)
        assert abs(last[f"printed {name}"]["correlation"]) < 1e-3
        assert last[f"printed {name}"]["ratio"] == pytest.approx(np.sqrt(101 / 24 * 99 / 98), rel=0.01)
    assert verdict_on(figure, "The flow with minibatches").verdict == UNDER_READING


def test_verdicts_on_the_mean_flow_follow_the_numbers(flows):
    other = copy.deepcopy(flows)
    for name in ("theta", "p"):
        other[-1][f"printed {name}"] = flows[-1][f"corrected {name}"]
    for point in other[-1]["first"]:
        point |= {"exact": 0.5, "correlation": 0.5}
    for point in other[0]["distance"]:
        point["exact"] = 1.0
    figure = mean_flow.figure(TINY, other)
    verdicts = [verdict.verdict for verdict in figure.verdicts]
    assert verdicts == [NOT_REPRODUCED, REPRODUCED, REPRODUCED]


# The theorems.

OUTCOMES = {
    "The bias is O(1/(Lh) + h^K)": UNDER_READING,
    "The MSE is": UNDER_READING,
    "The invariant measure": UNDER_READING,
    "Only the order": NOT_REPRODUCED,
    "As L → ∞": UNDER_READING,
    "With decreasing steps the bias": UNDER_READING,
    "Steps h_l": REPRODUCED,
    "Σ h_l^(K+1)/S_L": UNDER_READING,
    "Σ_{l≤L}": NOT_REPRODUCED,
    "The symmetric splitting": REPRODUCED,
    "All symmetric splittings": UNDER_READING,
    "The Euler integrator": REPRODUCED,
    "One cannot": NOT_REPRODUCED,
    "The generators": NOT_REPRODUCED,
    "SGHMC keeps": NOT_REPRODUCED,
    "SGRHMC with": UNDER_READING,
    "e^{hA/2}": NOT_REPRODUCED,
}


def test_verdicts_on_the_theorems(proved):
    figure = theorems.figure(TINY, proved)
    assert {claim: verdict_on(figure, claim).verdict for claim in OUTCOMES} == OUTCOMES
    assert len(figure.verdicts) == len(OUTCOMES)
    for claim in ("The bias is", "The MSE is", "The invariant measure"):
        assert "independent" not in verdict_on(figure, claim).reading


RESULTS = (
    *theorems.SYMMETRIC, "eulers", "averaged", "batched", "leading", "by_size", "floors", "by_length", "falling",
    "summed", "temperature", "stationary", "bracket",
)  # fmt: skip


def test_numbers_of_the_theorems(proved):
    results = dict(zip(RESULTS, proved, strict=True))
    powers = theorems.bias_powers(results["by_size"])
    assert [round(powers[order]) for order in ("full", "iid", "reshuffled", "symmetric")] == [2, 1, 3, 4]
    h = np.array(theorems.STEP_SIZES)
    np.testing.assert_allclose(results["by_size"]["iid"][:4], 1e5 * h[:4] / 20, rtol=1e-4)  # hV/(2D)
    np.testing.assert_allclose(results["by_size"]["full"], 5 * h / np.sinh(5 * h) - 1, rtol=0.02)
    constants = results["leading"]["K = 1001, D = 10"]
    assert constants["chen:ABOBA"] == pytest.approx(-100 / 24)
    assert constants["leimkuhler:BAOAB"] == 0
    assert max(constants.values()) / 4.1666667 == pytest.approx(68.06)
    assert results["eulers"][2]["invariant"] == 2  # Algorithm 2
    assert results["bracket"]["found"] == 0.25
    assert results["temperature"]["SGHMC generator"] == pytest.approx(2, rel=1e-5)
    assert (
        max(drift for name, drift in results["stationary"].items() if "corrected" in name or "with ν" in name) < 1e-12
    )
    assert results["stationary"]["SGRHMC without ν"] > 0.01
    growth = np.diff(results["summed"]["scaled"]["0.333"])
    assert growth[-1] == pytest.approx(2 / 3 * np.log(10), rel=0.01)  # Σ1/l ~ log L over S_L ~ (3/2) L^(2/3)


def as_claimed(results: dict) -> dict[str, object]:
    """Results that agree with the paper's claims."""
    by_size = dict.fromkeys(results["by_size"], results["by_size"]["full"])
    floors = copy.deepcopy(results["floors"])
    floors["iid"] = {"bias": [0.0, 0.0], "mse": [1.0, 16.0]}
    return {
        "by_size": by_size,
        "floors": floors,
        "batched": {order: {"weak": 2, "invariant": 2} for order in results["batched"]},
        "by_length": {
            order: {**each, "variance": [1e-20] * len(each["variance"])} for order, each in results["by_length"].items()
        },
        "falling": [{**each, "iid bias": each["full bias"]} for each in results["falling"]],
        "summed": {
            **results["summed"],
            "scaled": dict.fromkeys(results["summed"]["scaled"], results["summed"]["scaled"]["0.2"]),
            "printed": 6.0,
        },
        "leading": {model: dict.fromkeys(constants, 0.3) for model, constants in results["leading"].items()},
        "averaged": [{**results["averaged"][0], "invariant": 1}],
        "temperature": dict.fromkeys(results["temperature"], 1.0),
        "stationary": dict.fromkeys(results["stationary"], 0.0),
        "bracket": {"found": 0.5, "printed": 0.5},
    }


def test_verdicts_on_the_theorems_follow_the_numbers(proved):
    """Negative control: with numbers that agree its claims are reproduced, and with broken ones the lemmas are not."""
    results = dict(zip(RESULTS, proved, strict=True))
    figure = theorems.figure(TINY, list({**results, **as_claimed(results)}.values()))
    assert {verdict.claim for verdict in figure.verdicts if verdict.verdict != REPRODUCED} == set()

    broken = copy.deepcopy(results)
    broken["chen"][0]["weak"] = 1
    broken["eulers"][0]["weak"] = 0
    broken["falling"][0]["iid mse"][-1] = 1e9
    figure = theorems.figure(TINY, list(broken.values()))
    for claim in ("The symmetric splitting", "All symmetric splittings", "The Euler integrator", "Steps h_l"):
        assert verdict_on(figure, claim).verdict == NOT_REPRODUCED
