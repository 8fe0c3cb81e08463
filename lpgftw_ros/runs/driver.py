"""The in-process driver: one Python process and its simulation workers."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
import sys
import time
from typing import Any, Protocol

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from lpgftw_ros.domains.cluster import ClusterSampler
from lpgftw_ros.domains.rollout import Rollout
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec
from lpgftw_ros.learning.randomness import derive_seed, ExplorationNoise, Purpose
from lpgftw_ros.learning.registry import make_learner
from lpgftw_ros.runs.checkpoints import CheckpointStore, load_knowledge, load_local_models
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.folder import read_config
from lpgftw_ros.runs.lifelong import Lifelong
from lpgftw_ros.runs.session import Session
from lpgftw_ros.runs.settings import LoopConfig, SamplingOptions
from lpgftw_ros.runs.tracking import tracked
from lpgftw_ros.runs.visits import Collect, Done, evaluation_seed, Idle, remaining_iterations

AnySampler = Sampler | ClusterSampler


@contextmanager
def open_session(
    config: RunConfig,
    out: Path,
    *,
    workers: int = 0,
    ray: str = '',
    step_timeout: float = SamplingOptions.step_timeout,
    resume: bool = False,
    source: Path | None = None,
    knowledge: Path | None = None,
    track: Sequence[str] = (),
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
) -> Iterator[tuple[Session, AnySampler]]:
    """Open a run folder and its simulation workers; `on_row` gets each row of metrics.

    With `ray`, the address of a cluster, the workers are there.
    """
    policies = source_policies(config, source)

    def both(row: dict[str, Any]) -> None:
        write_event(row)
        if row['kind'] != 'score':
            on_row(row)

    with open_sampler(config.suite_source, workers, step_timeout, ray) as sampler:
        spec = policy_spec(config, sampler)
        with (
            tracked(track, out, config) as write_event,
            Session(
                config,
                out,
                spec=spec,
                resume=resume,
                source=policies,
                knowledge=knowledge,
                on_row=both,
            ) as session,
        ):
            yield session, sampler


def open_sampler(suite: str, workers: int, step_timeout: float, ray: str) -> AnySampler:
    """Return a sampler with workers on this machine, or on the Ray cluster of that address."""
    if ray:
        return ClusterSampler(suite, ray, workers, step_timeout)
    return Sampler(suite, workers, step_timeout)


def policy_spec(config: RunConfig, sampler: AnySampler) -> PolicySpec:
    """Return the policy shape of a run, from its first task."""
    task = sampler.suite.task(config.tasks[0])
    obs_dim, act_dim = task.dimensions
    return PolicySpec(obs_dim, act_dim, config.hidden)


def source_policies(config: RunConfig, source: Path | None) -> dict[str, PolicySnapshot] | None:
    """Return the policies of the finished run that pg-ella starts from."""
    if config.method_name != 'pg-ella':
        if source is not None:
            raise InvalidConfig(f'--source is for pg-ella only, not for {config.learner}')
        return None
    if source is None:
        raise InvalidConfig('pg-ella needs --source, the folder of a finished stl run')
    knowledge = load_knowledge(source)
    return {task: knowledge.policy(task) for task in knowledge.tasks}


def take_up(loop: Lifelong) -> None:
    """Queue the rest of a run, even if it was held or stopped in the ROS graph.

    Parked visits come first, then the saved queue, then the tasks that never began.
    """
    loop.release()
    parked = [v.task for v in loop.visits if v.state == 'parked' and v.task not in loop.queue]
    loop.queue[:0] = parked
    met = Counter([visit.task for visit in loop.visits if visit.state != 'parked'])
    met.update(loop.queue)
    for task in loop.sequence:
        if met[task]:
            met[task] -= 1
        else:
            loop.queue.append(task)


def drive(session: Session, sampler: AnySampler, on_step: Callable[[Session], None]) -> int:
    """Answer the session's requests until every task is learned.

    Returns how many requests were learned from. The value function is fitted, and the iteration
    saved, while the next rollout is sampled.
    """
    if session.resumed:  # there is no graph here to release it
        take_up(session.lifelong)
    noted: set[str] = set()
    learned = 0
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix='background') as background:
        while not isinstance(request := session.next_request(), Done | Idle):
            if request.task not in noted:
                session.note_physics(request.task, sampler.fingerprint(request.task))
                noted.add(request.task)
            policy = session.policy(request)
            pending = background.submit(session.background)
            started = time.perf_counter()
            batch = sampler.collect(
                request.task, policy, request.n_trajectories, request.seed, request.explore
            )
            seconds = time.perf_counter() - started
            pending.result()
            session.feed(batch, seconds)
            learned += isinstance(request, Collect)
            on_step(session)
    session.finish()
    return learned


# Running the policies of a run folder.


MOST_FRAMES = 50.0
"""Frames per second of a video, at most."""
MOMENTS = ('start', 'tuned', 'final')
"""Columns of a contact sheet."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a policy did on its task."""

    task: str
    episodes: int
    return_mean: float
    return_std: float
    success: float
    steps: int


def evaluate_run(
    run: Path,
    *,
    tasks: tuple[str, ...] = (),
    episodes: int | None = None,
    stochastic: bool = False,
    seed: int | None = None,
    workers: int = 0,
    step_timeout: float = SamplingOptions.step_timeout,
) -> Iterator[Evaluation]:
    """Evaluate the policies of a run, by default with the episodes of its final evaluation."""
    config, knowledge = read_config(run), load_knowledge(run)
    if episodes is not None and episodes < 1:
        raise InvalidConfig(f'episodes must be at least 1, got {episodes}')
    policies = [(task, knowledge.policy(task)) for task in tasks or tuple(knowledge.tasks)]
    with Sampler(config.suite_source, workers, step_timeout) as sampler:
        for task, policy in policies:
            fixed = sampler.suite.task(task).deterministic_resets
            n = episodes or _usual_episodes(config.loop, fixed, stochastic)
            rollout_seed = evaluation_seed(config.loop.seed if seed is None else seed, task)
            batch = sampler.collect(task, policy, n, rollout_seed, explore=stochastic)
            yield Evaluation(
                task=task,
                episodes=n,
                return_mean=float(np.mean(batch.returns)),
                return_std=float(np.std(batch.returns)),
                success=float(np.mean(batch.success)),
                steps=batch.n_steps,
            )


def _usual_episodes(loop: LoopConfig, fixed: bool, stochastic: bool) -> int:
    """Return the run's own number of episodes; `fixed` means that resets are deterministic."""
    if stochastic and loop.stochastic_episodes:
        return loop.stochastic_episodes
    return 1 if fixed and not stochastic else loop.evaluation_episodes


def episode_frames(
    env: TaskVectorEnv, policy: PolicySnapshot, *, seed: int, stochastic: bool, every: int = 1
) -> Iterator[Any]:
    """Yield a picture every `every` steps of one episode."""
    rollout = Rollout(env, 1, seed, '')
    noise = ExplorationNoise(seed, 1, policy.spec.act_dim) if stochastic else None
    while not rollout.done:
        if rollout.step % every == 0:
            yield env.render_frame()
        sample = None if noise is None else noise.at(rollout.step)
        rollout.advance(policy.act(rollout.observations, sample))


def video_pace(control_period: float) -> tuple[int, float]:
    """Return steps per frame and frames per second, for a video in real time."""
    every = max(1, round(1.0 / (MOST_FRAMES * control_period)))
    return every, 1.0 / (every * control_period)


def record_video(
    env: TaskVectorEnv, policy: PolicySnapshot, path: Path, *, seed: int, stochastic: bool
) -> None:
    """Write one episode as a video in real time."""
    import imageio.v2 as imageio

    every, rate = video_pace(env.control_period)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        video: Any
        with imageio.get_writer(path, fps=rate, macro_block_size=None) as video:
            frames = episode_frames(env, policy, seed=seed, stochastic=stochastic, every=every)
            for frame in frames:
                video.append_data(frame)
    except (OSError, ValueError) as error:
        raise LpgftwError(f'cannot write the video {path}: {error}') from error


def render_run(
    run: Path, path: Path, tasks: Sequence[str], seed: int | None = None, *, stochastic: bool
) -> None:
    """Write a video of the first of these tasks; of each, if the path is that of a folder."""
    config, knowledge = read_config(run), load_knowledge(run)
    several = path.suffix == ''
    with Sampler(config.suite_source, 1) as sampler:
        for task in tasks if several else tasks[:1]:
            file = path / f'{task}.mp4' if several else path
            rollout_seed = evaluation_seed(config.loop.seed if seed is None else seed, task)
            env, policy = sampler.env(task, 1), knowledge.policy(task)
            record_video(env, policy, file, seed=rollout_seed, stochastic=stochastic)


def write_sheet(run: Path, path: Path, tasks: Sequence[str], seed: int | None = None) -> None:
    """Write one picture: a row per task, with the end of an episode at start, tune and final."""
    import imageio.v2 as imageio
    from PIL import Image, ImageDraw

    config = read_config(run)
    width, height, left, top = 240, 180, 130, 22
    sheet = Image.new('RGB', (left + 3 * width, top + height * len(tasks)), 'white')
    ink = ImageDraw.Draw(sheet)
    for column, name in enumerate(MOMENTS):
        ink.text((left + width * column + 6, 5), name, fill='black')
    with Sampler(config.suite_source, 1) as sampler:
        for row, task in enumerate(tasks):
            ink.text((6, top + height * row + 6), task, fill='black')
            env = sampler.env(task, 1)
            rollout_seed = evaluation_seed(config.loop.seed if seed is None else seed, task)
            for column, policy in enumerate(policies_over_time(run, task)):
                place = (left + width * column, top + height * row)
                if policy is None:
                    ink.text((place[0] + 6, place[1] + 80), 'not kept', fill='gray')
                    continue
                frame = last_frame(env, policy, rollout_seed)
                sheet.paste(Image.fromarray(frame).resize((width, height)), place)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        imageio.imwrite(path, np.asarray(sheet))
    except (OSError, ValueError) as error:
        raise LpgftwError(f'cannot write the sheet {path}: {error}') from error


def last_frame(env: TaskVectorEnv, policy: PolicySnapshot, seed: int) -> Any:
    """Return a picture of the end of an episode."""
    rollout = Rollout(env, 1, seed, '')
    while not rollout.done:
        rollout.advance(policy.act(rollout.observations))
    return env.render_frame()


def policies_over_time(run: Path, task: str) -> tuple[PolicySnapshot | None, ...]:
    """Return a task's policy before its first step, when it was tuned, and now."""
    config, knowledge = read_config(run), load_knowledge(run)
    final = knowledge.policy(task)
    model = load_local_models(run).get(task)
    tuned = None if model is None else replace(final, theta=model.alpha)
    return starting_policy(run, config, final.spec, task), tuned, final


def starting_policy(
    run: Path, config: RunConfig, spec: PolicySpec, task: str
) -> PolicySnapshot | None:
    """Return the initial policy of a task; None if the files it needs are gone."""
    store = CheckpointStore(run / 'checkpoints')
    visits = store.newest(models=False).info['progress']['visits']
    visit = next(visit for visit in visits if visit['task'] == task)
    number, known = int(visit['number']), {*visit['known']} - {task}
    seed = config.loop.seed
    try:
        first = derive_seed(seed, Purpose.POLICY_INIT)
        learner = make_learner(config.method_name, spec, config.method, seed=first)
        if number:
            learner.adopt(store.shared_before(number))
            if any(learner.phase(other) != 'finished' for other in known):
                return None  # saved more often than once per visit: not the file of this start
        learner.start_task(task, seed=derive_seed(seed, Purpose.POLICY_INIT, number))
        return learner.knowledge().compose(learner.factors())
    except LpgftwError:
        return None


# Progress: a bar on a terminal, plain lines otherwise.


_LINE_EVERY = 5.0
"""Seconds between two plain lines."""


class Display(Protocol):
    """Shows how far a session has come."""

    def update(self, session: Session) -> None:
        """Show the present state."""


@contextmanager
def display(session: Session) -> Iterator[Display]:
    """Return the display that fits the output."""
    if sys.stderr.isatty():
        bar = _Bar(session)
        with bar.progress:
            yield bar
    else:
        yield _Lines()


def describe(row: dict[str, Any]) -> str:
    """Return one iteration in a few words."""
    rate = row['steps'] / max(row['timing']['sampling'], 1e-9)
    text = f'return {row["return_mean"]:.1f}  success {row["success"]:.2f}'
    if row['kind'] == 'iteration':
        text += f'  KL {row["kl"]:.4f}'
    return f'{text}  {rate:,.0f} steps/s'


class _Bar:
    """A bar over all iterations of all tasks."""

    def __init__(self, session: Session) -> None:
        columns = (
            TextColumn('{task.description}'),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn('{task.fields[detail]}'),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=Console(stderr=True), expand=True)
        self._total = len(session.lifelong.sequence) * session.config.loop.iterations
        self._bar = self.progress.add_task('starting', total=self._total or None, detail='')

    def update(self, session: Session) -> None:
        """Move the bar."""
        loop, config = session.lifelong, session.config
        left = remaining_iterations(loop.visits, loop.queue, config)
        visit = loop.current or (loop.visits[-1] if loop.visits else None)
        name = f'{visit.number + 1}/{len(loop.sequence)} {visit.task}' if visit else ''
        detail = describe(session.last_row) if session.last_row else ''
        self.progress.update(
            self._bar, completed=self._total - left, description=name, detail=detail
        )


class _Lines:
    """One line every few seconds, and one per finished task."""

    def __init__(self) -> None:
        self._last = 0.0
        self._shown: dict[str, Any] | None = None

    def update(self, session: Session) -> None:
        """Print a line if there is news and the last line is some seconds old."""
        row = session.last_row
        if row is None or row is self._shown:
            return
        due = time.monotonic() - self._last >= _LINE_EVERY
        if not due and row['kind'] == 'iteration':
            return
        self._last, self._shown = time.monotonic(), row
        total = len(session.lifelong.sequence)
        step = f'{row["iteration"] + 1}/{session.lifelong.visits[row["visit"]].iterations}'
        where = step if row['kind'] == 'iteration' else row.get('purpose', 'folded in')
        head = f'task {row["visit"] + 1}/{total} {row["task"]}  {where}'
        print(f'{head}  {describe(row)}', file=sys.stderr, flush=True)  # noqa: T201
