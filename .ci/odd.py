"""The small world of odd values that tests of eval_harness.py work on, and how they are written.

The selftest loads this file where it lies beside the harness, and the tests see that very module.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from eval_harness import (
    JSON,
    AgentKind,
    InvalidInput,
    Limits,
    Record,
    Script,
    Task,
    TestBody,
    Verdict,
    World,
    Wrong,
    _scripted,
    build_tasks,
    build_world,
    expect,
    grade,
    record_of,
    rows_text,
    spec_for,
    test,
)


def raised(kind: type[Exception], call: Callable[..., Any], *given: Any) -> Any:
    """The error of that kind that the call ends with; Wrong where it ends well."""
    try:
        call(*given)
    except kind as error:
        return error
    raise Wrong(f"{given!r:.60} was taken")


def run_table(table_: Iterable[tuple[Any, Any]], found: Callable[..., Any]) -> Iterator[str]:
    """Run a table of (what is given, what is expected); a tuple is given as several arguments."""
    for given, expected in table_:
        arguments = given if type(given) is tuple else (given,)
        what = " / ".join(str(argument) for argument in arguments)[:200]
        expect(found(*arguments), expected, what)
        yield what


def table_test(table_: Iterable[tuple[Any, Any]]) -> Callable[[Callable[..., Any]], TestBody]:
    """Register a test that runs a table; its function gives what is found for what is given."""
    return lambda found: test(functools.wraps(found)(partial(run_table, table_, found)))


def grouped(table_: Mapping[Any, Iterable[Any]]) -> list[tuple[Any, Any]]:
    """The rows of a table that is written as what is expected -> all that must lead to it."""
    return [(given, expected) for expected, group in table_.items() for given in group]


ODD_CONTRACT = """
schema = 1
world = "odd"
title = "A small world of odd values"
clock = { start = "2026-02-28T23:58:00Z", step = 60 }
policy = { page_cap = 3 }
actor = { entity = "item", default = "a/b" }
[entities.item]
key = "id"
new_id = "item-{n}"
[entities.item.fields]
id = { type = "text" }
"id.x" = { type = "text", nullable = true, optional = true }
name = { type = "text" }
qty = { type = "integer", min = 0, max = 1000, default = 0 }
price = { type = "number", nullable = true, default = 1.5 }
flag = { type = "boolean", nullable = true, optional = true }
tags = { type = "list", of = "text", default = [] }
parent = { type = "text", ref = "item", optional = true }
made = { type = "time", managed = "created" }
[entities.note]
key = "id"
new_id = "note-{n}"
[entities.note.fields]
id = { type = "text" }
item = { type = "text", ref = "item" }
body = { type = "text", min = 1 }
kind = { type = "text", optional = true }
author = { type = "text", ref = "item", managed = "actor" }
[tools]
get_item = { kind = "get", entity = "item" }
find_items = { kind = "search", entity = "item", fields = ["name"] }
make_note = { kind = "create", entity = "note", set = ["item", "body", "kind"] }
drop_item = { kind = "delete", entity = "item" }
drop_note = { kind = "delete", entity = "note", effect = "irreversible" }
list_notes = { kind = "list", entity = "note", filters = ["item"] }
list_items = { kind = "list", entity = "item", sort = ["qty", "name"], filters = [
    "name", "flag", "price", "id.x"] }
make_item = { kind = "create", entity = "item", set = [
    "id.x", "name", "qty", "price", "flag", "tags", "parent"] }
[tools.set_item]
kind = "update"
entity = "item"
set = ["id.x", "name", "qty", "price", "flag", "tags"]
[[tools.set_item.guards]]
refuse_when = "row.qty == 999"
code = "conflict"
message = "frozen"
evidence = "qty"
[tools.tell]
kind = "transaction"
args.id = { type = "text", ref = "item" }
script = "create(note, item=id, body='told')"
result = { item = "=item(id=id)" }
[tools.move]
kind = "transaction"
args.source = { type = "text", ref = "item" }
args.dest = { type = "text", ref = "item" }
args.n = { type = "integer" }
script = '''
a = item(id=source)
b = item(id=dest)
b.qty += n
a.qty -= n
if a.qty == 1:
    refuse('conflict', 'one is too few', 'qty')
create(note, item=a.id, body=f'moved {n}')
'''
result = { source = "=item(id=source)", dest = "=item(id=dest)" }
"""


ODD_ITEMS: list[dict[str, JSON]] = [
    {"id": "a/b", "name": "<absent>", "qty": 5, "price": 1.0, "tags": []},
    {"id": "..", "name": "", "qty": 5, "price": None, "id.x": "<absent>", "tags": ["x"]},
    {"id": " sp ace ", "name": "cafe\u0301", "qty": 7, "price": 0.0, "id.x": None, "tags": []},
    {"id": 'q"uo\'te', "name": "caf\u00e9", "qty": 7, "price": -0.0, "flag": True, "tags": []},
    {"id": "new\nline", "name": "1", "qty": 1, "price": 1, "flag": None, "tags": ["1", "true"]},
    {"id": "\U0001f600", "name": "true", "qty": 999, "price": 1e16, "flag": False, "tags": []},
    {"id": "plain", "name": "\ud800", "qty": 0, "price": 2, "tags": [], "parent": "a/b"},
]


ODD_NOTES: list[dict[str, JSON]] = [
    {"id": f"n{i}", "item": "a/b" if i < 6 else "..", "body": f"note {i}", "author": "a/b"}
    for i in range(8)]


def odd_files(**changes: bytes) -> dict[str, bytes]:
    """The files of the odd world; `changes` by file stem replace some."""
    items = [{**row, "made": "2026-01-01T00:00:00Z"} for row in ODD_ITEMS]
    data = {"contract": ODD_CONTRACT.encode(), "item": rows_text(items),
            "note": rows_text(ODD_NOTES), **changes}
    return {stem + (".toml" if stem == "contract" else ".json"): data[stem] for stem in data}


@functools.lru_cache(maxsize=1)
def odd_world() -> World:
    """The odd world, loaded once."""
    world, problems = build_world(odd_files(), "odd")
    expect(problems, [], "the odd world")
    return world


def odd_task(text: str) -> Task:
    """A task on the odd world from the part of its TOML that matters."""
    head = 'id = "t"\ninstruction = "Do it."\n'
    head += "" if "expects" in text.split("[[")[0] else 'expects = "change"\n'
    tasks, problems = build_tasks(odd_world(), {"t.toml": (head + text).encode()}, "odd")
    if problems:
        raise InvalidInput(problems)
    return tasks[0]


def criterion(body: str, name: str = "c") -> str:
    """The TOML of one criterion."""
    return f'[[criteria]]\nid = "{name}"\n{body}\n'


PLAIN = "change = \"item where id == 'plain'\"\n"


PLAIN_3 = criterion(PLAIN + "set = { qty = 3 }")


GOOD = PLAIN + "set = { qty = 1 }\n"


GOOD_TASK = criterion(GOOD) + '[oracle]\nscript = "pass"\n'


MUTANT = GOOD_TASK + '[[mutants]]\nid = "m"\n'


NOTE_ROW = '{"author":"a/b","body":"note 0","id":"n0","item":"a/b"}'


def run_script(task: Task, source: str, limits: Limits | None = None) -> Record:
    """The record of one scripted agent."""
    agent = AgentKind("script", _scripted(task, Script("script", source, 0)))
    return record_of(spec_for(task, agent, limits))


def graded(task: Task, source: str) -> Verdict:
    """The verdict on one scripted agent."""
    return grade(run_script(task, source), task)


def fails(text: str, source: str) -> str:
    """The criteria of a task that one scripted agent fails, in alphabetical order."""
    return " ".join(sorted(graded(odd_task(text), source).failed))
