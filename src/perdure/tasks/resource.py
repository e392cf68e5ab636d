"""``resource``: declare what bodies need besides their input, such as pools, models and clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast, get_origin

from perdure.diagnostics import Fault, declare, near, safe_repr
from perdure.errors import InvalidInput, Permanent
from perdure.model import check

T = TypeVar("T")

MISSING = declare(
    "resource.missing",
    "[task {task!r}: ]resource {name!r} not found[; did you mean {nearest:or}?][; known: {known}]",
    "Yield it from the worker's `lifespan`, or build it in `provide`; in tests, pass `resources`",
)
WRONG_TYPE = declare(
    "resource.wrong_type",
    "task {task!r}: resource {name!r} must be a {expected} (got {value})",
)
NOT_GIVEN = declare(
    "resource.not_given",
    "resource {name!r} is missing, and so is its {attribute!r}: the task was called as a function",
    "Pass it as an argument, or enqueue the task",
)
NOT_A_TYPE = declare(
    "resource.not_a_type",
    "resource {name!r} must be declared with a class (got {value})",
    "Pass a class; a Protocol needs @runtime_checkable",
)
NOT_DECLARED = declare(
    "resource.not_declared",
    "node type {type!r}: `resources` must list what resource(...) returns",
)


class Resource:
    """The default of a parameter that the worker fills in with a resource."""

    # Not ``name`` and ``type``: a body that is called without the resource must not get these.
    __slots__ = ("_resource_name", "_resource_type")

    def __init__(self, name: str, type: type[Any]) -> None:
        self._resource_name = name
        self._resource_type = type

    def __repr__(self) -> str:
        return f"resource({self._resource_name!r}, {self._resource_type.__name__})"

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # inspect, copy and others look these up on any object
            raise AttributeError(attribute)
        raise InvalidInput(NOT_GIVEN.fault(name=self._resource_name, attribute=attribute))


def resource(name: str, type: Callable[..., T]) -> T:
    """Declare a resource by its name and class, as the default of parameters that receive it.

    ``DB = resource("db", Pool)``, then ``def load(id: int, db: Pool = DB)``. The worker gets the
    value from its ``lifespan`` or ``provide``, and passes it after checking its type.
    """
    found: Any = get_origin(type) or type  # of dict[str, int], only dict can be checked
    try:
        isinstance(None, found)
    except TypeError as error:
        fault = NOT_A_TYPE.fault(("type",), name=name, value=safe_repr(type))
        raise InvalidInput(fault) from error
    return cast(T, Resource(check.name(name, "name", label="resource name"), found))


def resource_in(default: object) -> Resource | None:
    """The resource that a parameter's default declares, if any."""
    # By type: isinstance() may run the default's own code.
    return default if type(default) is Resource else None


def declared_resources(declared: Iterable[Any], owner: str) -> tuple[Resource, ...]:
    found = tuple(map(resource_in, declared))
    if None in found:
        raise InvalidInput(NOT_DECLARED.fault(("resources",), type=owner))
    return cast(tuple[Resource, ...], found)


def name_of(declared: Resource) -> str:
    return declared._resource_name


class Resources(Mapping[str, Any]):
    """The resources of a job, by name."""

    __slots__ = ("_values",)

    def __init__(self, *values: Mapping[str, Any]) -> None:
        self._values: dict[str, Any] = {}
        for each in values:
            self._values.update(each)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise Permanent(missing(name, self)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<resources: {', '.join(self._values) or 'none'}>"

    def take(self, declared: Resource, task: str) -> Any:
        """The value of a declared resource; raises ``Permanent``: a retry would not help."""
        if fault := self.fault_of(declared, task):
            raise Permanent(fault)
        return self._values[name_of(declared)]

    def fault_of(
        self, declared: Resource, task: str, *, provided: Iterable[str] = ()
    ) -> Fault | None:
        """Why a task would not get its resource; ``provided`` are built later, for each job."""
        name = name_of(declared)
        if name in provided:
            return None
        if name not in self._values:
            return missing(name, [*self, *provided], task)
        value = self._values[name]
        if isinstance(value, declared._resource_type):
            return None
        expected = declared._resource_type.__name__
        return WRONG_TYPE.fault(
            ("tasks", task), task=task, name=name, expected=expected, value=safe_repr(value)
        )


NO_RESOURCES = Resources()


def missing(name: str, known: Iterable[str], task: str = "") -> Fault:
    known = tuple(known)
    nearest = near(name, known)
    return MISSING.fault(
        ("tasks", task) if task else (),
        task=task,
        name=name,
        nearest=nearest,
        known=() if nearest else known,
    )
