"""Small polynomials in registers: tuples whose length the compiler knows.

A kernel written with them is one loop over rows that holds monomials, coefficients and sums in
vector registers, eight rows at a time, and touches memory only for the columns it reads. Sums may
be reordered (that is what vectorizes them), always in the same way; nothing else may be.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from .basis import Basis
from .mathfun import jit, piece_reordered

# Rows between two writes of the sums: short enough that sums keep their digits and that products
# of numbers below 2 stay below the largest float.
STRETCH = 512
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


# Doubles of a row that are added up at once, and numbers of their products with one another: of the
# first half of the columns with that half, then of the others but the last with all.
LANES = 8
PRODUCTS = LANES * LANES // 4 + (LANES // 2 - 1) * LANES


def product_places(pairs):
    """Places of products of columns i ≥ j among the PRODUCTS of a row, by pairs (i, j)."""
    half = LANES // 2
    i, j = np.moveaxis(np.array(pairs), -1, 0)
    # The last column has no products of its own.
    i, j = np.where(i == LANES - 1, j, i), np.where(i == LANES - 1, i, j)
    return np.where(i < half, i * half, half * half + (i - half) * LANES) + j


def aligned_zeros(*shape):
    """Zeros whose rows of LANES numbers are cache lines: read across two of them, a vector takes
    twice as long."""
    size = int(np.prod(shape))
    room = np.zeros(size + LANES)
    start = -room.ctypes.data % (8 * LANES) // 8
    return room[start : start + size].reshape(shape)


def _vector_at(context, builder, array, value, row, width, shift=0, lanes=LANES):
    """Where numbers of a row of a C-contiguous (n, width) array lie, as one vector."""
    data = context.make_array(array)(context, builder, value).data
    place = builder.mul(row, ir.Constant(ir.IntType(64), width))
    place = builder.gep(data, [builder.add(place, ir.Constant(ir.IntType(64), shift))])
    return builder.bitcast(place, ir.VectorType(ir.DoubleType(), lanes).as_pointer())


def _add_vector(builder, place, step):
    total = builder.fadd(builder.load(place, align=8), step, flags=("contract",))
    builder.store(total, place, align=8)


@intrinsic
def add_row(typing_context, columns, i, out, to):
    """out[to] += columns[i]; both have LANES columns."""

    def generate(context, builder, signature, args):
        step = builder.load(_vector_at(context, builder, columns, *args[:2], LANES), align=8)
        _add_vector(builder, _vector_at(context, builder, out, *args[2:], LANES), step)
        return context.get_dummy_value()

    return types.none(columns, types.intp, out, types.intp), generate


@intrinsic
def add_products(typing_context, columns, i, out, to):
    """out[to] += products of the LANES numbers columns[i] with one another, PRODUCTS of them."""

    def generate(context, builder, signature, args):
        def numbers(lanes):
            return ir.VectorType(ir.IntType(32), lanes)

        row = builder.load(_vector_at(context, builder, columns, *args[:2], LANES), align=8)
        shift, half = 0, LANES // 2
        for j in range(LANES - 1):
            lanes = half if j < half else LANES
            with_all = ir.Constant(numbers(lanes), list(range(lanes)))
            others = builder.shuffle_vector(row, row, with_all)
            own = builder.shuffle_vector(row, row, ir.Constant(numbers(lanes), [j] * lanes))
            step = builder.fmul(own, others, flags=("contract",))
            place = _vector_at(context, builder, out, *args[2:], PRODUCTS, shift, lanes)
            _add_vector(builder, place, step)
            shift += lanes
        return context.get_dummy_value()

    return types.none(columns, types.intp, out, types.intp), generate


@jit
def sum_rows(columns, index, out):
    """out[index[i]] += columns[i], of LANES columns."""
    for i in range(len(index)):
        add_row(columns, i, out, index[i])


@jit
def sum_products(columns, index, out):
    """out[index[i]] += PRODUCTS products of the numbers columns[i] with one another."""
    for i in range(len(index)):
        add_products(columns, i, out, index[i])


@jit
def multiply_rows(columns, scale, out):
    """out[i] = scale[i]·columns[i]."""
    for i in range(len(scale)):
        for a in range(columns.shape[1]):
            out[i, a] = scale[i] * columns[i, a]


@piece_reordered
def plus(total, x):
    """A sum that may be reordered."""
    return total + x


@piece_reordered
def times(total, x):
    """A product that may be reordered."""
    return total * x


def part(column, start, stop):
    """column[start:stop], or None: indices into a slice are known not to count from the end."""


def standardized(column, i, mean, inverse):
    """(column[i] − mean)·inverse, or None where there is no such column."""


def weight_of(weight, i):
    """weight[i], or 1 where all rows count alike."""


@overload(part)
def _part(column, start, stop):
    if isinstance(column, types.NoneType):
        return lambda column, start, stop: None
    return lambda column, start, stop: column[start:stop]


@overload(standardized)
def _standardized(column, i, mean, inverse):
    if isinstance(column, types.NoneType):
        return lambda column, i, mean, inverse: None
    return lambda column, i, mean, inverse: (column[i] - mean) * inverse


@overload(weight_of)
def _weight_of(weight, i):
    if isinstance(weight, types.NoneType):
        return lambda weight, i: 1.0
    return lambda weight, i: weight[i]
