"""Pictures of a MuJoCo model, drawn without a window."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
import functools
import json
import logging
import os
import subprocess
import sys
import threading
from typing import Any

import mujoco
import numpy as np

from lpgftw_ros.domains.vector_env import scene_model, SceneState
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning.arrays import Array

CAMERAS = ('corner2', 'track')  # of Meta-World, of the bodies


def camera_of(model: mujoco.MjModel) -> str | int:
    """Return the camera people know the task by; -1, the free one, if there is none."""
    names = [model.camera(number).name for number in range(model.ncam)]
    return next((name for name in CAMERAS if name in names), -1)


class FrameRenderer:
    """Draws a model at given joint positions; starts OpenGL at the first picture."""

    def __init__(self, model: mujoco.MjModel, camera: str | int = -1) -> None:
        self._model, self._camera = model, camera
        self._data = mujoco.MjData(model)
        self._renderer: Any = None
        self._size = (0, 0)

    def frame(self, positions: Array, width: int, height: int, mocap: Array | None = None) -> Any:
        """Return a picture of the model at these joint positions, uint8 (height, width, 3).

        `mocap` has position and quaternion of each mocap body.
        """
        self._data.qpos[:] = positions
        if mocap is not None:
            self._data.mocap_pos[:], self._data.mocap_quat[:] = mocap[:, :3], mocap[:, 3:]
        mujoco.mj_forward(self._model, self._data)
        return self.frame_of(self._data, width, height)

    def frame_of(self, data: mujoco.MjData, width: int, height: int) -> Any:
        """Return a picture of a state whose kinematics are already computed."""
        if self._renderer is None or self._size != (width, height):
            self._start(width, height)
        self._renderer.update_scene(data, camera=self._camera)
        return self._renderer.render().copy()

    def _start(self, width: int, height: int) -> None:
        self.close()
        buffer = self._model.vis.global_
        buffer.offwidth, buffer.offheight = (
            max(buffer.offwidth, width),
            max(buffer.offheight, height),
        )
        try:
            self._renderer = mujoco.Renderer(self._model, height, width)
        except Exception as error:  # each OpenGL back-end raises its own kind
            raise LpgftwError(
                f'cannot draw: OpenGL does not start here ({type(error).__name__}; MUJOCO_GL is '
                f"'{os.environ.get('MUJOCO_GL', '')}', without a display it must be egl or osmesa)"
            ) from None
        self._size = (width, height)

    def close(self) -> None:
        """Free OpenGL."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


# MuJoCo's warnings go to Python's log instead of a file in the working folder.
#
# An unstable row is marked in its trajectory; MuJoCo's own text about it is for debugging.


_log = logging.getLogger('lpgftw_ros.physics')


def _on_warning(text: str) -> None:
    _log.debug('MuJoCo: %s', text)


def log_warnings() -> None:
    """Send MuJoCo's warnings to the log, unless the program has its own handler."""
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_on_warning)


# Pictures drawn by a process of its own: a driver that crashes or hangs takes nothing with it, and
# a process can try another back end, which MuJoCo chooses once, when it is imported.


BACK_ENDS = ('egl', 'osmesa', 'glfw')
PATIENCE = 60.0  # s for a picture; the first one waits for the process to start


class PictureProcess:
    """Draws tasks of a suite; chooses the first back end that works."""

    def __init__(self) -> None:
        wanted = os.environ.get('MUJOCO_GL', '').lower()
        self._untried = list(dict.fromkeys(name for name in (wanted, *BACK_ENDS) if name))
        self._process: subprocess.Popen[bytes] | None = None
        self._tried: list[str] = []

    def frame(self, suite: str, task: str, state: SceneState, width: int, height: int) -> Any:
        """Return a picture, uint8 (height, width, 3); raises `LpgftwError` if none can be had."""
        order = {'suite': suite, 'task': task, 'width': width, 'height': height}
        order |= {
            'positions': state.positions.tolist(),
            'mocap': state.mocap.tolist(),
            'goal': state.goal.tolist(),
        }
        while self._process is not None or self._untried:
            process = self._process = self._process or self._started(self._untried[0])
            try:
                return self._drawn(process, order)
            except (OSError, ValueError, LpgftwError) as error:
                self.close()
                if not self._untried:
                    raise LpgftwError(f'the process that draws ended: {error}') from None
                self._tried.append(self._untried.pop(0))
        raise LpgftwError(
            f'OpenGL does not start here, tried {", ".join(self._tried)}: '
            'sudo apt-get install -y libegl1'
        )

    def kill(self) -> None:
        """Make whoever waits for a picture go on, without one; may be called by another thread."""
        self._untried = []
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    @staticmethod
    def _started(back_end: str) -> 'subprocess.Popen[bytes]':
        environment = {**os.environ, 'MUJOCO_GL': back_end}
        environment.pop('PYOPENGL_PLATFORM', None)
        return subprocess.Popen(
            [sys.executable, '-m', 'lpgftw_ros.domains.rendering'],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def _drawn(self, process: 'subprocess.Popen[bytes]', order: dict[str, Any]) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        hung = threading.Timer(PATIENCE, process.kill)
        hung.start()
        try:
            process.stdin.write(json.dumps(order).encode() + b'\n')
            process.stdin.flush()
            answer = json.loads(process.stdout.readline() or b'{"problem": "it crashed"}')
            if answer.get('problem'):
                raise LpgftwError(answer['problem'])
            shape = order['height'], order['width'], 3
            data = process.stdout.read(int(np.prod(shape)))
        finally:
            hung.cancel()
        self._untried = []  # this one works
        return np.frombuffer(data, np.uint8).reshape(shape)


class Painter:
    """Draws one picture after another in a thread of its own, until the first failure."""

    def __init__(self) -> None:
        self.problem = ''
        """Why nothing is drawn any more."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix='pictures')
        self._process = PictureProcess()
        self._busy = self._closing = False

    def offer(
        self,
        suite: str,
        task: str,
        state: SceneState,
        size: tuple[int, int],
        show: Callable[[Any], None],
    ) -> None:
        """Draw unless the last picture is still in work; `show` is called by the thread."""
        if not self._busy and not self.problem:
            self._busy = True
            draw = functools.partial(self._process.frame, suite, task, state, *size)
            self._thread.submit(self.take, draw, show)

    def take(self, draw: Callable[[], Any], show: Callable[[Any], None]) -> None:
        """Draw at once, in the thread of the caller, and show it."""
        try:
            frame = None if self.problem else draw()
            if frame is not None and not self._closing:
                show(frame)
        except LpgftwError as error:
            self.problem = f'no pictures: {error}'
            if not self._closing:
                _log.warning(self.problem)
        finally:
            self._busy = False

    def close(self) -> None:
        """End thread and process; nothing is shown afterwards."""
        self._closing = True
        self._process.kill()
        self._thread.shutdown()
        self._process.close()


def _renderer_of(order: dict[str, Any]) -> FrameRenderer:
    from lpgftw_ros.domains.suites import load_suite

    task = load_suite(order['suite']).task(order['task'])
    model = scene_model(task, np.array(order['goal']))
    if model is None:
        raise LpgftwError(f'{task.name} has no MuJoCo model to draw')
    return FrameRenderer(model, camera_of(model))


def _serve() -> None:
    """Answer orders on standard input with pictures on standard output."""
    out = os.fdopen(os.dup(1), 'wb')
    os.dup2(2, 1)  # whatever else is printed goes elsewhere
    renderers: dict[str, FrameRenderer] = {}
    for line in sys.stdin.buffer:
        order = json.loads(line)
        what = json.dumps([order['suite'], order['task'], order['goal']])
        try:
            if what not in renderers:
                for old in renderers.values():
                    old.close()
                renderers = {what: _renderer_of(order)}
            mocap, size = (
                np.array(order['mocap']).reshape(-1, 7),
                (order['width'], order['height']),
            )
            frame = renderers[what].frame(np.array(order['positions']), *size, mocap)
        except LpgftwError as error:
            out.write(json.dumps({'problem': str(error)}).encode() + b'\n')
        else:
            out.write(b'{}\n' + frame.tobytes())
        out.flush()


if __name__ == '__main__':
    _serve()
