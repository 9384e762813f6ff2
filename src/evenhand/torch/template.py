"""Source of the Triton kernels: one template, unrolled for a number of groups and a basis.

A kernel reads each row once (score, target, group, weight), standardizes and bounds the score,
forms the monomials of the basis and the probabilities of the groups in registers, and then

- "first":    adds up the loss, its score Σ r_k φ, Σh and Σh·z;
- "second":   adds up the loss, its score and the Hessian;
- "gradient": writes scale·(h − ω(Σh + z·Σhz)/n).

Up to `UNROLLED` groups each has registers of its own; more share a two-dimensional block. Sums are
kept in float32 for each place of a block while a program walks its tiles, so that each holds a few
hundred rows, and are added up in float64 afterwards; those that hold more are kept in float64, and
so is the loss, since a Newton step is taken or not by differences of it.

Text rather than `tl.static_range`: accumulators carried through a loop are variables, and their
number depends on the groups and the basis.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..kernels.basis import Basis

UNROLLED = 8


@dataclass(frozen=True)
class Shape:
    """What a kernel is compiled for.

    Attributes
    ----------
    mode : {"first", "second", "gradient"}
    n_groups : int
    basis : Basis
    limit : float or None
        c of t = c·tanh(z/c).
    weighted : bool
        Whether there are weights ω; without, all rows count 1.
    adds : bool
        Whether a gradient is added to what is there.
    """

    mode: str
    n_groups: int
    basis: Basis
    limit: float | None
    weighted: bool
    adds: bool = False

    @property
    def is_wide(self) -> bool:
        return self.n_groups > UNROLLED

    @property
    def wide(self) -> int:
        """Places along the axis of groups."""
        return round_up(self.n_groups)

    @property
    def n_sums(self) -> int:
        """Sums that a program writes."""
        free, d = self.n_groups - 1, self.basis.n_terms
        second = free * (free + 1) // 2 * self.basis.n_moments
        return 1 + free * d + (2 if self.mode == "first" else second)


def round_up(count: int) -> int:
    """The next power of two."""
    return 1 << max(count - 1, 0).bit_length()


# A sum that a program keeps: its length, what a tile adds, and the line that stores it; the loss
# comes first.
Sum = tuple[str, str, str]


def source(shape: Shape) -> str:
    """A module with one function, `kernel`."""
    weights, ahead, rows, sums = _wide(shape) if shape.is_wide else _narrow(shape)
    outputs, after = "out_ptr", []
    if shape.mode == "gradient":
        outputs += ", taken_ptr, upstream_ptr, scale, portion"
        ahead += [
            "constant = (tl.load(taken_ptr) * portion).to(tl.float32)",
            "along = (tl.load(taken_ptr + 1) * portion).to(tl.float32)",
            "scale = scale * tl.load(upstream_ptr).to(tl.float32) * inverse",
        ]
        rows.append("g = scale * (h - w * (constant + along * z))")
        if shape.adds:
            rows.append("g += tl.load(out_ptr + row, mask=inside, other=0.0).to(tl.float32)")
        rows.append("tl.store(out_ptr + row, g, mask=inside)")
    else:
        after.append(f"out = out_ptr + tl.program_id(0) * {shape.n_sums}")
        for i, (length, term, store) in enumerate(sums):
            kind = "tl.float32" if i > 0 and length == "BLOCK" else "tl.float64"
            ahead.append(f"sum{i} = tl.zeros(({length},), dtype={kind})")
            rows.append(f"sum{i} += ({term}).to({kind})")
            after.append(store.format(f"sum{i}"))
    head = f"def kernel(s_ptr, y_ptr, a_ptr, w_ptr, mean, inverse, {weights}, {outputs},"
    body = [
        *ahead,
        "for tile in range(tl.program_id(0), n_tiles, tl.num_programs(0)):",
        *("    " + line for line in _load(shape) + rows),
        *after,
    ]
    lines = [
        "import triton", "import triton.language as tl", "@triton.jit",
        f"{head} n, n_tiles, stride, BLOCK: tl.constexpr):", *("    " + line for line in body),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _load(shape: Shape) -> list[str]:
    """A tile of rows: z, t, dt/dz as `steep`, group a, weight w, monomials m1, m2, …"""
    basis, limit = shape.basis, shape.limit
    out = [
        # Rows are numbered in 64 bits where n has them, which costs registers.
        "row = (tile + (n - n)) * stride * BLOCK + tl.arange(0, BLOCK)",
        "inside = row < n",
        "s = tl.load(s_ptr + row, mask=inside, other=0.0).to(tl.float32)",
        f"a = tl.load(a_ptr + row, mask=inside, other={shape.n_groups}).to(tl.int32)",
        "z = (s - mean) * inverse",
        "w = tl.load(w_ptr + row, mask=inside, other=0.0)"
        if shape.weighted
        else "w = inside.to(tl.float32)",
    ]
    if limit is None:
        out += ["m1 = z", "steep = 1.0"]
    else:
        out += [
            f"e = tl.exp(tl.abs(z) * {-2.0 / limit!r})",
            "share = (1.0 - e) / (1.0 + e)",
            f"m1 = tl.where(z < 0.0, share * {-limit!r}, share * {limit!r})",
            "steep = 1.0 - share * share",
        ]
    if basis.n_variables == 2:
        out.append("m2 = tl.load(y_ptr + row, mask=inside, other=0.0).to(tl.float32)")
    count = basis.n_moments if shape.mode == "second" else basis.n_terms
    for j in range(1 + basis.n_variables, count):
        out.append(f"m{j} = m{basis.factors[j, 0]} * m{basis.factors[j, 1]}")
    return out


def _times(value: str, j: int) -> str:
    """value·m_j; the first monomial is 1."""
    return value if j == 0 else f"{value} * m{j}"


def _slope_terms(basis: Basis) -> list[list[tuple[float, int]]]:
    """For each leading monomial the (coefficient, term) pairs of d(φ·w)/dt."""
    table = basis._slope_table(basis.n_terms)
    return [
        [(float(table[j, i]), j) for j in range(basis.n_terms) if table[j, i]]
        for i in range(basis.n_slopes)
    ]


def _narrow(shape: Shape) -> tuple[str, list[str], list[str], list[Sum]]:
    """Weights, lines before the loop over tiles and in it, and sums: registers for each group."""
    basis, free = shape.basis, shape.n_groups - 1
    d, ahead, rows = basis.n_terms, [], []
    # By value: a table of weights would have to be copied to the device before each pass.
    weights = ", ".join(f"w{k}_{j}" for k in range(free) for j in range(d))
    for k in range(free):
        for i, terms in enumerate(_slope_terms(basis)):
            ahead.append(f"c{k}_{i} = " + " + ".join(f"{c!r} * w{k}_{j}" for c, j in terms))
        f = " + ".join(_times(f"w{k}_{j}", j) for j in range(d))
        slope = " + ".join(_times(f"c{k}_{i}", i) for i in range(basis.n_slopes))
        rows += [
            f"f{k} = {f}",
            f"q{k} = ({slope}) * steep",
            f"a{k} = (a == {k + 1}).to(tl.float32)",
        ]
    rows += _probabilities(free)
    rows += [f"r{k} = w * (a{k} - p{k})" for k in range(free)]
    rows.append("h = " + " + ".join(f"r{k} * q{k}" for k in range(free)))
    sums = ["loss * w", *(_times(f"r{k}", j) for k in range(free) for j in range(d))]
    more, second = _second(shape) if shape.mode == "second" else ([], ["h", "h * z"])
    rows, sums = rows + more, sums + second
    store = "tl.store(out + {}, tl.sum({{}}, axis=0))"
    return weights, ahead, rows, [("BLOCK", x, store.format(i)) for i, x in enumerate(sums)]


def _probabilities(free: int) -> list[str]:
    """Those of all groups but the first, and the loss; what a kernel does not use costs nothing."""
    top = "tl.maximum(f0, 0.0)"
    for k in range(1, free):
        top = f"tl.maximum({top}, f{k})"
    return [
        f"top = {top}",
        *(f"e{k} = tl.exp(f{k} - top)" for k in range(free)),
        " + ".join(["total = tl.exp(-top)", *(f"e{k}" for k in range(free))]),
        "part = 1.0 / total",
        *(f"p{k} = e{k} * part" for k in range(free)),
        # Rows beyond the last have weight 0, and group K adds nothing here.
        " - ".join(["loss = top + tl.log(total)", *(f"a{k} * f{k}" for k in range(free))]),
    ]


def _second(shape: Shape) -> tuple[list[str], list[str]]:
    """Hessian by moments, blocks (k, l ≤ k)."""
    rows, sums = [], []
    for k in range(shape.n_groups - 1):
        for other in range(k + 1):
            own = f"p{k} * (1.0 - p{k})" if k == other else f"-p{k} * p{other}"
            rows.append(f"v{k}_{other} = w * ({own})")
            sums += [_times(f"v{k}_{other}", j) for j in range(shape.basis.n_moments)]
    return rows, sums


def _wide(shape: Shape) -> tuple[str, list[str], list[str], list[Sum]]:
    """The same with groups along a second axis; weights come as (D, wide), the first group's 0."""
    basis, k, wide = shape.basis, shape.n_groups, shape.wide
    d = basis.n_terms
    ahead = [
        f"group = tl.arange(0, {wide})",
        *(f"w{j} = tl.load(weight_ptr + {j * wide} + group)" for j in range(d)),
    ]
    for i, terms in enumerate(_slope_terms(basis)):
        ahead.append(f"c{i} = " + " + ".join(f"{c!r} * w{j}" for c, j in terms))

    def polynomial(name: str, count: int) -> str:
        first = f"tl.zeros((BLOCK, {wide}), dtype=tl.float32) + {name}0[None, :]"
        rest = [f"m{j}[:, None] * {name}{j}[None, :]" for j in range(1, count)]
        return " + ".join([first, *rest])

    rows = [
        f"f = {polynomial('w', d)}",
        f"f = tl.where(group[None, :] < {k}, f, -1e30)",
        "top = tl.max(f, axis=1)",
        "e = tl.exp(f - top[:, None])",
        "total = tl.sum(e, axis=1)",
        "own = a[:, None] == group[None, :]",
        "r = w[:, None] * (own.to(tl.float32) - e / total[:, None])",
        f"h = tl.sum(r * ({polynomial('c', basis.n_slopes)}), axis=1) * steep",
        "loss = top + tl.log(total) - tl.sum(tl.where(own, f, 0.0), axis=1)",
    ]
    # A block of scores for each term is too much to carry for each row: summed tile by tile.
    store = f"tl.store(out + 1 + (group - 1) * {d} + {{}}, {{{{}}}}, (group > 0) & (group < {k}))"
    places = ((0, "loss * w"), (1 + (k - 1) * d, "h"), (2 + (k - 1) * d, "h * z"))
    sums = [
        ("BLOCK", term, f"tl.store(out + {place}, tl.sum({{}}, axis=0))") for place, term in places
    ]
    for j in range(d):
        term = f"tl.sum({'r' if j == 0 else f'r * m{j}[:, None]'}, axis=0)"
        sums.append((str(wide), term, store.format(j)))
    return "weight_ptr", ahead, rows, sums
