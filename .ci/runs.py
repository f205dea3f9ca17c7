"""Checks of runs: killed, resumed, spread, refused, signed; and of the environment.

    python .ci/runs.py        # with dask[distributed], loky and gymnasium at hand
"""

import contextlib
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]
sys.dont_write_bytecode = True
HARNESS = str(ROOT / "eval_harness.py")
PLAN = ("--agent", "oracle,mutants", "--tasks", "store/*", "--samples", "2", "--seed", "5")


class Failure(Exception):
    """A check that does not hold."""


def demand(right: object, what: str) -> None:
    """Fail unless right."""
    if not right:
        raise Failure(what)


def harness(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the harness to its end."""
    return subprocess.run([sys.executable, HARNESS, *arguments], capture_output=True, text=True,
        check=False, **more)


def grades(folder: Path) -> str:
    """The hash of a run's grades."""
    return hashlib.sha256((folder / "grades.jsonl").read_bytes()).hexdigest()


def ends(folder: Path) -> Counter[str]:
    """How often each attempt is recorded whole."""
    return Counter(json.loads(line)["attempt"] for path in folder.glob("attempts-*.jsonl")
        for line in path.read_text("ascii", "replace").splitlines(keepends=True)
        if '"event":"end"' in line and line.endswith("}\n"))


def whole(folder: Path) -> Path:
    """An undisturbed run."""
    made = harness("run", *PLAN, "--jobs", "1", "--run-dir", str(folder / "whole"))
    demand(made.returncode == 0, made.stderr)
    return folder / "whole"


def killed_and_resumed(folder: Path) -> Iterator[str]:
    """kill -9 at random moments: what was finished is kept, nothing is made twice."""
    right, draw = grades(whole(folder)), random.Random(4)
    for jobs, times in (("1", 100), ("4", 100)):
        kills = rounds = 0
        while kills < times:
            target = folder / f"killed-{jobs}-{rounds}"
            rounds += 1
            while True:
                process = subprocess.Popen([sys.executable, HARNESS, "run", *PLAN, "--jobs", jobs,
                    "--run-dir", str(target)], stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE, text=True, start_new_session=True)
                try:
                    process.wait(draw.uniform(0.2, 1.6) if kills < times else None)
                except subprocess.TimeoutExpired:
                    process.kill()
                    kills += 1
                said = process.communicate()[1]
                if process.returncode == 0:
                    break
                demand(process.returncode == -9, said)
            demand(grades(target) == right, f"the grades of {target.name}")
            demand(max(ends(target).values()) == 1, f"{target.name}: an attempt made twice")
            demand(harness("verify", str(target)).returncode == 0, f"{target.name}: verify")
            shutil.rmtree(target)
        yield f"jobs {jobs}: {kills} kills in {rounds} runs"


def cut_anywhere(folder: Path) -> Iterator[str]:
    """The journal cut at every byte of its last lines: resuming gives the same grades."""
    import eval_harness

    run = folder / "cut"
    made = harness("run", "--agent", "oracle", "--tasks", "store/refund-mug,store/is-it-done",
        "--run-dir", str(run))
    demand(made.returncode == 0, made.stderr)
    journal = (run / "attempts-0.jsonl").read_bytes()
    plan = eval_harness.plan_from(eval_harness.read_run(run))
    last = sum(map(len, journal.splitlines(keepends=True)[-3:]))
    for cut in range(len(journal) - last, len(journal)):
        (run / "attempts-0.jsonl").write_bytes(journal[:cut])
        done, tries = eval_harness.recorded(run, plan, False)
        demand((sum(done), tries) == (len(plan) - 1, {}), f"cut at {cut}: {sum(done)} are done")
        if cut % 97:
            continue
        result = eval_harness.grade_run(run)
        demand(len(result.lost) + [*result.at].count(-1) == 1, f"cut at {cut}: one is lost")
    yield f"{last} cuts"


def full_disk(folder: Path) -> Iterator[str]:
    """A limit on the size of files: one line, exit 2, and the run can be finished."""
    right = grades(whole(folder))
    target = folder / "full"
    made = harness("run", *PLAN, "--run-dir", str(target), preexec_fn=lambda: resource.setrlimit(
        resource.RLIMIT_FSIZE, (700_000, 700_000)))
    demand(made.returncode == 2 and made.stderr.count("\n") == 1, made.stderr)
    before = ends(target)
    resumed = harness("run", "--resume", str(target))
    demand(resumed.returncode == 0, f"resume: {resumed.stderr}")
    demand(grades(target) == right and before <= ends(target), "all earlier evidence is kept")
    yield "file size"
    small = folder / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)],
            capture_output=True, check=False).returncode:
        yield "no file system can be mounted here: not checked"
        return
    try:
        made = harness("run", *PLAN, "--samples", "40", "--run-dir", str(small / "run"))
        demand(made.returncode == 2 and made.stderr.count("\n") == 1, f"full: {made}"[:900])
        before = ends(small / "run")
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        closed = harness("run", "--resume", str(small / "run"))
        demand(closed.returncode == 2 and closed.stderr.count("\n") == 1, f"closed: {closed}")
        demand(harness("verify", str(small / "run")).returncode == 1, "it can be read")
        subprocess.run(["mount", "-o", "remount,rw,size=256m", str(small)], check=True)
        resumed = harness("run", "--resume", str(small / "run"))
        demand(resumed.returncode == 0 and before <= ends(small / "run"), f"{resumed}"[:900])
    finally:
        subprocess.run(["umount", str(small)], check=True)
    yield "a small disk, and one that is read-only"


def interrupted(folder: Path) -> Iterator[str]:
    """Ctrl-C once and twice: exit 130 in bounded time, never half an attempt."""
    for jobs in ("1", "4"):
        for times, send in ((1, os.kill), (2, os.kill), (2, os.killpg)):  # a terminal: the group
            target = folder / f"interrupted-{jobs}-{times}-{send.__name__}"
            process = subprocess.Popen([sys.executable, HARNESS, "run", "--agent",
                "oracle,mutants", "--samples", "60", "--jobs", jobs, "--run-dir", str(target)],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                start_new_session=True)
            time.sleep(2.5)
            began = time.monotonic()
            for _ in range(times):
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    send(process.pid, signal.SIGINT)
                time.sleep(0.05)
            said = process.communicate()[1]
            demand(process.returncode == 130 and "Traceback" not in said, said)
            demand(time.monotonic() - began < 5, "bounded time")
            demand("--resume" in said and said.count("\n") == 1, said)
            demand(max(ends(target).values()) == 1, said)
            yield target.name
    draw = random.Random(9)
    for number in range(16):
        process = subprocess.Popen([sys.executable, HARNESS, "run", *PLAN, "--jobs",
            draw.choice("124"), "--run-dir", str(folder / f"anywhen-{number}")],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(draw.uniform(0.6, 2.2))
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(draw.choice((0, 0.01)))
        said = process.communicate()[1]
        lines = said.removeprefix(f"run {folder / f'anywhen-{number}'}\n").count("\n")
        demand(process.returncode in (0, 130, -2) and lines <= 1, f"anywhen: {said}")
    yield "anywhen"
    for left in sorted(folder.glob("[ia]n*/run.json")):
        found = json.loads(harness("verify", str(left.parent), "--json").stdout)["summary"]
        demand(found["ungraded"] == 0, f"{left.parent.name}: what is left does not replay")
        yield left.parent.name


POISON = {
    "seeds/odd/contract.toml": """
schema = 1
world = "odd"
[clock]
start = "2026-01-01T08:00:00Z"
step = 60
[entities.item]
key = "id"
new_id = "i{n}"
[entities.item.fields]
id = { type = "text" }
[tools.list_items]
kind = "list"
entity = "item"
[tools.hang]
kind = "python"
effect = "read"
returns = { item = "item" }
[tools.die]
kind = "python"
effect = "read"
returns = { item = "item" }
""",
    "seeds/odd/item.json": '[\n{"id":"a"}\n]\n',
    "seeds/odd/tools.py": "import os\n\n\ndef hang(world, args):\n    while True:\n"
        "        pass\n\n\ndef die(world, args):\n    os._exit(3)\n",
    **{f"tasks/odd/{tool}.toml": f"""
id = "{tool}"
instruction = "Call {tool}."
expects = "no_change"
[[criteria]]
id = "called"
called = "{tool.replace('look', 'list_items')}"
[oracle]
id = "calls"
script = "{tool.replace('look', 'list_items')}()"
[[mutants]]
id = "silent"
fails = ["called"]
script = "say('Done.')"
""" for tool in ("hang", "die", "look")},
}


def poisoned(folder: Path) -> Iterator[str]:
    """Attempts that hang or die each time are given up, reported, and hold up nothing else."""
    for name, text in POISON.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    plain = ("run", "--root", str(folder), "--allow-world-code", "--agent", "oracle,null",
        "--samples", "3")
    for jobs in ("1", "3"):
        target = folder / "runs" / f"poisoned-{jobs}"
        made = harness(*plain, "--jobs", jobs, "--timeout", "1", "--run-dir", str(target))
        states = Counter((line["task"], line["evidence"], line["outcome"], line["owner"])
            for line in map(json.loads, (target / "grades.jsonl").read_text().splitlines()))
        lost = ("verified", "error", "world")
        right = {("odd/hang", *lost): 3, ("odd/die", *lost): 3}
        demand(made.returncode == 0 and right.items() <= states.items(), f"{states}: {made}")
        demand(states.total() == 18 and sum(states[key] for key in right) == 6, f"{states}")
        again = harness(*plain, "--jobs", jobs, "--timeout", "1", "--run-dir", str(target))
        demand(again.returncode == 0 and max(ends(target).values()) == 1, "made again")
        yield f"jobs {jobs}"
        target = folder / "runs" / f"hanging-{jobs}"
        process = subprocess.Popen([sys.executable, HARNESS, *plain, "--jobs", jobs, "--tasks",
            "odd/hang", "--run-dir", str(target)], stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        time.sleep(2)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
        demand(process.returncode == 130 and time.monotonic() - began < 8, f"Ctrl-C: {said}")
        outcomes = [json.loads(line)["outcome"] for path in target.glob("attempts-*.jsonl")
            for line in path.read_text().splitlines() if '"event":"end"' in line]
        demand("interrupted" in outcomes, f"marked interrupted: {outcomes}")
        yield f"hanging, jobs {jobs}"


def spread(folder: Path) -> Iterator[str]:
    """However the work is spread: the same records, the same grades."""
    def bytes_of(run: Path) -> tuple[str, list[str]]:
        return grades(run), sorted(line for path in run.glob("attempts-*.jsonl")
            for line in path.read_text("ascii").splitlines())

    right = bytes_of(whole(folder))
    shards = [folder / f"shard-{n}" for n in range(1, 5)]
    for n, shard in enumerate(shards, 1):
        harness("run", *PLAN, "--shard", f"{n}/4", "--run-dir", str(shard))
    merged = harness("merge", str(folder / "merged"), *map(str, shards[::-1]))
    demand(merged.returncode == 0 and bytes_of(folder / "merged") == right, merged.stderr)
    yield "shards"
    gap = harness("merge", str(folder / "gap"), *map(str, shards[1:]))
    demand(gap.returncode == 2 and "shard 1 of 4" in gap.stderr, gap.stderr)
    shutil.copytree(shards[0], folder / "again")
    twice = harness("merge", str(folder / "twice"), *map(str, [*shards, folder / "again"]))
    demand(twice.returncode == 2 and "shard 1 of 4" in twice.stderr, twice.stderr)
    twice = harness("merge", str(folder / "twice"), *map(str, [*shards, shards[2]]))
    demand(twice.returncode == 2 and "shard 3 of 4" in twice.stderr, twice.stderr)
    for path in (folder / "again").glob("attempts-*"):
        path.unlink()
    lost = harness("merge", str(folder / "lost"), *map(str, [*shards[1:], folder / "again"]))
    demand(lost.returncode == 1 and re.search(r"[1-9][0-9]* lost", lost.stdout),
        f"a journal is gone: {lost}"[-900:])
    yield "gaps and overlaps"
    ways = [("--jobs", "4"), *(("--executor", f"executors:{name}")
        for name in ("threads", "loky", "dask"))]
    for way in ways:
        target = folder / way[1].replace(":", "-")
        made = harness("run", *PLAN, *way, "--run-dir", str(target), cwd=ROOT / ".ci")
        demand(made.returncode == 0 and bytes_of(target) == right, f"{way}: {made.stderr[-400:]}")
        yield way[1]
    (folder / "eval_harness.py").write_text("raise RuntimeError('another file of this name')\n")
    shutil.copy(HARNESS, folder / "harness")  # its own name is nobody's business
    for name in ("seeds", "tasks"):
        (folder / name).symlink_to(ROOT / name)
    for more, file in (((), HARNESS), (("-I",), HARNESS), (("-I",), str(folder / "harness"))):
        target = folder / f"spawned{len(more)}{Path(file).name}"
        made = subprocess.run([sys.executable, *more, file, "run", *PLAN, "--executor",
            "executors:spawned" if not more else "concurrent.futures:ProcessPoolExecutor",
            "--run-dir", str(target)], capture_output=True, text=True, check=False, cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / ".ci")})
        demand(made.returncode == 0 and bytes_of(target) == right, f"{file}: {made.stderr[-400:]}")
        yield target.name
    dies = harness("run", *PLAN, "--executor", "executors:dying", "--run-dir",
        str(folder / "dying"), cwd=ROOT / ".ci")
    demand(dies.returncode == 2 and "--executor: its worker failed: Broken" in dies.stderr
        and "Traceback" not in dies.stderr, f"workers that die: {dies.stderr}")
    yield "workers that die"
    import eval_harness

    eval_harness.GRACE = 0.05  # workers that are told to stop by mistake are gone at once
    judged = "".join(eval_harness.grade_run(folder / "whole", False, 2).grades())
    demand(judged == (folder / "whole" / "grades.jsonl").read_text("ascii"), "graded by workers")
    yield "grading"


def refused(folder: Path) -> Iterator[str]:
    """Another revision is refused, naming the component; comments and paths change nothing."""
    root = folder / "root"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".git", "runs", "__pycache__"))
    task, seed = root / "tasks/store/refund-mug.toml", root / "seeds/store/item.json"
    prompt = folder / "prompt.txt"
    prompt.write_text("Be brief.")
    plain = ("run", "--agent", "oracle", "--tasks", "store/refund-mug", "--run-dir",
        str(folder / "pinned"), "--turns", "40", "--prompt", str(prompt))

    def made(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(root / "eval_harness.py"), *plain, *more],
            capture_output=True, text=True, check=False)

    demand(made().returncode == 0, "the first")
    edits: list[tuple[str, Path, Callable[[str], str]]] = [
        ("tasks.store/refund-mug.instruction", task, lambda s: s.replace("broken", "in pieces", 1)),
        ("tasks.store/refund-mug.criteria", task, lambda s: s.replace('"done"', '"rejected"', 1)),
        ("worlds.store.item.json", seed, lambda s: s + "\n"), ("prompt", prompt, str.upper),
        ("build", root / "eval_harness.py", lambda s: s + "\n")]
    for component, path, edit in edits:
        text = path.read_text("utf-8")
        path.write_text(edit(text), "utf-8")
        said = made()
        path.write_text(text, "utf-8")
        demand(said.returncode == 2 and f"{component}: " in said.stderr, f"{component}: {said}")
        yield component
    shutil.move(task, folder / "task.toml")
    gone = subprocess.run([sys.executable, str(root / "eval_harness.py"), "run", "--resume",
        str(folder / "pinned")], capture_output=True, text=True, check=False)
    shutil.move(folder / "task.toml", task)
    demand("tasks.store/refund-mug: there -> nothing" in gone.stderr, gone.stderr)
    yield "a task that has gone"
    (folder / "full").mkdir()
    (folder / "full" / "letter.txt").write_text("dear")
    full = harness("run", "--run-dir", str(folder / "full"))
    demand("not empty" in full.stderr and len([*(folder / "full").iterdir()]) == 1, full.stderr)
    yield "a folder of somebody else's"
    for component, more in (("limits.turns: 40 -> 60", ("--turns", "60")),
            ("samples: 1 -> 2", ("--samples", "2")), ("seed: 0 -> 1", ("--seed", "1")),
            ("temperature: null -> 0.5", ("--temperature", "0.5")),
            ('agent.version: "" -> "v2"', ("--agent-version", "v2"))):
        said = made(*more)
        demand(said.returncode == 2 and component in said.stderr, f"{component}: {said.stderr}")
        yield component
    task.write_text("# a comment\n" + task.read_text("utf-8"), "utf-8")
    shutil.move(folder / "pinned", folder / "moved")
    plain = (*plain[:5], "--run-dir", str(folder / "moved"), *plain[7:])
    demand(made("--jobs", "2").returncode == 0, "a comment, another path, other jobs")
    yield "accepted"


def locked(folder: Path) -> Iterator[str]:
    """Two processes on one directory: the second is refused; a crash blocks nobody; reading goes
    on meanwhile."""
    target = folder / "locked"
    arguments = [sys.executable, HARNESS, "run", "--agent", "oracle,mutants", "--samples", "9",
        "--jobs", "4", "--run-dir", str(target)]
    first = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True)
    time.sleep(3)
    second = harness(*arguments[2:])
    demand(second.returncode == 2 and f"process {first.pid}, started" in second.stderr, "refused")
    merged = harness("merge", str(folder / "early"), str(target))
    demand(merged.returncode == 2 and "is in use by" in merged.stderr, "merged while it is written")
    reading = harness("verify", str(target))
    demand(reading.returncode in (0, 1) and "passed" in reading.stdout, f"reading: {reading}"[:600])
    first.kill()
    first.wait()
    time.sleep(1)
    alive = subprocess.run(["pgrep", "-f", str(target)], capture_output=True, check=False).stdout
    demand(not alive, f"workers that outlive the run: {alive!r}")
    demand(harness("run", "--resume", str(target)).returncode == 0, "after a crash")
    yield "lock"


def environment(folder: Path) -> Iterator[str]:
    """The environment passes Gymnasium's own check, and resets leak nothing."""
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    import eval_harness

    inner = eval_harness.Environment(eval_harness.load_library(ROOT))
    letters = "".join(map(chr, range(32, 127)))

    class Adapter(gymnasium.Env):  # type: ignore[misc,type-arg]
        observation_space = gymnasium.spaces.Text(1 << 20, min_length=0, charset=letters + "\n")
        action_space = gymnasium.spaces.Text(60, min_length=0, charset=letters)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return inner.reset("helpdesk/assign-unowned", seed or 0)

        def step(self, action: str) -> Any:
            return inner.step({"say": action})

    check_env(Adapter(), skip_render_check=True)
    yield "check_env"
    for _ in range(1000):
        inner.reset("helpdesk/assign-unowned")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(1_000_000):
        inner.reset("helpdesk/assign-unowned", seed)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    demand(grown < 512, f"1,000,000 resets: {grown} KiB")
    yield "resets"


def tampered(folder: Path) -> Iterator[str]:
    """What somebody did to a run is said, never passed over, never a traceback."""
    run = whole(folder)
    lines = (run / "attempts-0.jsonl").read_text("ascii").splitlines(keepends=True)
    document = (run / "run.json").read_text("ascii")
    cases: list[tuple[str, str, str, int]] = [  # file, what it becomes, what is said, exit code
        ("attempts-0.jsonl", "".join([*lines, "garbage\n"]), "is no line of evidence", 1),
        ("attempts-0.jsonl", "".join(lines) + '{"attempt":"x', "is torn", 0),
        ("attempts-1.jsonl", "", "", 0), ("attempts-1.jsonl", lines[0], "made again", 0),
        ("attempts-1.jsonl", "".join(lines), "is recorded twice", 1),
        ("attempts-0.jsonl", "".join([*lines[:3], lines[4], lines[3], *lines[5:]]), "moved", 1),
        ("attempts-0.jsonl", "".join(lines[: len(lines) // 2]), "no line of it", 1),
        ("attempts-1.jsonl", lines[0].replace("store/", "shop/"), "is not in the plan", 1),
        ("run.json", "[]", "an object was expected", 2), ("run.json", "{", "is not JSON", 2),
        ("run.json", document.replace('"shard": [', '"shard": [7,'), "shard: found", 2),
        ("run.json", document.replace('"seed": 5', '"seed": 6'), "the header is that of", 1),
        ("inputs/seeds/store/order.json", "[", "the archive is not as it was", 2),
        ("inputs/tasks/store/refund-mug.toml", "# x", "was changed", 2),
        ("grades.jsonl", "{}", "is not what the evidence gives", 1),
    ]
    for number, (name, text, said, code) in enumerate(cases):
        copy = folder / f"copy-{number}"
        shutil.copytree(run, copy)
        (copy / name).unlink(missing_ok=True)
        (copy / name).write_text(text, "ascii")
        done = harness("verify", str(copy))
        printed = done.stdout + done.stderr
        demand(done.returncode == code and said in printed and "Traceback" not in printed,
            f"{name}, {said}: exit {done.returncode}: {printed[-700:]}")
        yield f"{name}: {said or 'accepted'}"


def signed(folder: Path) -> Iterator[str]:
    """A seal that is signed, and one that is not any more."""
    if not shutil.which("ssh-keygen"):
        yield "ssh-keygen is not here: not checked"
        return
    key, signers, run = folder / "key", folder / "signers", whole(folder)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    signers.write_text(f"me@example.org {(folder / 'key.pub').read_text()}")
    demand(harness("seal", str(run), "--sign", str(key)).returncode == 0, "sealed")
    demand(harness("verify", str(run), "--signers", str(signers)).returncode == 0, "signed")
    refused_ = harness("seal", str(run), "--sign", str(folder / "no-key"))
    demand(refused_.returncode == 2 and "no-key" in refused_.stderr, f"{refused_}")
    demand(harness("verify", str(run), "--signers", str(signers)).returncode == 0, "still signed")
    nobody = harness("verify", str(run), "--signers", str(folder / "nobody"))
    demand(nobody.returncode == 2 and "nobody" in nobody.stderr, f"{nobody.stderr}")
    (run / "attempts-9.jsonl").write_text("")
    stray = harness("verify", str(run))
    demand(stray.returncode == 1 and "attempts-9.jsonl: is not under the seal" in stray.stdout,
        stray.stdout[-500:])
    (run / "attempts-9.jsonl").unlink()
    (run / "attempts-0.jsonl").unlink()
    more = harness("run", "--resume", str(run))
    demand(more.returncode == 2 and "is sealed" in more.stderr, more.stderr)
    yield "signed"


CHECKS = (killed_and_resumed, cut_anywhere, full_disk, interrupted, poisoned, spread, refused,
    locked, environment, tampered, signed)


def main() -> int:
    """Run the checks whose names are given (all): one line a failure, and the counts."""
    passed = failed = 0
    for check in CHECKS:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                for case in check(Path(folder)):
                    print(f"ok   {check.__name__}: {case}")
                    passed += 1
            except Failure as error:
                print(f"FAIL {check.__name__}: {error}")
                failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.pop("NO_COLOR", None)
    sys.exit(main())
