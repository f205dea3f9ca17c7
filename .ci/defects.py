"""Defects of eval_harness.py itself: do its tests notice?

One function is changed, compiled alone, and its code given to the living function in a forked
child, which runs the kernel (tests that take about two seconds in all) up to the first that fails;
where none does, the defect survived. Planted defects are written out by name; mutations are made
systematically, of the chapters that decide a grade. Prose (a text with a blank in it) is left as it
is: it decides no grade. `eval_harness.py selftest` loads this file, and sees it as its own.
"""

import argparse
import ast
import contextlib
import functools
import itertools
import operator
import os
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from odd import (
    odd_world,
)

import eval_harness
from eval_harness import (
    BANNER,
    RUN_SCHEMA,
    TESTS,
    Exit,
    HarnessError,
    Output,
    digest,
    expect,
    library,
    test,
)

SOURCE = Path(str(eval_harness.__file__)).resolve()
LIVING = vars(eval_harness)
KERNEL = (  # tests, the fastest first: about 2 s in all
    "kinds_of_criteria reasons_of_criteria set_back nothing_said fewest_failures calls_by_hand "
    "user_and_confirmation scopes long_calls created_rows modes_of_failure grades_of_words "
    "rows_within_rows record_by_hand "
    "honest_record_verifies limits_and_errors it_without_for odd_names ruined_results answers "
    "forged_endings world_code faults_at_every_call foreign_records bad_json typed_equality "
    "expressions session_by_hand what_replay_says edited_read_is_caught bad_calls doctests "
    "session_against_naive helpdesk_alone forgery_of_words_is_beyond_replay lines_moved "
    "ties_of_alternatives lines_say_what_was_done searches_by_count "
    "matching_is_exact every_edit_is_reported every_resealed_edit_is_reported").split()
GRADING = ("Values", "Session", "Tools", "Criteria", "Record", "Replay", "Grading")
AT_IMPORT = ("_pieces",)  # run before anything can be swapped: the doctests of encode see to it
STEP_SECONDS, CHILD_BYTES, TO_CATCH, PER_STATEMENT = 3, 1 << 30, 0.95, 4
PLANTED = (  # a name, the function, what stands in it once (as unparsed), what is put there
    ("replay skipped", "grade", "if problems:", "if False:"),
    ("delta beyond A", "_judge", "not keys, reason", "True, reason"),
    ("untyped equality", "same", "kind is not type(b)", "a != b"),
    ("greedy slots", "Filling._fill", "home not in came", "not came"),
    ("reads alias the world", "run_get", "lambda: table.copy(row)", "lambda: row"),
    ("diff over all keys", "Layer.touched", "sorted(rows)",
     "sorted(self.world.tables[entity].rows)"),
    ("managed fields in delta", "field_changes", " - managed", ""),
    ("wall-clock time", "clock_text", "datetime.fromisoformat(start[:-1])", "datetime.now()"),
    ("hash-ordered results", "Layer.touched", "sorted(rows)", "set(rows)"),
    ("an unread page credited", "run_list", "{tool.entity: keys}",
     "{tool.entity: [row[entity.key] for row in rows]}"),
    ("refused calls not recorded", "Attempt.call", "self.recorder.call(",
     "observation.code or self.recorder.call("),
    ("write then revert unseen", "judge_no_reverted_writes", ", [before])", ", [])"),
    ("only the last message judged", "Evidence.said", "turn == EVERY", "False"),
    ("a write set back unseen", "_set_back", "for write in call.writes", "for write in ()"),
    ("a figure read, not asked for", "judge_numbers_from", "() if only else read", "read"),
    ("vacuous must-not", "_judge", "task.allow_cutoff or evidence.outcome == 'completed'", "True"),
    ("absent merged with null", "field_changes",
     "before.get(name, MISSING), after.get(name, MISSING)", "before.get(name), after.get(name)"),
    ("fault fixture ignored", "Gateway._fault", "not self.setting.faults", "True"),
    ("ids from a global counter", "Session.create", "self.counters.get(entity_name, 0) + 1",
     "vars(sys).update(made=vars(sys).get('made', 0) + 1) or vars(sys)['made']"),
    ("no rollback", "Gateway.call", "as reason:\n        self.session.rollback(mark)",
     "as reason:"),
    ("approval holds twice", "Gateway._confirm", "self.approved = None", "pass"),
    ("approval of any call", "_confirmed", "this in shown_to_user", "shown_to_user"),
    ("digest not checked", "replay", " or _check_digest(record)", ""),
    ("rows not compared", "Replayer.problems", "not said and",
     "not said and parse_line(self.lines[place]) | {'rows': 0} != event | {'rows': 0} and"),
    ("clock not advanced", "Session.update", "self.ticks += 1", "pass"),
    ("scope ignored", "visible", "sees_all(session, entity)", "True"),
    ("negator ignored", "_negator", "word in NEGATORS or ", ""),
    ("figures of own writes credited", "_sources", "call.effect != 'read'", "False"),
    ("within parents ignored", "Matcher._under", "slot.within is None", "True"),
    ("guards skipped", "Gateway._admit", "guard in tool.guards", "guard in ()"),
    ("page cap ignored", "run_list", "session.policy.page_cap", "total"),
    ("limits not enforced", "Attempt._spend", "turns >= limits.turns or", "False and"),
    ("void calls credited", "judge_called", "is True", "is not False"),
    ("refused attempts allowed", "judge_not_called", "if test", "if call.done and test"),
    ("lost answer, lost write", "CallView.done", " or bool(self.writes)", ""),
)
EQUIVALENT = {label: why for why, labels in {  # mutations that nothing can tell, and why
    "only work is saved or lost: the same is found another way": (
        "scan text: = text.count('[') + t -> = text.count('') + t",
        "scan compare: t.count('{') > MAX_D -> t.count('{') >= MAX_D",
        "scan operator: deep = deep and (not shallow(text.encode -> "
        "deep = deep or not shallow(text.encode('",
        "scan text: + text.count('{') > M -> + text.count('') > M",
        "scan shorten: deep = deep and (not shallow(text.encode -> "
        "deep = not shallow(text.encode('utf-8', ",
        "scan operator:  > MAX_DIGITS and _LONG ->  > MAX_DIGITS or _LONG",
        "scan shorten: long = len(text) > MAX_DIGITS and _LONG -> long = _LONG",
        "scan shorten: ) > MAX_DIGITS and _LONG_NUMBER.search(t -> ) > MAX_DIGITS",
        "scan compare:  = len(text) > MAX_D ->  = len(text) >= MAX_D",
        "scan text: or long else '' -> or long else 'x'",
        "printable shorten: if text.isascii() and text. -> if text.",
        "Layer.row_text shorten: f.over is None or key not in self.over.g -> f.over is None: retu",
        "Layer.row_text shorten: lf.texts.get((entity, key)) -> lf.texts.get((key,))",
        "Layer.row_text shorten: s.get((entity, key)) -> s.get((entity,))",
        "Layer.row_text shorten:  = self.texts[entity, key] = en ->  = self.texts[key,] = en",
        "Layer.row_text shorten: .texts[entity, key] = en -> .texts[entity,] = en",
        "succeeded shorten: made = make or (lambda: json.loads(text) -> "
        "made = lambda: json.loads(text)",
        "check_arguments drop: continue -> pass",
        "_ordered_rows text: me({**those, 'offset': 0}, -> me({**those, '': 0},",
        "_ordered_rows shorten: offset': 0}, {**arguments, 'offse -> offset': 0}, {'offse",
        "_ordered_rows text: **arguments, 'offset': 0}) -> **arguments, '': 0})",
        "_ordered_rows number: ts, 'offset': 0}) -> ts, 'offset': 1})",
        "encode text:  is str else ''.join ->  is str else 'x'.join",
        "encode number: pieces(value, 0)) -> pieces(value, 1))",
        "encode_for_agent text:  is str else ''.join ->  is str else 'x'.join",
        "encode_for_agent number: pieces(value, 0)) -> pieces(value, 1))",
        "Layer.find shorten: f.over is None or entity not in self.ove -> f.over is None: retu",
        "Session.rollback drop: self.known = None -> pass",
        "Gateway._call shorten:  = calls.get((name, raw)) or  ->  = calls.get((raw,)) or ",
        "Gateway._call shorten: lls.get((name, raw)) or  -> lls.get((name,)) or ",
        "Gateway._call operator: en(raw) < 400 and len(c -> en(raw) < 400 or len(c",
        "Gateway._call shorten: len(raw) < 400 and len(calls) < 2000: ca -> len(raw) < 400: ca",
        "Gateway._call number: n(calls) < 2000: call -> n(calls) < 2001: call",
        "Gateway._call compare: if len(raw) < 400 a -> if len(raw) <= 400 a",
        "Gateway._call shorten: calls[name, raw] = (t -> calls[raw,] = (t",
        "Gateway._call shorten: calls[name, raw] = (t -> calls[name,] = (t",
        "Replayer._made shorten: ld.calls.get((name, raw)) -> ld.calls.get((raw,))",
        "Replayer._made shorten: lls.get((name, raw)) -> lls.get((name,))",
        "_confirmed compare: ll((call.code != 'con -> ll((call.code == 'con",
        "_confirmed text: call.code != 'confirmation_required' for -> call.code != '' for ",
        "_ordered_rows shorten: if arguments.get('offset') and gateway.l -> "
        "if gateway.listed and 'offset' not in en",
        "_ordered_rows shorten: 'offset') and gateway.listed and ('offse -> "
        "'offset') and 'offset' not in entity.fie",
        "_ordered_rows shorten: gateway.listed and ('offset' not in enti -> gateway.listed: befo",
        "_ordered_rows text: ol.sort else '')): n -> ol.sort else 'x')): n",
        "_ordered_rows drop: gateway.listed = (tool, writes, argument -> pass",
        "_filtered function: numbers = any((type -> numbers = all((type",
        "_filtered shorten: alue) not in (str, bool,  -> alue) not in (bool, ",
        "_filtered shorten:  not in (str, bool, type ->  not in (str, type",
        "_filtered compare:  len(wanted) <= 1 and ->  len(wanted) < 1 and",
        "_scored shorten: l.entity, key) or {}))] -> l.entity, key)))]",
        "Matcher._candidates function: names = tuple(sorted(slot. -> names = tuple(list(slot.",
        "Matcher._bucket_key return: return (str(of.key), of.field) -> return None",
        "Matcher._bucket_key shorten: return (str(of.key), of.field) -> return (of.field,)",
        "Matcher._bucket_key shorten:  (str(of.key), of.field) ->  (str(of.key),)",
        "Matcher._bucket_key text:  in row else '' for  ->  in row else 'x' for ",
        "Matcher._bucket_key return: return tuple((encode(row[name]) if name  -> return None",
        "occurrences shorten: if not phrase or phrase[0] not in words: -> if not phrase: retu",
        "parse_line compare: e.count('{') > MAX_D -> e.count('{') >= MAX_D",
        "parse_line text: f line.count('[') + l -> f line.count('') + l",
    ),
    "never reached: refused, checked or sorted out before": (
        "decode drop: raise BadText('depth') from None -> pass",
        "decode text: aise BadText('depth') fro -> aise BadText('') fro",
        "Matcher._assignments truth: hosen, strict=True)) -> hosen, strict=False))",
        "_reached truth:  path, strict=True)]):  ->  path, strict=False)]): ",
        "_scalars shorten: m, (dict, list, tuple)): wa -> m, (dict, list)): wa",
        "judge_read_all shorten: ed = rows.keys or frozenset() -> ed = rows.keys",
        "parse_line shorten: t (ValueError, RecursionError): ret -> t (ValueError,): ret",
        "_difference truth: , new, strict=True)): f -> , new, strict=False)): f",
        "_confirmed text:  (call.tool, '' if c ->  (call.tool, 'x' if c",
        "_confirmed shorten: not call.code) and (pending is not None) -> not call.code): if",
        "_missing_mode shorten: if slot.expected is UNTOUCHED or same( -> if same(",
        "failure_modes text: turn_limit', 'budget_limit'): fo -> turn_limit', ''): fo",
        "failure_modes shorten: ('turn_limit', 'budget_limit'): fou -> ('turn_limit',): fou",
    ),
    "a value that nobody compares or that is replaced": (
        "order_key shorten: return (0, value) -> return (value,)",
        "Transaction.fresh return: return MISSING -> return None",
        "order_key shorten: s None else 6, 0) -> s None else 6,)",
        "order_key number:  None else 6, 0) ->  None else 6, 1)",
        "Layer._count compare: [at:at + (by < 0)] = -> [at:at + (by <= 0)] =",
        "Layer._count number: at:at + (by < 0)] = [ -> at:at + (by < 1)] = [",
        "Matcher._assignments function: parents = sorted({slot -> parents = list({slot",
        "tokens text: ascii() else ''.join -> ascii() else 'x'.join",
        "tokens text: marks = '' if p -> marks = 'x' if p",
        "judge_chooses text: (sought)] = [''] * l -> (sought)] = ['x'] * l",
        "Replayer._long_call number: * (MAX_TEXT + 1) if l -> * (MAX_TEXT + 2) if l",
        "Replayer._long_call text: tr else '?', '' if l -> tr else '?', 'x' if l",
    ),
}.items() for label in labels}


class Defect(NamedTuple):
    """A changed function: its tree, and the part of the tree that is still to be replaced."""

    label: str
    function: str
    line: int
    tree: ast.FunctionDef
    change: tuple[ast.AST, str, int, ast.AST] | None = None


@functools.lru_cache(maxsize=1)
def own_functions() -> dict[str, tuple[str, ast.FunctionDef]]:
    """Chapter and tree of every function and method of the harness, by qualified name."""
    source = SOURCE.read_text(encoding="utf-8")
    starts = [(source.count("\n", 0, b.start()), b[2]) for b in BANNER.finditer(source)]
    found: dict[str, tuple[str, ast.FunctionDef]] = {}
    for node in ast.parse(source).body:
        home = next((title for line, title in reversed(starts) if line < node.lineno), "")
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        found |= {prefix + f.name: (home, f) for f in inside if isinstance(f, ast.FunctionDef)}
    return found


def planted(name: str, function: str, old: str, new: str) -> Defect:
    """One of PLANTED; raises Wrong unless the old text stands once in the function, unparsed."""
    node = own_functions()[function][1]
    text = ast.unparse(node)
    expect(text.count(old), 1, f"{name}: {old} in {function}")
    tree: Any = ast.parse(text.replace(old, new))
    return Defect(name, function, node.lineno, tree.body[0])


def swap(defect: Defect) -> None:
    """Give the living function (out of property, method, cache) the code of the changed one."""
    owner, _, last = defect.function.rpartition(".")
    function: Any = vars(LIVING[owner])[last] if owner else LIVING[last]
    for inside in ("fget", "func", "__func__", "__wrapped__"):
        function = getattr(function, inside, function)
    if defect.change:
        _put(*defect.change)
    bare = _but(defect.tree, decorator_list=[])
    if "__class__" in function.__code__.co_freevars:  # stays one, whatever was dropped
        bare.body = [*bare.body, *ast.parse("__class__").body]
    tree = ast.parse(f"class {owner}: pass" if owner else "")
    holder: Any = tree.body[0] if owner else tree
    holder.body = [bare]
    code = compile(ast.fix_missing_locations(tree), str(SOURCE), "exec")
    for inside in defect.function.split("."):
        code = next(c for c in code.co_consts if getattr(c, "co_name", "") == inside)
    function.__code__ = code
    for name, (home, _) in own_functions().items():  # forget what the old one gave
        if home in GRADING and "." not in name:
            getattr(LIVING[name], "cache_clear", int)()


def _put(parent: Any, field: str, index: int, new: ast.AST) -> None:
    if index < 0:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[index] = new


def _but(node: ast.AST, **parts: Any) -> Any:
    """A copy of a node with other parts."""
    return ast.copy_location(type(node)(**{**dict(ast.iter_fields(node)), **parts}), node)


_PAIRS = {ast.Eq: ast.NotEq, ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.In: ast.NotIn, ast.Is: ast.IsNot,
    ast.And: ast.Or, ast.Add: ast.Sub, "any": "all", "min": "max"}
_OTHER: dict[Any, Any] = {**_PAIRS, **{b: a for a, b in _PAIRS.items()}, ast.Mult: ast.Add,
    ast.BitOr: ast.BitAnd, "sorted": "list"}


def replacements(node: Any, field: str) -> Iterator[tuple[str, ast.AST]]:
    """What may stand in the place of a node, each with the name of its operator."""
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                ops = [*node.ops[:i], _OTHER[type(op)](), *node.ops[i + 1 :]]
                yield "compare", _but(node, ops=ops)
        case ast.BoolOp() | ast.BinOp() | ast.AugAssign() if type(node.op) in _OTHER:
            yield "operator", _but(node, op=_OTHER[type(node.op)]())
        case ast.Call(func=ast.Name(id=name)) if name in _OTHER:
            func = ast.Name(_OTHER[name], ast.Load())
            yield "function", _but(node, func=func, keywords=[])
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node.operand
        case ast.Constant(value=bool() as truth):
            yield "truth", _but(node, value=not truth)
        case ast.Constant(value=int() as number):
            yield "number", _but(node, value=number + 1)
        case ast.Constant(value=str() as text):
            yield "text", _but(node, value="" if text else "x")
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            empty: ast.expr = ast.Constant(None)
            if isinstance(value, (ast.List, ast.ListComp)):
                empty = ast.List([], ast.Load())
            if ast.dump(empty) != ast.dump(value):
                yield "return", _but(node, value=empty)
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
            yield "drop", ast.parse("if 0: yield").body[0]
        case ast.Tuple(ctx=ast.Load()) | ast.List() | ast.Set() | ast.Dict():
            yield from _shorter(node)
    match node:
        case (ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue()
              | ast.Break() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()])):
            yield "drop", ast.Pass()
        case ast.BoolOp():
            yield from _shorter(node)
    turned = isinstance(node, ast.Compare) and not isinstance(
        node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))  # "compare" negates these
    if field in ("test", "ifs") and not turned and not isinstance(node, ast.UnaryOp):
        yield "negate", ast.UnaryOp(ast.Not(), node)


def _shorter(node: Any) -> Iterator[tuple[str, ast.AST]]:
    parts = [name for name in ("keys", "elts", "values") if hasattr(node, name)]
    size = len(getattr(node, parts[0]))
    for i in range(size if size > 1 else 0):
        left = {name: getattr(node, name)[:i] + getattr(node, name)[i + 1 :] for name in parts}
        alone = isinstance(node, ast.BoolOp) and size == 2  # no chain is left
        yield "shorten", left["values"][0] if alone else _but(node, **left)


def _places(node: ast.AST, home: ast.AST) -> Iterator[tuple[ast.AST, ast.AST, str, int, ast.AST]]:
    """(statement, parent, field, index or -1, node) of all that may be changed below a node."""
    for field, value in ast.iter_fields(node):
        for index, child in enumerate(value) if isinstance(value, list) else [(-1, value)]:
            prose = isinstance(child, (ast.JoinedStr, ast.Constant)) and any(
                " " in str(getattr(part, "value", "")) for part in ast.walk(child))
            if isinstance(child, ast.AST) and not prose and field not in (
                    "annotation", "returns", "decorator_list") and not isinstance(
                    child, (ast.arguments, ast.Assert)):
                own = child if isinstance(child, ast.stmt) else home
                yield own, node, field, index, child
                yield from _places(child, own)


def _shared(a: str, b: str) -> int:
    """How many characters two texts begin with alike."""
    return sum(itertools.takewhile(bool, map(operator.eq, a, b)))


def mutations(name: str) -> list[Defect]:
    """The mutations of one function; at most PER_STATEMENT a statement, by hash of the label."""
    tree, found = own_functions()[name][1], dict[str, tuple[ast.AST, Defect]]()
    times, homes = Counter[str](), Counter[ast.AST]()
    for home, parent, field, index, old in _places(tree, tree):
        for word, new in replacements(old, field):
            a = " ".join(ast.unparse(home).split())
            _put(parent, field, index, new)
            b = " ".join(ast.unparse(new if home is old else home).split())
            _put(parent, field, index, old)
            at, end = max(0, _shared(a, b) - 14), _shared(a[::-1], b[::-1]) - 6
            a, b = (text[at : max(at, len(text) - max(0, end))][:40] for text in (a, b))
            times[label := f"{name} {word}: {a} -> {b}"] += 1
            label += f" #{times[label]}" if times[label] > 1 else ""
            where = (parent, field, index, new)
            found[label] = home, Defect(label, name, getattr(old, "lineno", 0), tree, where)
    for label in sorted(found, key=digest):
        homes[found[label][0]] += 1
        if homes[found[label][0]] > PER_STATEMENT:
            del found[label]
    return [defect for _, defect in found.values()]


def _failing(defect: Defect | None) -> int:
    """In the fork: the place in KERNEL of the first test that fails; -1 for none.

    CPU time stands for a limit of steps: to count them (a trace function) makes each some ten
    times slower, and an endless loop burns CPU however busy the machine is.
    """
    place = len(KERNEL)  # "not swapped"
    try:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        warnings.simplefilter("ignore")
        for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, CHILD_BYTES)):
            with contextlib.suppress(ValueError):
                resource.setrlimit(kind, (most, most))
        if defect:
            swap(defect)
        for place, name in enumerate(KERNEL):
            seconds = int(sum(os.times()[:2])) + STEP_SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, -1))
            if not list(TESTS[name]()):
                return place
    except BaseException:  # of the test, whatever it is: it failed
        return place
    return -1


def outcomes(defects: Sequence[Defect | None]) -> Iterator[tuple[int, str]]:
    """The place of each defect and what caught it, as children end; one child a CPU at once."""
    if not hasattr(os, "fork"):
        raise HarnessError("no fork on this system: defects can't be tried")
    library(), odd_world(), own_functions()  # loaded once, for all children
    waiting, running = iter(enumerate(defects)), dict[int, int]()
    try:
        while True:
            for place, defect in itertools.islice(waiting, (os.cpu_count() or 1) - len(running)):
                pid = os.fork()
                if not pid:
                    os._exit(_failing(defect) + 1)  # the exit code tells the parent
                running[pid] = place
            if not running:
                return
            pid, status = os.wait()
            code = os.waitstatus_to_exitcode(status)
            yield running.pop(pid), (
                "step limit" if code < 0 else ("", *KERNEL, "not swapped")[code])
    finally:
        for pid in running:
            os.kill(pid, 9)
            os.waitpid(pid, 0)


def sweep(share: float, progress: Callable[[str], None]) -> dict[str, Any]:
    """Try a share of all mutations of GRADING, always the same ones: what came of it."""
    every = {d.label: d for name, (home, _) in own_functions().items()
        if home in GRADING and name not in AT_IMPORT
        for d in mutations(name)}
    tried = [label for label in every if int(digest(label)[:8], 16) < share * (1 << 32)]
    said: dict[str, str] = {}
    for place, test_ in outcomes([*(every[label] for label in tried), None]):
        said[[*tried, ""][place]] = test_
        if len(said) % 100 == 0:
            progress(f"{len(said)} of {len(tried)} mutants")
    expect(said.pop(""), "", "the kernel fails on the unchanged file")
    bare = [label for label in tried if said[label] == "not swapped"]
    lived = [label for label in tried if not said[label]]
    survived = [label for label in lived if label not in EQUIVALENT]
    equal = len(lived) - len(survived)
    caught = len(tried) - len(bare) - len(lived)
    return {"tried": len(tried) - len(bare), "caught": caught, "equivalent": equal,
        "share": caught / max(1, caught + len(survived)), "not_swapped": bare,
        "survived": [f"{every[label].line}: {label}" for label in survived],
        "faults": [x for x in EQUIVALENT if x not in every or said.get(x)]}


def sweep_lines(found: Mapping[str, Any]) -> list[str]:
    """A sweep as text; the last line sums it up."""
    return [*(f"survived: {label}" for label in found["survived"]),
        *(f"not swapped: {label}" for label in found["not_swapped"]),
        *(f"FAULT: EQUIVALENT, but caught or gone: {label}" for label in found["faults"]),
        f"{found['caught']} caught, {len(found['survived'])} survived, {found['equivalent']} "
        f"equivalent of {found['tried']} mutants: {100 * found['share']:.1f} %"]


@test
def planted_defects() -> Iterator[str]:
    """Some of the planted defects, each caught by the kernel; all of them stand in the file."""
    expect([name for name in KERNEL if name not in TESTS], [], "the kernel")
    defects = [planted(*row) for row in PLANTED]
    some = defects[:: len(defects) // 5] if hasattr(os, "fork") else []
    for place, caught in outcomes(some) if some else ():
        expect(caught not in ("", "not swapped"), True, f"{some[place].label} is not caught")
        yield some[place].label
    yield "all stand"

def command(options: argparse.Namespace, out: Output) -> int:
    """`selftest --mutate` and `selftest --defects`."""
    return _mutate(options, out) if options.mutate is not None else _try_planted(options, out)


def _mutate(options: argparse.Namespace, out: Output) -> int:
    if not 0 < options.mutate <= 1:
        raise HarnessError(f"--mutate {options.mutate}: a share over 0, at most 1, was expected")
    shows = sys.stderr is not None and sys.stderr.isatty()
    found = sweep(options.mutate, out.message if shows else lambda _: None)
    if options.json:
        out.document({"schema": RUN_SCHEMA, **found})
    else:
        out.lines(sweep_lines(found))
    return Exit.OK if found["share"] >= TO_CATCH and not found["faults"] else Exit.FAIL


def _try_planted(options: argparse.Namespace, out: Output) -> int:
    names, caught = [row[0] for row in PLANTED], dict(outcomes([planted(*row) for row in PLANTED]))
    found = {name: caught[place] or "NOT CAUGHT" for place, name in enumerate(names)}
    if options.json:
        out.document({"schema": RUN_SCHEMA, "defects": found})
    else:
        out.lines(f"{name}: {test_}" for name, test_ in found.items())
    return Exit.FAIL if {"NOT CAUGHT", "not swapped"} & set(found.values()) else Exit.OK
