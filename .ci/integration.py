"""Checks of the command line as a stranger uses it: processes, folders, environments.

    python .ci/integration.py PYTHON [PYTHON ...]
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = sys.argv[1:] or [sys.executable]


class Failure(Exception):
    """A check that does not hold."""


def run(
    *arguments: str,
    root: Path = ROOT,
    python: str = PYTHONS[0],
    flags: tuple[str, ...] = (),
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run the harness of a root; never in its own folder unless asked."""
    return subprocess.run(
        [python, *flags, str(root / "eval_harness.py"), *arguments],
        capture_output=True,
        cwd=cwd or "/",
        env={**os.environ, **(environment or {})},
        check=False,
    )


def demand(right: bool, what: str) -> None:
    """Fail unless right."""
    if not right:
        raise Failure(what)


def copy_of_root(folder: Path) -> Path:
    """The project's files in a folder of their own."""
    target = folder / "copy"
    shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(".git", "runs", "__pycache__"))
    return target


def evidence(run_dir: Path) -> bytes:
    """All that must be the same bytes everywhere."""
    names = sorted(path.name for path in run_dir.glob("attempts-*.jsonl"))
    return b"".join((run_dir / name).read_bytes() for name in [*names, "grades.jsonl"])


def same_bytes_everywhere(folder: Path) -> Iterator[str]:
    """Records, grades and tables under every interpreter, hash seed, locale, zone and mode."""
    plain: tuple[bytes, bytes] | None = None
    variants: list[tuple[str, tuple[str, ...], dict[str, str]]] = [
        ("plain", (), {}),
        ("-I", ("-I",), {}),
        ("-X dev -W error", ("-X", "dev", "-W", "error"), {}),
        ("LC_ALL=C", (), {"LC_ALL": "C"}),
        ("cp1252", (), {"PYTHONIOENCODING": "cp1252"}),
        ("hash 0", (), {"PYTHONHASHSEED": "0"}),
        ("hash 1", (), {"PYTHONHASHSEED": "1"}),
        ("hash 4242", (), {"PYTHONHASHSEED": "4242"}),
        ("Kathmandu", (), {"TZ": "Asia/Kathmandu"}),
        ("Honolulu", (), {"TZ": "Pacific/Honolulu"}),
    ]
    for python in PYTHONS:
        for name, flags, environment in variants:
            target = folder / re.sub(r"\W", "_", f"{python}{name}")
            place = ("run", "--run-dir", str(target))
            done = run(*place, python=python, flags=flags, environment=environment)
            demand(done.returncode == 0, f"{python} {name}: exit {done.returncode}")
            table = done.stdout.replace(str(target).encode(), b"DIR")
            found = (evidence(target), table)
            plain = plain or found
            demand(found == plain, f"{python} {name}: other bytes")
            demand(b"ResourceWarning" not in done.stderr, f"{python} {name}: a file left open")
            yield f"{Path(python).name} {name}"


def verify_stands_alone(folder: Path) -> Iterator[str]:
    """verify: the same table twice, from anywhere, moved, without seeds/ and tasks/."""
    root = copy_of_root(folder)
    made = run("run", root=root)
    demand(made.returncode == 0, made.stderr.decode())
    first = run("verify", root=root)
    demand(first.returncode == 1, "the demonstration holds records that do not verify")
    demand(first.stdout == run("verify", root=root, cwd=folder).stdout, "twice, the same bytes")
    demand(made.stdout == first.stdout, "run and verify print the same table")
    yield "twice"
    for name in ("seeds", "tasks"):
        (root / name).rename(root / f"{name}-away")
    demand(run("verify", root=root).stdout == first.stdout, "without seeds and tasks")
    yield "alone"
    (old,) = (path for path in (root / "runs").iterdir() if path.name[0] != ".")
    moved = folder / "elsewhere with spaces"
    shutil.move(old, moved)
    again = run("verify", str(moved), root=root)
    demand(again.stdout.split(b"next:")[0] == first.stdout.split(b"next:")[0], "moved")
    yield "moved"


def demonstration(_: Path) -> Iterator[str]:
    """The rows that the README promises."""
    with tempfile.TemporaryDirectory() as folder:
        done = run("run", "--json", "--run-dir", f"{folder}/run")
        demand(done.returncode == 0, done.stderr.decode())
        rows = json.loads(done.stdout)["attempts"]
    found = [(row["outcome"], row["evidence"], row["grade"], row["verdict"]) for row in rows]
    demand(sum(row[:3] == ("completed", "verified", "failed") for row in found) >= 7, "seven")
    for want in (
        ("completed", "verified", "passed", "passed"),
        ("completed", "verified", "passed", "refused_correctly"),
        ("completed", "ungraded", None, None),
        (None, "lost", None, None),
        ("turn_limit", "verified", "failed", "failed"),
    ):
        demand(want in found, f"no row {want}")
        yield str(want)


def reference_verifies(_: Path) -> Iterator[str]:
    """The committed reference run still gives the grades it was committed with."""
    folder = ROOT / "runs" / "reference"
    done = run("verify", str(folder), "--json")
    problems = json.loads(done.stdout)["problems"]
    torn = "attempts-1.jsonl:22: line: is torn: it has no line end"  # the killed attempt's own
    demand(problems == [torn], str(problems))
    sums = subprocess.run(
        ["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, check=False
    )
    demand(sums.returncode == 0, sums.stdout.decode())
    yield "reference"


def patched_replay(folder: Path) -> Iterator[str]:
    """With replay made to return an empty list, at least three tests fail and say why."""
    root = copy_of_root(folder)
    path = root / "eval_harness.py"
    text = path.read_text(encoding="utf-8")
    start = text.index("\ndef replay(")
    body = text.index("    problems = _structure(record)", start)
    path.write_text(text[:body] + "    return []\n" + text[body:], encoding="utf-8")
    done = run("selftest", root=root)
    failures = [line for line in done.stderr.decode().splitlines() if line.startswith("FAIL")]
    demand(done.returncode == 1 and len(failures) >= 3, f"{len(failures)} tests failed")
    yield f"{len(failures)} tests"


FAULTS: list[tuple[str, str, str, str]] = [  # file, old, new, what must be said
    ("contract.toml", 'title = "A', 'titel = "A', "titel"),
    ("contract.toml", "step = 60 ", "step = -1 ", "clock.step"),
    ("contract.toml", '"refuse"    #', '"sometimes"    #', "policy.redundant_updates"),
    ("contract.toml", "page_cap = 25", 'page_cap = "25"', "policy.page_cap"),
    ("contract.toml", 'new_id = "ORG-new-{n}"', 'new_id = "ORG"', "entities.organisation.new_id"),
    ("contract.toml", '"premium"]', '"premium", "free"]', "tier.enum[3]"),
    ("contract.toml", 'active = { type = "boolean" }', 'active = { type = "bool" }', "active.type"),
    ("contract.toml", "min = 1, max = 300", "min = 400, max = 300", "subject.min"),
    ("contract.toml", 'default = "new"', 'default = "fresh"', "status.default"),
    ("contract.toml", 'managed = "updated"', 'managed = "touched"', "updated_at.managed"),
    ("contract.toml", 'field = "requester"', 'field = "request"', "entities.ticket.scope.field"),
    ("contract.toml", "actor.role == 'agent'\" }\n[entities.comment",
     "actor.rol == 'agent'\" }\n[entities.comment", "user has no field rol"),
    ("contract.toml", 'ref = "ticket", optional', 'ref = "tickets", optional', "merged_into.ref"),
    ("contract.toml", 'filters = ["tier"]', 'filters = ["tear"]', "list_organisations.filters[0]"),
    ("contract.toml", 'sort = ["created_at"]', 'sort = ["created"]', "list_comments.sort[0]"),
    ("contract.toml", 'fields = ["subject", "body"]', 'fields = ["subject", "tags"]', "text"),
    ("contract.toml", 'set = ["ticket", "body"', 'set = ["ticket", "author", "body"', "managed"),
    ("contract.toml", 'effect = "irreversible"', 'effect = "final"', "delete_comment.effect"),
    ("contract.toml", 'code = "precondition_failed"', 'code = "nope"', "guards[0].code"),
    ("contract.toml", "moved += 1", "moved ++ 1 **", "merge_tickets.script"),
    ("organisation.json", '"tier":"premium"', '"tier":"gold"', "tier"),
    ("organisation.json", '"id":"ORG-002"', '"id":"ORG-001"', "each key once"),
    ("organisation.json", '"name":"Kestrel Books"', '"name":null', "null is not allowed"),
    ("comment.json", '"public":false', '"public":0', "true or false was expected"),
    ("user.json", '"email":"agent2@desk.example",', "", "email is missing"),
    ("user.json", '"role":"requester"', '"role":"requester","rank":1', "unknown field"),
    ("ticket.json", '"tags":[]', '"tags":[1]', "a list of text"),
    ("ticket.json", '"requester":"USR-00', '"requester":"USR-99', "a key of user"),
    ("ticket.json", '"created_at":"2026-01', '"created_at":"2026-13', "a time like"),
    ("ticket.json", '"satisfaction":1', '"satisfaction":9', "at most 5"),
    ("comment.json", '"id":"CMT-0001"', '"id":"CMT-new-1"', "a key apart from"),
    ("comment.json", '"public":true', '"public":true,"public":true', "names a key twice"),
]


def unreadable_rows(folder: Path) -> Iterator[str]:
    """A seed file of any world that is ruined as a whole: named, exit 2, and the tasks that build
    on it say nothing of their own."""
    for seed in sorted((ROOT / "seeds").glob("*/*.json")):
        root = folder / seed.parent.name
        for part in ("seeds", "tasks"):
            if not (root / part).exists():
                shutil.copytree(ROOT / part / seed.parent.name, root / part / seed.parent.name)
        mine = root / seed.relative_to(ROOT)
        for text in ("[", "[7]"):
            mine.write_text(text, encoding="utf-8")
            done = run("check", "--root", str(root))
            said = done.stdout.decode() + done.stderr.decode()
            demand(done.returncode == 2 and "Traceback" not in said and seed.name in said,
                f"{seed.name} as {text}: {done.returncode} {said[-600:]}")
        shutil.copyfile(seed, mine)
        yield f"{seed.parent.name}/{seed.name}"


def planted_faults(folder: Path) -> Iterator[str]:
    """Every fault of a broken world in one go, the same bytes each time, exit 2."""
    world = folder / "seeds" / "helpdesk"
    shutil.copytree(ROOT / "seeds" / "helpdesk", world)
    for file, old, new, _ in FAULTS:
        path = world / file
        text = path.read_text(encoding="utf-8")
        demand(old in text, f"{file}: {old} is gone")
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
    seeds = [{"PYTHONHASHSEED": str(seed)} for seed in range(3)]
    outputs = {run("check", str(world), environment=seed).stderr for seed in seeds}
    demand(len(outputs) == 1, "the same bytes under every hash seed")
    text = outputs.pop().decode()
    for _, old, new, said in FAULTS:
        demand(said in text, f"{old} -> {new}: {said} is not in\n{text}")
        yield new
    demand(run("check", str(world)).returncode == 2, "exit 2")
    demand("Traceback" not in text, "no traceback")


def scaled_worlds(folder: Path) -> Iterator[str]:
    """In larger worlds oracles pass, mutants fail just what they say; and no half folder."""
    for world in ("helpdesk", "inventory", "maintenance", "store"):
        roots = [folder / world, folder / f"{world}-again"]
        rows = {"maintenance": "3000", "inventory": "12000"}.get(world, "30000")  # as time allows
        for place, seed in zip(roots, ("1", "2"), strict=True):
            done = run("scale", world, "--rows", rows, "--out", str(place),
                       environment={"PYTHONHASHSEED": seed})
            demand(done.returncode == 0, done.stderr.decode())
        first, second = ([(path.relative_to(root), path.read_bytes())
            for path in sorted(root.rglob("*")) if path.is_file()] for root in roots)
        demand(first == second, f"{world}: the same bytes each time")
        for name in ("seeds", "tasks"):
            for path in (ROOT / name / world).iterdir():
                grown = roots[0] / name / world / path.name
                same = path.suffix == ".json" or grown.read_bytes() == path.read_bytes()
                demand(same, f"{path}: copied as it is")
        checked = run("check", "--root", str(roots[0]))
        demand(checked.returncode == 0, checked.stdout.decode() + checked.stderr.decode())
        demand(b": no fault" in checked.stdout, "oracles and mutants do as they say")
        for command in (("run", "--agent", "null"), ("inspect",)):
            demand(run(*command, "--root", str(roots[0])).returncode == 0, f"{command}")
        yield world
    for words, said in (
        (("helpdesk", "--rows", "9", "--out", f"{folder}/new"), "--rows 9"),
        (("helpdesk", "--rows", "30000", "--out", str(folder)), "is there already"),
        (("helpdesc", "--rows", "30000", "--out", f"{folder}/new"), "did you mean helpdesk?"),
        (("helpdesk", "--rows", "2000", "--out", f"{folder}/new", "--keep", "x"), "no such entity"),
    ):
        done = run("scale", *words)
        text = done.stderr.decode()
        demand(done.returncode == 2 and said in text and text.count("\n") == 1, text)
        demand(not (folder / "new").exists(), "nothing is written")
        yield said


def main() -> int:
    """Run every check in a folder of its own; the first failure of each is said."""
    checks: list[Callable[[Path], Iterator[str]]] = [
        demonstration,
        verify_stands_alone,
        same_bytes_everywhere,
        reference_verifies,
        patched_replay,
        planted_faults,
        unreadable_rows,
        scaled_worlds,
    ]
    passed = failed = 0
    for check in checks:
        with tempfile.TemporaryDirectory() as folder:
            try:
                for _ in check(Path(folder)):
                    passed += 1
            except Failure as error:
                failed += 1
                print(f"FAIL {check.__name__}: {error}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
