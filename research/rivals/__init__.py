"""The methods that evenhand is compared with, behind the same interface.

=========================  ============================================  ======================
estimator                  what it bounds or penalizes                   attribute to predict
=========================  ============================================  ======================
BerkRegressor              score gaps of cross-group pairs, close in y   not needed
DiscriminationFreePrice    the group as a cause, and its proxies         not needed
DoRegressor                the same within segments of y                 not needed
EntropicUnaware            all of the dependence on a guessed group      not needed
FairReweighing             what the target tells of the group            not needed
HistogramTransport         gaps between distribution functions           needed (random)
NestedLogisticRegressor    the three criteria, by a nested classifier    not needed
KomiyamaRegressor          share of the fitted variance due to groups    needed
ReductionRegressor         gaps between distribution functions           not needed (random)
SequentialBarycenter       all of it, attribute after attribute          needed
WassersteinBarycenter      all of the dependence on the group            needed
=========================  ============================================  ======================
"""

from .berk import BerkRegressor
from .discrimination_free import DiscriminationFreePrice
from .do import DoRegressor
from .entropic import EntropicUnaware
from .histogram import HistogramTransport
from .komiyama import KomiyamaRegressor
from .nested import NestedLogisticRegressor
from .reduction import ReductionRegressor
from .reweighing import FairReweighing
from .sequential import SequentialBarycenter
from .wasserstein import WassersteinBarycenter

__all__ = [
    "BerkRegressor",
    "DiscriminationFreePrice",
    "DoRegressor",
    "EntropicUnaware",
    "FairReweighing",
    "HistogramTransport",
    "KomiyamaRegressor",
    "NestedLogisticRegressor",
    "ReductionRegressor",
    "SequentialBarycenter",
    "WassersteinBarycenter",
]
