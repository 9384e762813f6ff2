"""Belgian motor third-party liability insurance of 1997."""

from __future__ import annotations

import numpy as np

from evenhand.datasets import Dataset

from . import _fetch
from ._tables import make, one_hot, read_text, to_numbers

_FILE = _fetch.DataFile(
    name="bemtpl97.csv.gz",
    sha256="d944bb32e33704fbba58945b7a12c1d3c5d09624028b9942bda28b20095f9484",
    n_bytes=12_420_014,
    url=None,
    source=(
        "the data set beMTPL97 of the R package CASdatasets, 163,212 policies, exported to CSV "
        "without its column `average`; no public address with this checksum is known."
    ),
)

_TARGETS = {
    "frequency": "claims per year at risk",
    "severity": "log of the mean cost of a claim, of policies with one that cost anything",
    "pure_premium": "cost of claims per year at risk",
    "bonus_malus": "bonus-malus level, 0 (best) to 22",
}

_DESCRIPTION = """\
{target} of {n} Belgian motor third-party liability policies of 1997. Features: cover, age of the
policyholder, power and age of the car, fuel, use, fleet, place.{level} Groups: male {male}, female
{female}. Left out: `id`, `postcode` (583 values; `long` and `lat` say where), and of `claim`,
`nclaims`, `amount`, `expo` and `bm` all that is not the target, as each is what happened or
contains it: the bonus-malus level already counts past claims. Traps: 89 % of policies have no
claim, so that R² of the frequency is near 0 and deviance is the honest score; the frequency of a
policy of few days is huge or 0, so that its weight is `exposure`; one claim cost 140,032."""

_PROVENANCE = f"""\
Data set beMTPL97 of the R package CASdatasets (GPL), exported to CSV. SHA-256 of the unpacked file
{_FILE.sha256}. Not redistributed with this package."""

_CITATION = (
    "Denuit, M. and Lang, S. (2004). Non-life rate-making with Bayesian GAMs. Insurance: "
    "Mathematics and Economics 35, 627-647."
)


def load_belgian_motor(
    *, target: str = "frequency", bonus_malus: bool = False, include_sensitive: bool = False
) -> Dataset:
    """Load 163,212 Belgian motor policies of 1997, with the sex of the policyholder.

    The file is looked for in the folder named by ``EVENHAND_DATA``, then in the cache; its checksum
    is verified.

    Parameters
    ----------
    target : {"frequency", "severity", "pure_premium", "bonus_malus"}
        Claims per year at risk, whose weight is the Dataset's `exposure`; the log of the mean cost
        of a claim, of the 18,276 policies with one; the cost of all claims per year at risk, with
        the same exposure; or the bonus-malus level.
    bonus_malus : bool
        Have the bonus-malus level among the features. Insurers do; it contains past claims, and
        with them whatever past unfairness they hold.
    include_sensitive : bool
        Add an indicator of the group to X.

    Returns
    -------
    Dataset
        Groups "male" (120,044 policies) and "female" (43,168).
    """
    _fetch.check_option("target", target, tuple(_TARGETS))
    if bonus_malus and target == "bonus_malus":
        raise ValueError(
            "`bonus_malus` must be False where it is the target, got True. Hint: "
            "load_belgian_motor(target='bonus_malus')."
        )
    table = read_text(_fetch.read(_FILE))
    claims, exposure = to_numbers(table["nclaims"]), to_numbers(table["expo"])
    amount = to_numbers(table["amount"])
    keep = amount > 0 if target == "severity" else np.ones(len(claims), dtype=bool)
    if target == "frequency":
        y = claims / exposure
    elif target == "pure_premium":
        y = amount / exposure
    elif target == "severity":
        y = np.log(amount[keep] / claims[keep])
    else:
        y = to_numbers(table["bm"])
    numeric = ["ageph", "power", "agec", "fleet", "long", "lat", *(["bm"] if bonus_malus else [])]
    columns = {name: to_numbers(table[name][keep]) for name in numeric}
    for name, levels in (
        ("coverage", ("TPL", "TPL+", "TPL++")),
        ("fuel", ("diesel", "gasoline")),
        ("use", ("work", "private")),
    ):
        block, names = one_hot(table[name][keep], levels, name)
        columns.update(zip(names, block.T, strict=True))
    groups = table["sex"][keep]
    return make(
        columns,
        groups,
        ("female", "male"),
        y=y,
        target_name=target,
        sensitive_name="sex",
        include_sensitive=include_sensitive,
        exposure=exposure if target in ("frequency", "pure_premium") else None,
        description=_DESCRIPTION.format(
            target=_TARGETS[target].capitalize(),
            n=f"{len(y):,}",
            level=" The bonus-malus level is among them." if bonus_malus else "",
            male=f"{(groups == 'male').sum():,}",
            female=f"{(groups == 'female').sum():,}",
        ),
        provenance=_PROVENANCE,
        citation=_CITATION,
    )
