"""The page of a real graph in a real browser: every tab, every button, nobody else is asked."""

from pathlib import Path
import re
import sys
import time

import pytest

from lpgftw_interfaces.action import EvaluateTask, TrainTask
from lpgftw_interfaces.msg import ActiveTask, LearningStatus
from lpgftw_interfaces.srv import ListTasks

from .lifelong_graph import GraphClient, kill, wait_for

sys.path.insert(0, str(Path(__file__).parents[2] / 'scripts'))
from browser import Browser, installed

pytestmark = [
    pytest.mark.ros,
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.skipif(installed() is None, reason='no Chromium: make test-browser installs it'),
]
ADDRESS = re.compile(r'dashboard: (http://127\.0\.0\.1:\d+)')
SLEEP = 45.0  # s; a server drops who does not answer for 40
KNOWN, LEARNED, ITERATIONS = 'reach', 'drawer-close', 400


@pytest.fixture(scope='module')
def graph(start, tmp_path_factory):
    """Start a graph that waits."""
    out = tmp_path_factory.mktemp('page') / 'run'
    words = ['--suite', 'demo', '--tasks', KNOWN, '--iterations', str(ITERATIONS)]
    words += ['--trajectories', '5', '--workers', '1', '--out', str(out), '--no-autotrain']
    words += ['--no-exit-when-done']
    words += ['--set', 'stochastic_episodes=0', '--dashboard', '--dashboard-port', '0']
    up = start(*words)
    assert wait_for(lambda: ADDRESS.search(up.output), 90.0), up.output[-3000:]
    return up


@pytest.fixture(scope='module')
def url(graph):
    return ADDRESS.search(graph.output).group(1)


@pytest.fixture(scope='module')
def user(graph):
    client = GraphClient()
    client.listen(LearningStatus, 'status')
    client.listen(ActiveTask, 'active_task')
    yield client
    client.close()


def opened(url, **size):
    """Open the page and mark it: a reload would lose the mark."""
    page = Browser(url, **size)
    page.wait_for('Learning', 90)
    page.run('window.mark = 1')
    return page


def check(page):
    assert page.run('window.mark') == 1, 'the page was loaded again'
    assert page.foreign_requests() == []
    assert page.errors == []


@pytest.fixture(scope='module')
def browser(url):
    with opened(url, width=900, height=500) as page:
        yield page


@pytest.fixture(scope='module')
def sleeper(url, browser):
    """Open the page on a phone that falls asleep at once; return it and when."""
    with opened(url, width=390, height=600, mobile=True) as phone:
        phone.press('Tasks', 'tab')
        phone.wait_for('drawer-close-left', 60)
        phone.sleep()
        yield phone, time.monotonic()


def state(user):
    return user.latest['status'].state if 'status' in user.latest else ''


def task_state(user, task):
    answer = user.call(ListTasks, 'list_tasks')
    return next(t for t in answer.tasks if t.task == task)


def test_every_tab_shows_the_running_graph(graph, user, browser, sleeper):
    user.result(user.send_goal(TrainTask, 'train_task', task=KNOWN, iterations=3))
    assert task_state(user, KNOWN).state == 'finished'
    assert user.send_goal(TrainTask, 'train_task', task=LEARNED).accepted
    assert user.until(lambda: user.latest['status'].task == LEARNED and state(user) == 'sampling')
    assert user.until(lambda: user.latest['status'].iteration >= 2)
    browser.press('Scene', 'tab')
    first = browser.wait_for(f'{LEARNED}, ', 60)  # task and simulated time
    assert wait_for(lambda: browser.text() != first, 10), 'the scene stands still'
    assert browser.run('!!document.querySelector("canvas")')
    browser.press('Learning', 'tab')
    browser.wait_for(f'of {ITERATIONS} iterations')
    text = browser.wait_for('steps/s')
    assert 'left' in text
    assert 'earlier tasks' in text
    assert browser.run('document.querySelectorAll("svg path").length') >= 4
    browser.press('Tasks', 'tab')
    assert 'running' in browser.wait_for('drawer-close-left')
    browser.press('Knowledge', 'tab')
    text = browser.wait_for('version 1: 1 tasks, 1 columns in L')
    assert 'Growth of L' in text
    assert browser.run('document.querySelectorAll("svg rect").length') == 2  # S, similarity
    browser.press('Arm', 'tab')
    browser.wait_for('no arm')
    check(browser)


def test_each_button_does_on_the_graph_what_it_says(graph, user, browser):
    browser.press('Tasks', 'tab')
    browser.press('Pause')
    browser.wait_for('pause: done')
    assert user.until(lambda: state(user) == 'paused', 30)
    browser.press('Resume')
    browser.wait_for('resume: done')
    assert user.until(lambda: state(user) not in ('paused', ''), 30)

    browser.choose('Task', KNOWN)
    browser.press('Evaluate')
    text = browser.wait_for(f'evaluate: done: {KNOWN}: return', 60)
    own = user.result(user.send_goal(EvaluateTask, 'evaluate_task', task=KNOWN)).result
    assert f'{KNOWN}: return {own.return_mean:,.1f}, success {own.success_rate:.0%}' in text

    browser.press('Stop')
    browser.wait_for('stop: done')
    assert user.until(lambda: state(user) == 'idle', 30)
    parked = task_state(user, LEARNED)
    assert parked.state == 'parked'
    assert parked.iteration >= 2

    browser.press('Switch')
    browser.wait_for('switch: done')
    assert user.until(lambda: user.latest['active_task'].mode == 'acting', 30)
    assert user.latest['active_task'].task == KNOWN

    browser.choose('Task', LEARNED)
    browser.press('Learn')
    browser.wait_for('learn: done')
    assert user.until(lambda: user.latest['active_task'].mode == 'training', 30)
    assert user.latest['active_task'].task == LEARNED
    assert user.until(lambda: task_state(user, LEARNED).iteration > parked.iteration, 30)
    check(browser)


def test_a_refused_button_says_why(graph, browser):
    browser.press('Tasks', 'tab')
    browser.choose('Task', 'window-close')
    browser.press('Switch')
    browser.wait_for("switch: refused: 'window-close' has no policy yet")
    browser.choose('Task', KNOWN)


def test_dead_nodes_are_named_and_the_page_recovers(graph, user, browser):
    for node in ('learner', 'sim_bridge'):
        assert kill(graph, node)
        told = (f'{node}: not heard of', f'{node}: was started again')
        assert wait_for(lambda told=told: any(t in browser.text() for t in told), 30)
        assert wait_for(lambda told=told: not any(t in browser.text() for t in told), 60)
    before = user.latest['status'].iteration
    assert user.until(lambda: user.latest['status'].iteration != before, 60)
    browser.press('Learning', 'tab')
    now = user.latest['status'].iteration
    assert wait_for(lambda: shown_iteration(browser) >= now, 30), browser.text()
    check(browser)


def test_who_slept_sees_the_present_without_a_reload_and_what_others_do(
    graph, user, browser, sleeper
):
    phone, since = sleeper
    time.sleep(max(0.0, SLEEP - (time.monotonic() - since)))
    phone.wake()
    user.spin()
    now = user.latest['status'].iteration
    assert now > 0
    assert wait_for(lambda: table_iteration(phone) >= now, 60), phone.text()
    browser.press('Tasks', 'tab')
    browser.press('Pause')
    assert wait_for(lambda: 'pause: done' in tasks_tab(phone), 30), phone.text()
    check(phone)
    check(browser)


def shown_iteration(page):
    """Return how far the tab Learning says the task in training is; -1 if it does not say."""
    found = re.search(rf'(\d+) of {ITERATIONS} iterations', page.text())
    return int(found[1]) if found else -1


def tasks_tab(page):
    """Return what the table of tasks says; who connects again sees the first tab."""
    page.press('Tasks', 'tab')
    return page.text()


def table_iteration(page):
    """Return how far the table says the task in training is; -1 if it does not say."""
    found = re.search(rf'{LEARNED}\s+running (\d+)/{ITERATIONS}', tasks_tab(page))
    return int(found[1]) if found else -1
