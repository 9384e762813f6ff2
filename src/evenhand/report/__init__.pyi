"""The public names as type checkers and editors see them; `__init__.py` loads them on first use."""

from .pack import write_pack as write_pack
from .page import About as About
