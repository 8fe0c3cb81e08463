"""The command that repeats a run, from its folder alone."""

from collections.abc import Mapping
import shlex
from typing import Any

from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.experiments.run_data import RunData


def rerun_command(run: RunData) -> str:
    """Return `lpgftw train ...` with every option in which the run differs from the presets."""
    suite = str(run.config.get('suite', run.suite))
    words = ['lpgftw', 'train', '--suite', suite, '--learner', run.learner]
    words += ['--seed', str(run.seed), *_differences(run)]
    if run.learner == 'pg-ella':
        words += ['--source', 'STL_RUN']
    return shlex.join([*words, '--out', f'runs/{run.suite}/{run.label}/seed-{run.seed}'])


def _differences(run: RunData) -> list[str]:
    from lpgftw_ros.runs.config import resolve, RunConfig

    try:
        config = RunConfig.from_dict(run.config)
        usual = resolve(config.suite, run.learner, overrides={'seed': run.seed})
    except LpgftwError:
        return []  # an older or foreign configuration: its own file is the only truth
    words = [] if config.tasks == usual.tasks else ['--tasks', _tasks(config.tasks, usual.tasks)]
    wanted, known = config.to_dict(), usual.to_dict()
    changed = {**_changed(wanted['loop'], known['loop'])}
    changed |= _changed(wanted['method'], known['method'])
    for key in ('iterations', 'trajectories'):
        if key in changed:
            words += [f'--{key}', str(changed.pop(key))]
    if config.hidden != usual.hidden:
        changed['hidden'] = ','.join(str(width) for width in config.hidden)
    for key, value in changed.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words += ['--set', f'{key}={text}']
    return words


def _tasks(tasks: tuple[str, ...], usual: tuple[str, ...]) -> str:
    return str(len(tasks)) if tasks == usual[: len(tasks)] else ','.join(tasks)


def _changed(wanted: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in wanted.items() if known.get(key) != value}
