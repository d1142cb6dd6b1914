"""Combination rules: formulas as published, and the laws that each rule declares, and no others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from committees import LENGTHSCALE, NOISE, VARIANCE, committee, k, opinions, posterior
from hypothesis import given
from hypothesis import strategies as st

from gigagp import HGPRegressor, InvalidParameter
from gigagp.combine import (
    GRBCM,
    LAWS,
    NPAE,
    RULES,
    Blend,
    CombinationRule,
    GPoE,
    Healed,
    JointRule,
    Opinion,
    PoE,
    Prediction,
    Rule,
    rule,
)
from gigagp.engines import SerialEngine
from gigagp.model.committee_prediction import predict
from gigagp.tree import Tree

EVERY = [*(made() for made in RULES.values()), PoE(target="y"), Healed(100)]
every_rule = pytest.mark.parametrize("chosen", EVERY, ids=repr)


# The table of combination rules, one function a row: (m, v, kappa, noise, closeness, m_c, v_c) -> mean, variance.
# m and v are (experts, q). P is the combined precision.


def poe(m, v, *_):
    P = (1 / v).sum(axis=0)
    return (m / v).sum(axis=0) / P, 1 / P


def poe_of_y(m, v, kappa, noise, *_):
    return poe(m, v + noise)


def gpoe(m, v, *_):
    beta = 1 / len(m)
    P = (beta / v).sum(axis=0)
    return (beta * m / v).sum(axis=0) / P, 1 / P


def bcm(m, v, kappa, *_):
    P = (1 / v).sum(axis=0) + (1 - len(m)) / kappa
    return (m / v).sum(axis=0) / P, 1 / P


def rbcm(m, v, kappa, *_):
    beta = (np.log(kappa) - np.log(v)) / 2
    P = (beta / v).sum(axis=0) + (1 - beta.sum(axis=0)) / kappa
    return (beta * m / v).sum(axis=0) / P, 1 / P


def grbcm(m, v, kappa, noise, closeness, m_c, v_c):
    beta = (np.log(v_c) - np.log(v)) / 2
    beta[0] = 1
    rest = (1 - beta.sum(axis=0)) / v_c
    P = (beta / v).sum(axis=0) + rest
    return ((beta * m / v).sum(axis=0) + rest * m_c) / P, 1 / P


def healed(m, v, kappa, *_, T):
    beta = softmax(T * (np.log(kappa) - np.log(v)) / 2)
    P = (beta / v).sum(axis=0)
    return (beta * m / v).sum(axis=0) / P, 1 / P


def softmax(a):
    top = a.max(axis=0)
    return np.exp(a - (top + np.log(np.exp(a - top).sum(axis=0))))


def barycentre(m, v, *_):
    return m.mean(axis=0), np.sqrt(v).mean(axis=0) ** 2


def blend(m, v, kappa, noise, closeness, *_):
    beta = closeness / closeness.sum(axis=0)
    P = (beta / v).sum(axis=0)
    return (beta * m / v).sum(axis=0) / P, 1 / P


def healed_blend(m, v, kappa, noise, closeness, *_, T=5.0):
    beta = closeness * softmax(T * (np.log(kappa) - np.log(v)) / 2)
    beta = beta / beta.sum(axis=0)
    P = (beta / v).sum(axis=0)
    return (beta * m / v).sum(axis=0) / P, 1 / P


FORMULAS = {
    "poe": poe,
    "gpoe": gpoe,
    "bcm": bcm,
    "rbcm": rbcm,
    "grbcm": grbcm,
    "healed": healed,
    "barycentre": barycentre,
    "blend": blend,
    "healed_blend": healed_blend,
    "npae": None,  # joint: compared with brute force below
}


def formula(chosen: CombinationRule):
    if type(chosen) is Healed:
        return partial(healed, T=chosen.temperature)
    return poe_of_y if chosen == PoE(target="y") else FORMULAS[chosen.name]


def test_every_rule_is_covered_here():
    assert set(FORMULAS) == set(RULES), "give the new rule's formula, from its paper, in FORMULAS"


@pytest.mark.parametrize("made", RULES.values(), ids=RULES)
def test_every_rule_declares_its_laws(made):
    assert "laws" in vars(made), f"{made.__name__} declares no laws"
    assert isinstance(made.laws, frozenset)
    assert made.laws <= LAWS
    assert RULES[made.name] is made


def combined(chosen: Rule, m, v, kappa, noise, closeness, m_c, v_c) -> Prediction:
    """The rule itself: messages added one by one, then the last step."""
    communication = Prediction(m_c, v_c)
    q = m.shape[1]
    total = None
    for i in range(len(m)):
        opinion = Opinion(m[i], v[i], kappa, noise, closeness[i], communication, np.full(q, i == 0))
        message = chosen.message(opinion)
        total = message if total is None else total + message
    return chosen.finish(total, kappa, communication)


def random_opinions(experts, seed, smallest=1e-3, q=7):
    rng = np.random.default_rng(seed)
    kappa = rng.uniform(0.5, 2, q)
    v_c = kappa * rng.uniform(0.5, 1, q)
    v = v_c * np.exp(rng.uniform(np.log(smallest), 0, (experts, q)))
    noise = float(rng.uniform(0.01, 0.5))
    closeness = rng.uniform(0, 1, (experts, q))
    return rng.standard_normal((experts, q)), v, kappa, noise, closeness, rng.standard_normal(q), v_c


@pytest.mark.parametrize("chosen", [r for r in EVERY if isinstance(r, Rule)], ids=repr)
@given(st.integers(1, 40), st.integers(0, 10_000))
def test_rules_follow_their_formulas(chosen, experts, seed):
    given_ = random_opinions(experts, seed)
    prediction = combined(chosen, *given_)
    mean, variance = formula(chosen)(*given_)
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(prediction.variance, variance, rtol=1e-9)


@given(st.integers(1, 8), st.integers(0, 10_000))
def test_npae_is_the_best_linear_combination(experts, seed):
    """mean a^T A^-1 m, variance kappa - a^T A^-1 a, for any covariance A with a on its diagonal."""
    rng = np.random.default_rng(seed)
    kappa = rng.uniform(0.5, 2, 3)
    B = rng.standard_normal((3, experts, experts + 2))
    A = B @ B.transpose(0, 2, 1) + np.eye(experts)
    A *= (0.2 * kappa / np.trace(A, axis1=1, axis2=2))[:, None, None]
    m = rng.standard_normal((3, experts))
    prediction = NPAE().combine(m, A, kappa)
    for q in range(3):
        a = np.diagonal(A[q])
        weights = a @ np.linalg.inv(A[q])
        np.testing.assert_allclose(prediction.mean[q], weights @ m[q], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(prediction.variance[q], kappa[q] - weights @ a, rtol=1e-5, atol=1e-6)


def ask(c, Z, chosen, k=None):
    return predict(c, Z, chosen, k, SerialEngine())


QUERIES = np.random.default_rng(5).uniform(-2.5, 2.5, (40, 2))


@pytest.mark.parametrize("chosen", [r for r in EVERY if r.name not in ("npae", "grbcm")], ids=repr)
@pytest.mark.parametrize("shared", [0, 4])
def test_a_committee_combines_its_experts_by_the_formula(chosen, shared):
    c = committee(9, 12, shared=shared)
    m, v = opinions(c, QUERIES)
    kappa = np.full(len(QUERIES), VARIANCE)
    prediction = ask(c, QUERIES, chosen)
    mean, variance = formula(chosen)(m, v, kappa, NOISE, np.ones_like(m), None, None)
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(prediction.variance, variance, rtol=1e-7)


@pytest.mark.parametrize("shared", [0, 4])
def test_grbcm_with_experts_augmented_by_hand(shared):
    """Every expert also holds the communication expert's rows, each once."""
    c = committee(9, 12, shared=shared)
    rows = [sorted({*c.experts[leaf], *c.communication}) for leaf in range(9)]
    m, v = opinions(c, QUERIES, rows)
    m_c, v_c = posterior(c.store.X[c.communication], c.store.y[c.communication], QUERIES)
    mean, variance = grbcm(m, v, VARIANCE, NOISE, None, m_c, v_c)
    prediction = ask(c, QUERIES, GRBCM())
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(prediction.variance, variance, rtol=1e-7)


@pytest.mark.parametrize("shared", [0, 4])
@pytest.mark.parametrize("asked", [None, 3])
@pytest.mark.parametrize("local", [False, True])
def test_npae_by_brute_force(shared, asked, local):
    """From the covariance of f* and all y: the experts' means are M = B y, the best guess cov(f*, M) cov(M)^-1 M."""
    c = committee(7, 10, shared=shared, local=local)
    X, y = c.store.X, c.store.y
    Ky = k(X, X) + NOISE * np.eye(len(X))
    prediction = ask(c, QUERIES, NPAE(), asked)
    distance = np.linalg.norm(QUERIES[:, None] / LENGTHSCALE - c.router.centres, axis=2)
    for q, z in enumerate(QUERIES):
        leaves = np.argsort(distance[q])[: asked or 7]
        B = np.zeros((len(leaves), len(X)))
        for i, leaf in enumerate(leaves):
            rows = c.experts[leaf]
            C = np.linalg.inv(Ky[np.ix_(rows, rows)])
            B[i, rows] = k(z[None], X[rows])[0] @ C
            B[i] /= np.linalg.norm(B[i])  # a far expert whispers; what it says counts all the same
        with_f = B @ k(X, z[None])[:, 0]
        weights = np.linalg.solve(B @ Ky @ B.T, with_f)
        np.testing.assert_allclose(prediction.mean[q], weights @ B @ y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(prediction.variance[q], VARIANCE - weights @ with_f, rtol=1e-5)


def test_npae_of_experts_that_hold_the_same_rows():
    """Dependent experts are no better than one of them."""
    c = committee(1, 12)
    twice = committee(2, 6, shared=6)
    np.testing.assert_allclose(ask(twice, QUERIES, NPAE()).mean, ask(c, QUERIES, NPAE()).mean, atol=1e-5)
    np.testing.assert_allclose(ask(twice, QUERIES, NPAE()).variance, ask(c, QUERIES, NPAE()).variance, atol=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 100.0])
def test_healed_is_a_softmax_whatever_the_variances(temperature):
    """(kappa / s^2)^50 would overflow; ratios of weights must not."""
    m, v, kappa, *rest = random_opinions(12, 3, smallest=1e-30)
    prediction = combined(Healed(temperature), m, v, kappa, *rest)
    mean, variance = healed(m, v, kappa, T=temperature)
    assert np.isfinite(prediction.mean).all()
    assert (prediction.variance > 0).all()
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(prediction.variance, variance, rtol=1e-9)


def test_healed_listens_to_the_certain():
    m, v = np.array([[0.0], [1.0]]), np.array([[0.5], [0.4]])
    ones = np.ones((2, 1))
    hot = combined(Healed(100), m, v, np.ones(1), 0.1, ones, None, None)
    cold = combined(Healed(0), m, v, np.ones(1), 0.1, ones, None, None)
    assert hot.mean[0] > 0.999
    np.testing.assert_allclose(cold.mean, gpoe(m, v)[0])


@pytest.mark.parametrize("temperature", [-1.0, np.nan, np.inf])
def test_healed_refuses_a_senseless_temperature(temperature):
    with pytest.raises(InvalidParameter, match="temperature must be finite and at least 0"):
        Healed(temperature)


def test_blend_is_gpoe_where_all_are_asked():
    c = committee(9, 12)
    for asked in (None, 9, 20):
        blended, product = ask(c, QUERIES, Blend(), asked), ask(c, QUERIES, GPoE(), asked)
        np.testing.assert_array_equal(blended.mean, product.mean)
        np.testing.assert_array_equal(blended.variance, product.variance)


def test_the_papers_rule_falls_below_the_noise_and_the_latent_one_does_not():
    """Every expert holds the same 60 rows: sure of f, so M of them say noise / M of y."""
    one = committee(1, 60)
    experts = replace(one.experts, starts=np.arange(9) * 60, indices=np.tile(np.arange(60), 8))
    eight = replace(one, experts=experts, tree=Tree.balanced(8))
    Z = one.store.X[:5]
    assert (ask(eight, Z, PoE(target="y")).variance < NOISE / 4).all()
    _, variance = posterior(one.store.X, one.store.y, Z)
    np.testing.assert_allclose(ask(eight, Z, PoE(target="f")).variance, variance / 8, rtol=1e-6)


# Laws. Each is a measurement that says whether it holds; it must hold exactly where it is declared.


def must(chosen: Rule, law: str, holds: bool) -> None:
    if law in chosen.laws:
        assert holds, f"{chosen!r} declares {law}, but it does not hold"
    else:
        assert not holds, f"{law} holds for {chosen!r}, which does not declare it"


@every_rule
def test_exact_with_one_leaf(chosen):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (50, 2))
    y = np.sin(2 * X).sum(axis=1) + 0.2 * rng.standard_normal(50)
    model = HGPRegressor(
        partition="random", leaf_size=50, combine=chosen, experts_per_query=None, standardize=False, random_state=0
    ).fit(X, y)
    assert model.n_leaves_ == 1
    variance, *scales, noise = np.exp(model.theta_)
    Z = rng.uniform(-2.5, 2.5, (30, 2))

    def kernel(A, B):
        return variance * np.exp(-0.5 * (((A[:, None] - B[None]) / scales) ** 2).sum(axis=2))

    C = np.linalg.inv(kernel(X, X) + noise * np.eye(50))
    cross = kernel(X, Z)
    mean, std = model.predict(Z, return_std=True, latent=True)
    exact = np.sqrt(variance - np.einsum("pq,pr,rq->q", cross, C, cross))
    same = np.allclose(mean, cross.T @ C @ y, rtol=1e-6, atol=1e-6) and np.allclose(std, exact, rtol=1e-6)
    must(chosen, "exact_with_one_leaf", same)


@every_rule
@pytest.mark.parametrize("asked", [None, 5])
def test_returns_to_prior(chosen, asked):
    c = committee(16, 8)
    far = np.array([[1e3, 0], [-40, 40], [0, -1e6]])
    prediction = ask(c, far, chosen, asked)
    prior = VARIANCE + (NOISE if chosen.target == "y" else 0)
    must(chosen, "returns_to_prior", np.allclose(prediction.variance, prior, rtol=1e-9))
    np.testing.assert_allclose(prediction.mean, 0, atol=1e-9)


@pytest.mark.parametrize("target", ["f", "y"])
def test_poe_is_overconfident_far_away(target):
    prior = VARIANCE + (NOISE if target == "y" else 0)
    prediction = ask(committee(16, 8), np.array([[1e3, 0]]), PoE(target=target))
    np.testing.assert_allclose(prediction.variance, prior / 16, rtol=1e-9)


TREES = {
    "one level": Tree.regular(1, 64),
    "two levels": Tree.regular(2, 8),
    "three levels": Tree.regular(3, 4),
    "six levels": Tree.regular(6, 2),
    "uneven": Tree.nested([20, [[1, [9, [3]]], 7], [[[4]]], 20]),
    "a vine": Tree.nested([1, [1, [1, [61]]]]),
}


@every_rule
@pytest.mark.parametrize("asked", [None, 7])
def test_invariant_to_tree(chosen, asked):
    c = committee(64, 6)
    predictions = [ask(replace(c, tree=tree), QUERIES, chosen, asked) for tree in TREES.values()]
    same = all(
        np.allclose(one.mean, predictions[0].mean, rtol=1e-10, atol=1e-12)
        and np.allclose(one.variance, predictions[0].variance, rtol=1e-10)
        for one in predictions
    )
    must(chosen, "invariant_to_tree", same)


def largest_step(c, chosen, start, end, steps):
    """The largest change of mean and of variance along a line, and where it happens."""
    at = np.linspace(0, 1, steps + 1)
    prediction = ask(c, start + at[:, None] * (end - start), chosen, 3)
    jump = np.maximum(abs(np.diff(prediction.mean)), abs(np.diff(prediction.variance)))
    worst = int(jump.argmax())
    a, b = (start + at[i] * (end - start) for i in (worst, worst + 1))
    return jump[worst], a, b


@every_rule
def test_continuous(chosen):
    """Walk along lines with the nearest 3 of 30 experts, then look closer at the largest step: does it vanish?"""
    c = committee(30, 8, seed=3)
    shrinks = []
    for start, end in [([-2, -1], [2, 1.3]), ([-0.6, 0.7], [0.9, -0.2]), ([-0.1, -2], [0.2, 2])]:
        coarse, a, b = largest_step(c, chosen, np.array(start, float), np.array(end, float), 3000)
        _, a, b = largest_step(c, chosen, a, b, 1000)
        finer, _, _ = largest_step(c, chosen, a, b, 1000)  # a steep slope may hide in the first
        shrinks.append(finer / coarse)
    assert all(s < 0.05 or s > 0.5 for s in shrinks), f"cannot tell: {shrinks}"
    must(chosen, "continuous", all(s < 0.05 for s in shrinks))


@every_rule
def test_rules_are_values(chosen):
    """Equal when made alike; their text shows their settings."""
    assert chosen == type(chosen)(**vars(chosen))
    assert hash(chosen) == hash(type(chosen)(**vars(chosen)))
    assert all(chosen != other for other in EVERY if other is not chosen)
    settings_ = ", ".join(f"{name}={value!r}" for name, value in vars(chosen).items())
    assert repr(chosen) == f"{type(chosen).__name__}({settings_})"


def test_names_and_objects_of_rules():
    for name, made in RULES.items():
        assert type(rule(name, "blend")) is made
        assert type(rule("auto", name)) is made
    own = Healed(3)
    assert rule(own, "blend") is own
    with pytest.raises(InvalidParameter, match=r"combine must be one of 'auto', 'barycentre', .* got 'product'"):
        rule("product", "blend")
    with pytest.raises(InvalidParameter, match=r"PoE's target must be 'f' .* got 'z'"):
        PoE(target="z")


@every_rule
def test_a_rule_either_adds_messages_or_combines_experts_jointly(chosen):
    assert isinstance(chosen, Rule) != isinstance(chosen, JointRule)
    assert hasattr(chosen, "message") == isinstance(chosen, Rule)
    assert chosen.closed_form_held_out == (isinstance(chosen, Rule) and not chosen.needs_communication)
