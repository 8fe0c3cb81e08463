"""Pictures of a MuJoCo model, drawn without a window."""

import os
from typing import Any

import mujoco

from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning.arrays import Array


class FrameRenderer:
    """Draws a model at given joint positions; starts OpenGL at the first picture."""

    def __init__(self, model: mujoco.MjModel, camera: str | int = -1) -> None:
        self._model, self._camera = model, camera
        self._data = mujoco.MjData(model)
        self._renderer: Any = None
        self._size = (0, 0)

    def frame(self, positions: Array, width: int, height: int) -> Any:
        """Return a picture of the model at these joint positions, uint8 (height, width, 3)."""
        self._data.qpos[:] = positions
        mujoco.mj_forward(self._model, self._data)
        return self.frame_of(self._data, width, height)

    def frame_of(self, data: mujoco.MjData, width: int, height: int) -> Any:
        """Return a picture of a state that was brought forward already."""
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
