"""From ``module:name`` on the command line to the worker or the tasks it means."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from difflib import get_close_matches
from functools import reduce
from types import ModuleType
from typing import Any

from perdure.errors import InvalidInput
from perdure.model.task import Task
from perdure.worker.worker import Worker

Tasks = tuple[Task[..., Any], ...]


def load(target: str) -> Worker | Tasks:
    """Import what ``target`` names: a worker, a task, a list of tasks, or a module of tasks."""
    module_name, _, name = target.partition(":")
    module = _module(module_name, target)
    if not name:
        return _tasks_of(module)
    return _usable(_attribute(module, name), target)


def _module(name: str, target: str) -> ModuleType:
    if not name or name.endswith(".py") or os.sep in name:
        dotted = name.removesuffix(".py").replace(os.sep, ".").strip(".") or "module"
        raise InvalidInput(
            f"{target!r} must name a module, with dots and without .py: "
            f"{dotted}{target[len(name) :] or ':worker'}"
        )
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidInput(f"there is no module {error.name!r} in {here}") from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> InvalidInput:
    """The module is there and fails by itself: its author needs to see where."""
    trace = error.__traceback__
    while trace is not None and _is_machinery(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace, chain=False)
    return InvalidInput(f"module {name!r} cannot be imported: {type(error).__name__}: {error}")


def _is_machinery(filename: str) -> bool:
    return filename in (__file__, importlib.__file__) or filename.startswith("<frozen importlib")


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError:
        near = get_close_matches(name, _offered(module), n=3) or _offered(module)
        hint = f"; it has {', '.join(near)}" if near else "; it has no worker and no task"
        raise InvalidInput(f"module {module.__name__!r} has no {name!r}{hint}") from None


def _offered(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, Task | Worker)]


def _tasks_of(module: ModuleType) -> Tasks:
    tasks = tuple(value for value in vars(module).values() if isinstance(value, Task))
    if not tasks:
        raise InvalidInput(
            f"module {module.__name__!r} has no tasks; decorate functions with @task, or name a "
            f"worker: {module.__name__}:worker"
        )
    return tuple(dict.fromkeys(tasks))


def _usable(found: Any, target: str) -> Worker | Tasks:
    if isinstance(found, Worker):
        return found
    if isinstance(found, Task):
        return (found,)
    if isinstance(found, list | tuple) and found and all(isinstance(x, Task) for x in found):
        return tuple(found)
    raise InvalidInput(
        f"{target!r} is {type(found).__name__!r}, not a Worker, a task or a list of tasks"
    )
