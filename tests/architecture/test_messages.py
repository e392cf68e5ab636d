"""No code reads our own messages: programs match on codes and arguments.

What still does is listed here, module by module. The lists may only shrink: they are compared for
equality, so a stale entry fails too.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.architecture.source_tree import Module, imported_names, modules

SHOWING = ("cli", "demo", "flows.yaml", "inline", "testing", "verify")
SHOWING_RULES = {"operations.insight.explain", "operations.insight.health"}

# Module that shows or makes messages -> what it reads with regular expressions or a parser. None of
# it is a message of ours.
PARSERS = {
    "cli.commands.init": "the name of a folder",
    "flows.yaml.dump": "texts that YAML would misread",
    "flows.yaml.parse": "numbers and characters in YAML, escapes in JSON",
}

# Module -> why it marks places within a text by control characters.
SENTINELS: dict[str, str] = {}

# Module -> how often it makes another message of an error of ours, instead of passing on faults.
RENDERED_AGAIN: dict[str, int] = {}

# Module -> how often it takes apart the text of an error, of another library.
TAKEN_APART = {
    "flows.yaml.parse": 1,  # the YAML parser's, which is several lines long
    "model.payload": 1,  # msgspec's, which offers no data
    "nodes.http": 1,  # h11 quotes the response after a colon
}

# Module -> how often it raises an error of ours with a text instead of a code.
WORDED_ERRORS: dict[str, int] = {}

# Module -> how often it words a fault of a flow instead of declaring a code.
WORDED_FAULTS: dict[str, int] = {}

# Module -> why it spells calls of a client or commands. Elsewhere advice is an action.
WRITES_ADVICE = {"diagnostics": "PythonRenderer"}
_CALL_OR_COMMAND = re.compile(
    r"\bclient\.\w[\w.]*\(|"
    r"\bperdure (?:jobs|runs|approvals|waits|schedules|queues|workers|flows|store) [a-z]"
)

TEXT_METHODS = {
    "endswith",
    "find",
    "index",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rpartition",
    "rsplit",
    "split",
    "splitlines",
    "startswith",
}


def test_who_parses_where_messages_are_shown():
    assert set(parsers(modules())) == PARSERS.keys()


def test_who_marks_places_in_texts():
    assert set(sentinels(modules())) == SENTINELS.keys()


def test_who_makes_messages_of_messages():
    assert Counter(rendered_again(modules())) == RENDERED_AGAIN


def test_who_takes_messages_apart():
    assert Counter(taken_apart(modules())) == TAKEN_APART


def test_who_raises_errors_without_a_code():
    assert Counter(worded_errors(modules())) == WORDED_ERRORS


def test_who_words_faults_without_a_code():
    assert Counter(worded_faults(modules())) == WORDED_FAULTS


def test_who_spells_advice():
    assert set(written_advice(modules())) <= WRITES_ADVICE.keys()


def written_advice(found: Iterable[Module]) -> Iterator[str]:
    """Calls of a client, or commands, in texts that are not documentation."""
    for module in found:
        if module.name.split(".")[0] in ("cli", "demo"):
            continue
        documentation = {
            id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)
        }
        for node in ast.walk(module.tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if not isinstance(text, str) or id(node) in documentation:
                continue
            if _CALL_OR_COMMAND.search(text):
                yield module.name


def parsers(found: Iterable[Module]) -> Iterator[str]:
    for module in found:
        is_shown = module.name.startswith(tuple(f"{part}." for part in SHOWING))
        imported = {each.split(".")[0] for each in imported_names(module).values()}
        if (is_shown or module.name in SHOWING_RULES) and imported & {"re", "ast"}:
            yield module.name


def sentinels(found: Iterable[Module]) -> Iterator[str]:
    for module in found:
        for node in ast.walk(module.tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and ("\x01" in text or "\x02" in text):
                yield module.name


def rendered_again(found: Iterable[Module]) -> Iterator[str]:
    """``str(error)``, ``repr(error)`` and ``f"{error}"`` of an exception of ours just caught."""
    for module in found:
        own = {name for name, full in imported_names(module).items() if full.startswith("perdure.")}
        own |= {node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)}
        for handler in ast.walk(module.tree):
            if not isinstance(handler, ast.ExceptHandler) or not (handler.name and handler.type):
                continue
            caught = {each.id for each in ast.walk(handler.type) if isinstance(each, ast.Name)}
            if caught & own:
                yield from (module.name for node in ast.walk(handler) if _shows(node, handler.name))


def _shows(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=shown)]):
            return shown == name
        case ast.FormattedValue(value=ast.Name(id=shown)):
            return shown == name
    return False


def taken_apart(found: Iterable[Module]) -> Iterator[str]:
    """``str(error).split(...)`` and ``"text" in str(error)``."""
    for module in found:
        for node in ast.walk(module.tree):
            match node:
                case ast.Call(func=ast.Attribute(value=text, attr=method)):
                    if method in TEXT_METHODS and _is_text_of_an_error(text):
                        yield module.name
                case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[text]):
                    if _is_text_of_an_error(text):
                        yield module.name


def worded_errors(found: Iterable[Module]) -> Iterator[str]:
    """``InvalidInput("text")``."""
    for module in found:
        for node in ast.walk(module.tree):
            match node:
                case ast.Call(func=ast.Name(id="InvalidInput"), args=[text, *_]):
                    if isinstance(text, ast.Constant | ast.JoinedStr):
                        yield module.name


def worded_faults(found: Iterable[Module]) -> Iterator[str]:
    """``assembly.fault(label, "text")``, and its like in the loader of YAML."""
    for module in found:
        for node in ast.walk(module.tree):
            match node:
                case ast.Call(func=ast.Attribute(attr="fault"), args=[_, text, *_]):
                    if isinstance(text, ast.Constant | ast.JoinedStr):
                        yield module.name


# A log record is a fixed message and fields, which a formatter finds under one name.


# Module -> why its message has arguments.
LOG_ARGUMENTS = {
    "cli.commands.worker": "the name of a variable, which is fixed",
    "worker.steps": "the message of the caller",
}


def test_log_records_keep_their_values_in_fields():
    """Finding 28: fields under any other name were left out of the logs of ``perdure worker``."""
    assert set(log_arguments(modules())) == LOG_ARGUMENTS.keys()
    assert list(unseen_fields(modules())) == []


def log_arguments(found: Iterable[Module]) -> Iterator[str]:
    """``_log.error("it failed: job=%s", id)``"""
    for module, call in _log_calls(found):
        is_message = isinstance(call.args[0], ast.Constant | ast.Name)
        if call.func.attr != "log" and (len(call.args) > 1 or not is_message):  # type: ignore[attr-defined]
            yield module.name


def unseen_fields(found: Iterable[Module]) -> Iterator[str]:
    """``_log.error("it failed", extra={"job": id})``"""
    for module, call in _log_calls(found):
        for given in call.keywords:
            match given.value:
                case ast.Dict(keys=[ast.Constant(value="fields")]):
                    pass
                case _ if given.arg == "extra":
                    yield module.name


def _log_calls(found: Iterable[Module]) -> Iterator[tuple[Module, ast.Call]]:
    for module in found:
        for node in ast.walk(module.tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="_log"))):
                    yield module, node


def _is_text_of_an_error(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in ("error", "failure", "refusal", "cause", "exception", "caught")
    return False


class TestTheChecksThemselves:
    def test_find_what_they_look_for(self, tmp_path):
        (tmp_path / "cli").mkdir()
        (tmp_path / "cli" / "view.py").write_text("import re\nx = '\\x01'")
        (tmp_path / "cli" / "plain.py").write_text("import json\nx = 'a'")
        (tmp_path / "other.py").write_text(
            "import re\n"
            "from perdure.errors import InvalidInput\n"
            "class Refused(Exception): ...\n"
            "try: pass\n"
            "except (InvalidInput, KeyError) as error: f(str(error))\n"
            "except Refused as error: f(f'no: {error}')\n"
            "except OSError as error: f(str(error))\n"
            "x = str(error).split('; ')\n"
            "y = 'in use' in str(error)\n"
            "raise InvalidInput(f'no {x}')\n"
            "raise InvalidInput(CODE.fault(('a', 'b'), x=1))\n"
            "self.fault(label, 'no')\n"
            "self.fault(label, error)\n"
            "f('see client.runs.get(id)')\n"
            "g(f'{x} perdure runs get {x}')\n"
            'def h():\n    "client.runs.get(id)"\n'
            "_log.error('no: %s', x, extra={'job': x})\n"
            "_log.error('no', extra={'fields': {'job': x}})\n"
        )
        found = modules(tmp_path)

        assert list(parsers(found)) == ["cli.view"]
        assert list(sentinels(found)) == ["cli.view"]
        assert list(rendered_again(found)) == ["other", "other"]
        assert list(taken_apart(found)) == ["other", "other"]
        assert list(worded_errors(found)) == ["other"]
        assert list(written_advice(found)) == ["other", "other"]
        assert list(worded_faults(found)) == ["other"]
        assert list(log_arguments(found)) == ["other"]
        assert list(unseen_fields(found)) == ["other"]
