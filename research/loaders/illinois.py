"""Car-insurance quotes in 923 Illinois ZIP codes, and the state's own risk of each."""

from __future__ import annotations

import csv
import io

import numpy as np

from evenhand.datasets import Dataset

from . import _fetch
from ._tables import one_hot

_FILE = _fetch.DataFile(
    name="propublica-illinois.csv.gz",
    sha256="e45d5a07dd934cd554a8819f48f99f8ec3b10959e82a9b4c4d41406f80e3b966",
    n_bytes=3_625_181,
    url=None,
    source=(
        'the data of "Minority Neighborhoods Pay Higher Car Insurance Premiums Than White Areas '
        'With the Same Risk" (ProPublica and Consumer Reports, 2017), Illinois, 31,382 quotes and '
        "11 columns; no public address with this checksum is known."
    ),
)

_DESCRIPTION = """\
Liability premiums that 34 companies ask of one and the same driver in each of 923 Illinois ZIP
codes (31,382 quotes), beside the state's own average loss per car in that ZIP. Score: the combined
premium in dollars a year. Target: `state_risk`. Groups: "minority" where the ZIP is one of the
quarter with most minority residents (104 ZIPs, 3,536 quotes), "other" (819 ZIPs, 27,846 quotes).
Clusters: ZIPs. Risk and group are properties of the ZIP, so there are 923 independent units, and
each has a risk of its own: whoever may look its exact value up knows the ZIP, and with it the
group. Ask about ZIPs of similar risk, with `cluster`. Features: both parts of the premium, whether
the ZIP is in Chicago, and one column per company.{share} Left out: `risk_difference` (premium
minus risk) and `name` (the group that a company belongs to)."""

_PROVENANCE = f"""\
{_FILE.source}
SHA-256 of the unpacked file {_FILE.sha256}. No license came with the file."""

_CITATION = (
    "Larson, J., Angwin, J., Kirchner, L. and Mattu, S. (2017). How we examined racial "
    "discrimination in auto insurance prices. ProPublica, April 5."
)


def load_illinois_quotes(*, include_sensitive: bool = False) -> Dataset:
    """Load Illinois car-insurance quotes: 31,382 premiums in 923 ZIP codes, with their risk.

    The file is looked for in the folder named by ``EVENHAND_DATA``, then in the cache; its checksum
    is verified.

    Parameters
    ----------
    include_sensitive : bool
        Add the share of white residents of the ZIP, `white_non_hisp_pct`, to X.

    Returns
    -------
    Dataset
        Target `state_risk`; `score` is the combined premium, `cluster` the ZIP code; groups "other"
        (27,846) and "minority" (3,536).

    Examples
    --------
    >>> from loaders import load_illinois_quotes
    >>> data = load_illinois_quotes()  # doctest: +SKIP
    >>> eh.audit(data.y, data.score, sensitive_features=data.sensitive,
    ...          cluster=data.cluster, estimator="logistic")  # doctest: +SKIP
    """
    rows = list(csv.DictReader(io.StringIO(_fetch.read(_FILE).decode("utf-8"))))

    def numbers(name: str):
        return np.array([float(row[name]) for row in rows])

    chicago = np.array([row["chicago"] == "TRUE" for row in rows], dtype=np.float64)
    companies = np.array([row["companies_name"] for row in rows])
    by_company, company_names = one_hot(companies, tuple(np.unique(companies).tolist()), "company")
    names = ["bi_policy_premium", "pd_policy_premium", "chicago"]
    columns = [numbers("bi_policy_premium"), numbers("pd_policy_premium"), chicago]
    if include_sensitive:
        names.append("white_non_hisp_pct")
        columns.append(numbers("white_non_hisp_pct"))
    return Dataset(
        X=np.column_stack([*columns, by_company]),
        y=numbers("state_risk"),
        sensitive=np.array(
            ["minority" if row["minority"] == "TRUE" else "other" for row in rows]
        ).astype(np.str_),
        feature_names=(*names, *company_names),
        target_name="state_risk",
        sensitive_name="neighborhood",
        description=_DESCRIPTION.format(
            share=" The share of white residents is among them." if include_sensitive else ""
        ),
        provenance=_PROVENANCE,
        citation=_CITATION,
        score=numbers("combined_premium"),
        cluster=np.array([row["zipcode"] for row in rows]).astype(np.str_),
    )
