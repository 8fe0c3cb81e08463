"""One run: the lifelong loop, its learner and its folder, tied together."""

from collections.abc import Callable, Mapping
import logging
from pathlib import Path
import time
from types import TracebackType
from typing import Any

from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.learner import Learner
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec
from lpgftw_ros.learning.randomness import derive_seed, Purpose
from lpgftw_ros.learning.registry import make_learner
from lpgftw_ros.runs.checkpoints import CheckpointStore, learner_part
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.environment import fingerprint_differences, library_fingerprint, versions
from lpgftw_ros.runs.folder import RunFolder
from lpgftw_ros.runs.knowledge_files import knowledge_arrays, knowledge_info
from lpgftw_ros.runs.lifelong import Lifelong
from lpgftw_ros.runs.records import count_parameters, summary
from lpgftw_ros.runs.requests import Done, Evaluate, Idle, Request
from lpgftw_ros.runs.storage import read_arrays, write_arrays

log = logging.getLogger(__name__)
PHASES = ('sampling', 'policy', 'value', 'knowledge', 'evaluation')


class Session:
    """A run that survives being killed: everything finished is on disk.

    Drivers call `next_request`, `background` (beside sampling) and `feed`.
    """

    def __init__(
        self,
        config: RunConfig,
        out: Path,
        *,
        spec: PolicySpec,
        resume: bool = False,
        source: Mapping[str, PolicySnapshot] | None = None,
        on_row: Callable[[dict[str, Any]], None] = lambda row: None,
    ) -> None:
        """Open the run folder and take up the newest whole checkpoint if there is one."""
        suite = load_suite(config.suite)
        self.config = config
        self.spec = spec
        self.folder = RunFolder(out, config, resume=resume)
        self.resumed = False
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._started = time.monotonic()
        self._earlier = 0.0
        self.last_row: dict[str, Any] | None = None
        self.last_rows: dict[int, dict[str, Any]] = {}
        """Visit -> its last row since this process began."""
        self._on_row = on_row
        self._physics: dict[str, str] = {}
        try:
            seed = derive_seed(config.loop.seed, Purpose.POLICY_INIT)
            self.learner: Learner = make_learner(
                config.method_name, spec, config.method, seed=seed, source=source
            )
            fixed = {task.name: task.deterministic_resets for task in suite.tasks}
            self.lifelong = Lifelong(config, self.learner, fixed)
            self.store = CheckpointStore(self.folder.checkpoints)
            self._take_up()
        except BaseException:
            self.folder.close()
            raise

    def _take_up(self) -> None:
        info = self.store.load(self.learner)
        if info is not None:
            self.lifelong.restore(info['progress'])
            self.seconds |= info['seconds']
            self._earlier = info['wall']
            self.folder.truncate_metrics(info['metrics_size'])
            self.resumed = True
        else:
            self.folder.truncate_metrics(0)
            self.store.save_base(self.learner)
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
        """Do what may overlap with sampling, and save it."""
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
        """Write all that was learned to one file; `import_knowledge` takes it up."""
        learner = self.learner
        arrays = learner.state(('base', 'models', 'replay'))
        knowledge = learner.knowledge()
        info = {'method': self.config.method_name, **knowledge_info(knowledge)}
        write_arrays(path, arrays | knowledge_arrays(knowledge), info)

    def import_knowledge(self, path: Path) -> None:
        """Replace what was learned by that of a file or run folder; nothing may be running."""
        if path.is_dir():
            shared = CheckpointStore(path / 'checkpoints').read_shared()
        else:
            shared = learner_part(read_arrays(path)[0])
        self.learner.adopt(shared)
        self.lifelong.forget_progress()
        self.store.save_base(self.learner)
        self.store.save_iteration(self.learner, self._info())

    # -- writing -------------------------------------------------------------------------

    def save(self) -> None:
        """Write down whatever is finished and not on disk yet."""
        rows = self.lifelong.take_rows()
        for row in rows:
            row['timing']['wall'] = round(self.wall, 3)
            for phase in ('policy', 'value', 'knowledge'):
                self.seconds[phase] += row['timing'][phase]
            self.last_row = self.last_rows[row['visit']] = row
            self._on_row(row)
        self.folder.append_metrics(rows)
        iteration_done, base_changed = self.lifelong.take_changes()
        if base_changed:
            self.store.save_base(self.learner)
        if iteration_done or base_changed:
            self.store.save_iteration(self.learner, self._info())
        self.write_summary()

    def _info(self) -> dict[str, object]:
        return {
            'progress': self.lifelong.progress(),
            'metrics_size': self.folder.metrics_size,
            'seconds': self.seconds,
            'wall': self.wall,
        }

    @property
    def wall(self) -> float:
        """Seconds this run has taken, those before a resume included."""
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
        """Remember the physics a task was learned under; say so if it is another now."""
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
