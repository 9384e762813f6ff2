"""Parameters of tests in which all pairs occur, instead of their whole product."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(strength: int = 2, /, **axes: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrize a test so that values of any two (`strength`) arguments meet at least once.

    Defects show where one or two options meet, seldom where five must. The choice is greedy and
    always the same: the row of the product that brings the most new pairs, the first of several.
    """
    levels = [range(len(values)) for values in axes.values()]
    rows = list(product(*levels))
    places = list(combinations(range(len(levels)), min(strength, len(levels))))
    pairs = {row: {(place, *(row[i] for i in place)) for place in places} for row in rows}
    missing, chosen = set().union(*pairs.values()), []
    while missing:
        best = max(rows, key=lambda row: len(pairs[row] & missing))
        missing -= pairs[best]
        chosen.append(best)
    values = list(axes.values())
    return pytest.mark.parametrize(
        ",".join(axes), [tuple(values[i][k] for i, k in enumerate(row)) for row in sorted(chosen)]
    )
