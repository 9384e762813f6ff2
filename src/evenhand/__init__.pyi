"""The public names as type checkers and editors see them; `__init__.py` loads them on first use."""

from . import boosting as boosting
from . import datasets as datasets
from . import distributed as distributed
from . import onnx as onnx
from . import report as report
from . import tables as tables
from .auditing.audits import audit as audit
from .auditing.drivers import Drivers as Drivers
from .auditing.drivers import drivers as drivers
from .auditing.monitoring import Monitor as Monitor
from .auditing.planning import rows_needed as rows_needed
from .auditing.result import Audit as Audit
from .auditing.result import AuditSet as AuditSet
from .auditing.tolerance import Tolerance as Tolerance
from .data.bands import Continuous as Continuous
from .data.bands import bands as bands
from .data.criteria import Criterion as Criterion
from .data.criteria import Variable as Variable
from .data.criteria import register_criterion as register_criterion
from .data.encoding import TableEncoder as TableEncoder
from .data.groups import Proxy as Proxy
from .estimators.adaptive import Adaptive as Adaptive
from .estimators.logistic import Logistic as Logistic
from .estimators.lspc import LSPC as LSPC
from .estimators.references import KNN as KNN
from .estimators.references import Fourier as Fourier
from .measures.cells import Cells as Cells
from .measures.measures import independence as independence
from .measures.measures import separation as separation
from .measures.measures import sufficiency as sufficiency
from .tables.audit_table import audit_table as audit_table
from .tables.monitor import monitor as monitor
from .training.frontier import alternatives as alternatives
from .training.frontier import fairness_path as fairness_path
from .training.glm import FairGLM as FairGLM
from .training.glm import SeparationWarning as SeparationWarning
from .training.linear import FairRidge as FairRidge
from .training.model_files import load as load
from .training.model_files import save as save
from .training.path import FairnessPath as FairnessPath
from .training.penalty import FairnessRegularizer as FairnessRegularizer
from .training.postprocess import FairPostprocessor as FairPostprocessor
from .training.recommended import FairRegressor as FairRegressor

__version__: str
