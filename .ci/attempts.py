"""Tests of eval_harness.py that are too long for it: attempts in turn, broken, cut off.

The selftest loads this file where it lies beside the harness, and the tests see that very module.
"""

import contextlib
import functools
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from odd import (
    ODD_ITEMS,
    PLAIN_3,
    criterion,
    fails,
    graded,
    grouped,
    odd_task,
    raised,
    run_script,
    table_test,
)

from eval_harness import (
    MAX_TEXT,
    UNGRADED,
    VERIFIED,
    AgentKind,
    Around,
    Attempt,
    Ended,
    Gateway,
    HarnessError,
    Identity,
    Limits,
    Observation,
    Record,
    Refused,
    Replayer,
    Script,
    Silent,
    Spec,
    World,
    _scripted,
    agents_for,
    decode,
    digest,
    edit_line,
    encode,
    evidence_of,
    expect,
    grade,
    library,
    read_journal,
    record_of,
    replay,
    shown,
    shown_by,
    spec_for,
    test,
)

EDIT_TASK = (PLAIN_3 + criterion('read_all = "item where name == \'caf\\u00e9\'"', "read")
    + '[[user]]\non = "end"\nreply = "And the notes?"\n')


EDIT_SCRIPT = (
    "first(each(list_items, name='caf\u00e9'))\npage(list_items, price=1.0)\nget_item(id='zz')\n"
    "set_item(id='plain', qty=3)\nmove(source='plain', dest='..', n=2)\nsay('Half.')\nlisten()\n"
    "make_note(item='plain', body='e\u0301', kind='1')\n"
    "finish(status='done', summary='All.', changed=['plain'])\n")


OWN_WORDS = {("text",), ("arguments",)}  # of an agent's message or call: its own choice


@functools.lru_cache(maxsize=1)
def edit_record() -> Record:
    """The record that edits start from."""
    return run_script(odd_task(EDIT_TASK), EDIT_SCRIPT)


def with_event(record: Record, place: int, event: Mapping[str, Any]) -> list[str]:
    """The lines of a record with another event in one place."""
    return [edit_line(event) if i == place else line for i, line in enumerate(record.lines)]


def reseal(lines: Sequence[str]) -> list[str]:
    """The same lines with a digest that matches them, where they end with one."""
    if not lines or '"sha256":"' not in lines[-1]:
        return list(lines)
    head, mark, _ = lines[-1].rpartition('"sha256":"')
    found = digest("".join([*lines[:-1], head, mark]))
    return [*lines[:-1], f'{head}{mark}{found}"}}\n']


def read_back(lines: Sequence[str], name: str) -> Record:
    """The record that these lines are of an attempt."""
    return read_journal("x", "".join(lines).encode())[0][name]


def reread(lines: Sequence[str]) -> list[str]:
    """The problems that reading and replaying these lines as the attempt of edit_record shows."""
    data = "".join(lines).encode("ascii", "backslashreplace")
    records, problems = read_journal("edited", data)
    task, name = odd_task(EDIT_TASK), edit_record().attempt
    said = [*map(str, problems), *(f"stray {other}" for other in records if other != name)]
    if name not in records:
        return [*said, "no record"]
    return said + replay(records[name], task, None, Identity(task.name, "script"))


@test
def edited_read_is_caught() -> Iterator[str]:
    """An edited read result never turns a failing attempt into a pass: it does not replay, and the
    grade is of what replays, not of what is written."""
    text = 'expects = "no_change"\n' + criterion('read_all = "item where qty == 7"', "read")
    task = odd_task(text)
    record = run_script(task, "page(list_items, limit=1)\nsay('done')")
    expect(grade(record, task).grade, "failed")
    place = next(i for i, e in enumerate(record.events) if e["event"] == "call")
    rows = {"item": sorted(row["id"] for row in ODD_ITEMS)}
    sealed = reseal(with_event(record, place, {**record.events[place], "rows": rows}))
    forged = read_back(sealed, record.attempt)
    expect((grade(forged, task).evidence, grade(forged, task).grade), (UNGRADED, None))
    seen: list[Replayer] = []
    said = replay(forged, task, None, None, seen)
    raised(HarnessError, evidence_of, forged, task)
    expect((len(said), shown_by(seen[0]).calls[0].rows["item"]), (1, rows["item"][:1]), "replayed")
    yield "edited"


def _world_digest(world: World) -> str:
    rows = {name: list(table_.rows.values()) for name, table_ in world.tables.items()}
    return digest(encode(rows))


@table_test(grouped({
    "": ["xy", "yx", "xx"], "only_allowed duplicate": ["xyy", "xxx"], "two missing_work": ["x"],
    "one missing_work": ["y"], "one only_allowed wrong_value duplicate": ["yy"],
    "only_allowed two unauthorised_work wrong_target": ["xo"],
    "only_allowed two unauthorised_work wrong_value": ["xk"],
    "one two missing_work no_attempt": [""],
}))
def created_rows(notes: str) -> str:
    """Duplicates, extras, wrong places and interchangeable rows."""
    task = odd_task(criterion('create = "note"\nwith = { item = "a/b", body = "x" }', "one")
        + criterion('create = "note"\nwith = { item = "a/b" }\nfree = ["body"]', "two"))
    made = {"x": "item='a/b', body='x'", "y": "item='a/b', body='y'", "o": "item='..', body='y'",
        "k": "item='a/b', body='y', kind='k'"}
    verdict = graded(task, "\n".join(f"make_note({made[note]})" for note in notes))
    return " ".join([*sorted(verdict.failed), *verdict.failure_modes])


@table_test(grouped({
    "": [("cheap box", "a b", "b"), ("box n", "a b", "a"), ("box n", "b a", "a")],
    "only_allowed": [("cheap box", "a b", "a"), ("box n", "b a", "b")],
}))
def rows_within_rows(criteria: str, items: str, noted: str) -> str:
    """A child belongs to the row that fills its parent, and to no other; in any order."""
    where = {"cheap": 'where = "row.qty <= 1"\nfree = ["name"]',
        "box": 'where = "qty <= 2"\nfree = ["name"]', "n": 'with = { name = "y" }\nfree = ["qty"]'}
    make = {"a": "a = make_item(name='x', qty=1)\n", "b": "b = make_item(name='y', qty=2)\n"}
    text = "".join(criterion('create = "item"\n' + where[c], c) for c in criteria.split())
    text += '[[allow]]\ncreate = "note"\nwith = { body = "q" }\nwithin = { item = "box" }\n'
    steps = [make[item] for item in items.split()]
    return fails(text, "".join(steps) + f"make_note(item={noted}.id, body='q')")


class HookedGateway(Gateway):
    """Lets us act around each call of an attempt's own gateway."""

    def __init__(self, own: Gateway, around: Around) -> None:
        super().__init__(own.session, own.setting)
        self.around = around

    def _call(self, name: str, raw: str) -> Observation:
        return self.around(partial(super()._call, name, raw))


def run_hooked(spec: Spec, around: Around) -> tuple[str, list[str]]:
    """How an attempt ends with `around` around its calls, and its lines."""
    lines: list[str] = []
    making = Attempt(spec, lines.append)
    making.gateway = HookedGateway(making.gateway, around)
    return making.run(), lines


@test
def faults_at_every_call() -> Iterator[str]:
    """The nth call breaking inside us, for every n: an error that the harness owns, verified."""
    task = odd_task(EDIT_TASK)
    spec = spec_for(task, AgentKind("broken", _scripted(task, Script("broken", EDIT_SCRIPT, 0))))
    def broken(call: Callable[[], Observation]) -> Observation:
        if next(left, True):
            return call()
        with contextlib.suppress(Refused):
            call()
        raise RuntimeError("planted")
    for nth in range(edit_record().events[-1]["counts"]["calls"]):
        left = iter(range(nth, -1, -1))
        outcome, lines = run_hooked(spec, broken)
        verdict = grade(read_back(lines, spec.identity.name), task)
        found = (outcome, decode(lines[-1])["owner"], verdict.evidence, verdict.counted)
        expect(found, ("error", "harness", VERIFIED, False), f"call {nth}: {verdict.problems}")
        yield f"call {nth}"


@table_test(grouped({
    ("completed", None): [(EDIT_SCRIPT,), (EDIT_SCRIPT, 8, 7)],
    ("turn_limit", None): [(EDIT_SCRIPT, 3, 99), (EDIT_SCRIPT, 99, 2), (EDIT_SCRIPT, 7, 7)],
    ("error", "agent"): [("x = get_item(id='zz')\nsay(f'{x.name}')",), ("one([])",),
        ("for i in range(3):\n    if i == 5:\n        y = 1\nsay(y)",), ("say([1])",)],
}))
def limits_and_errors(source: str, *most: int) -> tuple[Any, Any]:
    """Each way to end, with its owner; all of them verified."""
    task, limits = odd_task(EDIT_TASK), Limits(*most) if most else None
    record = run_script(task, source, limits)
    verdict = grade(record, task, limits)
    expect((verdict.problems, verdict.counted), ((), True), source)
    return record.events[-1]["outcome"], record.events[-1]["owner"]


@test
def interleaved_attempts() -> Iterator[str]:
    """Oracles and mutants of all tasks, in a shuffled order, call by call in turn over the shared
    worlds, give the records that they give alone; the worlds' rows stay what they were."""
    tasks = library().tasks.values()
    worlds = {task.world.sha256: task.world for task in tasks}.values()
    before = [_world_digest(world) for world in worlds]
    specs = [spec_for(task, agent) for task in tasks for name in ("oracle", "mutants")
        for agent in agents_for(name, task)]
    draw = random.Random(6)
    draw.shuffle(specs)
    stepped = [Stepped(spec) for spec in specs]
    running = list(stepped)
    while running:
        at = draw.randrange(len(running))
        if not running[at].step():
            running.pop(at).join()
    for spec, one in zip(specs, stepped, strict=True):
        expect(one.lines, list(record_of(spec).lines), f"{spec.identity.name} among others")
        yield spec.identity.name
    expect([_world_digest(world) for world in worlds], before, "the worlds are as they were")


class Stepped(threading.Thread):
    """One attempt in a thread of its own, which goes on by one call when it is told to."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(daemon=True)
        self.spec, self.lines, self.over = spec, list[str](), False
        self.go, self.back = threading.Semaphore(0), threading.Semaphore(0)
        self.start()

    def run(self) -> None:
        """The attempt, once the first turn comes."""
        self.go.acquire()
        try:
            self.lines = run_hooked(self.spec, self._wait)[1]
        finally:
            self.over = True
            self.back.release()

    def _wait(self, call: Callable[[], Observation]) -> Observation:
        self.back.release()
        self.go.acquire()
        return call()

    def step(self) -> bool:
        """Let it go on up to its next call; False once it is over."""
        self.go.release()
        self.back.acquire()
        return not self.over


@test
def long_calls() -> Iterator[str]:
    """A text is kept whole up to the bound and not beyond: a longer one in a record is forged."""
    task, lines = odd_task(PLAIN_3), list[str]()
    making = Attempt(Spec(task, Identity(task.name, "script"), Silent, task.limits), lines.append)
    making.begin()
    making.call("x" * MAX_TEXT, "y" * (MAX_TEXT + 1))
    with contextlib.suppress(Ended):
        making.say("Done.")
    making.close("completed", None)
    record = read_back(lines, making.spec.identity.name)
    expect(replay(record, task), [], "as it was")
    yield "at the bound"
    place = next(n for n, event in enumerate(record.events) if event["event"] == "call")
    for word in ("x" * (MAX_TEXT + 1), 5, None, ["x"]):
        forged = reseal(with_event(record, place, {**record.events[place], "tool": word}))
        said = replay(read_back(forged, record.attempt), task)
        expect("length and hash" in "".join(said), True, f"{shown(word)}: {said}"[:300])
        yield shown(word)
