"""JSON Schema forms: fill in defaults and find all faults, within a budget.

jsonschema alone would fetch remote references, and take exponential time on some patterns and
nested references. Here nothing is fetched, every keyword counts against a budget, and patterns,
formats and uniqueness are checked in bounded time. jsonschema is imported with the first form: it
takes longer to load than all of Perdure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextvars import ContextVar
from fractions import Fraction
from functools import cache, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from perdure.diagnostics import Fault, declare, render
from perdure.errors import InvalidInput, PerdureError, fault_text
from perdure.expr.budget import CostBudget, spend_on_loop
from perdure.expr.condition import is_number, is_same
from perdure.expr.path import Path, path_text
from perdure.expr.pattern import building_cost, is_found, pattern_fault, search_cost
from perdure.forms.formats import FORMATS
from perdure.model.payload import from_json, to_json
from perdure.model.text import json_preview, preview, type_name
from perdure.model.value import Value

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

    Errors = Iterator[ValidationError]
    Keyword = Callable[[Any, Any, Any, Any], Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_MAX_BYTES = 65_536
SCHEMA_DEPTH_MAX = 100
SUBSCHEMAS_MAX = 1_000
FAULTS_MAX = 100
"""Most faults reported for one value."""
DEFAULTS_MAX = 10_000
"""Most defaults filled into one value."""
DEFAULTS_MAX_BYTES = 1024 * 1024
"""Their size together, as JSON."""
CHECKS_MAX = 250_000
"""The budget for one value: each element of a keyword, and some characters, cost one check."""

NESTING_MAX = 120
"""Nesting of keywords. Far below Python's recursion limit, at which the native libraries below
jsonschema panic instead of raising an error."""

# Faults of data

FORBIDDEN = declare("form.forbidden", "must not be given")
WRONG_TYPE = declare("form.type", "must be {expected}")
NOT_IN_ENUM = declare("form.enum", "is not one of {listed}")
NOT_CONST = declare("form.const", "must be {expected}")
WRONG_FORMAT = declare("form.format", "must be {expected}")
EMPTY = declare("form.empty", "must not be empty")
REQUIRED = declare("form.required", "is required")
DEPENDENT_REQUIRED = declare("form.dependent_required", "is required if {field!r} is given")
UNKNOWN_FIELD = declare("form.unknown_field", "is not a field of this form")
PROPERTY_NAMES = declare("form.property_names", "has a field {field}, whose name {reason}")
NO_ALTERNATIVE = declare("form.any_of", "matches none of the alternatives: {ways}")
SEVERAL_ALTERNATIVES = declare("form.one_of", "must match exactly one alternative")
PATTERN = declare("form.pattern", "must match {pattern}")
OTHER_KEYWORD = declare("form.keyword", "{message}")
INVALID_FORM = declare(
    "form.invalid", "cannot be checked, since the form itself is invalid: {reason}"
)
TOO_MUCH_WORK = declare(
    "form.too_much_work",
    "cannot be checked: the form or the value is too large or nested too deeply",
)
NOT_JSON_VALUE = declare("form.not_checkable", "cannot be checked: {reason}")
TOO_MANY_DEFAULTS = declare(
    "form.too_many_defaults", "the form has more than {most} defaults to fill in"
)
DEFAULTS_TOO_LARGE = declare(
    "form.defaults_too_large", "the defaults to fill in total more than {most} bytes"
)

# Faults of schemas

NOT_A_SCHEMA = declare("schema.not_an_object", "a schema must be an object, not {found}")
TOO_DEEP = declare("schema.too_deep", "is nested deeper than {most} levels")
TOO_MANY_SCHEMAS = declare("schema.too_many", "consists of more than {most} schemas")
REFUSED_KEYWORD = declare("schema.refused_keyword", "{keyword} cannot be used in a form; {instead}")
BROKEN_REFERENCE = declare(
    "schema.broken_reference",
    "$ref {reference!r} not found: use '#', or '#/$defs/NAME' with a NAME under $defs in this "
    "schema",
)
ONLY_AT_TOP = declare("schema.only_at_top", "{keyword} is only allowed at the top level")
UNKNOWN_DIALECT = declare(
    "schema.unknown_dialect", "unknown $schema {dialect}", "Remove it, or use {known}"
)
UNUSABLE_PATTERN = declare("schema.pattern", "{pattern!r} {reason}")


def check_schema(schema: Any) -> list[Fault]:
    """All faults of the schema itself, with their paths."""
    try:
        data = _schema_json(schema)
    except InvalidInput as error:
        return list(error.faults)
    return list(_compiled(data).faults)


def faults_of(schema: Any, data: Any) -> list[Fault]:
    """All faults of the data, with the paths of its fields; one fault if the schema is invalid."""
    if own := check_schema(schema):
        return [INVALID_FORM.fault(reason=fault_text(own[0]))]
    return _without_repeats(_faults(_compiled(_schema_json(schema)).validator, data))


def by_field(faults: Iterable[Fault]) -> dict[str, list[str]]:
    """The messages by field path; "" is the whole value."""
    found: dict[str, list[str]] = {}
    for fault in faults:
        found.setdefault(path_text(fault.where), []).append(render(fault))
    return found


def with_defaults(schema: Any, data: Any) -> Any:
    """A copy of the data with the defaults of absent properties filled in, at all levels.

    No other values are created, and the data is not checked.
    """
    return _Defaults(schema).into(data, schema, 0)


def merge_answer(
    schema: Any, given: Mapping[str, Any], current: Any
) -> tuple[Mapping[str, Any], list[Fault]]:
    """The fields of an answer to a form, merged into the current data, and all faults.

    JSON Schema allows every field that a schema does not name. An answer edits the current data,
    so it may change only what the form names or explicitly allows (``additionalProperties``), and
    only in alternatives and branches that apply. Repeating a current value changes nothing.

    The same holds for nested objects that the form describes: omitted fields keep their values.
    Elements of a list are matched by position, so that their unnamed fields keep their values too;
    further elements have named fields only.

    Conditions are judged with all current data: an answer cannot change their outcome by omitting
    fields. But a form must not refuse data that no decider may change, for example by
    ``additionalProperties: false``, or that is not recorded.
    """
    if own := check_schema(schema):
        return given, [INVALID_FORM.fault(reason=fault_text(own[0]))]
    answer = _Answer(_compiled(_schema_json(schema)).validator)
    token = _budget.set(_Budget())
    try:
        former = current if isinstance(current, Mapping) else {}
        filled = with_defaults(schema, {**former, **answer.merged(former, given)})
        named = answer.named_fields()
        recorded = {
            name: each
            for name, each in filled.items()
            if name in named or name in given or name not in former
        }
        view = _view.set(answer.view(filled, recorded, former, given))
        try:
            faults = faults_of(schema, filled)
            unknown = answer.unknown_fields(given, former, None if faults else filled)
            faults = [*islice(unknown, FAULTS_MAX), *faults]
        finally:
            _view.reset(view)
        return recorded, faults
    except InvalidInput as error:  # too many defaults
        return given, list(error.faults)
    except (RecursionError, TooMuchWork):
        return given, [TOO_MUCH_WORK.fault()]
    finally:
        _budget.reset(token)


_OBJECT_KEYWORDS = frozenset({"properties", "patternProperties", "additionalProperties"})
_LIST_KEYWORDS = frozenset({"items", "prefixItems"})


class _Answer:
    """Walks an answer along its form."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator
        self._root: Any = validator.schema
        self._known: dict[tuple[int, ...], _Fields] = {}

    def named_fields(self) -> set[str]:
        """The fields that the form names, also in its conditions."""
        found: set[str] = set()
        for each in self._applied([self._root], with_conditions=True):
            for keyword in ("properties", "required", "dependentSchemas", "dependentRequired"):
                found.update(each.get(keyword, ()))
        return found

    def merged(self, base: Any, edits: Any) -> Any:
        return self._merged([self._root], base, edits)

    def _merged(self, schemas: list[Any], base: Any, edits: Any) -> Any:
        if not _are_both(dict, base, edits) and not _are_both(list, base, edits):
            return edits
        applied = self._applied(schemas)
        if isinstance(base, dict) and _describes_object(applied):
            fields = self._fields(applied, edits)
            changed = {
                name: self._merged(fields.schemas_of(name), base[name], value)
                if name in base
                else value
                for name, value in edits.items()
            }
            return base | changed
        if isinstance(base, list) and _describes_list(applied):
            elements = _Elements(applied, edits)
            return [
                self._merged(elements.schemas_of(at), base[at], value) if at < len(base) else value
                for at, value in enumerate(edits)
            ]
        return edits

    def view(self, filled: Any, recorded: Mapping[str, Any], former: Any, given: Any) -> _View:
        """What keywords other than conditions see of the merged data."""
        view = _View()
        waiting: list[tuple[list[Any], Any, Any, Any]] = [([self._root], filled, former, given)]
        while waiting:
            schemas, value, before, edits = waiting.pop()
            applied = self._applied(schemas)
            is_root = value is filled
            if _are_both(dict, value, before) and (is_root or _describes_object(applied)):
                # Fields of an answer are recorded within their top-level field, or not at all.
                names = recorded if is_root else value
                fields = self._fields(applied, names)
                edits = edits if isinstance(edits, dict) else {}
                seen = view.fields[id(value)] = []
                for name in names:
                    inside = fields.schemas_of(name)
                    if inside or name in edits or name not in before:
                        seen.append(name)
                    if inside and name in before and isinstance(value[name], dict | list):
                        waiting.append((inside, value[name], before[name], edits.get(name)))
            elif _are_both(list, value, before) and _describes_list(applied):
                elements = _Elements(applied, value)
                if isinstance(edits, list):
                    view.answered.add(id(value))
                else:
                    edits = [None] * len(value)
                for at, (each, old, new) in enumerate(zip(value, before, edits, strict=False)):
                    if isinstance(each, dict | list):
                        waiting.append((elements.schemas_of(at), each, old, new))
        return view

    def unknown_fields(self, given: Any, current: Any, filled: Any) -> Iterator[Fault]:
        """A fault for each change that the form does not allow.

        ``filled`` decides which branches apply; without it, if it is invalid, all do.
        """
        is_valid = filled is not None
        waiting: list[tuple[Path, list[Any], Any, Any, Any]] = [
            ((), [self._root], given, current, filled)
        ]
        while waiting:
            where, schemas, value, former, whole = waiting.pop()
            applied = self._applied(schemas, [whole] if is_valid else [])
            if (expected := _lost_type(applied, value, former)) is not None:
                yield WRONG_TYPE.fault(where, types=(expected,), expected=_TYPES[expected])
            elif isinstance(value, dict) and (not where or _describes_object(applied)):
                fields = self._fields(applied, value)
                former = former if isinstance(former, dict) else {}
                for name, each in value.items():
                    before = former.get(name)
                    if inside := fields.schemas_of(name):
                        if isinstance(each, dict | list) or isinstance(before, dict | list):
                            part = whole[name] if is_valid else None
                            waiting.append(((*where, name), inside, each, before, part))
                    elif name not in former or not is_same(each, before, _spend_on):
                        yield UNKNOWN_FIELD.fault((*where, name), field=name)
            elif isinstance(value, list) and _describes_list(applied):
                elements = _Elements(applied, value)
                former = former if isinstance(former, list) else []
                for at, each in enumerate(value):
                    before = former[at] if at < len(former) else None
                    if isinstance(each, dict | list) or isinstance(before, dict | list):
                        part = whole[at] if is_valid else None
                        inside = elements.schemas_of(at)
                        waiting.append(((*where, at), inside, each, before, part))

    def _fields(self, applied: list[Mapping[str, Any]], names: Sized) -> _Fields:
        _spend_on(len(applied) + len(names))
        key = tuple(map(id, applied))  # all are parts of the form
        if key not in self._known:
            self._known[key] = _Fields(applied)
        return self._known[key]

    def _applied(
        self, schemas: list[Any], values: Sequence[Any] = (), *, with_conditions: bool = False
    ) -> list[Mapping[str, Any]]:
        """The schemas, and all schemas in them that apply to the same value, if one is given."""
        found: dict[int, Mapping[str, Any]] = {}
        waiting = list(schemas)
        while waiting:
            _budget.get().spend(1)
            each = waiting.pop()
            if not isinstance(each, Mapping) or id(each) in found:
                continue
            found[id(each)] = each
            waiting += each.get("allOf", ())
            for branch in (*each.get("anyOf", ()), *each.get("oneOf", ())):
                if all(self._is_met(branch, value) for value in values):
                    waiting.append(branch)
            if "if" in each:
                is_met = [_holds(self._validator, each["if"], value) for value in values]
                waiting += [each.get("then")] * (False not in is_met)
                waiting += [each.get("else")] * (True not in is_met)
            for name, branch in each.get("dependentSchemas", {}).items():
                if all(isinstance(value, Mapping) and name in value for value in values):
                    waiting.append(branch)
            if isinstance(each.get("$ref"), str):
                waiting.append(_referred(each["$ref"], self._root))
            if with_conditions:
                waiting += [each[keyword] for keyword in ("if", "not") if keyword in each]
        return list(found.values())

    def _is_met(self, schema: Any, value: Any) -> bool:
        return next(iter(self._validator.descend(value, schema)), None) is None


def _are_both(type: type, one: Any, other: Any) -> bool:
    return isinstance(one, type) and isinstance(other, type)


def _describes_object(schemas: list[Mapping[str, Any]]) -> bool:
    return any(_OBJECT_KEYWORDS & each.keys() or "object" in _types(each) for each in schemas)


def _describes_list(schemas: list[Mapping[str, Any]]) -> bool:
    return any(_LIST_KEYWORDS & each.keys() for each in schemas)


def _types(schema: Mapping[str, Any]) -> list[str]:
    types = schema.get("type", [])
    return types if isinstance(types, list) else [types]


def _lost_type(schemas: list[Mapping[str, Any]], value: Any, former: Any) -> str | None:
    """The type of the former value if only an omitted ``type`` lets another one replace it."""
    if any(keyword in each for each in schemas for keyword in ("type", "enum", "const")):
        return None
    if isinstance(former, dict) and not isinstance(value, dict) and _describes_object(schemas):
        return "object"
    if isinstance(former, list) and not isinstance(value, list) and _describes_list(schemas):
        return "array"
    return None


class _Fields:
    """The schemas that allow fields of an object and apply to them.

    Collected once, so that only patterns cost time for each field and schema.
    """

    def __init__(self, applied: list[Mapping[str, Any]]) -> None:
        self._named: dict[str, list[Any]] = {}
        self._open = [each for each in applied if _allows_others(each)]
        self._has_patterns = any(each.get("patternProperties") for each in applied)
        self._others = [other for each in self._open for other in _others(each)]
        for each in applied:
            properties = each.get("properties", {})
            _spend_on(len(properties))
            for name, inside in properties.items():
                self._named.setdefault(name, []).append(inside)

    def schemas_of(self, name: str) -> list[Any]:
        named = self._named.get(name, [])
        if not self._open:
            return named
        if not named and not self._has_patterns:
            return self._others
        _spend_on(len(self._open))
        found = [*named]
        for each in self._open:
            patterns = each.get("patternProperties", {}).items()
            matching = [inside for pattern, inside in patterns if _matches(pattern, name)]
            is_named = matching or name in each.get("properties", ())
            found += matching if is_named else _others(each)
        return found


def _allows_others(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("patternProperties") or _others(schema))


def _others(schema: Mapping[str, Any]) -> list[Any]:
    others = schema.get("additionalProperties", False)
    return [] if others is False else [others]


class _Elements:
    """The schemas that apply to the elements of a list, collected once."""

    def __init__(self, applied: list[Mapping[str, Any]], elements: Sized) -> None:
        _spend_on(len(applied) + len(elements))
        self._applied = applied
        self._first_count = max((len(each.get("prefixItems", ())) for each in applied), default=0)
        self._others = [each.get("items", True) for each in applied]

    def schemas_of(self, at: int) -> list[Any]:
        if at >= self._first_count:
            return self._others
        _spend_on(len(self._applied))
        found = []
        for each in self._applied:
            first = each.get("prefixItems", ())
            found.append(first[at] if at < len(first) else each.get("items", True))
        return found


class _Defaults:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._left, self._bytes_left = DEFAULTS_MAX, DEFAULTS_MAX_BYTES
        self._known: dict[int, tuple[Mapping[str, Any], dict[str, Any]]] = {}

    def into(self, data: Any, schema: Any, depth: int) -> Any:
        if (
            depth > SCHEMA_DEPTH_MAX
            or not isinstance(data, Mapping | list | tuple)
            or not isinstance(schema, Mapping)
        ):
            return data
        schema, defaults = self._resolved(schema)
        if isinstance(data, Mapping) and isinstance(schema.get("properties"), Mapping):
            return self._filled(data, schema["properties"], defaults, depth)
        if isinstance(data, list | tuple) and isinstance(schema.get("items"), Mapping):
            return [self.into(element, schema["items"], depth + 1) for element in data]
        return data

    def _filled(
        self,
        data: Mapping[str, Any],
        properties: Mapping[str, Any],
        defaults: Mapping[str, Any],
        depth: int,
    ) -> dict[str, Any]:
        filled = dict(data)
        for name, default in defaults.items():
            if name not in filled:
                filled[name] = self._default(default)
        # Absent properties must not cost time for each element of a list.
        names = properties if len(properties) < len(filled) else filled
        for name in [name for name in names if name in filled and name in properties]:
            filled[name] = self.into(filled[name], properties[name], depth + 1)
        return filled

    def _default(self, default: Any) -> Any:
        data = to_json(default, "a default")
        self._left -= 1
        self._bytes_left -= len(data)
        if self._left < 0:
            raise InvalidInput(TOO_MANY_DEFAULTS.fault(most=DEFAULTS_MAX))
        if self._bytes_left < 0:
            raise InvalidInput(DEFAULTS_TOO_LARGE.fault(most=DEFAULTS_MAX_BYTES))
        return from_json(data)  # a copy, since callers may change it

    def _resolved(self, schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """The schema merged with its ``$ref``, and the defaults of its properties."""
        if id(schema) not in self._known:
            resolved = self._merged(schema)
            properties = resolved.get("properties")
            parts = properties.items() if isinstance(properties, Mapping) else ()
            merged = {name: self._merged(part) for name, part in parts if isinstance(part, Mapping)}
            defaults = {name: part["default"] for name, part in merged.items() if "default" in part}
            self._known[id(schema)] = (resolved, defaults)
        return self._known[id(schema)]

    def _merged(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema merged with its ``$ref``; its own keywords take precedence."""
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        referred = _referred(reference, self._root)
        return {**referred, **schema} if isinstance(referred, Mapping) else schema


# Schemas

_COMPILED_MAX = 128
_SCHEMAS = frozenset(
    {"items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"}
)
_LISTS_OF_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPS_OF_SCHEMAS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
)
_REFUSED = {
    "$dynamicRef": "write $ref",
    "$recursiveRef": "write $ref",
    "unevaluatedProperties": "write additionalProperties",
    "unevaluatedItems": "write items",
}


class _Form(Value, gc=True):
    """A compiled schema, or its faults."""

    validator: Any
    faults: tuple[Fault, ...]


def _schema_json(schema: Any) -> bytes:
    if not isinstance(schema, Mapping | bool):
        raise InvalidInput(NOT_A_SCHEMA.fault(found=type_name(schema)))
    return to_json(schema, "the schema", SCHEMA_MAX_BYTES)


@lru_cache(maxsize=_COMPILED_MAX)
def _compiled(schema_json: bytes) -> _Form:
    """Cached by JSON, which is immutable and the same for equal schemas."""
    schema = from_json(schema_json)
    faults = tuple(islice(_schema_faults(schema), FAULTS_MAX))
    if isinstance(schema, dict):
        schema.pop("$schema", None)  # it makes jsonschema choose a validator without a budget
    return _Form(validator=None if faults else validator_of(schema), faults=faults)


def _schema_faults(schema: Any) -> Iterator[Fault]:
    budget = CostBudget()
    for count, (where, subschema) in enumerate(_subschemas(schema)):
        if len(where) > SCHEMA_DEPTH_MAX:
            yield TOO_DEEP.fault(most=SCHEMA_DEPTH_MAX)
            return
        if count >= SUBSCHEMAS_MAX:
            yield TOO_MANY_SCHEMAS.fault(most=SUBSCHEMAS_MAX)
            return
        try:
            found = [*_faults_at(subschema, schema, budget)]
        except InvalidInput:  # its patterns cost too much to build
            yield TOO_MUCH_WORK.fault(where)
            return
        for fault in (*found, *_faults(schema_validator(), _alone(subschema))):
            yield fault.under(*where)


def _subschemas(schema: Any) -> Iterator[tuple[Path, Any]]:
    """The schema and all schemas in it, except under unknown keywords."""
    waiting: list[tuple[Path, Any]] = [((), schema)]
    while waiting:
        where, schema = waiting.pop()
        yield where, schema
        if isinstance(schema, dict):
            inside = [((*where, *at), part) for at, part in _parts(schema)]
            waiting += reversed(inside)


def _parts(schema: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """The direct subschemas."""
    for keyword, inside in schema.items():
        if keyword in _SCHEMAS:
            yield (keyword,), inside
        elif keyword in _LISTS_OF_SCHEMAS and isinstance(inside, list):
            yield from (((keyword, at), part) for at, part in enumerate(inside))
        elif keyword in _MAPS_OF_SCHEMAS and isinstance(inside, dict):
            yield from (((keyword, name), part) for name, part in inside.items())


def _alone(schema: Any) -> Any:
    """The schema without its subschemas, which are checked separately to avoid deep recursion."""
    if not isinstance(schema, dict):
        return schema
    alone = dict(schema)
    for keyword, inside in schema.items():
        if keyword in _SCHEMAS:
            alone[keyword] = True
        elif keyword in _LISTS_OF_SCHEMAS and isinstance(inside, list):
            alone[keyword] = [True] * len(inside)
        elif keyword in _MAPS_OF_SCHEMAS and isinstance(inside, dict):
            alone[keyword] = dict.fromkeys(inside, True)
    return alone


def _faults_at(subschema: Any, root: Any, budget: CostBudget) -> Iterator[Fault]:
    """Faults of keywords that JSON Schema allows and forms do not."""
    if not isinstance(subschema, dict):
        return
    for keyword, instead in _REFUSED.items():
        if keyword in subschema:
            yield REFUSED_KEYWORD.fault(keyword=keyword, instead=instead)
    reference = subschema.get("$ref")
    if isinstance(reference, str) and _referred(reference, root) is None:
        yield BROKEN_REFERENCE.fault(reference=preview(reference))
    for keyword in ("$schema", "$id"):
        if keyword in subschema and subschema is not root:
            yield ONLY_AT_TOP.fault(keyword=keyword)
    if subschema.get("$schema", DIALECT) != DIALECT and subschema is root:
        yield UNKNOWN_DIALECT.fault(dialect=json_preview(subschema["$schema"]), known=DIALECT)
    for pattern in (subschema.get("pattern"), *_keys(subschema.get("patternProperties"))):
        if isinstance(pattern, str) and (fault := pattern_fault(pattern, budget)):
            yield UNUSABLE_PATTERN.fault(pattern=preview(pattern), reason=render(fault))


def _keys(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict) else []


def _referred(reference: str, root: Any) -> Any:
    """The schema at a reference such as ``#/$defs/address``, or None."""
    if reference == "#":
        return root
    match reference.split("/"):
        case ["#", ("$defs" | "definitions") as keyword, name]:
            defined = root.get(keyword)
            name = unquote(name).replace("~1", "/").replace("~0", "~")
            return defined.get(name) if isinstance(defined, Mapping) else None
    return None


def _faults(validator: Validator, data: Any) -> list[Fault]:
    try:
        return [fault_of(error) for error in errors_of(validator, data, FAULTS_MAX)]
    except (RecursionError, TooMuchWork):
        return [TOO_MUCH_WORK.fault()]
    except ValueError as error:  # not JSON: infinities, objects, very large integers
        return [NOT_JSON_VALUE.fault(reason=preview(str(error)))]


def _without_repeats(faults: list[Fault]) -> list[Fault]:
    """Two keywords may find the same fault. Compared by message, since arguments do not hash."""
    return list({(fault.where, render(fault)): fault for fault in faults}.values())


# Checking within a budget

_CHARACTERS_PER_CHECK = 50
_CHECKS_PER_REFERENCE = 10
_FIELDS_PER_CHECK = 4
"""Fields, elements or schemas that one check visits without judging them."""
_ELEMENTS_PER_CHECK = 2
"""Elements or fields that one check judges by a schema without keywords."""
_LOOP_COST_PER_CHECK = 12
"""In the units of ``expr.budget``: a check takes some microseconds."""


class TooMuchWork(PerdureError):
    """More checks than ``CHECKS_MAX``, or deeper than ``NESTING_MAX``."""


class _Budget:
    def __init__(self) -> None:
        self._left = CHECKS_MAX
        self._nesting = 0

    def spend(self, checks: int) -> None:
        self._left -= checks
        spend_on_loop(checks * _LOOP_COST_PER_CHECK)
        if self._left < 0:
            raise TooMuchWork(f"more than {CHECKS_MAX} checks")

    def enter(self) -> None:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise TooMuchWork(f"nested deeper than {NESTING_MAX}")

    def leave(self) -> None:
        self._nesting -= 1


_budget: ContextVar[_Budget] = ContextVar("budget")


def _spend_on(count: int) -> None:
    _budget.get().spend(count // _FIELDS_PER_CHECK)


class _View:
    """What keywords see of an answer merged into its data.

    The other fields are hidden: no decider gave them, and they may not be changed or are not
    recorded. They count in conditions and where a keyword asks for fields, such as ``required``.
    Nothing is refused because of them.
    """

    __slots__ = ("answered", "fields")

    def __init__(self) -> None:
        self.fields: dict[int, list[str]] = {}
        """The fields to judge of each object, by its ``id``; all of others."""
        self.answered: set[int] = set()
        """The lists that the decider gave, by ``id``."""

    def of(self, instance: dict[str, Any] | list[Any]) -> Collection[Any]:
        return self.fields.get(id(instance), instance)

    def visible(self, value: Any) -> Any:
        """The value without hidden fields."""
        if not self.fields or not isinstance(value, dict | list):
            return value
        _budget.get().spend(1 + len(value) // _FIELDS_PER_CHECK)
        if isinstance(value, dict):
            return {name: self.visible(value[name]) for name in self.of(value)}
        return [self.visible(each) for each in value]


_ALL_VISIBLE = _View()
_view: ContextVar[_View] = ContextVar("view", default=_ALL_VISIBLE)


def validator_of(schema: Any) -> Validator:
    from referencing import Registry

    # An empty registry: the default one fetches references over the network.
    return _validator_class()(schema, registry=Registry())


@cache
def schema_validator() -> Validator:
    """A validator for schemas themselves; the trusted metaschema needs no budget."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(Draft202012Validator.META_SCHEMA)


def errors_of(validator: Validator, data: Any, errors_max: int) -> list[ValidationError]:
    """The validation errors; raises ``TooMuchWork`` or ``RecursionError`` beyond the budget."""
    token = _budget.set(_Budget())
    try:
        return list(islice(validator.iter_errors(data), errors_max))
    finally:
        _budget.reset(token)


@cache
def _validator_class() -> type[Validator]:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    keywords: dict[str, Keyword] = {**Draft202012Validator.VALIDATORS, **_OWN_KEYWORDS}
    costs = {"$ref": _CHECKS_PER_REFERENCE}
    counted = {
        name: _counted(keyword, costs.get(name, 1), _VISITED.get(name))
        for name, keyword in keywords.items()
    }
    made: type[Validator] = extend(Draft202012Validator, counted)  # type: ignore[no-untyped-call]
    return made


_VISITED: Mapping[str, type[list[Any] | dict[str, Any]]] = {
    "items": list,
    "contains": list,
    "additionalProperties": dict,
    "propertyNames": dict,
}
"""Keywords that visit each element or field, which would cost nothing for an empty schema."""


def _counted(
    keyword: Keyword, cost: int, visited: type[list[Any] | dict[str, Any]] | None
) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        budget = _budget.get()
        budget.spend(cost + (len(value) if isinstance(value, list | dict) else 0))
        if visited is not None and isinstance(instance, visited):
            budget.spend(len(_view.get().of(instance)) // _ELEMENTS_PER_CHECK)
        budget.enter()
        try:
            for error in keyword(validator, value, instance, schema) or ():
                # jsonschema includes the whole instance in its message.
                budget.spend(len(error.message) // _CHARACTERS_PER_CHECK)
                yield error
        finally:
            budget.leave()

    return check


def _matches(pattern: str, text: Any) -> bool:
    if not isinstance(text, str):
        return False
    _budget.get().spend(search_cost(pattern, text))
    return is_found(pattern, text)


def _error(*, field: str | None = None, context: Sequence[ValidationError] = ()) -> ValidationError:
    """An error for one of our keywords. ``fault_of`` needs only the keyword, not a message."""
    from jsonschema.exceptions import ValidationError

    return ValidationError("", path=() if field is None else (field,), context=context)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Errors:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield _error()


def _properties(validator: Any, properties: Any, instance: Any, schema: Any) -> Errors:
    for key, subschema in properties.items() if isinstance(instance, dict) else ():
        if key in instance:
            yield from _inside(validator, instance, key, subschema)


def _inside(validator: Any, instance: Any, key: Any, subschema: Any) -> Errors:
    """jsonschema omits the field from errors of the schema ``false``."""
    if subschema is False:
        yield _error(field=str(key))
    else:
        yield from validator.descend(instance[key], subschema, path=key, schema_path=key)


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Errors:
    for pattern, subschema in patterns.items() if isinstance(instance, dict) else ():
        for key in _view.get().of(instance):
            if _matches(pattern, key):
                yield from _inside(validator, instance, key, subschema)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Errors:
    named = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    for key in _view.get().of(instance) if isinstance(instance, dict) else ():
        if key in named or any(_matches(pattern, key) for pattern in patterns):
            continue
        if allowed is False:
            yield _error(field=str(key))
        else:
            yield from validator.descend(instance[key], allowed, path=key)


def _required(validator: Any, names: Any, instance: Any, schema: Any) -> Errors:
    for name in names if isinstance(instance, dict) else ():
        if name not in instance:
            yield _error(field=name)


def _dependent_required(validator: Any, needs: Any, instance: Any, schema: Any) -> Errors:
    for name, others in needs.items() if isinstance(instance, dict) else ():
        if name not in instance:
            continue
        _spend_on(len(others))
        for other in others:
            if other not in instance:
                yield _error(field=other)


def _property_names(validator: Any, subschema: Any, instance: Any, schema: Any) -> Errors:
    for name in _view.get().of(instance) if isinstance(instance, dict) else ():
        if context := list(validator.descend(name, subschema)):
            yield _error(context=context)


def _max_properties(validator: Any, most: Any, instance: Any, schema: Any) -> Errors:
    if isinstance(instance, dict) and len(_view.get().of(instance)) > most:
        yield _error()


def _if(validator: Any, condition: Any, instance: Any, schema: Any) -> Errors:
    branch = "then" if _holds(validator, condition, instance) else "else"
    if branch in schema:
        yield from validator.descend(instance, schema[branch], schema_path=branch)


def _not(validator: Any, refused: Any, instance: Any, schema: Any) -> Errors:
    if _holds(validator, refused, instance):
        yield _error()


def _holds(validator: Any, condition: Any, instance: Any) -> bool:
    """Whether a condition holds for the instance with its hidden fields."""
    token = _view.set(_ALL_VISIBLE)
    try:
        return next(iter(validator.descend(instance, condition)), None) is None
    finally:
        _view.reset(token)


def _unique_items(validator: Any, is_wanted: Any, instance: Any, schema: Any) -> Errors:
    if not is_wanted or not isinstance(instance, list):
        return
    # Compared by JSON: pairwise comparison would take too long for a long list.
    budget = _budget.get()
    seen: set[bytes] = set()
    # Hidden fields may distinguish elements of a list that the decider left as it was.
    view = _view.get()
    for element in view.visible(instance) if id(instance) in view.answered else instance:
        canonical = _canonical(element)
        budget.spend(1 + len(canonical) // _CHARACTERS_PER_CHECK)
        seen.add(canonical)
    if len(seen) < len(instance):
        yield _error()


def _canonical(value: Any) -> bytes:
    return to_json(_with_plain_numbers(value), "an element", 2**63, is_input=True)


def _with_plain_numbers(value: Any) -> Any:
    """Convert 1.0 to 1, which are equal but differ as JSON."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _with_plain_numbers(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_with_plain_numbers(inside) for inside in value]
    return value


def _multiple_of(validator: Any, unit: Any, instance: Any, schema: Any) -> Errors:
    # As decimals: 19.99 is a multiple of 0.01, but not as floats.
    if is_number(instance) and (_decimal(instance) / _decimal(unit)).denominator != 1:
        yield _error()


def _decimal(number: int | float) -> Fraction:
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def _enum(validator: Any, values: Any, instance: Any, schema: Any) -> Errors:
    if not _is_any_of(values, instance):
        yield _error()


def _const(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
    if not _is_any_of([value], instance):
        yield _error()


def _is_any_of(values: list[Any], instance: Any) -> bool:
    """Whether the instance is one of the values, with its hidden fields or without them."""
    spend = _budget.get().spend
    if any(is_same(value, instance, spend) for value in values):
        return True
    visible = _view.get().visible(instance)
    return visible is not instance and any(is_same(value, visible, spend) for value in values)


def _format(validator: Any, name: Any, instance: Any, schema: Any) -> Errors:
    """Unknown formats are only annotations, as JSON Schema says."""
    fits = FORMATS.get(name)
    if name == "regex" and isinstance(instance, str):
        _budget.get().spend(building_cost(instance) // _LOOP_COST_PER_CHECK)
    if fits is not None and isinstance(instance, str) and not fits(instance):
        yield _error()


_OWN_KEYWORDS: dict[str, Keyword] = {
    "properties": _properties,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "required": _required,
    "dependentRequired": _dependent_required,
    "propertyNames": _property_names,
    "maxProperties": _max_properties,
    "if": _if,
    "not": _not,
    "uniqueItems": _unique_items,
    "multipleOf": _multiple_of,
    "enum": _enum,
    "const": _const,
    "format": _format,
}


# From jsonschema errors to faults

_ALTERNATIVES_MAX = 3
_VALUES_MAX = 10
_TYPES = {
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_FORMATS = {
    "date": "a date such as 2031-05-17",
    "date-time": "a time with a UTC offset, such as 2031-05-17T14:30:00+02:00",
    "time": "a time of day such as 14:30",
    "email": "an email address",
    "hostname": "a host name",
    "uri": "a URI such as https://example.org/",
    "uuid": "a UUID",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
    "regex": "a pattern",
}
_PLAIN = {
    "items": declare("form.items", "has too many elements"),
    "uniqueItems": declare("form.unique_items", "must not have duplicate elements"),
    "contains": declare("form.contains", "has no element that matches the schema in 'contains'"),
    "not": declare("form.not", "must not match the schema in 'not'"),
    "properties": FORBIDDEN,
    "patternProperties": FORBIDDEN,
    "required": REQUIRED,
    "additionalProperties": UNKNOWN_FIELD,
}
"""Keywords whose messages have no arguments."""

_BOUNDS = {
    "minimum": declare("form.minimum", "must be at least {limit}"),
    "maximum": declare("form.maximum", "must be at most {limit}"),
    "exclusiveMinimum": declare("form.exclusive_minimum", "must be more than {limit}"),
    "exclusiveMaximum": declare("form.exclusive_maximum", "must be less than {limit}"),
    "multipleOf": declare("form.multiple_of", "must be a multiple of {limit}"),
    "minLength": declare("form.min_length", "must have at least {limit:character|characters}"),
    "maxLength": declare("form.max_length", "must have at most {limit:character|characters}"),
    "minItems": declare("form.min_items", "must have at least {limit:element|elements}"),
    "maxItems": declare("form.max_items", "must have at most {limit:element|elements}"),
    "minContains": declare(
        "form.min_contains", "must have at least {limit} elements that match 'contains'"
    ),
    "maxContains": declare(
        "form.max_contains", "must have at most {limit} elements that match 'contains'"
    ),
    "minProperties": declare("form.min_properties", "must have at least {limit:field|fields}"),
    "maxProperties": declare("form.max_properties", "must have at most {limit:field|fields}"),
}
_COUNTS = frozenset(keyword for keyword in _BOUNDS if keyword[3:4].isupper())
"""Keywords with an integer limit, which may be written as 1.0."""


def fault_of(error: ValidationError) -> Fault:
    """The fault with the path of its field."""
    return _fault(error).under(*error.absolute_path)


def _fault(error: ValidationError) -> Fault:
    if error.schema is False:
        return FORBIDDEN.fault()
    keyword, wanted = str(error.validator), _any(error.validator_value)
    if keyword in _PLAIN:
        return _PLAIN[keyword].fault()
    if keyword == "minLength" and wanted == 1:
        return EMPTY.fault()
    if keyword in _BOUNDS:
        # As JSON, to render the number as written in the schema.
        limit = int(wanted) if keyword in _COUNTS else json_preview(wanted)
        return _BOUNDS[keyword].fault(limit=limit)
    match keyword:
        case "type":
            types = tuple(wanted) if isinstance(wanted, list) else (wanted,)
            expected = " or ".join(_TYPES.get(each, str(each)) for each in types)
            return WRONG_TYPE.fault(types=types, expected=expected)
        case "enum":
            listed = ", ".join(json_preview(value) for value in wanted[:_VALUES_MAX])
            more = ", …" if len(wanted) > _VALUES_MAX else ""
            return NOT_IN_ENUM.fault(values=wanted, listed=f"{listed}{more}")
        case "const":
            return NOT_CONST.fault(value=wanted, expected=json_preview(wanted))
        case "format":
            return WRONG_FORMAT.fault(format=wanted, expected=_FORMATS.get(wanted, wanted))
        case "pattern":
            return PATTERN.fault(pattern=preview(wanted))
        case "dependentRequired":
            other, given = error.path[-1], _any(error.instance)
            field = next(name for name in wanted if other in wanted[name] and name in given)
            return DEPENDENT_REQUIRED.fault(field=preview(field))
        case "propertyNames":
            [inner, *_] = error.context or [error]
            return PROPERTY_NAMES.fault(
                field=json_preview(inner.instance), reason=render(_fault(inner))
            )
        case "oneOf" if not error.context:
            return SEVERAL_ALTERNATIVES.fault()
        case "anyOf" | "oneOf":
            ways = _alternatives(error) or [render(FORBIDDEN.fault())]
            more = ", or …" if len(ways) > _ALTERNATIVES_MAX else ""
            return NO_ALTERNATIVE.fault(ways=f"{', or '.join(ways[:_ALTERNATIVES_MAX])}{more}")
        case _:
            return OTHER_KEYWORD.fault(keyword=keyword, message=preview(error.message))


def _alternatives(error: ValidationError) -> list[str]:
    """The first fault of each alternative, without duplicates."""
    first: dict[Any, str] = {}
    for inner in error.context or ():
        [alternative, *_] = inner.relative_schema_path or [None]
        if alternative is not None and alternative not in first:  # None for the schema `false`
            at = path_text(tuple(inner.relative_path))
            first[alternative] = preview(f"{at} {render(_fault(inner))}".strip())
    return list(dict.fromkeys(first.values()))


def _any(value: Any) -> Any:
    """Bypass the imprecise types of jsonschema's attributes."""
    return value
