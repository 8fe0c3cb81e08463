"""The page of equations names functions that exist, and links lead to the lines they promise."""

import ast
from functools import cache
from pathlib import Path
import re

import pytest

ROOT = Path(__file__).parents[2]
LEARNING = ROOT / 'lpgftw_ros' / 'learning'
NAMED = re.compile(r'`([A-Za-z_]+)\.([a-z_]+)(?:\(\))?`')


@cache
def definitions():
    """Return what each module and each class of the library defines, by the name of either."""
    found = {}
    for path in LEARNING.rglob('*.py'):
        tree = ast.parse(path.read_text())
        names = [node for node in ast.walk(tree) if hasattr(node, 'name')]
        found.setdefault(path.stem, set()).update(node.name for node in names)
        for node in names:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(
                    item.name for item in node.body if isinstance(item, ast.FunctionDef)
                )
    return found


def named():
    text = (ROOT / 'docs/algorithm.md').read_text()
    return sorted(
        {(owner, name) for owner, name in NAMED.findall(text) if name not in ('py', 'jsonl')}
    )


def test_the_page_names_many_functions():
    assert len(named()) > 30


@pytest.mark.parametrize(('owner', 'name'), named())
def test_every_function_named_exists(owner, name):
    assert name in definitions().get(owner, ())


def test_the_link_for_a_leads_to_the_function_that_adds():
    readme = (ROOT / 'README.md').read_text()
    path, line = re.search(r'`A \+= .*?\]\((\S+?)#L(\d+)\)', readme).groups()
    function = '\n'.join((ROOT / path).read_text().splitlines()[int(line) - 1 :][:2])
    assert 'def add(' in function
    assert 'A += 2' in function
