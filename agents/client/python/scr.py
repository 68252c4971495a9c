"""The name of SCR's own Python module: see `holdfast`."""

from holdfast import *  # noqa: F401,F403
from holdfast import __all__, __doc__  # noqa: F401
