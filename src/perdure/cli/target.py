"""Resolve ``module:name`` on the command line to a worker, tasks or flows."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import reduce
from types import ModuleType
from typing import Any, NamedTuple

from perdure.cli.output import echo_lines
from perdure.diagnostics import declare, near
from perdure.errors import InvalidFlow, InvalidInput
from perdure.flows.builder import Flow
from perdure.flows.built import BuiltFlow
from perdure.flows.yaml.library import FILE_ENDINGS, Library, node_types_among
from perdure.tasks.task import Task
from perdure.worker.worker import Worker

APP_WITHOUT_FILE = declare(
    "cli.app_without_file",
    "--app is for flows in files[, and {target!r} is in a module]",
    "Name a file, such as ship.yaml",
)
NOT_A_FLOW = declare("cli.not_a_flow", "{target!r} is {found}, not a flow that was built")
WHICH_FLOW = declare(
    "cli.which_flow",
    "{target!r} must name one flow",
    "[Name one of {known}][{advice}]",
)
NOT_A_TASK = declare("cli.not_a_task", "{target!r} is {found}, not a task")
WHICH_TARGET = declare(
    "cli.which_target", "{target!r} must name one task or flow", "[Name one of {known}]"
)
NOT_A_FUNCTION = declare("cli.not_a_function", "{target!r} is {found}, not a function")
NO_FLOWS = declare("cli.no_flows", "{target!r} has no flows")
NOT_A_MODULE = declare(
    "cli.not_a_module",
    "{target!r} must name a module, with dots and without .py",
    "Pass {meant}",
)
NO_MODULE = declare("cli.no_module", "module {module!r} not found in {folder}")
IMPORT_FAILED = declare("cli.import_failed", "module {module!r} cannot be imported: {reason}")
NO_ATTRIBUTE = declare(
    "cli.no_attribute",
    "module {module!r} has no {name!r}[; did you mean {nearest:or}?][; it has {known}]",
)
NO_CODE = declare(
    "cli.no_code",
    "module {module!r} has no tasks and no flows",
    "Decorate functions with @task, build a Flow(...), or name a worker: {module}:worker",
)
NOT_USABLE = declare(
    "cli.not_usable",
    "{target!r} is {found}, not a Worker, a task, a built flow or a list of those",
)


_CODE = (Task, BuiltFlow)


class TargetCode(NamedTuple):
    """The tasks and flows of a target, to build a worker from."""

    tasks: tuple[Task[..., Any], ...]
    flows: tuple[BuiltFlow, ...]


def load(target: str) -> Worker | TargetCode:
    """Import what ``target`` names: a worker, tasks and flows, or a module of them."""
    module, name = _parts(target)
    if not name:
        return _code_of(module)
    return _usable(_attribute(module, name), target)


def load_flow(target: str) -> BuiltFlow:
    """Import the one flow that ``target`` names; a module alone means the only flow in it."""
    module, name = _parts(target)
    if name:
        found = _attribute(module, name)
        if isinstance(found, BuiltFlow):
            return found
        raise InvalidInput(NOT_A_FLOW.fault(target=target, found=_type(found)))
    flows = {each: name for name, each in vars(module).items() if isinstance(each, BuiltFlow)}
    if len(flows) == 1:
        return next(iter(flows))
    known = ", ".join(f"{target}:{name}" for name in flows.values())
    advice = "" if known else "It has none: Flow(...).build() makes one"
    raise InvalidInput(WHICH_FLOW.fault(target=target, known=known, advice=advice))


def load_task(target: str) -> Task[..., Any]:
    """Import the one task that ``target`` names: ``MODULE:TASK``."""
    found = load_target(target)
    if isinstance(found, Task):
        return found
    raise InvalidInput(NOT_A_TASK.fault(target=target, found=f"flow {found.name!r}"))


def load_target(target: str, app: str | None = None) -> Task[..., Any] | BuiltFlow:
    """The one task or flow that ``target`` names; for a file, ``app`` has the code."""
    if target.endswith(FILE_ENDINGS) or app is not None:
        return flow_at(target, app)
    module, name = _parts(target)
    found = _attribute(module, name) if name else None
    if isinstance(found, _CODE):
        return found
    known = ", ".join(f"{module.__name__}:{each}" for each in _offered(module))
    raise InvalidInput(WHICH_TARGET.fault(target=target, known=known))


def load_function(target: str) -> Callable[..., Any]:
    """Import the function that ``target`` names: ``MODULE:NAME``."""
    module, name = _parts(target)
    found: Callable[..., Any] | ModuleType = _attribute(module, name) if name else module
    if not callable(found):
        raise InvalidInput(NOT_A_FUNCTION.fault(target=target, found=_type(found)))
    return found


def flow_at(target: str, app: str | None) -> BuiltFlow:
    """The flow in a file or a module; ``app`` has the code that a file refers to."""
    if not target.endswith(FILE_ENDINGS):
        if app is not None:
            raise InvalidInput(APP_WITHOUT_FILE.fault(target=target))
        return load_flow(target)
    from perdure.flows.yaml.load import load_with

    library = Library() if app is None else library_at(app)
    try:
        return load_with(target, library)
    except InvalidFlow as error:
        if app is None and library.missing:
            advice = "Pass --app MODULE, which has the tasks, node types and flows that it names"
            raise InvalidFlow(*error.faults, flow=error.flow, advice=advice) from error
        raise


def library_at(target: str) -> Library:
    """The tasks, node types and flows of ``target`` that flow files may refer to."""
    code, module = load(target), load_module(target)
    node_types = node_types_among(list(vars(module).values()), module.__name__)
    return Library([*code.tasks, *code.flows], node_types, code.flows)


def load_flows(target: str) -> tuple[BuiltFlow, ...]:
    """The flows of ``target``, with their child flows."""
    return _with_children(load(target).flows, target)


def flows_at(target: str, app: str | None) -> tuple[BuiltFlow, ...]:
    """The flows of a module or of a file; ``app`` has the code that a file refers to."""
    if app is None and not target.endswith(FILE_ENDINGS):
        return load_flows(target)
    return _with_children([flow_at(target, app)], target)


def _with_children(flows: Sequence[BuiltFlow], target: str) -> tuple[BuiltFlow, ...]:
    named = {text: flow for each in flows for text, flow in each.with_children().items()}
    if not named:
        raise InvalidInput(NO_FLOWS.fault(target=target))
    return tuple(named.values())


def load_module(target: str) -> ModuleType:
    """Import the module of ``target``, with or without a name in it."""
    return _parts(target)[0]


def _parts(target: str) -> tuple[ModuleType, str]:
    module_name, _, name = target.partition(":")
    return _module(module_name, target), name


def _module(name: str, target: str) -> ModuleType:
    if not name or name.endswith(".py") or os.sep in name:
        dotted = name.removesuffix(".py").replace(os.sep, ".").strip(".") or "module"
        meant = f"{dotted}{target[len(name) :] or ':worker'}"
        raise InvalidInput(NOT_A_MODULE.fault(target=target, meant=meant))
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidInput(NO_MODULE.fault(module=error.name, folder=here)) from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> InvalidInput:
    """The module exists but raises on import: show its author where."""
    trace = error.__traceback__
    while trace is not None and _is_machinery(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    echo_lines(
        "".join(traceback.format_exception(type(error), error, trace, chain=False)), err=True
    )
    reason = f"{type(error).__name__}: {error}"
    return InvalidInput(IMPORT_FAILED.fault(module=name, reason=reason))


def _is_machinery(filename: str) -> bool:
    return filename in (__file__, importlib.__file__) or filename.startswith("<frozen importlib")


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError:
        offered = _offered(module)
        meant = [each for each in offered if getattr(vars(module)[each], "name", None) == name]
        nearest = tuple(meant) or near(name, offered)
        known = () if nearest else tuple(offered)
        raise InvalidInput(
            NO_ATTRIBUTE.fault(module=module.__name__, name=name, nearest=nearest, known=known)
        ) from None


def _offered(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, (*_CODE, Worker))]


def _code_of(module: ModuleType) -> TargetCode:
    found = [value for value in vars(module).values() if isinstance(value, _CODE)]
    if not found:
        raise InvalidInput(NO_CODE.fault(module=module.__name__))
    return _sorted(found)


def _usable(found: Any, target: str) -> Worker | TargetCode:
    if isinstance(found, Worker):
        return found
    several = found if isinstance(found, list | tuple) else [found]
    if several and all(isinstance(each, _CODE) for each in several):
        return _sorted(several)
    raise InvalidInput(NOT_USABLE.fault(target=target, found=_type(found)))


def _sorted(found: Sequence[Any]) -> TargetCode:
    """Tasks and flows without duplicates: a module may have one under several names or options."""
    once = list(dict.fromkeys(found))
    return TargetCode(
        tasks=tuple(dict.fromkeys(each.base for each in once if isinstance(each, Task))),
        flows=tuple(each for each in once if isinstance(each, BuiltFlow)),
    )


def _type(found: Any) -> str:
    several = found if isinstance(found, list | tuple) else [found]
    if any(isinstance(each, Flow) for each in several):
        return "a flow that is not built (call .build() on it)"
    return repr(type(found).__name__)
