"""The documentation as a reader pastes it: code blocks in order, in a fresh copy of the project.

A block is fenced or indented. Its language is that of the fence; without one, text whose first
word is a command is shell, everything else is read by people only. `<!-- not run: why -->` before
a block marks one that cannot run here. Diffs are the matter of test/unit/test_contributing.py.

    python test/docs/documents.py       lists every block: run, marked, or for people
"""

from collections.abc import Iterator
from dataclasses import dataclass
import json
import os
from pathlib import Path
import re
import shutil
import stat
import subprocess
import sys
import textwrap

import yaml

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
DOCUMENTS = [
    ROOT / 'README.md',
    ROOT / 'CONTRIBUTING.md',
    *sorted((ROOT / 'docs').rglob('*.md')),
    *sorted((ROOT / 'docs').rglob('*.ipynb')),
    *sorted((ROOT / 'benchmarks').glob('*.md')),
]
SHELL = ('bash', 'sh', 'shell', 'console')
FOR_PEOPLE = ('text', 'mermaid', 'diff', 'json', 'xml', 'toml')
COMMANDS = (
    *('lpgftw', 'make', 'ros2', 'rqt', 'pip', 'python', 'python3', 'source', '.', 'cd', 'git'),
    *('colcon', 'rosdep', 'sudo', 'export', 'docker', 'pixi', 'MUJOCO_GL=egl', 'curl', 'ray'),
)
MARK = re.compile(r'<!--\s*not run:\s*(.*?)\s*-->')
NAMED = re.compile(r'title="([^"]+)"')
LEFT_OUT = ('.git', '.venv', 'results', 'runs', 'build', 'install', 'log', 'test')
"""Folders of the project a copy does without."""
PATIENCE = 1200
"""Seconds a block may take on a busy machine; a quiet one needs seconds."""
ONE_ITERATION = '--iterations 1'


class DocumentBroken(AssertionError):
    """A block does not do what the document promises."""


@dataclass(frozen=True)
class Block:
    """One code block."""

    document: Path
    line: int
    language: str
    """The fence's own, or `bash` for commands, or `text`."""
    text: str
    mark: str = ''
    """Why it is not run."""
    name: str = ''
    """File the block is written to, if it names one."""

    @property
    def where(self) -> str:
        folder = ROOT if ROOT in self.document.parents else self.document.parent
        return f'{self.document.relative_to(folder)}:{self.line}'

    @property
    def runs(self) -> bool:
        return self.language not in FOR_PEOPLE and not self.mark


def read_blocks(document: Path) -> list[Block]:
    """Return the code blocks of a document, in order; the cells of a notebook are one."""
    if document.suffix == '.ipynb':
        cells = json.loads(document.read_text(encoding='utf-8'))['cells']
        code = [''.join(cell['source']) for cell in cells if cell['cell_type'] == 'code']
        return [Block(document, 1, 'python', '\n'.join(code) + '\n')]
    lines = document.read_text(encoding='utf-8').splitlines()
    return [
        _block(document, start, info, body, _mark_above(lines, start))
        for start, info, body in _find(lines)
    ]


def _find(lines: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield first line, info string and content of every block."""
    i, in_list = 0, False
    while i < len(lines):
        fence = re.match(r'\s*(`{3,})(.*)$', lines[i])
        if fence:
            end = next(
                (j for j in range(i + 1, len(lines)) if lines[j].strip() == fence[1]), len(lines)
            )
            yield i, fence[2].strip(), lines[i + 1 : end]
            i = end + 1
            continue
        if lines[i].strip():
            indented = lines[i].startswith('    ')
            if indented and not in_list and (i == 0 or not lines[i - 1].strip()):
                end = i
                while end < len(lines) and (lines[end].startswith('    ') or not lines[end]):
                    end += 1
                yield i, '', lines[i:end]
                i = end
                continue
            in_list = bool(re.match(r'\s*([-*]|\d+\.) ', lines[i])) or (in_list and indented)
        i += 1


def _mark_above(lines: list[str], start: int) -> str:
    above = next((line for line in reversed(lines[:start]) if line.strip()), '')
    found = MARK.search(above)
    return found[1] if found else ''


def _block(document: Path, start: int, info: str, body: list[str], mark: str) -> Block:
    text = textwrap.dedent('\n'.join(body)).strip('\n') + '\n'
    language = info.split()[0].lower() if info else ''
    if not language:
        first = next((line.split()[0] for line in body if line.split()), '')
        language = 'bash' if first in COMMANDS else 'text'
    name = NAMED.search(info)
    language = 'bash' if language in SHELL else language
    return Block(document, start + 1, language, text, mark, name[1] if name else '')


def _ignored(folder: str, names: list[str]) -> list[str]:
    at_the_top = LEFT_OUT if Path(folder) == ROOT else ()
    return [n for n in names if n in at_the_top or n == '__pycache__' or n.endswith('_cache')]


class Reader:
    """Pastes blocks in order into a fresh copy of the project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / 'lpgftw_ros'
        shutil.copytree(ROOT, self.folder, ignore=_ignored)
        (self.folder / '.venv').symlink_to(sys.prefix)
        (self.folder / 'results').mkdir()
        (self.folder / 'results' / 'knowledge').symlink_to(ROOT / 'results' / 'knowledge')
        self._bin = folder / 'bin'
        self._bin.mkdir()
        python = f'exec "{sys.executable}"'
        self._command('python', f'{python} "$@"')
        self._command('ros2', f'{python} "{HERE / "ros2.py"}" "$@"')
        self._command('lpgftw', f'{python} "{HERE / "short_lpgftw.py"}" "$@"')
        # set-up has been done: it is what this runs in; `make test` is what calls this
        make = shutil.which('make')
        self._command('make', f'[ "$1" = test ] || exec "{make}" -o setup "$@"')

    def _command(self, name: str, script: str) -> None:
        path = self._bin / name
        path.write_text(f'#!/bin/bash\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def paste(self, block: Block) -> str:
        """Run a block and return what it printed; raise `DocumentBroken` if it fails."""
        if block.name and block.language != 'bash':
            path = self.folder / block.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        if block.language == 'bash':
            return self._run(block, ['bash', '-euo', 'pipefail', '-c', block.text])
        if block.language == 'python':
            return self._python(block)
        if block.language in ('yaml', 'yml'):
            return self._yaml(block)
        raise DocumentBroken(f'{block.where}: nobody knows how to run {block.language!r}')

    def _python(self, block: Block) -> str:
        if block.name:  # a module others import
            return self._run(block, ['python', '-c', f'import ast; {_PARSE.format(block.name)}'])
        path = self.folder / f'block_{block.line}.py'
        path.write_text(block.text)
        return self._run(block, ['python', path.name])

    def _yaml(self, block: Block) -> str:
        content = yaml.safe_load(block.text)
        if isinstance(content, dict) and 'tasks' in content:
            name = block.name or f'suite_{block.line}.yaml'
            (self.folder / name).write_text(block.text)
            out = f'runs/suite-{block.line}'
            return self._run(block, ['lpgftw', 'train', '--suite', name, '--out', out])
        if isinstance(content, dict) and all(
            isinstance(node, dict) and 'ros__parameters' in node for node in content.values()
        ):
            path = self.folder / 'parameters.yaml'
            path.write_text(block.text)
            return self._run(block, ['ros2', 'param', 'load', str(path)])
        if block.name:  # a file that a command of the document reads
            return ''
        raise DocumentBroken(f'{block.where}: neither a suite nor parameters, and no title="FILE"')

    def _run(self, block: Block, command: list[str]) -> str:
        environment = {
            **os.environ,
            'PATH': f'{self._bin}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}'
            + os.environ.get('PATH', ''),
            'RUN_ARGUMENTS': ONE_ITERATION,
            'MUJOCO_GL': os.environ.get('MUJOCO_GL', 'egl'),
            'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
        }
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        if done.returncode != 0:
            raise DocumentBroken(
                f'{block.where}: exit code {done.returncode}\n{block.text}\n{done.stdout[-3000:]}'
            )
        return done.stdout


_PARSE = 'ast.parse(open({!r}).read())'


def listed() -> str:
    """Return every block with what happens to it."""
    blocks = [block for document in DOCUMENTS for block in read_blocks(document)]
    lines = [
        f'{"run" if b.runs else "marked" if b.mark else "-":7}{b.where:28}{b.language:8}'
        f'{b.mark or b.text.splitlines()[0][:60]}'
        for b in blocks
    ]
    run, marked = sum(b.runs for b in blocks), sum(bool(b.mark) for b in blocks)
    return '\n'.join([*lines, f'{len(blocks)} blocks: {run} run, {marked} marked as not run'])


if __name__ == '__main__':
    print(listed())
