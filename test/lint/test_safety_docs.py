"""Every hazard names a test that exists, every limit its value, every figure its source."""

import json
from pathlib import Path
import re

import pytest

from lpgftw_ros.bench.guard import FAULTS, markdown
from lpgftw_ros.deploy.safety.limits import load_limits
from lpgftw_ros.deploy.safety.motion import INTERFACES

TEST = Path(__file__).resolve().parents[1]
DOC = (TEST.parent / 'docs' / 'safety.md').read_text()
SECTION = DOC.split('## Hazards', 1)[1].split('\n## ', 1)[0]
GROUPS = SECTION.split('\n### ')[1:]
HEADER = ['hazard', 'cause', 'detection', 'reaction', 'time', 'test']
ROWS = [
    cells
    for line in SECTION.splitlines()
    if line.startswith('|')
    and (cells := [cell.strip() for cell in line.strip('|').split('|')]) != HEADER
    and set(line) != set('|-')
]
NAMED = re.compile(r'`((?:unit|ros)/\S+\.py)::(test_\w+)`')
FIGURE = re.compile(r'`(\w+)`\s+\(([\d.]+)(?: [a-z/]+)?\)')


def test_there_are_hazards():
    assert len(ROWS) > 35


@pytest.mark.parametrize('row', ROWS, ids=lambda row: f'{row[0]}, {row[1]}')
def test_a_hazard_has_cause_detection_reaction_time_and_a_test_that_exists(row):
    assert len(row) == 6
    assert all(row)
    found = NAMED.fullmatch(row[5])
    assert found, row[5]
    path, name = found.groups()
    assert f'def {name}(' in (TEST / path).read_text()


def test_stopping_comes_first_and_strangers_last():
    names = [group.splitlines()[0] for group in GROUPS]
    assert (names[0], names[-2]) == (
        'The arm must stop when it is told to',
        'Strangers speak',
    )


@pytest.mark.parametrize('found', sorted(set(FIGURE.findall(DOC))), ids=' '.join)
def test_a_limit_has_the_value_the_page_says(found):
    name, value = found
    assert getattr(load_limits(), name) == pytest.approx(float(value), abs=1e-9)


@pytest.mark.parametrize('word', FAULTS[1:])
def test_every_fault_of_the_bench_is_explained(word):
    words = DOC.split('## The guard against a failing arm', 1)[1].split('\n| ', 1)[0]
    assert {'delayed': 'late', 'stopped_displaced': 'displaced'}.get(word, word) in words


MEASURED = json.loads((TEST.parent / 'benchmarks' / 'guard.json').read_text())


def test_the_table_is_the_one_that_was_measured():
    assert markdown(MEASURED['interfaces']) in DOC
    assert f'--count {MEASURED["count"]} --seed {MEASURED["seed"]}' in DOC


@pytest.mark.parametrize('interface', INTERFACES)
def test_every_fault_was_tried_and_what_broke_is_said(interface):
    rows = MEASURED['interfaces'][interface]
    assert tuple(rows) == FAULTS
    assert sum(row['sequences'] for row in rows.values()) == MEASURED['count'] >= 10_000
    broken = sum(row['broken'] for row in rows.values())
    assert broken == 0 or f'`{interface}`: {broken} of 10,000' in DOC
