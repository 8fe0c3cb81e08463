"""The page: one viser server, five tabs, filled from a source several times a second."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
import functools
import logging
import os
import re
import socket
import threading
import time
from typing import Any

import numpy as np

from lpgftw_ros.dashboard import (
    Answer,
    ArmView,
    charts,
    Curve,
    KnowledgeView,
    Progress,
    SceneFrame,
    Snapshot,
    Source,
    TaskLine,
)
from lpgftw_ros.dashboard.charts import BLUE, GREY, Line, ORANGE, RED
from lpgftw_ros.dashboard.scene import SceneView
from lpgftw_ros.deploy.safety.limits import Nearness
from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.learning.arrays import Integers

log = logging.getLogger(__name__)
LOCAL = '127.0.0.1'
PORT = 8080
HOST_HELP = (
    'address to serve the page on (default 127.0.0.1, this machine only); there is no login, so '
    'on any other address everyone who can reach it can watch and steer'
)
_FRAME_PERIOD = 1 / 25  # s between two looks at the scene
_CONTENT_PERIOD = 0.5  # s between two looks at everything else
_TIME_PERIOD = 0.25  # s between two changes of the time below a moving scene
_PANEL_WIDTH = 540  # pixels
_SPEEDS = {'real time': 1.0, 'half speed': 0.5, '4 x': 4.0, 'as fast as it runs': 0.0}
_LIVE = 'the task in work'
_NICE = 5
_NARROW = 0.8
"""Width over height below which a screen is a phone's."""
_ARM_COLOURS = {'ok': '#1a7f37', 'limited': '#9a6700', 'stopped': '#bc4c00', 'latched': RED}
_PHONE = """<style>@media (max-width: 600px) {
  .mantine-Paper-root:has([role=tab]), .mantine-Paper-root div:has([role=tab]) {
    width: 100% !important; max-width: none !important; }
  [role=tabpanel] { padding-right: 8px; }
}</style>"""
"""viser's sheet for phones leaves a third of their width empty, and scrolls over the rest."""
_OF_A_TASK = 'Chosen task'
_BUTTONS = {
    _OF_A_TASK: {
        'switch': 'act with it',
        'learn': 'start or continue to learn it; the running task is parked',
        'evaluate': 'run its policy without learning',
    },
    'Training': {
        'pause': 'pause training',
        'resume': 'resume training',
        'stop': 'park the running task and hold',
    },
}
"""Rows of buttons, and what each does."""


class Page:
    """One page for all browsers; it survives errors of its source."""

    def __init__(self, source: Source, *, host: str = LOCAL, port: int = PORT) -> None:
        self._source = source
        self._server = _serve(host, port)
        self._over = threading.Event()
        self._content: dict[str, Any] = {}
        self._shown: dict[str, str] = {}
        self._snapshot = Snapshot(title='')
        self._problem = ''
        self._moved: SceneFrame | Integers | None = None
        self._told: Any = None
        self._told_at = 0.0
        self._build()
        self._view = SceneView(self._server.scene)
        self._server.on_client_connect(self._aim)
        self._threads = [
            threading.Thread(target=self._repeat, args=work, daemon=True)
            for work in ((self._refresh, _CONTENT_PERIOD), (self._move, _FRAME_PERIOD))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def url(self) -> str:
        """Address to open in a browser."""
        host = self._server.get_host()
        return f'http://{LOCAL if host in ("0.0.0.0", "::") else host}:{self._server.get_port()}'

    @property
    def clients(self) -> int:
        """Browsers that are connected."""
        return len(self._server.get_clients())

    def greeting(self) -> str:
        """Return the line that tells people where the page is, and what it opens."""
        host = self._server.get_host()
        if host == LOCAL:
            return f'dashboard: {self.url}'
        return f'dashboard: {self.url} (open to everybody who reaches {host}: there is no login)'

    def close(self) -> None:
        """Close the page and its source."""
        self._over.set()
        for thread in self._threads:
            thread.join(2.0)
        with _quiet():
            self._server.stop()
        self._source.close()

    # -- building ------------------------------------------------------------------------

    def _build(self) -> None:
        gui = self._server.gui
        gui.configure_theme(show_logo=False, show_share_button=False, control_width='large')
        self._server.scene.configure_default_lights(cast_shadow=False)
        gui.main_panel.dock_right()
        gui.main_panel.set_width(_PANEL_WIDTH)
        gui.add_html(_PHONE)
        self._html('banner')
        tabs = gui.add_tab_group()
        for name in ('Scene', 'Learning', 'Tasks', 'Knowledge', 'Arm'):
            with tabs.add_tab(name):
                getattr(self, f'_build_{name.lower()}')()

    def _build_scene(self) -> None:
        gui = self._server.gui
        self._html('scene')
        self._follow = gui.add_checkbox('Camera follows', True)
        if self._source.replays:
            self._replayed = gui.add_dropdown('Task', (_LIVE,))
            self._speed = gui.add_dropdown('Speed', tuple(_SPEEDS))
            for control in (self._replayed, self._speed):
                control.on_update(lambda _: self._on_replay())
        self._picture = gui.add_image(np.zeros((2, 2, 3), np.uint8), visible=False)

    def _build_learning(self) -> None:
        self._html('learning')

    def _build_tasks(self) -> None:
        gui = self._server.gui
        self._html('tasks')
        buttons = [a for a in self._source.actions if a != 'emergency_stop']
        if not buttons:
            return
        told = []
        for label, meanings in _BUTTONS.items():
            offered = [name for name in meanings if name in buttons]
            if offered and label == _OF_A_TASK:
                self._chosen = gui.add_dropdown('Task', ('',))
            if offered:
                row = gui.add_button_group(label, [name.capitalize() for name in offered])
                row.on_click(self._on_row)
                told += [f'{name.capitalize()}: {meanings[name]}.' for name in offered]
        self._html('answer')
        gui.add_html(charts.note(' '.join(told)))

    def _build_knowledge(self) -> None:
        self._html('knowledge')

    def _build_arm(self) -> None:
        """Put the button first: what is below it grows and shrinks, and would move it away."""
        if 'emergency_stop' in self._source.actions:
            button = self._server.gui.add_button(
                'EMERGENCY STOP', color='red', hint='holds the arm until it is reset by hand'
            )
            button.on_click(functools.partial(self._on_button, 'emergency_stop'))
            self._html('arm_answer')
        self._html('arm')

    def _html(self, name: str) -> None:
        self._content[name] = self._server.gui.add_html('')

    # -- buttons -------------------------------------------------------------------------

    def _on_replay(self) -> None:
        task = self._replayed.value
        self._source.replay('' if task == _LIVE else task, _SPEEDS[self._speed.value])

    async def _on_row(self, event: Any) -> None:
        """Read which button it was before another browser presses one; run it in a thread."""
        action = event.target.value.lower()
        threading.Thread(target=self._on_button, args=(action, event), daemon=True).start()

    def _on_button(self, action: str, _event: Any) -> None:
        """Run in a thread of its own; show the answer, or why there is none."""
        place = 'arm_answer' if action == 'emergency_stop' else 'answer'
        self._show(place, charts.note(f'{action} ...'))
        task = self._chosen.value if hasattr(self, '_chosen') else ''
        try:
            answer = self._source.act(action, task)
        except Exception as error:
            answer = Answer(False, f'{type(error).__name__}: {error}')
        said = f'{action}: {"done" if answer.success else "refused"}: {answer.message}'
        colour = '#1a7f37' if answer.success else RED
        self._show(place, charts.lines((f'{time.strftime("%H:%M:%S")} {said}',), colour, 600))

    # -- filling -------------------------------------------------------------------------

    def _repeat(self, work: Any, period: float) -> None:
        """Repeat something until the page is closed; errors are shown, and it is tried again."""
        while not self._over.wait(period):
            try:
                work()
            except Exception as error:
                log.exception('the page goes on')
                self._problem = f'{type(error).__name__}: {error}'

    def _refresh(self) -> None:
        """Show what has changed; nothing is read while no browser is open."""
        watched = self.clients > 0
        self._source.watch_scene(watched)
        if not watched and self._shown:
            return
        found = self._snapshot = self._source.snapshot()
        problems = (*found.problems, *((self._problem,) if self._problem else ()))
        self._problem = ''
        self._show('banner', _banner(found, problems))
        self._show('learning', learning(found))
        self._show('tasks', tasks(found.tasks, found.progress.task))
        self._show('knowledge', knowledge(found.knowledge))
        self._show('arm', arm(found.arm))
        self._offer([line.task for line in found.tasks])

    def _offer(self, names: Sequence[str]) -> None:
        """Update the lists of tasks, keeping the selection."""
        for control, first in (('_chosen', ()), ('_replayed', (_LIVE,))):
            handle = getattr(self, control, None)
            options = (*first, *names)
            if handle is not None and options and tuple(handle.options) != options:
                handle.options = options

    def _show(self, name: str, content: str) -> None:
        """Send a part of the page if it has changed."""
        if self._shown.get(name) != content:
            self._shown[name] = content
            self._content[name].content = content

    def _move(self) -> None:
        """Move the scene to the pose of row 0."""
        if not self.clients:
            return
        frame = self._source.frame()
        picture = self._source.picture() if frame is None else None
        shown = picture if frame is None else frame
        if shown is not None and shown is self._moved:
            return
        if frame is not None:
            self._load(frame)
        with self._server.atomic():
            if frame is not None:
                self._view.update(frame.state, self._follow.value)
            elif picture is not None:
                self._view.clear()
                self._view.key = None
                self._picture.image = np.asarray(picture, dtype=np.uint8)
            self._picture.visible = picture is not None
            self._tell(frame, picture is not None)
        self._moved = shown

    def _tell(self, frame: SceneFrame | None, pictured: bool) -> None:
        """Say what moves; its time need not change as often as it moves."""
        now = time.monotonic()
        if frame is None or self._view.key != self._told or now > self._told_at + _TIME_PERIOD:
            self._told, self._told_at = self._view.key, now
            text = _scene_text(frame, pictured, self._view.problem, self._snapshot.still)
            self._show('scene', text)

    def _load(self, frame: SceneFrame) -> None:
        """Draw the task of a frame, unless it is there."""
        state, view = frame.state, self._view
        if view.key != (frame.suite, frame.task, tuple(state.goal.tolist())):
            view.load(frame.suite, frame.task, state.goal, frame.physics)
            for client in self._server.get_clients().values():
                self._aim(client)

    def _aim(self, client: Any) -> None:
        """Place a browser's camera; in a narrow one the tabs cover the lower half."""
        place, target = (np.array(point) for point in self._view.camera)
        narrow = client.camera.aspect < _NARROW
        back = 1.3 if narrow else 1.0
        distance = back * np.linalg.norm(place - target)
        client.camera.position = target + back * (place - target)
        client.camera.look_at = target - (0.0, 0.0, 0.3 * distance if narrow else 0.0)


def _banner(found: Snapshot, problems: Sequence[str]) -> str:
    now = found.progress
    words = [word for word in (now.learner, now.suite, now.task, now.state) if word]
    head = charts.lines((' · '.join(words) or found.title,), weight=600)
    return head + charts.lines(problems, RED, 600)


def _scene_text(frame: SceneFrame | None, pictured: bool, problem: str, still: str) -> str:
    if frame is None and pictured:
        return charts.note('a picture, since there is no model')
    if frame is None:
        return charts.note(still or 'nothing moves')
    if problem:
        return charts.lines((problem,), RED)
    moment = 'as it is measured' if frame.live else f'{frame.state.time:.1f} s'
    return charts.lines((f'{frame.task}, {moment}',))


def learning(found: Snapshot) -> str:
    """Return the tab Learning."""
    now = found.progress
    mine = [c for c in found.curves if c.task == now.task][-1:] or list(found.curves[-1:])
    if not mine:
        return _progress(now) + charts.note('no iteration is finished yet')
    others = [c for c in found.curves if c is not mine[0]]
    lines = {
        name: [
            *(_earlier(c, name, i == 0) for i, c in enumerate(others)),
            *(
                Line('learned alone', getattr(c, name), ORANGE, dash='5 3')
                for c in found.alone
                if c.task == mine[0].task
            ),
            Line(mine[0].task, getattr(mine[0], name), BLUE, width=2.4),
        ]
        for name in ('returns', 'success')
    }
    charted = charts.line_chart(lines['returns'], x_label='iteration', y_label='return', first=1)
    success = charts.line_chart(
        lines['success'],
        x_label='iteration',
        y_label='success',
        first=1,
        y_range=(0.0, 1.0),
        height=150,
    )
    return _progress(now) + charted + success


def _earlier(curve: Curve, name: str, first: bool) -> Line:
    label = 'earlier tasks' if first else curve.task
    return Line(label, getattr(curve, name), GREY, 1.2, opacity=0.45, in_legend=first)


def _progress(now: Progress) -> str:
    share = now.iteration / now.iterations if now.iterations else np.nan
    total = now.visits * now.iterations
    whole = (now.visit * now.iterations + now.iteration) / total if total else np.nan
    task = f'{_count(now.iteration)} of {_count(now.iterations)} iterations'
    run = f'task {_count(now.visit + 1)} of {_count(now.visits)}'
    if now.state == 'finished':
        share = whole = 1.0
        task, run = f'{_count(now.iterations)} iterations', f'{_count(now.visits)} tasks'
    left = [f', {charts.duration(s)} left' if np.isfinite(s) else '' for s in _left(now)]
    rate = f'{charts.short(now.total_steps)} steps'
    if np.isfinite(now.steps_per_second):
        rate = f'{charts.short(now.steps_per_second)} steps/s, {rate}'
    spent = ''
    if np.isfinite(now.wall_seconds):
        so_far = '' if now.state == 'finished' else ' so far'
        spent = f', {charts.duration(now.wall_seconds)}{so_far}'
    return (
        charts.bar(now.task or 'task', share, task + left[0])
        + charts.bar('run', whole, run + left[1])
        + charts.lines((rate + spent,))
    )


def _left(now: Progress) -> tuple[float, float]:
    return now.task_seconds_left, now.run_seconds_left


def _count(value: float) -> str:
    return f'{value:.0f}' if np.isfinite(value) else '-'


def tasks(found: Sequence[TaskLine], active: str) -> str:
    """Return the table of the tab Tasks."""
    if not found:
        return charts.note('no list of tasks yet')
    head = ('task', 'state', 'now', 'when learned')
    rows = [
        (
            line.task,
            line.state
            if line.state in ('finished', 'new')
            else f'{line.state} {line.iteration}/{line.iterations}',
            _score(line.return_now, line.success_now),
            _score(line.return_tuned, line.success_tuned),
        )
        for line in found
    ]
    bold = next((i for i, line in enumerate(found) if line.task == active), None)
    hint = charts.note('return and success, now and right after the task was learned')
    return charts.table(head, rows, bold) + hint


def _score(value: float, success: float) -> str:
    """Return a return with its success as text; a dash for what is unknown or undefined."""
    return f'{charts.short(value)} ({charts.percent(success)})' if np.isfinite(value) else '-'


def knowledge(found: KnowledgeView | None) -> str:
    """Return the tab Knowledge."""
    if found is None or not found.tasks:
        return charts.note('nothing is shared yet')
    n, k = found.coefficients.shape
    parts = [charts.lines((f'version {found.version}: {n} tasks, {k} columns in L',), weight=600)]
    if k:
        limit = float(np.nanmax(np.abs(found.coefficients), initial=0.0)) or 1.0
        names = [f'{j + 1}' for j in range(k)]
        parts.append(charts.heading('S: how much of each column a task uses (s times its norm)'))
        parts.append(
            charts.heat_map(found.coefficients, found.tasks, names, limit=limit, label='S')
        )
    if found.similarity.size:
        parts.append(charts.heading('Similarity of tasks (cosine of their parameters)'))
        parts.append(
            charts.heat_map(
                found.similarity, found.tasks, found.tasks, limit=1.0, label='similarity'
            )
        )
    if found.growth:
        columns = np.array([float(columns) for _, columns in found.growth])
        parts.append(charts.heading('Growth of L'))
        parts.append(
            charts.line_chart(
                [Line('columns of L', columns, BLUE, in_legend=False)],
                x_label='task',
                y_label='columns',
                first=1,
                height=130,
                y_range=(0.0, float(columns.max()) + 1.0),
            )
        )
    if found.explained:
        parts.append(charts.heading('What each task reuses'))
        for first, *rest in found.explained:
            parts.append(charts.lines((first,), weight=600) + charts.lines(rest))
    return ''.join(parts)


def arm(found: ArmView | None) -> str:
    """Return the tab Arm."""
    if found is None:
        return charts.note('no arm: this tab is for the graph of deploy.launch.py')
    colour = _ARM_COLOURS.get(found.level, charts.FAINT)
    state = f'{found.level.upper()} ({found.code}) for {charts.duration(found.since)}'
    parts = [charts.lines((state,), colour, 700), charts.lines((found.text,))]
    parts.append(charts.lines((f'interventions since activation: {found.count}',)))
    parts.append(charts.heading('Limits, and how near they are (full: at the limit)'))
    if found.problem:
        parts.append(charts.lines((found.problem,), RED))
    elif not found.limits:
        parts.append(charts.note('nothing is measured yet'))
    parts += [_limit(limit) for limit in found.limits]
    if found.interventions:
        parts += [charts.heading('Last interventions'), charts.lines(found.interventions)]
    if found.links:
        rows = [(name, charts.duration(age) if age >= 1 else '< 1 s') for name, age in found.links]
        parts += [charts.heading('Last heard of'), charts.table(('link', 'ago'), rows)]
    return ''.join(parts)


def _limit(near: Nearness) -> str:
    colour = RED if near.share >= 1.0 else ORANGE if near.share >= 0.8 else BLUE
    high = f'{charts.short(near.high)} {near.unit}'
    bounds = f'of {high}' if near.low == -near.high else f'in {charts.short(near.low)} to {high}'
    return charts.bar(near.what, near.share, f'{charts.short(near.value)} {bounds}', colour)


# -- serving -----------------------------------------------------------------------------


def give_way() -> None:
    """Let this process wait for a gap in the work of others, some ms long, and interrupt nobody.

    On a full machine a control step ends when its slowest row has ended; a page that wakes up in
    between would hold up all of them. It keeps a third of what others get if there is no gap.
    """
    with suppress(OSError, AttributeError):  # not Linux, or not allowed
        for thread in map(int, os.listdir('/proc/self/task')):
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, thread, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))


def _serve(host: str, port: int) -> Any:
    """Start the server, quiet, without its public tunnel, for its own pages only."""
    try:
        import viser
    except ImportError as error:
        raise LpgftwError(
            "the dashboard needs viser: run make setup, or pip install 'lpgftw_ros[dashboard]'"
        ) from error
    _require_free(host, port)
    with _own_pages_only(host), _quiet():
        server = viser.ViserServer(host=host, port=port, label='lpgftw', verbose=False)
    logging.getLogger('websockets').setLevel(logging.CRITICAL)  # who knocks and leaves is no news
    # Any client may ask viser for a public address, also without its button.
    server.request_share_url = lambda verbose=True: None
    return server


def _require_free(host: str, port: int) -> None:
    """Raise if the port is taken or the address is not ours; viser would silently take another."""
    if not 0 <= port < 65536:
        raise InvalidConfig(f'port must be 0 to 65535, got {port}')
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise LpgftwError(
                f'cannot serve the dashboard on {host}:{port}: {error.strerror}; '
                f'choose another port'
            ) from None


@contextmanager
def _own_pages_only(host: str) -> Iterator[None]:
    """Make the server refuse pages of other sites: they could press our buttons.

    viser accepts connections of any origin; the library below it can check them.
    """
    import websockets.asyncio.server as library

    own = {LOCAL, 'localhost', '[::1]', host, socket.gethostname()}
    names = '|'.join(re.escape(name) for name in sorted(own))
    if host in ('0.0.0.0', '::'):
        names += r'|[0-9.]+|\[[0-9a-f:]+\]'
    origins = [None, re.compile(rf'https?://({names})(:[0-9]+)?', re.IGNORECASE)]
    serve = library.serve
    library.serve = functools.partial(serve, origins=origins)  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        library.serve = serve  # type: ignore[misc]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep viser's greeting from the terminal; the caller names the address."""
    import rich

    printed = rich.print
    rich.print = lambda *args, **kwargs: None
    try:
        yield
    finally:
        rich.print = printed
