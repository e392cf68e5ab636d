"""Static types of the flow builder, for type checkers only.

``Flow(...)`` is a ``NewFlow``; chained calls return a ``Chain``, which knows the flow's input and
the output of its last node. ``fork``, ``node`` and ``then(after=...)`` may change the last node:
they return a plain ``Flow``, of which only the input is known.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Unpack, overload

from typing_extensions import TypeVar

from perdure.flows.assembly import After
from perdure.flows.builder import Flow, I, O
from perdure.flows.built import BuiltFlow
from perdure.flows.nodes import Body
from perdure.flows.options import AnyTask, CallSettings, Function, Source, TaskOptions
from perdure.model.graph import JsonSchema, OnMissing

# With the bound, type checkers allow any use of a lambda's parameter.
A = TypeVar("A", bound=Any, default=Any)
X = TypeVar("X", default=Any)

class PlainOptions(CallSettings, total=False):
    """Options of ``then`` that affect neither the input nor the output type."""

    undo: AnyTask | Function | None
    ports: Sequence[str]
    on_timeout: str
    input_schema: JsonSchema | None
    output_schema: JsonSchema | None
    check: Mapping[str, Any] | None

class WithInputs(PlainOptions, total=False):
    on_missing: OnMissing
    on_error: str
    config: Mapping[str, Any] | None

class WithConfig(PlainOptions, total=False):
    on_missing: OnMissing
    on_error: str

class WithOnError(PlainOptions, total=False):
    on_missing: OnMissing

class NewFlow(Flow[I, O]):
    """A flow without nodes. The input of its first node is the input of the flow."""

    def __init__(self, *args: Any, **options: Any) -> None: ...  # checked by Flow.__new__
    @overload  # type: ignore[override]
    def then(
        self,
        body: Callable[[A], Coroutine[Any, Any, X]],
        *,
        name: str | None = None,
        **options: Unpack[PlainOptions],
    ) -> Chain[A, X]: ...
    @overload
    def then(
        self,
        body: Callable[[A], X],
        *,
        name: str | None = None,
        **options: Unpack[PlainOptions],
    ) -> Chain[A, X]: ...
    @overload
    def then(
        self,
        body: Callable[[], Coroutine[Any, Any, X]],
        *,
        name: str | None = None,
        **options: Unpack[PlainOptions],
    ) -> Chain[Any, X]: ...
    @overload
    def then(
        self,
        body: Callable[[], X],
        *,
        name: str | None = None,
        **options: Unpack[PlainOptions],
    ) -> Chain[Any, X]: ...
    @overload
    def then(
        self,
        body: BuiltFlow[A, X] | Flow[A, X],
        *,
        name: str | None = None,
        **options: Unpack[PlainOptions],
    ) -> Chain[A, X]: ...
    @overload
    def then(
        self,
        body: Body | Flow[Any, Any],
        *,
        inputs: Mapping[str, Source] | None,
        name: str | None = None,
        **options: Unpack[WithInputs],
    ) -> Chain[Any, Any]: ...
    @overload
    def then(
        self,
        body: Body | Flow[Any, Any],
        *,
        config: Mapping[str, Any] | None,
        name: str | None = None,
        **options: Unpack[WithConfig],
    ) -> Chain[Any, Any]: ...
    @overload
    def then(
        self,
        body: Body | Flow[Any, Any],
        *,
        on_error: str,
        name: str | None = None,
        **options: Unpack[WithOnError],
    ) -> Chain[Any, Any]: ...
    @overload
    def then(
        self,
        body: Body | Flow[Any, Any],
        *,
        after: After | None,
        gathers: bool | None = None,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> Flow[Any, Any]: ...

class Chain(NewFlow[I, O]):
    """A flow whose last node outputs ``O``."""

    @overload  # type: ignore[override]
    def then(
        self,
        body: Callable[[O], Coroutine[Any, Any, X]],
        *,
        name: str | None = None,
        **options: Unpack[PlainOptions],
    ) -> Chain[I, X]: ...
    @overload
    def then(
        self,
        body: Callable[[O], X],
        *,
        name: str | None = None,
        **options: Unpack[PlainOptions],
    ) -> Chain[I, X]: ...
    @overload
    def then(
        self,
        body: Callable[[], Coroutine[Any, Any, X]],
        *,
        name: str | None = None,
        **options: Unpack[PlainOptions],
    ) -> Chain[I, X]: ...
    @overload
    def then(
        self,
        body: Callable[[], X],
        *,
        name: str | None = None,
        **options: Unpack[PlainOptions],
    ) -> Chain[I, X]: ...
    @overload
    def then(
        self,
        body: BuiltFlow[O, X] | Flow[O, X],
        *,
        name: str | None = None,
        **options: Unpack[PlainOptions],
    ) -> Chain[I, X]: ...
    @overload
    def then(
        self,
        body: Body | Flow[Any, Any],
        *,
        inputs: Mapping[str, Source] | None,
        name: str | None = None,
        **options: Unpack[WithInputs],
    ) -> Chain[I, Any]: ...
    @overload
    def then(
        self,
        body: Body | Flow[Any, Any],
        *,
        config: Mapping[str, Any] | None,
        name: str | None = None,
        **options: Unpack[WithConfig],
    ) -> Chain[I, Any]: ...
    @overload
    def then(
        self,
        body: Body | Flow[Any, Any],
        *,
        on_error: str,
        name: str | None = None,
        **options: Unpack[WithOnError],
    ) -> Chain[I, Any]: ...
    @overload
    def then(
        self,
        body: Body | Flow[Any, Any],
        *,
        after: After | None,
        gathers: bool | None = None,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> Flow[I, Any]: ...
