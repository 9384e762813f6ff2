"""Source of the Triton kernels: one template, unrolled for a number of groups and a basis.

A kernel reads each row once (score, target, group, weight), standardizes and bounds the score,
forms the monomials of the basis and the probabilities of the groups in registers, and then

- "first":    adds up the loss, its score Σ r_k φ, Σh and Σh·z;
- "second":   adds up those and the Hessian, and the derivatives of Σh and Σh·z in the weights;
- "gradient": writes scale·(h − ω(constant + along·z)).

Up to `UNROLLED` groups each has registers of its own; more share a two-dimensional block. Sums are
kept in float32 for each place of a block while a program walks its tiles, so that each holds a few
hundred rows, and are added up in float64 afterwards.

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
    is_long : bool
        Whether rows are numbered in 64 bits, which costs registers.
    """

    mode: str
    n_groups: int
    basis: Basis
    limit: float | None
    weighted: bool
    adds: bool = False
    is_long: bool = False

    @property
    def is_wide(self) -> bool:
        return self.n_groups > UNROLLED

    @property
    def n_sums(self) -> int:
        """Sums that a program writes; of a wide kernel, besides its block of scores."""
        if self.is_wide:
            return 3
        free, d = self.n_groups - 1, self.basis.n_terms
        first = 3 + free * d
        if self.mode == "first":
            return first
        return first + free * (free + 1) // 2 * self.basis.n_moments + 2 * free * d


def source(shape: Shape) -> str:
    """A module with one function, `kernel`."""
    body = _wide(shape) if shape.is_wide else _narrow(shape)
    return "import triton\nimport triton.language as tl\n\n\n@triton.jit\n" + "\n".join(body) + "\n"


def _signature(shape: Shape, weights: str) -> list[str]:
    outputs = "out_ptr, score_ptr" if shape.is_wide else "out_ptr"
    if shape.mode == "gradient":
        outputs = "out_ptr, upstream_ptr, scale, constant, along"
    wide = ", WIDE: tl.constexpr" if shape.is_wide else ""
    return [
        f"def kernel(s_ptr, y_ptr, a_ptr, w_ptr, center_ptr, {weights}, {outputs},"
        f" n, n_tiles, stride, BLOCK: tl.constexpr{wide}):",
        "    mean = tl.load(center_ptr)",
        "    inverse = tl.load(center_ptr + 1)",
    ]


def _load(shape: Shape) -> list[str]:
    """A tile of rows: z, t, dt/dz as `steep`, group a, weight w, monomials m1, m2, …"""
    limit, k = shape.limit, shape.n_groups
    number = "tl.cast(tile, tl.int64)" if shape.is_long else "tile"
    out = [
        f"        row = {number} * stride * BLOCK + tl.arange(0, BLOCK)",
        "        inside = row < n",
        "        s = tl.load(s_ptr + row, mask=inside, other=0.0).to(tl.float32)",
        f"        a = tl.load(a_ptr + row, mask=inside, other={k}).to(tl.int32)",
        "        z = (s - mean) * inverse",
    ]
    if shape.weighted:
        out.append("        w = tl.load(w_ptr + row, mask=inside, other=0.0)")
    else:
        out.append("        w = inside.to(tl.float32)")
    if limit is None:
        out += ["        m1 = z", "        steep = 1.0"]
    else:
        out += [
            f"        e = tl.exp(tl.abs(z) * {-2.0 / limit!r})",
            "        share = (1.0 - e) / (1.0 + e)",
            f"        m1 = tl.where(z < 0.0, share * {-limit!r}, share * {limit!r})",
            "        steep = 1.0 - share * share",
        ]
    if shape.basis.n_variables == 2:
        out.append("        m2 = tl.load(y_ptr + row, mask=inside, other=0.0).to(tl.float32)")
    return out


def _monomials(basis: Basis, count: int) -> list[str]:
    first = 1 + basis.n_variables
    return [
        f"        m{j} = m{basis.factors[j, 0]} * m{basis.factors[j, 1]}"
        for j in range(first, count)
    ]


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


def _narrow(shape: Shape) -> list[str]:
    basis, free = shape.basis, shape.n_groups - 1
    d, gradient = basis.n_terms, shape.mode == "gradient"
    # By value: a table of weights would have to be copied to the device before each pass.
    weights = ", ".join(f"w{k}_{j}" for k in range(free) for j in range(d))
    out = _signature(shape, weights)
    for k in range(free):
        for i, terms in enumerate(_slope_terms(basis)):
            total = " + ".join(f"{c!r} * w{k}_{j}" for c, j in terms)
            out.append(f"    c{k}_{i} = {total}")
    rows = _load(shape)
    rows += _monomials(basis, basis.n_moments if shape.mode == "second" else d)
    for k in range(free):
        f = " + ".join(_times(f"w{k}_{j}", j) for j in range(d))
        slope = " + ".join(_times(f"c{k}_{i}", i) for i in range(basis.n_slopes))
        rows += [f"        f{k} = {f}", f"        q{k} = ({slope}) * steep"]
        rows.append(f"        a{k} = (a == {k + 1}).to(tl.float32)")
    rows += _probabilities(free, with_loss=not gradient)
    rows += [f"        r{k} = w * (a{k} - p{k})" for k in range(free)]
    rows.append("        h = " + " + ".join(f"r{k} * q{k}" for k in range(free)))
    if gradient:
        return out + _write(shape, rows)
    sums = ["loss * w"]
    sums += [_times(f"r{k}", j) for k in range(free) for j in range(d)]
    sums += ["h", "h * z"]
    if shape.mode == "second":
        more, second = _second(shape)
        rows += more
        sums += second
    out += [f"    sum{i} = tl.zeros((BLOCK,), dtype=tl.float32)" for i in range(len(sums))]
    out.append("    for tile in range(tl.program_id(0), n_tiles, tl.num_programs(0)):")
    out += rows
    out += [f"        sum{i} += {text}" for i, text in enumerate(sums)]
    out.append(f"    out = out_ptr + tl.program_id(0) * {len(sums)}")
    out += [f"    tl.store(out + {i}, tl.sum(sum{i}, axis=0))" for i in range(len(sums))]
    return out


def _probabilities(free: int, with_loss: bool) -> list[str]:
    if free == 1:
        out = [
            "        e0 = tl.exp(-tl.abs(f0))",
            "        part = 1.0 / (1.0 + e0)",
            "        p0 = tl.where(f0 < 0.0, e0 * part, part)",
        ]
        if with_loss:
            out.append("        loss = tl.maximum(f0, 0.0) + tl.log(1.0 + e0) - a0 * f0")
        return out
    top = "tl.maximum(f0, 0.0)"
    for k in range(1, free):
        top = f"tl.maximum({top}, f{k})"
    out = [f"        top = {top}"]
    out += [f"        e{k} = tl.exp(f{k} - top)" for k in range(free)]
    total = " + ".join(["tl.exp(-top)", *(f"e{k}" for k in range(free))])
    out += [f"        total = {total}", "        part = 1.0 / total"]
    out += [f"        p{k} = e{k} * part" for k in range(free)]
    if with_loss:
        own = " - ".join(f"a{k} * f{k}" for k in range(free))
        # Rows beyond the last have weight 0, and group K adds nothing here.
        out.append(f"        loss = top + tl.log(total) - {own}")
    return out


def _second(shape: Shape) -> tuple[list[str], list[str]]:
    """Hessian by moments, blocks (k, l ≤ k); then the derivatives of Σh and Σh·z."""
    basis, free = shape.basis, shape.n_groups - 1
    d = basis.n_terms
    rows, sums = [], []
    for k in range(free):
        for other in range(k + 1):
            own = f"p{k} * (1.0 - p{k})" if k == other else f"-p{k} * p{other}"
            rows.append(f"        v{k}_{other} = w * ({own})")
            sums += [_times(f"v{k}_{other}", j) for j in range(basis.n_moments)]
    rows.append("        pull = " + " + ".join(f"p{k} * q{k}" for k in range(free)))
    slopes = _slope_terms(basis)
    for k in range(free):
        rows.append(f"        u{k} = -w * p{k} * (q{k} - pull)")
        rows.append(f"        x{k} = r{k} * steep")
    for by in ("", " * z"):
        for k in range(free):
            for j in range(d):
                parts = [_times(f"u{k}", j)]
                for i, terms in enumerate(slopes):
                    parts += [f"{c!r} * {_times(f'x{k}', i)}" for c, term in terms if term == j]
                sums.append(f"({' + '.join(parts)}){by}")
    return rows, sums


def _write(shape: Shape, rows: list[str]) -> list[str]:
    """The tail of a gradient kernel: one tile a program."""
    out = [
        "    scale = scale * tl.load(upstream_ptr).to(tl.float32) * inverse",
        "    for tile in range(tl.program_id(0), n_tiles, tl.num_programs(0)):",
        *rows,
        "        g = scale * (h - w * (constant + along * z))",
    ]
    if shape.adds:
        out.append("        g += tl.load(out_ptr + row, mask=inside, other=0.0).to(tl.float32)")
    out.append("        tl.store(out_ptr + row, g, mask=inside)")
    return out


def _wide(shape: Shape) -> list[str]:
    """Groups along a second axis; weights come as (D, WIDE), the first group's 0 among them."""
    basis, k = shape.basis, shape.n_groups
    d, gradient = basis.n_terms, shape.mode == "gradient"
    out = [*_signature(shape, "weight_ptr"), "    group = tl.arange(0, WIDE)"]
    for j in range(d):
        out.append(f"    w{j} = tl.load(weight_ptr + {j} * WIDE + group)")
    for i, terms in enumerate(_slope_terms(basis)):
        out.append(f"    c{i} = " + " + ".join(f"{c!r} * w{j}" for c, j in terms))
    rows = _load(shape) + _monomials(basis, d)

    def polynomial(name: str, count: int) -> str:
        first = f"tl.zeros((BLOCK, WIDE), dtype=tl.float32) + {name}0[None, :]"
        rest = [f"m{j}[:, None] * {name}{j}[None, :]" for j in range(1, count)]
        return " + ".join([first, *rest])

    rows += [
        f"        f = {polynomial('w', d)}",
        f"        f = tl.where(group[None, :] < {k}, f, -1e30)",
        "        top = tl.max(f, axis=1)",
        "        e = tl.exp(f - top[:, None])",
        "        total = tl.sum(e, axis=1)",
        "        own = a[:, None] == group[None, :]",
        "        r = w[:, None] * (own.to(tl.float32) - e / total[:, None])",
        f"        h = tl.sum(r * ({polynomial('c', basis.n_slopes)}), axis=1) * steep",
    ]
    if gradient:
        return out + _write(shape, rows)
    rows.append("        loss = top + tl.log(total) - tl.sum(tl.where(own, f, 0.0), axis=1)")
    # A block of scores for each term is too much to carry for each row: summed tile by tile.
    out += [f"    score{j} = tl.zeros((WIDE,), dtype=tl.float32)" for j in range(d)]
    out += [f"    sum{i} = tl.zeros((BLOCK,), dtype=tl.float32)" for i in range(3)]
    out.append("    for tile in range(tl.program_id(0), n_tiles, tl.num_programs(0)):")
    out += rows
    for j in range(d):
        value = "r" if j == 0 else f"r * m{j}[:, None]"
        out.append(f"        score{j} += tl.sum({value}, axis=0)")
    out += ["        sum0 += loss * w", "        sum1 += h", "        sum2 += h * z"]
    out.append("    out = out_ptr + tl.program_id(0) * 3")
    out += [f"    tl.store(out + {i}, tl.sum(sum{i}, axis=0))" for i in range(3)]
    out.append(f"    score = score_ptr + tl.program_id(0) * {d} * WIDE + group")
    out += [f"    tl.store(score + {j} * WIDE, score{j})" for j in range(d)]
    return out
