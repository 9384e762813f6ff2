"""Communities and Crime: violent crime in 1,994 US communities."""

from __future__ import annotations

import csv
import io

import numpy as np

from evenhand.datasets import Dataset

from . import _fetch

_FILE = _fetch.DataFile(
    name="communities.data",
    sha256="d90d85bd66bad9a00fa0ed6c15ac017b5966d528e55ba2940ad028d071353f95",
    n_bytes=1_100_821,
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/communities/communities.data",
    source='UCI Machine Learning Repository, "Communities and Crime".',
)

# The @attribute lines of communities.names, in order; the data file has no header.
_HEADER = """
state county community communityname fold population householdsize racepctblack
racePctWhite racePctAsian racePctHisp agePct12t21 agePct12t29 agePct16t24 agePct65up
numbUrban pctUrban medIncome pctWWage pctWFarmSelf pctWInvInc pctWSocSec pctWPubAsst
pctWRetire medFamInc perCapInc whitePerCap blackPerCap indianPerCap AsianPerCap OtherPerCap
HispPerCap NumUnderPov PctPopUnderPov PctLess9thGrade PctNotHSGrad PctBSorMore
PctUnemployed PctEmploy PctEmplManu PctEmplProfServ PctOccupManu PctOccupMgmtProf
MalePctDivorce MalePctNevMarr FemalePctDiv TotalPctDiv PersPerFam PctFam2Par PctKids2Par
PctYoungKids2Par PctTeen2Par PctWorkMomYoungKids PctWorkMom NumIlleg PctIlleg NumImmig
PctImmigRecent PctImmigRec5 PctImmigRec8 PctImmigRec10 PctRecentImmig PctRecImmig5
PctRecImmig8 PctRecImmig10 PctSpeakEnglOnly PctNotSpeakEnglWell PctLargHouseFam
PctLargHouseOccup PersPerOccupHous PersPerOwnOccHous PersPerRentOccHous PctPersOwnOccup
PctPersDenseHous PctHousLess3BR MedNumBR HousVacant PctHousOccup PctHousOwnOcc
PctVacantBoarded PctVacMore6Mos MedYrHousBuilt PctHousNoPhone PctWOFullPlumb OwnOccLowQuart
OwnOccMedVal OwnOccHiQuart RentLowQ RentMedian RentHighQ MedRent MedRentPctHousInc
MedOwnCostPctInc MedOwnCostPctIncNoMtg NumInShelters NumStreet PctForeignBorn
PctBornSameState PctSameHouse85 PctSameCity85 PctSameState85 LemasSwornFT LemasSwFTPerPop
LemasSwFTFieldOps LemasSwFTFieldPerPop LemasTotalReq LemasTotReqPerPop PolicReqPerOffic
PolicPerPop RacialMatchCommPol PctPolicWhite PctPolicBlack PctPolicHisp PctPolicAsian
PctPolicMinor OfficAssgnDrugUnits NumKindsDrugsSeiz PolicAveOTWorked LandArea PopDens
PctUsePubTrans PolicCars PolicOperBudg LemasPctPolicOnPatr LemasGangUnitDeploy
LemasPctOfficDrugUn PolicBudgPerPop ViolentCrimesPerPop
"""
_COLUMNS = tuple(_HEADER.split())
_N_IDENTIFIERS = 5
_RACE_SHARES = {
    "racePctWhite": "white",
    "racepctblack": "black",
    "racePctAsian": "asian",
    "racePctHisp": "hispanic",
}
# Ties of the largest share (8 rows) go to the first column in the order of the file.
_RACE_ORDER = ("racepctblack", "racePctWhite", "racePctAsian", "racePctHisp")
_RULES = ("threshold", "largest")
_MISSING = ("drop", "zero")

_DESCRIPTION = """\
Violent crimes per person (rescaled to 0-1) in 1,994 US communities, from the 1990 census and 1995
FBI reports. Every column was rescaled to 0-1 and clipped at three standard deviations by the
donor. Left out: the five identifiers (state, county, community, communityname, fold). {missing}
{groups} Shares were rescaled column by column, so neither published rule means "most
residents are". {race_columns}"""

_GROUPS = {
    "threshold": 'Groups: "black" where racepctblack > 0.5 (239 communities), "other" (1,755).',
    "largest": (
        "Groups: the largest of the four rescaled racial shares (white 1,572, black 219, "
        "hispanic 115, asian 88)."
    ),
}

_HOLES = {
    "drop": (
        "Left out too: the 23 predictors with missing values (22 police columns, each missing in "
        "1,675 communities, and OtherPerCap)."
    ),
    "zero": "Missing values, of 22 police columns in 1,675 communities and one more, are 0.",
}

_PROVENANCE = f"""\
UCI Machine Learning Repository, "Communities and Crime", donated 2009 by Michael Redmond, La
Salle University: {_FILE.url}
SHA-256 {_FILE.sha256}. The file states no license; the repository is understood to publish it
under CC BY 4.0."""

_CITATION = (
    "Redmond, M. (2009). Communities and Crime. UCI Machine Learning Repository. Redmond, M. and "
    "Baveja, A. (2002). A data-driven software tool for enabling cooperative information sharing "
    "among police departments. European Journal of Operational Research 141, 660-678."
)


def load_communities(
    *, race_rule: str = "threshold", include_sensitive: bool = True, missing: str = "drop"
) -> Dataset:
    """Load Communities and Crime: 1,994 communities, 99 features, violent crimes per person.

    The file is looked for in the folder named by ``EVENHAND_DATA``, then in the cache, then
    downloaded from the UCI repository; its checksum is verified.

    Parameters
    ----------
    race_rule : {"threshold", "largest"}
        How communities are grouped. ``"threshold"``: "black" where the rescaled share
        racepctblack exceeds 0.5 (239), else "other". ``"largest"``: the largest of four rescaled
        shares, "white" (1,572), "black" (219), "hispanic" (115), "asian" (88); of equal shares
        the first in the order of the file wins (8 rows). Both are in use; say which.
    include_sensitive : bool
        Keep the four racial shares in X, as published comparisons do.
    missing : {"drop", "zero"}
        Leave out columns with missing values, or take 0 for these, as some published work does.

    Returns
    -------
    Dataset
        Target `ViolentCrimesPerPop`.
    """
    _fetch.check_option("race_rule", race_rule, _RULES)
    _fetch.check_option("missing", missing, _MISSING)
    rows = list(csv.reader(io.StringIO(_fetch.read(_FILE).decode("ascii"))))
    predictors = range(_N_IDENTIFIERS, len(_COLUMNS) - 1)
    kept = [j for j in predictors if missing == "zero" or all(row[j] != "?" for row in rows)]
    table = {
        _COLUMNS[j]: np.array([0.0 if row[j] == "?" else float(row[j]) for row in rows])
        for j in kept
    }
    if race_rule == "threshold":
        sensitive = np.where(table["racepctblack"] > 0.5, "black", "other")
    else:
        largest = np.stack([table[name] for name in _RACE_ORDER]).argmax(axis=0)
        sensitive = np.array([_RACE_SHARES[name] for name in _RACE_ORDER])[largest]
    names = tuple(name for name in table if include_sensitive or name not in _RACE_SHARES)
    return Dataset(
        X=np.column_stack([table[name] for name in names]),
        y=np.array([float(row[-1]) for row in rows]),
        sensitive=sensitive.astype(np.str_),
        feature_names=names,
        target_name=_COLUMNS[-1],
        sensitive_name="race",
        description=_DESCRIPTION.format(
            groups=_GROUPS[race_rule],
            missing=_HOLES[missing],
            race_columns=(
                "The four racial shares are among the features."
                if include_sensitive
                else "The four racial shares are not among the features."
            ),
        ),
        provenance=_PROVENANCE,
        citation=_CITATION,
    )
