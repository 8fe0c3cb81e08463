"""One run: the lifelong loop, its learner and its folder, tied together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
import hashlib
import logging
from pathlib import Path
import time
from types import TracebackType
from typing import Any

from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.errors import InvalidConfig, StateMismatch
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.learner import Learner
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec
from lpgftw_ros.learning.randomness import derive_seed, Purpose
from lpgftw_ros.learning.registry import make_learner
from lpgftw_ros.learning.serialise import AnyArray
from lpgftw_ros.runs.checkpoints import CheckpointStore, read_shared, SHARED, write_knowledge
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.environment import fingerprint_differences, library_fingerprint, versions
from lpgftw_ros.runs.folder import CONFIG, require_unchanged, RunFolder
from lpgftw_ros.runs.lifelong import Lifelong
from lpgftw_ros.runs.records import count_parameters, summary
from lpgftw_ros.runs.visits import Done, Evaluate, Idle, Request

log = logging.getLogger(__name__)
PHASES = ('sampling', 'policy', 'value', 'knowledge', 'evaluation')


class Session:
    """A run that survives a kill: everything finished is on disk.

    Drivers call `next_request`, `background` (during sampling) and `feed`.
    """

    def __init__(
        self,
        config: RunConfig,
        out: Path,
        *,
        spec: PolicySpec,
        resume: bool = False,
        source: Mapping[str, PolicySnapshot] | None = None,
        knowledge: Path | None = None,
        on_row: Callable[[dict[str, Any]], None] = lambda row: None,
    ) -> None:
        """Open the run folder and load the newest whole checkpoint if there is one."""
        self.spec = spec
        seed = derive_seed(config.loop.seed, Purpose.POLICY_INIT)
        self.learner: Learner = make_learner(
            config.method_name, spec, config.method, seed=seed, source=source
        )
        taken = None if knowledge is None else _Taken.read(knowledge)
        begun = (out / CONFIG).exists()
        if taken is not None and not begun:
            self.learner.adopt(taken.shared)  # may refuse: then nothing is written
        self.folder = RunFolder(
            out, config, resume=resume, knowledge=taken.digest if taken else ''
        )
        self.config = self.folder.config
        self.resumed = False
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._started = time.monotonic()
        self._earlier = 0.0
        self.last_row: dict[str, Any] | None = None
        self.last_rows: dict[int, dict[str, Any]] = {}
        """Visit -> its last row since this process began."""
        self._on_row = on_row
        self._told: set[tuple[int, str]] = set()
        self._physics: dict[str, str] = {}
        self._unwritten: list[dict[str, Any]] = []
        """Rows that wait for their checkpoint."""
        try:
            suite = load_suite(self.config.suite_source)
            fixed = {task.name: task.deterministic_resets for task in suite.tasks}
            self.lifelong = Lifelong(config, self.learner, fixed)
            self.store = CheckpointStore(self.folder.checkpoints, self.folder.identity)
            self._take_up(taken, begun)
        except BaseException:
            self.folder.close()
            raise

    def _take_up(self, taken: '_Taken | None', begun: bool) -> None:
        found, began_from = self.store.load(self.learner), self.folder.knowledge
        if taken is not None and began_from and taken.digest != began_from:
            raise InvalidConfig(
                'this run began from other knowledge; leave --knowledge as it was, or choose '
                'another out'
            )
        if found is None:
            if taken is None and began_from:
                raise InvalidConfig(
                    'this run was ended before it had taken up its knowledge; add --knowledge '
                    'with the same file again'
                )
            self.folder.open_metrics(None)
            if taken is not None and begun:
                self.learner.adopt(taken.shared)
            self.store.save_base(self.learner)
            if taken is not None:
                self._adopted(taken)
        else:
            require_unchanged(found.base.get('decided_by', {}), self.store.run)
            info = found.info
            self.folder.open_metrics(info.get('metrics') or {'size': info['metrics_size']})
            self.store.settle()
            self.lifelong.restore(info['progress'])
            self._tell_scores(silently=True)
            self.seconds |= info['seconds']
            self._earlier = info['wall']
            self.resumed = True
        self._note_fingerprint()
        self.write_summary()

    # -- driving -------------------------------------------------------------------------

    def next_request(self) -> Request | Idle | Done:
        """Return what to sample next."""
        return self.lifelong.next_request()

    def policy(self, request: Request) -> PolicySnapshot:
        """Return the policy to sample it with."""
        return self.lifelong.policy(request)

    def background(self) -> None:
        """Do the work that may overlap with sampling, and save it."""
        self.lifelong.run_background()
        self.save()

    def feed(self, batch: Batch, sampling_seconds: float) -> None:
        """Learn from the trajectories of the last request, and save what is finished."""
        phase = 'evaluation' if isinstance(self.next_request(), Evaluate) else 'sampling'
        self.seconds[phase] += sampling_seconds
        self.lifelong.feed(batch, sampling_seconds)
        self.save()

    def finish(self) -> None:
        """Write the final summary and release the folder."""
        self.save()
        self.write_summary()
        self.folder.close()

    def export_knowledge(self, path: Path) -> None:
        """Write everything learned to one file; `import_knowledge` reads it."""
        state, root = self.learner.state(SHARED), self.lifelong.probe_root
        write_knowledge(path, state, self.folder.identity, root)

    def import_knowledge(self, path: Path) -> None:
        """Replace everything learned by that of a file or run folder; no task may be running."""
        taken = _Taken.read(path)
        self.learner.adopt(taken.shared)
        self._adopted(taken)

    def _adopted(self, taken: '_Taken') -> None:
        root = self.config.loop.seed if taken.probe_root is None else taken.probe_root
        self.lifelong.forget_progress(root)
        self.save()

    # -- writing -------------------------------------------------------------------------

    def save(self) -> None:
        """Write everything that is finished and not on disk yet.

        Data are dropped from memory only after they are written. After a failed write the state on
        disk is the last complete one, and the next call writes all that is missing.
        """
        for row in self.lifelong.take_rows():
            self._note_row(row)
        iteration_done, base_changed = self.lifelong.changes
        if iteration_done or base_changed:
            metrics = self.folder.append_metrics(self._unwritten)
            if base_changed:
                self.store.save_base(self.learner)
            info = {
                'progress': self.lifelong.progress(),
                'metrics': metrics.noted(),
                'seconds': self.seconds,
                'wall': self.wall,
            }
            self.store.save_iteration(self.learner, info)
            self.folder.accept_metrics(metrics)
            self._unwritten.clear()
            self.lifelong.forget_changes()
        self.write_summary()
        self._tell_scores()

    def _tell_scores(self, *, silently: bool = False) -> None:
        """Show every score of an evaluation once, as a row that is not saved."""
        for visit in self.lifelong.visits:
            for stage, score in visit.scores.items():
                if (visit.number, stage) in self._told:
                    continue
                self._told.add((visit.number, stage))
                if not silently:
                    where = {'visit': visit.number, 'task': visit.task, 'stage': stage}
                    self._on_row({'kind': 'score', **where, **score})

    def _note_row(self, row: dict[str, Any]) -> None:
        """Take a complete row: it is shown at once and written with the next checkpoint."""
        row['timing']['wall'] = round(self.wall, 3)
        for phase in ('policy', 'value', 'knowledge'):
            self.seconds[phase] += row['timing'][phase]
        self.last_row = self.last_rows[row['visit']] = row
        self._unwritten.append(row)
        self._on_row(row)

    @property
    def wall(self) -> float:
        """Seconds this run has taken, including those before a resume."""
        return self._earlier + time.monotonic() - self._started

    def write_summary(self) -> None:
        """Replace summary.json."""
        content = summary(
            self.config,
            self.lifelong.visits,
            finished=self.lifelong.complete,
            steps=self.lifelong.total_steps,
            parameters=count_parameters(self.learner.knowledge()),
            seconds={**self.seconds, 'wall': self.wall},
            versions=versions(),
        )
        self.folder.write_json('summary.json', content)

    def _note_fingerprint(self) -> None:
        saved = self.folder.read_json('fingerprint.json')
        now = library_fingerprint()
        for difference in fingerprint_differences(saved, now):
            log.warning('this run was made under another environment: %s', difference)
        if not saved:
            self.folder.write_json('fingerprint.json', {**now, 'physics': {}})

    def note_physics(self, task: str, digest: str) -> None:
        """Record the physics a task was learned under; warn if it is different now."""
        if self._physics.get(task) == digest:
            return
        self._physics[task] = digest
        saved = self.folder.read_json('fingerprint.json')
        before = saved.setdefault('physics', {}).setdefault(task, digest)
        if before != digest:
            log.warning(
                'task %s was learned under other physics (%s, now %s)', task, before, digest
            )
        self.folder.write_json('fingerprint.json', saved)

    def __enter__(self) -> 'Session':
        """Return the open session."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the folder; what was finished is already on disk."""
        self.folder.close()


@dataclass(frozen=True, slots=True)
class _Taken:
    """Knowledge of another lifetime."""

    shared: dict[str, AnyArray]
    probe_root: int | None
    digest: str

    @classmethod
    def read(cls, path: Path) -> '_Taken':
        """Read a knowledge file or a run folder; one without a finished task is refused."""
        shared, noted = read_shared(path)
        if not bytes(shared['base/finished']).strip():
            raise StateMismatch(f'{path} has no knowledge yet: none of its tasks is finished')
        digest = hashlib.sha256()
        for name in sorted(shared):
            digest.update(name.encode() + shared[name].tobytes())
        return cls(shared, noted.get('probe_root'), digest.hexdigest()[:16])
