from pathlib import Path

import pytest

from .documents import DocumentBroken, DOCUMENTS, listed, read_blocks, Reader, ROOT

MOST_MARKS = 12
BLOCKS = [block for document in DOCUMENTS for block in read_blocks(document)]
RUN = [block for block in BLOCKS if block.runs]


@pytest.fixture(scope='module')
def reader(tmp_path_factory):
    """One reader for all documents: later blocks find what earlier ones made."""
    return Reader(tmp_path_factory.mktemp('reader'))


@pytest.fixture(scope='module')
def stranger(tmp_path_factory):
    """A reader who has pasted nothing yet."""
    return Reader(tmp_path_factory.mktemp('stranger'))


@pytest.mark.documents
@pytest.mark.timeout(1800)
@pytest.mark.parametrize('block', RUN, ids=lambda block: block.where)
def test_every_block_runs(block, reader):
    reader.paste(block)


def test_few_blocks_are_marked_as_not_run_and_each_says_why():
    marks = [block.mark for block in BLOCKS if block.mark]
    assert len(marks) <= MOST_MARKS
    assert all(len(mark) > 8 for mark in marks)


def test_most_blocks_that_could_run_do():
    assert len(RUN) > 35
    assert f'{len(BLOCKS)} blocks: {len(RUN)} run' in listed()


BROKEN = {
    'a command that does not exist': '    lpgftw trian --suite demo\n',
    'an option that does not exist': '    lpgftw train --suite demo --iteratons 3\n',
    'a run folder nobody made': '    lpgftw evaluate runs/never\n',
    'a make target that does not exist': '    make rnu\n',
    'a later line of a block': '    lpgftw tasks\n    lpgftw evaluate runs/never\n',
    'a launch argument that does not exist': (
        '    ros2 launch lpgftw_ros lifelong.launch.py siute:=demo\n'
    ),
    'a launch argument out of range': ('    ros2 launch lpgftw_ros lifelong.launch.py seed:=-7\n'),
    'a field the request has not': (
        '    ros2 service call /lifelong/switch_task lpgftw_interfaces/srv/SwitchTask "{tsk: a}"\n'
    ),
    'a topic nobody publishes': '    ros2 topic echo /lifelong/statsu\n',
    'a name Python does not know': '```python\nlpgftw_ros.train\n```\n',
    'an environment that does not exist': (
        '```yaml\nhorizon: 5\ntasks:\n  - {name: one, id: Pendulum-v99}\n```\n'
    ),
    'a language nobody runs': '```perl\nprint 1\n```\n',
}


@pytest.mark.parametrize('text', BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_document_fails(text, stranger, tmp_path):
    document = tmp_path / 'broken.md'
    document.write_text(f'A promise:\n\n{text}')
    (block,) = read_blocks(document)
    with pytest.raises(DocumentBroken, match=r'broken.md:3'):
        stranger.paste(block)


def test_a_mark_belongs_to_the_block_below_it(tmp_path):
    document = tmp_path / 'marked.md'
    document.write_text('<!-- not run: needs an arm -->\n\n    make run\n\nText\n\n    make run\n')
    first, second = read_blocks(document)
    assert first.mark == 'needs an arm'
    assert second.runs


def test_lists_and_trees_are_not_code(tmp_path):
    document = tmp_path / 'text.md'
    document.write_text('- item\n\n    goes on\n\nText\n\n    sim/   data\n    docs/  words\n')
    assert [block.language for block in read_blocks(document)] == ['text']


def test_the_copy_leaves_the_project_alone(stranger):
    assert (stranger.folder / 'Makefile').is_file()
    assert (stranger.folder / 'lpgftw_ros' / 'runs' / 'driver.py').is_file()
    assert Path(stranger.folder).resolve() != ROOT
