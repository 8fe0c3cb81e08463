"""`lpgftw export`: write one policy as a small file and as ONNX."""

import argparse
import json
from pathlib import Path

from lpgftw_ros import arguments
from lpgftw_ros.errors import InvalidConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('run_folder', metavar='RUN', type=arguments.folder, help='run folder')
    parser.add_argument(
        '--task', required=True, type=arguments.text, help='task whose policy is written'
    )
    parser.add_argument(
        '--out',
        required=True,
        type=arguments.new_file,
        metavar='FILE',
        help='policy file; the .onnx file is written next to it',
    )
    parser.add_argument(
        '--rate', type=arguments.positive, default=20.0, help='control steps per second'
    )
    parser.add_argument(
        '--full-speed',
        type=arguments.positive,
        default=0.10,
        help='hand speed of a full action, m/s',
    )
    parser.add_argument(
        '--raise-speed-cap', action='store_true', help='allow a full speed above 0.25 m/s'
    )
    parser.add_argument('--json', action='store_true', help='print one JSON object')


def run(args: argparse.Namespace) -> int:
    """Write both files; print size and latency."""
    from lpgftw_ros.deploy.export import (
        act_seconds,
        export_policy,
        load_policy,
        save_onnx,
        save_policy,
    )
    from lpgftw_ros.deploy.observation import ControlSettings
    from lpgftw_ros.runs.checkpoints import load_knowledge

    graph = args.out.with_suffix('.onnx')
    if args.out == graph:
        raise InvalidConfig('--out names the policy file; the .onnx file is written next to it')
    control = ControlSettings(
        rate=args.rate, full_speed=args.full_speed, speed_cap_raised=args.raise_speed_cap
    )
    policy = load_knowledge(args.run_folder).policy(args.task)
    exported = export_policy(policy, args.task, control, _origin(args.run_folder, args.task))
    save_policy(exported, args.out)
    save_onnx(exported, graph)
    median, late = act_seconds(load_policy(args.out))
    report = {
        'task': args.task,
        'file': str(args.out),
        'bytes': args.out.stat().st_size,
        'onnx': str(graph),
        'onnx_bytes': graph.stat().st_size,
        'act_us_median': round(1e6 * median, 1),
        'act_us_p99': round(1e6 * late, 1),
        'hash': exported.contract.hash,
    }
    print(json.dumps(report) if args.json else _lines(report))
    return 0


def _origin(run_folder: Path, task: str) -> dict[str, object]:
    """Return where the policy comes from."""
    from lpgftw_ros.domains.sampler import task_fingerprint
    from lpgftw_ros.domains.suites import load_suite
    from lpgftw_ros.runs.environment import versions
    from lpgftw_ros.runs.folder import read_config

    config = read_config(run_folder)
    suite = load_suite(config.suite_source)
    spec = suite.task(task)
    return {
        'run': run_folder.name,
        'suite': suite.name,
        'learner': config.learner,
        'seed': config.loop.seed,
        'kind': spec.kind,
        'settings': dict(spec.settings),
        'horizon': spec.horizon,
        'fingerprint': task_fingerprint(suite, task),
        'versions': versions(),
    }


def _lines(report: dict[str, object]) -> str:
    return (
        f'{report["file"]}: {report["bytes"]} bytes, {report["onnx"]}: {report["onnx_bytes"]} '
        f'bytes\none action: {report["act_us_median"]} us (99%: {report["act_us_p99"]} us)\n'
        f'hash {report["hash"]}'
    )
