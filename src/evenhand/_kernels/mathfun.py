"""exp and log1p that LLVM can vectorize.

Numba without SVML calls the C library one number at a time. These are the textbook reductions with
polynomials, free of branches and calls, so a loop over a block compiles to vector instructions.
Relative error is below 1e-14 over the ranges stated (tested against NumPy).
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_LOG2E = 1.4426950408889634
_LN2_HI = 6.93147180369123816490e-01
_LN2_LO = 1.90821492927058770002e-10
# Adding and subtracting 1.5·2^52 rounds to the nearest integer and leaves it in the low bits.
_ROUND = 6755399441055744.0
# Bit patterns, unsigned because AVX2 has no signed 64-bit shift.
_BIAS = np.uint64(1023)
_MANTISSA = np.uint64(52)
_TWO52 = np.uint64(0x4330000000000000)
_FRACTION = np.uint64(0x000FFFFFFFFFFFFF)
_SQRT_HALF = np.uint64(0x3FE6A09E667F3BCD)
_SHIFT = np.uint64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)


@intrinsic
def _bits(typing_context, x):
    """The 64 bits of a float64 as an integer."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.uint64(types.float64), generate


@intrinsic
def _number(typing_context, bits):
    """The float64 that an integer's 64 bits spell."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), generate


@njit(error_model="numpy")
def exp_nonpositive(x):
    """e^x for x ≤ 0; below −700 it stays at e^−700.

    That keeps logarithms and reciprocals finite, also after a division by the β of a softplus.
    """
    x = max(x, -700.0)
    t = x * _LOG2E + _ROUND
    k = t - _ROUND
    r = (x - k * _LN2_HI) - k * _LN2_LO
    p = 2.08767569878681e-09  # 1/12!
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 1.984126984126984e-04
    p = p * r + 1.3888888888888889e-03
    p = p * r + 8.333333333333333e-03
    p = p * r + 4.1666666666666664e-02
    p = p * r + 1.6666666666666666e-01
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    scale = _number((_bits(t) + _BIAS) << _MANTISSA)
    return p * scale


@njit(error_model="numpy")
def log_positive(q):
    """log q for normal q > 0."""
    bits = _bits(q)
    # Shift the mantissa into [√½, √2) so that the series converges at the same pace for all q.
    bits = bits + _SHIFT
    # Convert the exponent without an int→float conversion, which AVX2 lacks for 64 bits.
    e = _number((bits >> _MANTISSA) + _TWO52) - 4503599627371519.0
    m = _number((bits & _FRACTION) + _SQRT_HALF)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    r = 1.479819860511658591e-01
    r = r * z + 1.531383769920937332e-01
    r = r * z + 1.818357216161805012e-01
    r = r * z + 2.222219843214978396e-01
    r = r * z + 2.857142874366239149e-01
    r = r * z + 3.999999999940941908e-01
    r = r * z + 6.666666666666735130e-01
    r = r * z
    h = 0.5 * f * f
    return e * _LN2_HI - ((h - (s * (h + r) + e * _LN2_LO)) - f)


@njit(error_model="numpy")
def log1p_unit(x, inverse):
    """log(1 + x) for 0 ≤ x ≤ 1, with full relative accuracy for small x.

    `inverse` is 1/(1 + x), which callers have at hand; divisions are the costliest step here.
    """
    q = 1.0 + x
    return log_positive(q) + (x - (q - 1.0)) * inverse
