import numpy as np
from gigagp import HGPRegressor, load, plotting

rng = np.random.default_rng(0)
hour = rng.uniform(0, 24, (800, 1))
rate = 4 * np.exp(1.5 * np.sin(2 * np.pi * hour[:, 0] / 24) - 1)
calls = rng.poisson(rate)

model = HGPRegressor(likelihood="poisson", random_state=0).fit(hour, calls)
law = model.predict_distribution(hour)
low, high = law.interval(0.95)
assert low.min() >= 0
assert (high == np.floor(high)).all()
assert np.abs(law.mean - rate).mean() < 0.3
print(law.pmf(np.zeros(800))[:3])  # the probability that nobody calls

print(model.evaluate(hour, calls))
mean, deviation = model.predict([[3.0]], return_std=True, latent=True)  # of the rate, without the variation of counts
plotting.predictive_band(model)  # the picture below

model.save("calls")
assert (load("calls").predict_quantiles(hour, 0.9) == law.quantile([0.9])).all()
