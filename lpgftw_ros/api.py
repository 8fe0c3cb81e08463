"""The library in Python: train, evaluate, load; also `lpgftw_ros.train` and so on.

    import lpgftw_ros

    run = lpgftw_ros.train('halfcheetah-gravity', tasks=2, iterations=20, out='runs/mine')
    for result in lpgftw_ros.evaluate(run, episodes=20):
        print(result.task, result.return_mean)
    action = run.policy('gravity-03').act(observation)

The command line does the same through the same functions.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
import json
from pathlib import Path
import tempfile
from typing import Any

import numpy as np
import yaml

from lpgftw_ros.domains.suites import load_suite, Suite
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.arrays import Array, require_shape
from lpgftw_ros.learning.policies import Knowledge, PolicySnapshot
from lpgftw_ros.learning.registry import register_method as register_method
from lpgftw_ros.runs.checkpoints import load_knowledge
from lpgftw_ros.runs.config import resolve, RunConfig
from lpgftw_ros.runs.driver import Display, drive, evaluate_run, Evaluation, open_session
from lpgftw_ros.runs.environment import limit_threads
from lpgftw_ros.runs.folder import read_config
from lpgftw_ros.runs.options import default_out
from lpgftw_ros.runs.session import Session
from lpgftw_ros.runs.settings import SamplingOptions

Callback = Callable[[Mapping[str, Any]], bool | None]
"""Called with each row of metrics.jsonl as it is written; return False to stop training."""
SuiteLike = str | Path | Mapping[str, Any]
"""Name of a suite, path of a suite file, or the content of one."""


@dataclass(frozen=True)
class Policy:
    """What one task learned."""

    task: str
    snapshot: PolicySnapshot

    def act(self, obs: Any, rng: np.random.Generator | None = None) -> Array:
        """Return the action for one observation, or one action per row of several.

        Actions are means; with `rng` they are drawn with the exploration the policy learned.
        """
        seen, spec = np.asarray(obs, dtype=np.float64), self.snapshot.spec
        rows = np.atleast_2d(seen)
        require_shape('an observation', rows, (len(rows), spec.obs_dim))
        noise = None if rng is None else rng.standard_normal((len(rows), spec.act_dim))
        actions = self.snapshot.act(rows, noise)
        return actions[0] if seen.ndim == 1 else actions


@dataclass(frozen=True)
class Run:
    """A run folder: its settings, its numbers and its policies."""

    path: Path

    @cached_property
    def config(self) -> RunConfig:
        """Everything that decides the numbers of the run."""
        return read_config(self.path)

    @cached_property
    def suite(self) -> Suite:
        """The tasks of the run, from its own copy of the suite."""
        return load_suite(self.config.suite_source)

    @cached_property
    def knowledge(self) -> Knowledge:
        """The shared basis and every task's factors, as of the newest checkpoint."""
        return load_knowledge(self.path)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks that have a policy, in the order they were first learned."""
        return tuple(self.knowledge.tasks)

    @property
    def policies(self) -> dict[str, Policy]:
        """The policy of each task."""
        return {task: self.policy(task) for task in self.tasks}

    def policy(self, task: str) -> Policy:
        """Return the policy of one task."""
        return Policy(task, self.knowledge.policy(task))

    @property
    def L(self) -> Array:  # noqa: N802
        """The shared basis. Shape (d, k)."""
        return self.knowledge.basis

    @property
    def S(self) -> Array:  # noqa: N802
        """Coefficients, one column per task in the order of `tasks`. Shape (k, T)."""
        k, tasks = self.L.shape[1], self.knowledge.tasks
        columns = np.zeros((k, len(tasks)))
        for j, factors in enumerate(tasks.values()):
            columns[: len(factors.coefficients), j] = factors.coefficients
        return columns

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Rows of metrics.jsonl: one per iteration and one per finished task."""
        lines = (self.path / 'metrics.jsonl').read_text(encoding='utf-8').splitlines()
        return [json.loads(line) for line in lines]

    @property
    def summary(self) -> dict[str, Any]:
        """Scores of each task at each stage, and what the run cost."""
        return dict(json.loads((self.path / 'summary.json').read_text(encoding='utf-8')))


def train(
    suite: SuiteLike,
    method: str | type = 'lpg-ftw',
    *,
    out: str | Path | None = None,
    tasks: int | Sequence[str] | None = None,
    preset: str = 'published',
    workers: int = 0,
    ray: str = '',
    step_timeout: float = SamplingOptions.step_timeout,
    source: str | Path | None = None,
    resume: bool = False,
    callback: Callback | None = None,
    **settings: Any,
) -> Run:
    """Learn the tasks of a suite one after another and return the run.

    Args:
        suite: Name of a suite, path of a suite file, or the content of one.
        method: Name of a method, or the class of your own (see `register_method`).
        out: Run folder; default runs/SUITE-METHOD-SEED.
        tasks: How many tasks, or their names in order; default all.
        preset: 'published' follows the authors' code, 'paper' the text.
        workers: Simulation workers; 0 for one per core.
        ray: Address of a Ray cluster to sample on, `local` for one on this machine; default none.
        step_timeout: Seconds a control step may take before its worker is replaced; 0: no limit.
        source: Finished STL run that pg-ella starts from.
        resume: Go on with the run in `out`, if there is one.
        callback: Called with each row of metrics; False ends the training, to be resumed later.
        **settings: Settings of the run or of the method: seed, iterations, trajectories, max_kl …
    """
    name = method if isinstance(method, str) else register_method(method)
    chosen = str(tasks) if isinstance(tasks, int) else ','.join(tasks) if tasks else None
    with tempfile.TemporaryDirectory() as folder:
        where = _suite_path(suite, Path(folder))
        config = resolve(where, name, overrides=settings, tasks=chosen, preset=preset)
        path = default_out(config) if out is None else Path(out)
        go_on = resume and (path / 'config.yaml').exists()
        run_session(
            read_config(path) if go_on else config,
            path,
            workers=workers,
            ray=ray,
            step_timeout=step_timeout,
            resume=go_on,
            source=None if source is None else Path(source),
            callback=callback,
        )
    return Run(path)


class _Stopped(Exception):
    """The callback asked for an end."""


def run_session(
    config: RunConfig,
    out: Path,
    *,
    callback: Callback | None = None,
    before: Callable[[Session], None] = lambda session: None,
    show: Callable[[Session], AbstractContextManager[Display]] | None = None,
    **options: Any,
) -> int:
    """Drive a run to its end in this process; return how many rollouts were learned from.

    `before` sees the open session first, `show` makes a display of it; `options` go to
    `open_session`.
    """
    limit_threads(config.loop.threads)
    rows: list[dict[str, Any]] = []
    with open_session(config, out, on_row=rows.append, **options) as (session, sampler):
        before(session)
        with show(session) if show is not None else nullcontext() as shown:

            def step(session: Session) -> None:
                if shown is not None:
                    shown.update(session)
                while rows:
                    row = rows.pop(0)
                    if callback is not None and callback(row) is False:
                        raise _Stopped

            step(session)
            try:
                return drive(session, sampler, step)
            except _Stopped:
                return 0


def _suite_path(suite: SuiteLike, folder: Path) -> str:
    """Return the name or path of a suite; the content of one is written into the folder."""
    if isinstance(suite, Suite):
        raise InvalidConfig('give the name, the file or the content of a suite, not a Suite')
    if not isinstance(suite, Mapping):
        return str(suite)
    path = folder / f'{suite.get("name", "suite")}.yaml'
    content = {key: value for key, value in suite.items() if key != 'name'}
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding='utf-8')
    load_suite(path)
    return str(path)


def evaluate(
    run: 'Run | str | Path',
    *,
    tasks: Sequence[str] = (),
    episodes: int | None = None,
    stochastic: bool = False,
    seed: int | None = None,
    workers: int = 0,
    step_timeout: float = SamplingOptions.step_timeout,
) -> list[Evaluation]:
    """Evaluate the policies of a run; by default with the episodes of its final evaluation."""
    limit_threads(1)
    results = evaluate_run(
        load(run).path,
        tasks=tuple(tasks),
        episodes=episodes,
        stochastic=stochastic,
        seed=seed,
        workers=workers,
        step_timeout=step_timeout,
    )
    return list(results)


def load(run: 'Run | str | Path') -> Run:
    """Return a run by its folder."""
    if isinstance(run, Run):
        return run
    path = Path(run).expanduser()
    read_config(path)
    return Run(path)
