"""What kernels are made of: vectorizable exp and log, and small polynomials in registers.

Numba without SVML calls the C library one number at a time. `exp` and `log` here are the textbook
reductions with polynomials, free of branches and calls, so a loop over a block compiles to vector
instructions. Relative error is below 1e-14 over the ranges stated (tested against NumPy).
Polynomials are near the best ones of their degree (interpolation at Chebyshev nodes), in Estrin's
order: short chains of dependent steps, so that the processor works on several rows at once.

Small polynomials are tuples whose length the compiler knows. A kernel written with them is one loop
over rows that holds monomials, coefficients and sums in vector registers, eight rows at a time, and
touches memory only for the columns it reads. Sums may be reordered (that is what vectorizes them),
always in the same way; nothing else may be.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from . import compiling  # noqa: F401  (listens from now on)
from .basis import Basis

# A kernel is loops over arrays that come in: no arrays of its own, no `min` and `max`, no calls of
# NumPy. Each of those is compiled along with it, and takes longer than the loops do.
_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
jit = njit(cache=True, **_OPTIONS)
# A piece of a kernel: compiled with the kernels that call it, and called by nothing else.
piece = njit(no_cpython_wrapper=True, **_OPTIONS)
# A piece with one caller: put into its code, which takes less than to compile it for itself.
inlined = njit(inline="always", **_OPTIONS)
# Sums may be reordered, always in the same way, and fused (that is what vectorizes them); nothing
# else may, or the rounding tricks below would be optimized away.
piece_reordered = njit(no_cpython_wrapper=True, fastmath={"reassoc"}, **_OPTIONS)
piece_sum = njit(no_cpython_wrapper=True, fastmath={"reassoc", "contract"}, **_OPTIONS)

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


@intrinsic
def muladd(typing_context, a, b, c):
    """a·b + c, rounded once where the processor can."""

    def generate(context, builder, signature, args):
        product = builder.fmul(args[0], args[1], flags=("contract",))
        return builder.fadd(product, args[2], flags=("contract",))

    return types.float64(types.float64, types.float64, types.float64), generate


@piece
def _exp(x):
    t = x * _LOG2E + _ROUND
    k = t - _ROUND
    r = muladd(k, -_LN2_LO, muladd(k, -_LN2_HI, x))
    r2 = r * r
    a = muladd(0.1666666666664823, r, 0.5)
    b = muladd(0.0083333333537784, r, 0.04166666666665131)
    c = muladd(0.00019841208634676895, r, 0.0013888888905919951)
    d = muladd(2.762516986143085e-06, r, 2.4801536310577713e-05)
    d = muladd(2.761385057657388e-07, r2, d)
    q = muladd(muladd(d, r2, c), r2 * r2, muladd(b, r2, a))
    scale = _number((_bits(t) + _BIAS) << _MANTISSA)
    return muladd(q, r2, 1.0 + r) * scale


@piece
def exp_nonpositive(x):
    """e^x for x ≤ 0; below −700 it stays at e^−700.

    That keeps logarithms and reciprocals finite, also after a division by the β of a softplus.
    """
    return _exp(x if x > -700.0 else -700.0)


@piece
def exp_bounded(x):
    """e^x, which stays at e^±700 beyond ±700: hundreds of them add up to a float."""
    return _exp((x if x < 700.0 else 700.0) if x > -700.0 else -700.0)


@piece
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


@piece
def log1p_unit(x, inverse):
    """log(1 + x) = 2 artanh(x/(2 + x)) for 0 ≤ x ≤ 1, with full relative accuracy for small x.

    `inverse` is 1/(2 + x): divisions are the costliest step here, and callers can share them.
    """
    s = x * inverse
    z = s * s
    z2 = z * z
    a = muladd(0.6666666666668257, z, 2.0)
    b = muladd(0.2857142911158254, z, 0.39999999995288094)
    c = muladd(0.1818285965557587, z, 0.22222190865909242)
    d = muladd(0.1359128031252899, z, 0.1536367880262978)
    e = muladd(0.1778049010705283, z, 0.09880918995513133)
    z4 = z2 * z2
    high = muladd(e, z4, muladd(d, z2, c))
    return s * muladd(high, z4, muladd(b, z2, a))


_REORDER = ("reassoc", "contract")


def _basis_for(count: int, n_variables: int) -> Basis:
    """The smallest basis whose moments include the first `count` monomials."""
    degree = 1
    while Basis(degree, n_variables).n_moments < count:
        degree += 1
    return Basis(degree, n_variables)


def _pack(builder, values):
    out = ir.Constant(ir.ArrayType(ir.DoubleType(), len(values)), ir.Undefined)
    for j, value in enumerate(values):
        out = builder.insert_value(out, value, j)
    return out


@intrinsic
def monomials(typing_context, u, v, like):
    """The first len(like) monomials of (u, v), or of u where v is None, in the basis's order."""
    count = len(like)
    n_variables = 1 if isinstance(v, types.NoneType) else 2
    factors = _basis_for(count, n_variables).factors

    def generate(context, builder, signature, args):
        out = [ir.Constant(ir.DoubleType(), 1.0), *args[:n_variables]]
        for j in range(len(out), count):
            a, b = factors[j]
            out.append(builder.fmul(out[a], out[b]))
        return _pack(builder, out[:count])

    return like(types.float64, v, like), generate


@intrinsic
def unpack(typing_context, array, like):
    """The first len(like) numbers of a contiguous array as a tuple."""

    def generate(context, builder, signature, args):
        data = context.make_array(array)(context, builder, args[0]).data
        index = [ir.Constant(ir.IntType(64), j) for j in range(len(like))]
        return _pack(builder, [builder.load(builder.gep(data, [j])) for j in index])

    return like(array, like), generate


@intrinsic
def add_into(typing_context, sums, out, at):
    """out[at + j] += sums[j] for every j."""

    def generate(context, builder, signature, args):
        data = context.make_array(out)(context, builder, args[1]).data
        for j in range(len(sums)):
            place = builder.gep(data, [builder.add(args[2], ir.Constant(ir.IntType(64), j))])
            value = builder.extract_value(args[0], j)
            builder.store(builder.fadd(builder.load(place), value), place)
        return context.get_dummy_value()

    return types.none(sums, out, types.intp), generate


@intrinsic
def polynomial(typing_context, coefficients, columns):
    """Σⱼ coefficients[j]·columns[j], where columns[0] is 1, added up in pairs."""
    count = len(coefficients)

    def generate(context, builder, signature, args):
        c = [builder.extract_value(args[0], j) for j in range(count)]
        m = [builder.extract_value(args[1], j) for j in range(count)]
        parts = []
        for j in range(0, count, 2):
            part = builder.fmul(c[j], m[j]) if j else c[0]
            if j + 1 < count:
                product = builder.fmul(c[j + 1], m[j + 1], flags=("contract",))
                part = builder.fadd(part, product, flags=("contract",))
            parts.append(part)
        while len(parts) > 1:
            pairs = [parts[j : j + 2] for j in range(0, len(parts), 2)]
            parts = [builder.fadd(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return parts[0]

    return types.float64(coefficients, columns), generate


@intrinsic
def accumulate(typing_context, sums, r, columns):
    """sums[j] + r·columns[j] for every j of `sums`; nothing for an empty tuple."""
    count = len(sums)

    def generate(context, builder, signature, args):
        out = args[0]
        for j in range(count):
            product = builder.fmul(args[1], builder.extract_value(args[2], j), flags=_REORDER)
            value = builder.fadd(builder.extract_value(out, j), product, flags=_REORDER)
            out = builder.insert_value(out, value, j)
        return out

    return sums(sums, types.float64, columns), generate


@piece_reordered
def plus(total, x):
    """A sum that may be reordered."""
    return total + x


@piece_reordered
def times(total, x):
    """A product that may be reordered."""
    return total * x
