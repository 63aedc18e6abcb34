#!/usr/bin/env python3
"""Print the polynomial coefficients of elementary.h: minimax fits, rounded to float one by one.

Each fit finds p of the given degree that minimises max |weight(x) (p(x) - f(x))| over an interval, by least squares whose
weights are multiplied by the errors they leave (Lawson 1961), on values computed to 40 digits. Then the constant
coefficient is rounded to float and the others are fitted again, and so on upwards, so that later coefficients make up
for the rounding of earlier ones. The error printed is that of the rounded polynomial.
"""

import sys

import numpy as np
from mpmath import mp, mpf

mp.dps = 40


def lawson(x, y, weight, powers, rounds=200):
    """Coefficients c of sum c_k x^powers[k], close to the minimax ones."""
    basis = np.stack([x**p for p in powers], axis=1) * weight[:, None]
    scale = np.abs(basis).max(axis=0)
    lawson_weight = np.full(len(x), 1 / len(x))
    best, best_error = None, np.inf
    for _ in range(rounds):
        root = np.sqrt(lawson_weight)
        c = np.linalg.lstsq(basis / scale * root[:, None], y * weight * root, rcond=None)[0] / scale
        error = np.abs(basis @ c - y * weight)
        if error.max() < best_error:
            best, best_error = c, error.max()
        lawson_weight = lawson_weight * error
        lawson_weight /= lawson_weight.sum()
    return best


def fit(name, f, weight, a, b, degree):
    a, b = mpf(a), mpf(b)
    nodes = [(a + b) / 2 + (b - a) / 2 * mp.cos(mp.pi * (k + mpf(1) / 2) / 601) for k in range(601)]
    x = np.array([float(t) for t in nodes])
    y = np.array([float(f(t)) for t in nodes])
    w = np.array([float(weight(t)) for t in nodes])
    fixed: list[float] = []
    for k in range(degree + 1):
        rest = y - sum(v * x**i for i, v in enumerate(fixed))
        fixed.append(float(np.float32(lawson(x, rest, w, range(k, degree + 1))[0])))
    error = np.abs(w * (sum(v * x**i for i, v in enumerate(fixed)) - y)).max()
    print(f"{name}: relative error 2^{np.log2(error):.1f}")
    print("   ", ", ".join(f"{v:.9g}f" for v in fixed))


def taylor_safe(f, series):
    """f away from zero, its series near zero, where f would cancel."""
    return lambda x: series(x) if abs(x) < mpf("1e-8") else f(x)


EXP_Q = taylor_safe(lambda r: (mp.expm1(r) - r) / r**2, lambda r: mpf(1) / 2 + r / 6)
LOG_P = taylor_safe(lambda t: (mp.log1p(t) - t + t * t / 2) / t**3, lambda t: mpf(1) / 3 - t / 4)
ERF_P = taylor_safe(lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1, lambda s: 2 / mp.sqrt(mp.pi) * (1 - s / 3) - 1)
TANH_P = taylor_safe(lambda s: (mp.tanh(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, lambda s: -mpf(1) / 3 + 2 * s / 15)
SIN_P = taylor_safe(lambda s: (mp.sin(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, lambda s: -mpf(1) / 6 + s / 120)
COS_P = taylor_safe(lambda s: (mp.cos(mp.sqrt(s)) - 1 + s / 2) / s**2, lambda s: mpf(1) / 24 - s / 720)


def ERFCX_P(z):
    u = z + mpf("0.29")
    t = 1 / u - 2
    return mp.exp(t * t) * mp.erfc(t) / u


FITS = {
    # exp(r) = 1 + r + r^2 q(r)
    "exp": lambda: fit("exp q(r)", EXP_Q, lambda r: r * r / mp.exp(r), "-0.3475", "0.3475", 4),
    "expm1": lambda: fit("expm1 q(r)", EXP_Q, lambda r: r, "-0.3475", "0.3475", 5),
    # log1p(f) = f - f^2/2 + f^3 p(f)
    "log": lambda: fit("log p(f)", LOG_P, lambda t: t * t, "-0.2930", "0.4143", 8),
    # erf(x) = x + x p(x^2)
    "erf_small": lambda: fit("erf p(x^2)", ERF_P, lambda s: 1 / (1 + ERF_P(s)), "0", "0.81", 6),
    # erfc(t) = exp(p(t - 1)), where what matters is the error of 1 - erfc(t)
    "erf_large": lambda: fit("erf p(t - 1)", lambda z: mp.log(mp.erfc(z + 1)), lambda z: mp.erfc(z + 1) / mp.erf(z + 1), "-0.101", "3", 7),
    # tanh(x) = x + x^3 p(x^2)
    "tanh": lambda: fit("tanh p(x^2)", TANH_P, lambda s: s, "0", "0.4", 5),
    # sin(r) = r + r^3 p(r^2); cos(r) = 1 - r^2/2 + r^4 p(r^2)
    "sin": lambda: fit("sin p(r^2)", SIN_P, lambda s: s, "0", "0.6200", 3),
    "cos": lambda: fit("cos p(r^2)", COS_P, lambda s: s * s, "0", "0.6200", 2),
    # erfc(t) exp(t^2) = u p(u - 0.29), u = 1/(t + 2), 0 <= t <= 10.2
    "erfcx": lambda: fit("erfcx p(u - 0.29)", ERFCX_P, lambda z: 1 / ERFCX_P(z), "-0.2081", "0.21", 9),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or FITS:
        FITS[name]()
