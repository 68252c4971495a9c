# Types of objects with a buffer, for type checkers: there is no module of this name when a program runs. NumPy's types
# are described by an attribute, because NumPy is not required, and its arrays are buffers for few type checkers.
from typing import Any, Protocol, Union

from _typeshed import ReadableBuffer, WriteableBuffer
from typing_extensions import TypeAlias

class NumpyArray(Protocol):
    @property
    def __array_interface__(self) -> Any: ...

ReadableArray: TypeAlias = Union[ReadableBuffer, NumpyArray]
WritableArray: TypeAlias = Union[WriteableBuffer, NumpyArray]
