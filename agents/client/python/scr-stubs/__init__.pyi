# Types of the module `scr`, which is another name of `holdfast`. A module in one file cannot have a file py.typed.
from holdfast import *
from holdfast import __all__ as __all__
