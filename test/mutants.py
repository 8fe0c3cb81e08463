"""Mutation sample: change one place of the package, and see whether a test of that module fails.

    python test/mutants.py --out mutants.jsonl

draws 400 mutants of `learning/`, `runs/` and the safety modules of `deploy/` with a fixed seed.
Each runs against the tests of its own module (`TESTS`) that enter the mutated function, fastest
first, up to the first failure, in a copy of the tree. The command writes a line of JSON per
mutant, goes on where it stopped, and ends with the score. `--rerun` tries the survivors of such a
file once more, after new tests were written; `--list` only prints the sample.

Nothing is mutated that no test should pin: docstrings, texts with a space in them (messages and
help), format strings, logging, annotations, decorators, assertions and imports.
"""

from argparse import ArgumentParser, Namespace
import ast
from collections import Counter
from collections.abc import Iterator, Sequence
import compileall
import contextlib
from dataclasses import asdict, dataclass
import importlib
import json
import math
import os
from pathlib import Path
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from types import FrameType
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[1]
LEARNERS = ('learning/test_lpg_ftw.py', 'learning/test_baselines.py')
ADAPTIVE = ('learning/test_adaptive.py',)
DECLARED = 'runs/test_settings.py'
"""Compares every declared setting with the files made from it."""
LOOP = ('runs/test_session.py', 'runs/test_rows.py', 'runs/test_switching.py')
FOLDERS = (
    'runs/test_folder.py',
    'runs/test_session.py',
    'runs/test_nothing_lost.py',
    'runs/test_lifetime_goes_on.py',
    'runs/test_evaluation.py',
)
SAFETY = (
    'deploy/test_safety_pins.py',
    'deploy/test_safety_guard.py',
    'deploy/test_safety_properties.py',
)
ARM = ('deploy/test_kinematics.py', 'deploy/test_safety_pins.py', 'deploy/test_safety_guard.py')
TESTS: dict[str, tuple[str, ...]] = {
    'learning/arrays.py': ('learning/test_returns.py', 'learning/test_values.py', *LEARNERS),
    'learning/config.py': (
        'learning/test_training_config.py',
        'learning/test_trpo.py',
        DECLARED,
    ),
    'learning/knowledge_base.py': ('learning/test_knowledge_base.py', 'learning/test_lpg_ftw.py'),
    'learning/learner.py': (*LEARNERS, 'runs/test_rows.py'),
    'learning/lifetime.py': (*LEARNERS, 'runs/test_rows.py'),
    'learning/local_model.py': ('learning/test_local_model.py', 'learning/test_knowledge_base.py'),
    'learning/lpg_ftw.py': ('learning/test_lpg_ftw.py', 'runs/test_rows.py', DECLARED),
    'learning/moments.py': ('learning/test_moments.py', 'runs/test_normalised_runs.py'),
    'learning/policies.py': (
        'learning/test_policies.py',
        'learning/test_gradients.py',
        'learning/test_lpg_ftw.py',
    ),
    'learning/randomness.py': ('learning/test_randomness.py',),
    'learning/registry.py': ('learning/test_training_config.py', 'domains/test_own_tasks.py'),
    'learning/serialise.py': ('learning/test_solvers.py', *LEARNERS),
    'learning/steps.py': (
        'learning/test_steps.py',
        'learning/test_gradients.py',
        'learning/test_local_model.py',
    ),
    'learning/trpo.py': ('learning/test_trpo.py',),
    'learning/values.py': (
        'learning/test_values.py',
        'learning/test_returns.py',
        'runs/test_rows.py',
    ),
    'learning/adaptive/budget.py': ADAPTIVE,
    'learning/adaptive/columns.py': ADAPTIVE,
    'learning/adaptive/config.py': (*ADAPTIVE, DECLARED),
    'learning/adaptive/guard.py': ADAPTIVE,
    'learning/adaptive/learner.py': (*ADAPTIVE, 'runs/test_probes.py'),
    'learning/adaptive/recognise.py': ADAPTIVE,
    'learning/adaptive/start.py': ADAPTIVE,
    'learning/methods/ewc.py': (
        'learning/test_ewc.py',
        'learning/test_baselines.py',
        DECLARED,
    ),
    'learning/methods/pg_ella.py': (
        'learning/test_pg_ella.py',
        'learning/test_baselines.py',
        DECLARED,
    ),
    'learning/methods/replay.py': (
        'learning/test_replay.py',
        'learning/test_baselines.py',
        DECLARED,
    ),
    'learning/methods/shared_policy.py': ('learning/test_ewc.py', 'learning/test_baselines.py'),
    'learning/methods/stl.py': ('learning/test_baselines.py',),
    'learning/solvers/__init__.py': (
        'learning/test_solvers.py',
        'learning/test_knowledge_base.py',
    ),
    'learning/solvers/direct.py': ('learning/test_solvers.py', 'learning/test_knowledge_base.py'),
    'learning/solvers/forms.py': ('learning/test_solvers.py', 'learning/test_knowledge_base.py'),
    'runs/checkpoints.py': FOLDERS,
    'runs/config.py': ('runs/test_config.py', 'runs/test_session.py'),
    'runs/driver.py': (
        'runs/test_display.py',
        *LOOP,
        'runs/test_evaluation.py',
        'test_api.py',
    ),
    'runs/environment.py': ('runs/test_environment.py', 'test_arithmetic.py'),
    'runs/folder.py': FOLDERS,
    'runs/lifelong.py': (
        'runs/test_stages.py',
        *LOOP,
        'runs/test_probes.py',
        'runs/test_lifetime_goes_on.py',
    ),
    'runs/options.py': ('runs/test_options.py', DECLARED),
    'runs/records.py': ('runs/test_rows.py', 'runs/test_stages.py', 'runs/test_probes.py'),
    'runs/session.py': (*FOLDERS, 'runs/test_continuing.py'),
    'runs/settings.py': (DECLARED, 'runs/test_options.py'),
    'runs/stages.py': ('runs/test_stages.py', 'runs/test_session.py'),
    'runs/storage.py': (
        'runs/test_storage.py',
        'runs/test_folder.py',
        'runs/test_nothing_lost.py',
    ),
    'runs/tracking.py': ('runs/test_tracking.py', 'runs/test_rows.py'),
    'runs/visits.py': ('runs/test_stages.py', *LOOP),
    'deploy/safety/guard.py': SAFETY,
    'deploy/safety/limits.py': (*SAFETY, 'deploy/test_kinematics.py'),
    'deploy/safety/motion.py': SAFETY,
    'deploy/safety/report.py': SAFETY,
    'deploy/safety/watch.py': SAFETY,
    'deploy/arm/kinematics.py': ARM,
    'deploy/arm/sawyer.py': (*ARM, 'deploy/test_deploy_graph_description.py'),
}
"""The tests of each module, those that fail soonest first."""
FOLDERS_MUTATED = ('learning', 'runs', 'deploy/safety')
FLIPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
SWAPPED = {'min': 'max', 'max': 'min', 'minimum': 'maximum', 'maximum': 'minimum'}
SWAPPED |= {'any': 'all', 'all': 'any', 'argmin': 'argmax', 'argmax': 'argmin'}
WORDING = {'help', 'metadata', 'unit', 'description'}
"""Keyword arguments that are texts for people."""
_PAUSE = 0.05
LOADED = (
    'lpgftw_ros',
    'numpy',
    'scipy.linalg',
    'torch',
    'mujoco',
    'gymnasium',
    'mink',
    'hypothesis',
    'rich',
)
"""Slow to import. The package comes first, since it pins the arithmetic, and is then forgotten."""
LOGGERS = {'log', 'logger', 'logging', 'warnings', 'print'}


@dataclass(frozen=True)
class Mutant:
    """One change of one place."""

    id: str
    """Module, function, operator, what stood there, and which of several such places it is."""
    module: str
    function: str
    """Qualified name of the function; empty for what runs when the module is loaded."""
    line: int
    operator: str
    before: str
    after: str
    start: int
    """First byte replaced."""
    end: int


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST | str]]:
    """Return the names of the operators that fit a node, and what each puts in its place."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in FLIPPED:
            yield (
                'compare',
                ast.Compare(node.left, [FLIPPED[type(op)]()], node.comparators),  # type: ignore
            )
        case ast.BinOp(op=op) if type(op) in FLIPPED:
            yield 'arithmetic', ast.BinOp(node.left, FLIPPED[type(op)](), node.right)  # type: ignore
        case ast.AugAssign(op=op) if type(op) in FLIPPED:
            yield 'augmented', ast.AugAssign(node.target, FLIPPED[type(op)](), node.value)  # type: ignore
        case ast.BoolOp(op=op):
            yield 'logic', ast.BoolOp(FLIPPED[type(op)](), node.values)  # type: ignore
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield 'unary', node.operand
        case ast.Constant(value=bool() as value):
            yield 'boolean', ast.Constant(not value)
        case ast.Constant(value=int() | float() as number):
            yield 'number', ast.Constant(number + 1)
        case ast.Constant(value=str() as text) if ' ' not in text:
            yield 'text', ast.Constant(f'XX{text}')
        case ast.Name(id=name) if name in SWAPPED and isinstance(node.ctx, ast.Load):
            yield 'swap', SWAPPED[name]
        case ast.Call(func=ast.Attribute(attr=name) as f) if name in SWAPPED:
            new = ast.Attribute(f.value, SWAPPED[name], ast.Load())
            yield 'swap', ast.Call(new, node.args, node.keywords)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield 'condition', ast.UnaryOp(ast.Not(), test)
        case ast.Return(value=ast.expr()):
            yield 'result', 'return None'
        case ast.Expr(value=ast.Call()):
            yield 'call', 'pass'
        case ast.Break():
            yield 'jump', 'continue'
        case ast.Continue():
            yield 'jump', 'break'


def is_left_alone(node: ast.AST) -> bool:
    """Return whether a node and all below it are wording, types or our own invariants."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.JoinedStr() | ast.Assert() | ast.Raise():
            return True
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id='__all__')]):
            return True
        case ast.keyword(arg=name) if name in WORDING:
            return True
        case (
            ast.Call(func=ast.Name(id=name))
            | ast.Call(func=ast.Attribute(value=ast.Name(id=name)))
        ) if name in LOGGERS:
            return True
        case ast.Expr(value=value):
            return is_left_alone(value)
    return False


def children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Return the parts of a node that are run: no annotations, decorators and bases."""
    for name, value in ast.iter_fields(node):
        if name in ('annotation', 'returns', 'decorator_list', 'bases', 'type_params', 'ctx'):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield name, item


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """Return every mutant of a module, in the order of its text."""
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: Counter[str] = Counter()

    def visit(node: ast.AST, place: str, function: str) -> Iterator[Mutant]:
        if is_left_alone(node):
            return
        for operator, new in changes(node):
            what: Any = node.test if operator == 'condition' else node  # type: ignore[attr-defined]
            start = starts[what.lineno - 1] + what.col_offset
            end = starts[what.end_lineno - 1] + what.end_col_offset
            before = data[start:end].decode()
            after = new if isinstance(new, str) else ast.unparse(ast.fix_missing_locations(new))
            if isinstance(new, ast.expr) and not isinstance(new, ast.Constant | ast.Call):
                after = f'({after})'
            key = f'{module}:{place}:{operator}:{before}'
            seen[key] += 1
            name = f'{key}:{seen[key]}'
            yield Mutant(name, module, function, what.lineno, operator, before, after, start, end)
        inner = place
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f'{place}.{node.name}' if place else node.name
        for name, child in children(node):
            runs = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name == 'body'
            # functions within functions count as the outer one
            yield from visit(child, inner, (function or inner) if runs else function)

    yield from visit(ast.parse(source), '', '')


def all_mutants(root: Path) -> list[Mutant]:
    """Return every mutant of every module of `TESTS`, which must name all that is mutated."""
    package = root / 'lpgftw_ros'
    found = [p for folder in FOLDERS_MUTATED for p in (package / folder).rglob('*.py')]
    known = {package / module for module in TESTS}
    if missing := {p for p in found if p not in known and p.name != '__init__.py'}:
        raise SystemExit(f'no tests are named for {", ".join(map(str, sorted(missing)))}')
    return [
        mutant
        for module in TESTS
        for mutant in mutants_of(module, (root / 'lpgftw_ros' / module).read_text('utf-8'))
    ]


class Recorder:
    """A pytest plugin: which functions of the package each test enters, and what it costs."""

    def __init__(self, package: Path, out: Path) -> None:
        self._package, self._out = f'{package}/', out
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_sessionfinish(self) -> None:
        """Write what was found; this runs in a fork."""
        self._out.write_text(json.dumps(self.tests), encoding='utf-8')

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run one test, its fixtures included, and write down where it went."""
        found: set[str] = set()

        def watch(frame: FrameType, event: str, argument: object) -> None:
            code = frame.f_code
            if event == 'call' and code.co_filename.startswith(self._package):
                name = code.co_qualname.split('.<locals>')[0]
                found.add(f'{code.co_filename.removeprefix(self._package)}:{name}')

        began = time.process_time()
        sys.setprofile(watch)
        threading.setprofile(watch)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            seconds = time.process_time() - began
            self.tests[item.nodeid] = {'seconds': seconds, 'functions': sorted(found)}


class Bench:
    """A copy of the tree in which one mutant at a time is tried.

    Each try is a fork of this process, which has loaded what the tests need but the package.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder, self._output = folder, folder / 'output'
        listed = subprocess.run(
            ['git', 'ls-files', '-co', '--exclude-standard'],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in listed.stdout.splitlines():
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name)
        compileall.compile_dir(str(folder / 'lpgftw_ros'), quiet=2)

    def pytest(self, arguments: Sequence[str], limit: float, plugins: Sequence[Any] = ()) -> int:
        """Run pytest in a fork; return its exit code, or -signal if it took too long.

        The limit is in seconds of processor time, so other work on the machine decides nothing. A
        process that only waits is ended after twenty times as long.
        """
        process = os.fork()
        if not process:
            self._become_pytest(arguments, limit, plugins)
        waited = 0.0
        while True:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(_PAUSE)
            waited += _PAUSE
            if waited > 20.0 * limit:
                end_family(process)

    def _become_pytest(self, arguments: Sequence[str], limit: float, plugins: Any) -> NoReturn:
        code = 99
        try:
            seconds = math.ceil(time.process_time() + limit)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            with self._output.open('wb') as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            (self.folder / 'tmp').mkdir(exist_ok=True)
            tempfile.tempdir = str(self.folder / 'tmp')
            os.environ |= {'PYTHONPATH': str(self.folder), 'TMPDIR': str(self.folder / 'tmp')}
            os.environ |= {'PYTHONDONTWRITEBYTECODE': '1', 'LPGFTW_SEQUENCES': '100'}
            sys.dont_write_bytecode = True
            sys.path.insert(0, str(self.folder))
            os.chdir(self.folder)
            options = ['-x', '-q', '--tb=line', '-p', 'no:cacheprovider', '--hypothesis-seed=0']
            options += ['-o', 'timeout=0']
            code = int(pytest.main([*options, *arguments], plugins=list(plugins)))
            sys.stdout.flush()
        finally:
            os._exit(code)

    def record(self, path: Path) -> dict[str, Any]:
        """Return what every test of `TESTS` enters and costs on the unchanged code.

        Each file is written to `path` as it is done, so that this can be interrupted too.
        """
        done: dict[str, Any] = json.loads(path.read_text('utf-8')) if path.exists() else {}
        files = {f'test/unit/{test}' for tests in TESTS.values() for test in tests}
        kept = self.folder / 'recorded.json'
        for file in sorted(files - {test.partition('::')[0] for test in done}):
            recorder = Recorder(self.folder / 'lpgftw_ros', kept)
            if self.pytest([file], 3600.0, [recorder]) != 0:
                raise SystemExit(f'the unchanged code fails:\n{self._output.read_text()[-2000:]}')
            done |= json.loads(kept.read_text('utf-8'))
            path.write_text(json.dumps(done), encoding='utf-8')
            print(f'recorded {file}', flush=True)
        return done

    def attempt(self, mutant: Mutant, recorded: dict[str, Any]) -> dict[str, Any]:
        """Try one mutant and put its module back."""
        tests = tests_of(mutant, recorded)
        row = {**asdict(mutant), 'tests': len(tests), 'outcome': 'survived', 'by': ''}
        if not tests:
            return row
        path = self.folder / 'lpgftw_ros' / mutant.module
        kept, times = path.read_bytes(), path.stat()
        new = kept[: mutant.start] + mutant.after.encode() + kept[mutant.end :]
        compile(new, mutant.module, 'exec')
        path.write_bytes(new)
        try:
            limit = 3.0 * sum(recorded[test]['seconds'] for test in tests)
            code = self.pytest(tests, 10.0 + limit)
        finally:
            path.write_bytes(kept)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            shutil.rmtree(self.folder / 'tmp', ignore_errors=True)
        text = self._output.read_text(encoding='utf-8', errors='replace')
        failed = [line for line in text.splitlines() if line.startswith(('FAILED', 'ERROR'))]
        if code < 0:
            row |= {'outcome': 'timeout', 'by': signal.Signals(-code).name}
        elif code:
            row |= {'outcome': 'killed', 'by': failed[0] if failed else text[-300:]}
        return row


def tests_of(mutant: Mutant, recorded: dict[str, Any]) -> list[str]:
    """Return the tests of a mutant's module that enter its function, fastest first."""
    files = tuple(f'test/unit/{test}::' for test in TESTS[mutant.module])
    place = f'{mutant.module}:{mutant.function}'
    found = [
        test
        for test, what in recorded.items()
        if test.startswith(files) and (not mutant.function or place in what['functions'])
    ]
    return sorted(found, key=lambda test: recorded[test]['seconds'])


def end_family(process: int) -> None:
    """Kill a process and all it started."""
    for path in Path('/proc').glob('[0-9]*/stat'):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(')')[2].split()[1]) == process:
                end_family(int(path.parent.name))
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def chosen(options: Namespace) -> list[Mutant]:
    """Return the mutants to try."""
    population = all_mutants(ROOT)
    if options.rerun:
        rows = read_rows(options.rerun)
        wanted = {name for name, row in rows.items() if row['outcome'] == 'survived'}
        return [mutant for mutant in population if mutant.id in wanted]
    sample = random.Random(options.seed).sample(population, options.sample)
    print(f'{options.sample} of {len(population)} mutants in {len(TESTS)} modules', flush=True)
    return sample


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Return what was found out so far, by mutant."""
    lines = path.read_text('utf-8').splitlines() if path.exists() else []
    return {row['id']: row for row in map(json.loads, lines)}


def summary(rows: list[dict[str, Any]]) -> str:
    """Return the score, in all and by folder."""
    lines = []
    for folder in ('', 'learning', 'runs', 'deploy'):
        counts = Counter(r['outcome'] for r in rows if r['module'].startswith(folder))
        if total := counts.total():
            caught = total - counts['survived']
            lines.append(
                f'{folder or "all":9} {caught} of {total} ({caught / total:.1%}), '
                f'{counts["timeout"]} of them by the time limit'
            )
    return '\n'.join(lines)


def main() -> None:
    """Draw, try, write down."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument('--out', type=Path, default=Path('mutants.jsonl'))
    parser.add_argument('--sample', type=int, default=400)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument(
        '--recorded',
        type=Path,
        default=Path('mutants-tests.json'),
        help='which tests enter which function; made anew if it is not there',
    )
    parser.add_argument('--rerun', type=Path, help='try the survivors of this file')
    parser.add_argument('--list', action='store_true')
    options = parser.parse_args()
    sample = chosen(options)
    if options.list:
        for mutant in sample:
            print(f'{mutant.module}:{mutant.line} {mutant.before!r} -> {mutant.after!r}')
        return
    todo = [mutant for mutant in sample if mutant.id not in read_rows(options.out)]
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault('MUJOCO_GL', 'egl')
    for module in LOADED:
        importlib.import_module(module)
    for module in [name for name in sys.modules if name.startswith('lpgftw_ros')]:
        del sys.modules[module]
    with tempfile.TemporaryDirectory(prefix='mutants-') as folder:
        bench = Bench(ROOT, Path(folder) / 'tree')
        recorded = bench.record(options.recorded)
        for mutant in todo:
            began = time.monotonic()
            row = bench.attempt(mutant, recorded)
            with options.out.open('a', encoding='utf-8') as file:
                file.write(json.dumps(row) + '\n')
            print(
                f'{row["outcome"]:8} {time.monotonic() - began:5.1f} s {row["tests"]:3} tests '
                f'{mutant.module}:{mutant.line} {mutant.before!r} -> {mutant.after!r}',
                flush=True,
            )
    done = read_rows(options.out)
    rows = [done[mutant.id] for mutant in sample]
    for row in rows:
        if row['outcome'] == 'survived':
            print(f'survived {row["module"]}:{row["line"]} {row["before"]!r} -> {row["after"]!r}')
    print(summary(rows))


if __name__ == '__main__':
    main()
