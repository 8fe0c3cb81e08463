"""`ros2` as the documentation calls it, where ROS has no command line: every word is checked.

Launch arguments and parameters are read by the code the launch files and nodes call, requests
and goals are put into the real message classes. Nothing is started.
"""

from collections.abc import Callable
import importlib
from pathlib import Path
import re
import sys
from typing import Any

import yaml

import lpgftw_ros
from lpgftw_ros.errors import LpgftwError

# what only some verbs need is imported there: every command of a document is a process
ROOT = Path(lpgftw_ros.__file__).resolve().parents[1]
LIFECYCLE = ('configure', 'activate', 'deactivate', 'cleanup', 'shutdown')
NAMES = set(
    re.findall(
        r"'~?/?([a-z_/]+)'",
        '\n'.join(p.read_text() for p in (ROOT / 'lpgftw_ros' / 'nodes').glob('*.py')),
    )
)


def launch(package: str, file: str, *words: str) -> None:
    """Read launch arguments as the launch file does."""
    from lpgftw_ros.graph import bringup, deployment

    _require(package == 'lpgftw_ros', f'no package {package}')
    _require((ROOT / 'launch' / file).is_file(), f'no launch file {file}')
    values = dict(word.split(':=', 1) for word in words if word != '--show-args')
    if 'with_rviz=True' in (ROOT / 'launch' / file).read_text():
        _require(values.pop('rviz', 'true') in ('true', 'false'), 'rviz is true or false')
    if '--show-args' in words:
        _require(not values, '--show-args takes no arguments')
    elif file == 'lifelong.launch.py':
        bringup.describe(bringup.require_run(bringup.options_from(values), set(values)))
    elif file == 'policy.launch.py':
        bringup.describe_policies(bringup.policy_options(values))
    else:
        options = deployment.deploy_options(values)
        deployment.require_files(options)
        deployment.describe_deployment(options)


def run(package: str, executable: str, *words: str) -> None:
    """Check that the executable exists and has the parameters."""
    from lpgftw_ros.learning.config import configure

    if package != 'lpgftw_ros':
        return _require_files(words)
    module = ROOT / 'lpgftw_ros' / 'nodes' / f'{executable}.py'
    _require(module.is_file() and 'def main(' in module.read_text(), f'no node {executable}')
    given = [words[i + 1] for i, word in enumerate(words) if word == '-p']
    configure(_parameters(executable), dict(pair.split(':=', 1) for pair in given))


def param(action: str, *words: str) -> None:
    """Check that a node has the parameter, and takes the value."""
    from lpgftw_ros.learning.config import configure

    if action == 'load':
        for name, content in yaml.safe_load(Path(words[0]).read_text()).items():
            configure(_parameters(name.rsplit('/', 1)[-1]), content['ros__parameters'])
    elif len(words) > 1:
        _require(action in ('get', 'set', 'describe'), f'what is param {action}')
        kind, name = _parameters(words[0].rsplit('/', 1)[-1]), words[1]
        group, _, setting = name.rpartition('.')
        known = _settings(kind) if group else kind.__dataclass_fields__
        _require(group in ('', 'settings') and setting in known, f'no parameter {name}')
        if action == 'set':
            value = words[2]
            configure(kind, {'settings': f'{setting}={value}'} if group else {name: value})
    else:
        _require(action in ('list', 'dump'), f'what is param {action}')


def service(action: str, name: str = '', kind: str = '', request: str = '{}') -> None:
    """Fill a request."""
    if action == 'call':
        _require_name(name)
        _fill(_interface(kind).Request(), request)


def action(verb: str, *words: str) -> None:
    """Fill a goal."""
    if verb == 'send_goal':
        name, kind, *goal = [word for word in words if not word.startswith('--')]
        _require_name(name)
        _fill(_interface(kind).Goal(), *goal)


def topic(verb: str, *words: str) -> None:
    """Check a topic's name."""
    _require(verb in ('echo', 'hz', 'list', 'info', 'bw', 'pub'), f'what is topic {verb}')
    for word in words:
        if word.startswith('/'):
            _require_name(word)


def lifecycle(verb: str, node: str, transition: str = '') -> None:
    """Check a transition of a node."""
    _require(verb in ('get', 'set') and (verb == 'get') == (not transition), 'get, or set and to')
    _require(not transition or transition in LIFECYCLE, f'no transition {transition}')
    _parameters(node.rsplit('/', 1)[-1])


def interface(verb: str, kind: str) -> None:
    """Check that an interface exists."""
    _interface(kind)


def bag(verb: str, *words: str) -> None:
    """Check the names of recorded topics."""
    for word in words:
        if word.startswith('/'):
            _require_name(word)


def pkg(verb: str, package: str) -> None:
    """Print the prefix of an installed package."""
    _require((verb, package) == ('prefix', 'lpgftw_ros'), f'no package {package}')
    print(sys.prefix)


def node(verb: str, *words: str) -> None:
    """Accept list and info."""
    _require(verb in ('list', 'info'), f'what is node {verb}')


def _parameters(name: str) -> Any:
    from lpgftw_ros.graph import parameters

    known = dict(parameters.NODES)
    for kind in vars(parameters).values():
        words = re.findall('[A-Z][a-z]+', getattr(kind, '__name__', ''))[:-1]
        known.setdefault('_'.join(words).lower(), kind)
    known['safety_guard'] = known.get('safety_guard', known.get('guard'))
    _require(name in known, f'no node {name}')
    return known[name]


def _settings(kind: Any) -> Any:
    from lpgftw_ros.graph.parameters import setting_defaults

    return setting_defaults(kind())[1]


def _interface(kind: str) -> Any:
    package, _, rest = kind.partition('/')
    group, _, name = rest.rpartition('/')
    module = importlib.import_module(f'{package}.{group}')
    _require(hasattr(module, name), f'no interface {kind}')
    return getattr(module, name)


def _fill(message: Any, text: str = '{}') -> None:
    for key, value in yaml.safe_load(text).items():
        _require(key in message.get_fields_and_field_types(), f'no field {key}')
        setattr(message, key, value)


def _require_name(name: str) -> None:
    last = name.removeprefix('/lifelong/').removeprefix('/')
    known = last in NAMES or last.rsplit('/', 1)[-1] in NAMES
    _require(known, f'no topic, service or action {name}')


def _require_files(words: tuple[str, ...]) -> None:
    for i, word in enumerate(words):
        if word == '--params-file':
            path = Path(words[i + 1])
            _require(path.is_file(), f'no file {path}')


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise LpgftwError(text)


VERBS: dict[str, Callable[..., None]] = {
    **{'launch': launch, 'run': run, 'param': param, 'service': service, 'action': action},
    **{'topic': topic, 'lifecycle': lifecycle, 'interface': interface, 'bag': bag, 'pkg': pkg},
    'node': node,
}

if __name__ == '__main__':
    try:
        VERBS[sys.argv[1]](*sys.argv[2:])
    except (LpgftwError, KeyError, TypeError, ValueError, AssertionError, ImportError) as error:
        sys.exit(f'ros2 {" ".join(sys.argv[1:])}: {type(error).__name__}: {error}')
