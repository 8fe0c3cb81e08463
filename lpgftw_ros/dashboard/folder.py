"""A run folder as the source of a page: live or finished, without ROS.

Everything is read from the files of the run; the scene is a replay of its policies.
"""

from collections.abc import Iterator, Mapping, Sequence
import gzip
import json
from pathlib import Path
import threading
import time
from typing import Any

import numpy as np

from lpgftw_ros.dashboard import (
    Answer,
    Curve,
    KnowledgeView,
    NAN,
    Progress,
    SceneFrame,
    Snapshot,
    TaskLine,
)
from lpgftw_ros.domains.rollout import Rollout
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.suites import endless_tasks
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.experiments.run_data import read_coefficients
from lpgftw_ros.learning.arrays import Integers
from lpgftw_ros.runs.checkpoints import load_knowledge, NEWEST
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.folder import CONFIG, METRICS, read_config, read_summary
from lpgftw_ros.runs.stages import FINAL, TUNE, UPDATE
from lpgftw_ros.runs.visits import evaluation_seed

_RECENT = 20
"""Iterations from which the time left is estimated."""
_KNOWLEDGE_PERIOD = 2.0  # s between two readings of a checkpoint that changes
_PICTURE_PERIOD = 0.25  # s
_PAUSE = 1.0  # s between two episodes of a replay


class FolderSource:
    """Reads a run folder, again whenever its files have changed."""

    actions: tuple[str, ...] = ()
    replays = True

    def __init__(self, run: Path, alone: Path | None = None) -> None:
        """Open a run folder; `alone` is a single-task run of the same tasks, if not next to it."""
        self.run = run
        self.config = read_config(run)
        self._metrics = Metrics(run)
        self._endless = endless_tasks(self.config.suite_source)
        found = alone if alone is not None else find_alone(run, self.config)
        self._alone = () if found is None else curves(Metrics(found).rows(), self.has_success)
        self._replayer = Replayer(run, self.config)
        self._knowledge: KnowledgeView | None = None
        self._knowledge_key: tuple[Any, ...] = ()
        self._knowledge_read = 0.0

    def has_success(self, task: str) -> bool:
        """Return whether a task of this run has a success criterion."""
        return task not in self._endless

    def snapshot(self) -> Snapshot:
        """Return the current state of the run."""
        problems = []
        try:
            summary: dict[str, Any] = read_summary(self.run)
        except LpgftwError as error:
            summary, problems = {}, [str(error)]
        rows = self._metrics.rows()
        try:
            knowledge = self._read_knowledge(rows)
        except LpgftwError as error:
            knowledge, problems = self._knowledge, [*problems, str(error)]
        return Snapshot(
            title=str(self.run),
            progress=progress(self.config, summary, rows, alive=_is_written(self.run)),
            curves=curves(rows, self.has_success),
            alone=self._alone,
            tasks=task_lines(self.config, summary, rows, self.has_success),
            knowledge=knowledge,
            problems=tuple(problems),
            still=self._replayer.problem,
        )

    def _read_knowledge(self, rows: Sequence[Mapping[str, Any]]) -> KnowledgeView | None:
        """Return the knowledge, read again if the checkpoint has changed."""
        newest = self.run / 'checkpoints' / NEWEST
        key = (newest.stat().st_mtime_ns if newest.is_file() else 0, len(rows))
        due = time.monotonic() - self._knowledge_read > _KNOWLEDGE_PERIOD
        if key != self._knowledge_key and due:
            self._knowledge_read = time.monotonic()
            self._knowledge = knowledge_view(self.run, rows)
            self._knowledge_key = key
        return self._knowledge

    def frame(self) -> SceneFrame | None:
        """Return where the replay is."""
        return self._replayer.frame

    def picture(self) -> Integers | None:
        """Return a picture of the replay, if there is no model."""
        return self._replayer.picture

    def watch_scene(self, watched: bool) -> None:
        """Replay only while a browser is open."""
        self._replayer.watched.set() if watched else self._replayer.watched.clear()

    def replay(self, task: str, speed: float) -> None:
        """Replay another task at another speed."""
        self._replayer.choose(task, speed)

    def act(self, action: str, task: str) -> Answer:
        """Refuse: a folder has nothing to steer."""
        return Answer(False, 'a run folder can only be watched')

    def close(self) -> None:
        """End the replay."""
        self._replayer.close()


class Metrics:
    """The rows of metrics.jsonl, read on from where the last reading ended."""

    def __init__(self, run: Path) -> None:
        self._plain, self._packed = run / METRICS, run / f'{METRICS}.gz'
        self._rows: list[dict[str, Any]] = []
        self._end = 0

    def rows(self) -> list[dict[str, Any]]:
        """Return all complete rows; a line that is still being written is left out."""
        try:
            if self._plain.is_file():
                self._read_on()
            elif not self._rows and self._packed.is_file():
                self._rows = list(_parsed(gzip.decompress(self._packed.read_bytes())))
        except (OSError, EOFError):
            pass  # it is there again at the next look, or the summary says what is wrong
        return self._rows

    def _read_on(self) -> None:
        size = self._plain.stat().st_size
        if size < self._end:  # a resumed run has cut off what it repeats
            self._rows, self._end = [], 0
        if size > self._end:
            with self._plain.open('rb') as file:
                file.seek(self._end)
                content = file.read(size - self._end)
            whole = content[: content.rfind(b'\n') + 1]
            self._end += len(whole)
            self._rows = [*self._rows, *_parsed(whole)]


def _parsed(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and {'kind', 'visit', 'task', 'iteration'} <= row.keys():
            yield row


def curves(rows: Sequence[Mapping[str, Any]], has_success: Any) -> tuple[Curve, ...]:
    """Return the curve of every visit, in order."""
    visits: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row['kind'] == 'iteration':
            visits.setdefault(int(row['visit']), []).append(row)
    return tuple(
        Curve(
            task=str(found[0]['task']),
            visit=visit,
            returns=np.array([_number(row.get('return_mean')) for row in found]),
            success=np.array([_number(row.get('success')) for row in found])
            if has_success(str(found[0]['task']))
            else np.full(len(found), NAN),
        )
        for visit, found in visits.items()
    )


def progress(
    config: RunConfig,
    summary: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    *,
    alive: bool | None,
) -> Progress:
    """Return the progress of a run; the last iterations give the time left.

    Only iterations count: probes may concern other tasks than the one that is learned.
    """
    state = str(summary.get('state', 'running'))
    if state == 'running' and alive is False:
        state = 'interrupted'
    entries = list(summary.get('tasks') or ())
    rows = [row for row in rows if row['kind'] == 'iteration']
    last = rows[-1] if rows else {}
    running = next((e for e in reversed(entries) if e.get('state') == 'running'), None)
    learned = running or (entries[-1] if entries else {})
    took = [int(e.get('iterations') or 0) for e in entries if e is not running]
    usual = _usual(took, config.loop.iterations)
    ahead = usual - int(running['iterations'] or 0) if running else 0
    waiting = max(0, len(config.tasks) - len(entries))
    per_iteration = _seconds_per_iteration(rows)
    over, late = state != 'running', ahead < 0  # late: nobody knows how long
    sampling = _number((last.get('timing') or {}).get('sampling'))
    return Progress(
        suite=Path(config.suite).stem,
        learner=config.learner,
        task=str(learned.get('task', config.tasks[0] if config.tasks else '')),
        state=state,
        message='',
        visit=float(last['visit']) if last else 0.0,
        visits=float(max(len(config.tasks), len(entries))),
        iteration=float(learned.get('iterations') or 0),
        iterations=float(config.loop.iterations if running else learned.get('iterations') or 0),
        total_steps=_number(summary.get('steps')),
        steps_per_second=_number(last.get('steps')) / sampling if sampling > 0.0 else NAN,
        wall_seconds=_number((summary.get('seconds') or {}).get('wall')),
        task_seconds_left=NAN if over or late else per_iteration * ahead,
        run_seconds_left=NAN if over or late else per_iteration * (ahead + waiting * usual),
    )


def _usual(took: Sequence[int], asked: int) -> int:
    """Return the iterations a task probably takes: the median of those after the first one.

    The first may be drawn several times; later ones may end early.
    """
    return int(np.median(took[1:])) if len(took) > 1 else asked


def _seconds_per_iteration(rows: Sequence[Mapping[str, Any]]) -> float:
    walls = [_number((row.get('timing') or {}).get('wall')) for row in rows[-_RECENT:]]
    known = [wall for wall in walls if np.isfinite(wall)]
    return (known[-1] - known[0]) / (len(known) - 1) if len(known) > 1 else NAN


def task_lines(
    config: RunConfig,
    summary: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    has_success: Any,
) -> tuple[TaskLine, ...]:
    """Return the state of every task of the sequence."""
    newest = {str(entry['task']): entry for entry in summary.get('tasks') or ()}
    last = {str(row['task']): row for row in rows if row['kind'] == 'iteration'}
    return tuple(
        _task_line(task, newest.get(task), last.get(task), config, has_success(task))
        for task in dict.fromkeys((*config.tasks, *newest))
    )


def _task_line(
    task: str,
    entry: Mapping[str, Any] | None,
    row: Mapping[str, Any] | None,
    config: RunConfig,
    has_success: bool,
) -> TaskLine:
    if entry is None:
        return TaskLine(task, 'new', iterations=config.loop.iterations)
    now: Mapping[str, Any] = entry.get(FINAL) or entry.get(UPDATE) or {}
    if not now and row is not None:
        now = {'return': row.get('return_mean'), 'success': row.get('success')}
    tuned = entry.get(TUNE) or {}
    return TaskLine(
        task=task,
        state=str(entry.get('state', 'finished')),
        has_policy=True,
        iteration=int(entry.get('iterations') or 0),
        iterations=config.loop.iterations,
        return_now=_number(now.get('return')),
        success_now=_number(now.get('success')) if has_success else NAN,
        return_tuned=_number(tuned.get('return')),
        success_tuned=_number(tuned.get('success')) if has_success else NAN,
    )


def knowledge_view(run: Path, rows: Sequence[Mapping[str, Any]]) -> KnowledgeView | None:
    """Return the knowledge of a run; of an archived one only S and the growth."""
    grown = growth(rows)
    if (run / 'checkpoints' / NEWEST).is_file():
        return KnowledgeView.of(load_knowledge(run), grown)
    found = read_coefficients(run)
    if found is None:
        return None
    return KnowledgeView(len(grown), found.tasks, found.values, np.zeros((0, 0)), grown)


def growth(rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, int], ...]:
    """Return each task that was folded in, and the columns of L after it."""
    updates = (row for row in rows if row['kind'] == 'update')
    return tuple((str(row['task']), int(row.get('columns') or 0)) for row in updates)


def find_alone(run: Path, config: RunConfig) -> Path | None:
    """Return the single-task run of the same suite and seed next to a run, if any."""
    if config.learner == 'stl':
        return None
    here = run.resolve()
    for path in (here.parent / 'stl', here.parent.parent / 'stl' / here.name):
        if (path / CONFIG).is_file():
            try:
                other = read_config(path)
            except LpgftwError:
                continue
            if (other.suite, other.loop.seed) == (config.suite, config.loop.seed):
                return path
    return None


def _is_written(run: Path) -> bool | None:
    """Return whether a process holds the folder's lock; None if this cannot be known."""
    try:
        inode = (run / '.lock').stat().st_ino
        locks = Path('/proc/locks').read_text()
    except OSError:
        return None
    return any(line.split()[5].endswith(f':{inode}') for line in locks.splitlines() if line)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else NAN


class Replayer:
    """Replays a policy of a run folder in a thread while a browser is open."""

    def __init__(self, run: Path, config: RunConfig) -> None:
        self._run, self._config = run, config
        self._task, self._speed = '', 1.0
        self._changed, self._over = threading.Event(), threading.Event()
        self.watched = threading.Event()
        self.frame: SceneFrame | None = None
        self.picture: Integers | None = None
        self.problem = ''
        self._thread = threading.Thread(target=self._live, name='replay', daemon=True)
        self._thread.start()

    def choose(self, task: str, speed: float) -> None:
        """Replay this task (empty: the newest) `speed` times real time (0: as fast as it runs)."""
        if task != self._task:
            self._changed.set()
        self._task, self._speed = task, speed

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self.watched.set()
        self._thread.join(5.0)

    def _live(self) -> None:
        sampler: Sampler | None = None
        while not self._over.is_set():
            if not self.watched.wait(1.0):
                continue
            try:
                if sampler is None:
                    sampler = Sampler(self._config.suite_source, 1)
                self._changed.clear()
                self._episode(sampler)
                self.problem = ''
            except LpgftwError as error:
                self.problem, self.frame, self.picture = f'no replay: {error}', None, None
                self._changed.wait(3.0)
            self._changed.wait(_PAUSE)
        if sampler is not None:
            sampler.close()

    def _episode(self, sampler: Sampler) -> None:
        """Run one episode of the newest policy of the chosen task."""
        if not (self._run / 'checkpoints').is_dir():
            raise LpgftwError('this copy of the run has no checkpoints')
        knowledge = load_knowledge(self._run)
        task = self._task or (list(knowledge.tasks)[-1] if knowledge.tasks else '')
        if not task:
            raise LpgftwError('no task has a policy yet')
        policy, env = knowledge.policy(task), sampler.env(task, 1)
        rollout = Rollout(env, 1, evaluation_seed(self._config.loop.seed, task), task)
        started, pictured = time.monotonic(), 0.0
        while not rollout.done and not self._stop():
            state = env.scene_state(0)
            if state is not None:
                self.frame, self.picture = SceneFrame(self._config.suite_source, task, state), None
            elif time.monotonic() - pictured > _PICTURE_PERIOD:
                pictured = time.monotonic()
                self.frame, self.picture = None, env.render_frame(0)
            rollout.advance(policy.act(rollout.observations))
            if self._speed > 0.0:
                due = started + rollout.step * env.control_period / self._speed
                self._over.wait(max(0.0, due - time.monotonic()))

    def _stop(self) -> bool:
        return self._over.is_set() or self._changed.is_set() or not self.watched.is_set()
