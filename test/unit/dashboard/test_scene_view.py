"""The 3-D scene: bodies hang on each other, and only what moved is sent."""

import mujoco
import numpy as np
import pytest

from lpgftw_ros.dashboard.scene import SceneView
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.domains.vector_env import SceneState


class Node:
    """A node of the scene as a browser has it; counts what it is sent."""

    def __init__(self, nodes, name, position=(0, 0, 0), wxyz=(1, 0, 0, 0)):
        self.sent, self._nodes, self._name = 0, nodes, name
        self._pose = {'position': np.array(position, float), 'wxyz': np.array(wxyz, float)}
        nodes[name] = self

    position = property(lambda self: self._pose['position'], lambda self, v: self._set(position=v))
    wxyz = property(lambda self: self._pose['wxyz'], lambda self, v: self._set(wxyz=v))

    def _set(self, **values):
        self.sent += 1
        self._pose |= {key: np.array(value) for key, value in values.items()}

    def remove(self):
        del self._nodes[self._name]


class Browser:
    """What viser's scene does in a browser: a tree of poses."""

    def __init__(self):
        self.nodes = {}

    def add_frame(self, name, show_axes=True, **pose):
        return Node(self.nodes, name, **pose)

    def add_mesh_simple(self, name, **shape):
        return Node(self.nodes, name)

    add_grid = add_icosphere = add_mesh_simple

    @property
    def sent(self):
        return sum(node.sent for node in self.nodes.values())

    def place(self, name):
        """Return position and rotation of a node in the world, through all its ancestors."""
        place, turn, path = np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), ''
        for word in name.strip('/').split('/'):
            path += f'/{word}'
            node, before = self.nodes[path], (place.copy(), turn.copy())
            mujoco.mju_mulPose(place, turn, *before, node.position, node.wxyz)
        return place, turn


def random_state(model, seed):
    rng = np.random.default_rng(seed)
    mocap = rng.standard_normal((model.nmocap, 7))
    mocap[:, 3:] /= np.linalg.norm(mocap[:, 3:], axis=1, keepdims=True)
    positions = model.qpos0 + 0.3 * rng.standard_normal(model.nq)
    return SceneState(positions, mocap, np.zeros(0), 0.0)


@pytest.fixture(
    params=[('mt10', 'window-close'), ('mt10', 'pick-place'), ('halfcheetah-gravity', '')]
)
def shown(request):
    suite, task = request.param
    browser = Browser()
    view = SceneView(browser)
    view.load(suite, task or load_suite(suite).task_names[0], np.zeros(0))
    assert not view.problem
    return browser, view


def test_every_body_is_where_the_model_has_it(shown):
    browser, view = shown
    for seed in range(5):
        view.update(random_state(view._model, seed), follow=False)
        bodies = [name for name in browser.nodes if name.rsplit('/', 1)[1].isdigit()]
        assert len(bodies) > 5
        for name in bodies:
            body = int(name.rsplit('/', 1)[1])
            place, turn = browser.place(name)
            np.testing.assert_allclose(place, view._data.xpos[body], atol=1e-4)
            assert abs(turn @ view._data.xquat[body]) == pytest.approx(1.0, abs=1e-6)


def test_a_joint_that_turns_is_one_message(shown):
    browser, view = shown
    model = view._model
    state = random_state(model, 1)
    view.update(state, follow=False)
    before = browser.sent
    view.update(state, follow=False)
    assert browser.sent == before
    hinge = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE)[0]
    state.positions[model.jnt_qposadr[hinge]] += 0.1
    view.update(state, follow=False)
    assert browser.sent == before + 1


def test_nothing_stays_when_the_task_changes(shown):
    browser, view = shown
    view.clear()
    assert browser.nodes == {}
