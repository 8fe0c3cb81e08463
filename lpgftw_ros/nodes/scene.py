"""`scene`: what RViz and Foxglove draw: the robot, its frames, the goal, the path of the hand.

It is a process of its own, fed by `scene_pose`. It subscribes only while there are viewers, and
the bridge publishes poses only for subscribers, so an unwatched graph pays nothing.
"""

from collections import deque
from collections.abc import Iterable
import importlib
from pathlib import Path
import sys
import time
from typing import Any

from geometry_msgs.msg import Point, TransformStamped
from geometry_msgs.msg import Pose as PoseMsg
import imageio.v3 as imageio
import metaworld
import numpy as np
from sensor_msgs.msg import CameraInfo, CompressedImage
from std_msgs.msg import ColorRGBA, String

from lpgftw_interfaces.msg import ScenePose
from lpgftw_ros.domains.rendering import camera_of, Painter
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.domains.vector_env import scene_model, SceneState
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.parameters import SceneParameters
from lpgftw_ros.graph.urdf import Edge, Pose, Tree, WORLD
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.lifecycle import LifelongNode, OK, STEADY, WARN
from lpgftw_ros.nodes.process import run

LOOK_PERIOD = 0.5  # s between two looks whether anybody watches
PICTURE_PERIOD = 0.2  # s between two pictures
WIDTH, HEIGHT = 480, 360
HAND = 'hand'
GOAL_COLOUR, TRAIL_COLOUR, OBJECT_COLOUR = (0.1, 0.8, 0.2, 0.6), (0.2, 0.5, 1, 1), (1, 0.6, 0, 0.5)
GOAL_SIZE, OBJECT_SIZE, TRAIL_WIDTH = 0.04, 0.06, 0.006  # m
MESH_FOLDERS = (Path(metaworld.__file__).parent / 'assets' / 'sawyer_xyz',)


def optional(module: str) -> Any:
    """Return a package of messages, or None if it is not installed: some have no wheel."""
    try:
        return importlib.import_module(f'{module}.msg')
    except ImportError:
        return None


class Drawing:
    """One task's model as links and frames, and its special links."""

    def __init__(self, suite: str, task: str, goal: Array) -> None:
        """Build the model; raises `LpgftwError` if the task has none to draw."""
        model = scene_model(load_suite(suite).task(task), goal)
        if model is None:
            raise LpgftwError(f'{task} has no MuJoCo model to draw')
        self.tree = Tree(model)
        self.urdf = self.tree.urdf(f'{task}-scene'.replace(' ', '-'), MESH_FOLDERS)
        self.objects = self._objects()
        view = camera_of(model)
        self.camera = view if isinstance(view, str) else 'camera'
        angle = model.camera(view).fovy[0] if isinstance(view, str) else model.vis.global_.fovy
        self.focal_length = float(0.5 * HEIGHT / np.tan(np.radians(angle) / 2.0))
        """In pixels."""

    def _objects(self) -> tuple[str, ...]:
        """Return the links that move by themselves and are no part of the robot."""
        parents = {edge.child: edge.parent for edge in self.tree.edges}

        def root(link: str) -> str:
            while parents.get(link, WORLD) != WORLD:
                link = parents[link]
            return link

        robot = root(HAND) if HAND in parents else ''
        moving = [edge.child for edge in self.tree.moving if edge.kind != 'mocap']
        return tuple(link for link in moving if robot and root(link) != robot)


class Scene(LifelongNode):
    """Publishes description, frames and markers of row 0 for viewers."""

    config: SceneParameters

    def __init__(self) -> None:
        super().__init__('scene', SceneParameters)
        self._key: tuple[str, str, tuple[float, ...]] | None = None
        self._drawing: Drawing | None = None
        self._problem = ''
        self._shown = 0

    def configure(self) -> None:
        """Open the topics; subscribe to poses when there are viewers."""
        self._transforms, self._shapes = optional('tf2_msgs'), optional('visualization_msgs')
        self._description = self.create_publisher(String, 'robot_description', qos.LATCHED)
        self._topics = [self._description]
        if self._transforms is None:
            self.get_logger().warning('no frames on /tf: the package tf2_msgs is not installed')
        else:
            message = self._transforms.TFMessage
            self._tf = self.create_publisher(message, '/tf', qos.FRAMES)
            self._tf_static = self.create_publisher(message, '/tf_static', qos.LATCHED)
            self._topics += [self._tf, self._tf_static]
        if self._shapes is None:
            self.get_logger().warning(
                'no markers: the package visualization_msgs is not installed'
            )
        else:
            self._markers = self.create_publisher(
                self._shapes.MarkerArray, 'markers', qos.LOCK_STEP
            )
            self._topics.append(self._markers)
        self._picture = self.create_publisher(CompressedImage, 'image/compressed', qos.SENSOR)
        self._camera = self.create_publisher(CameraInfo, 'camera_info', qos.SENSOR)
        self._topics += [self._picture, self._camera]
        self._drawn_at, self._painter = -PICTURE_PERIOD, Painter()
        self._poses: Any = None
        self._trail: deque[Array] = deque(maxlen=self.config.trail)
        self._trajectory: tuple[int, int] | None = None
        self._timer = self.create_timer(LOOK_PERIOD, self._look_around, clock=STEADY)

    def deactivate(self) -> None:
        """Stop listening."""
        self._listen(False)

    def cleanup(self) -> None:
        """Close the topics."""
        if hasattr(self, '_timer'):
            self._listen(False)
            self.destroy_timer(self._timer)
            self._painter.close()
            for publisher in self._topics:
                self.destroy_publisher(publisher)
            self._forget()
            del self._timer

    def _forget(self) -> None:
        """Let go of the task that was shown."""
        self._key, self._drawing, self._problem = None, None, ''

    def health(self) -> tuple[int, str, dict[str, object]]:
        """Return what is shown, and whether there are viewers."""
        listening = hasattr(self, '_timer') and self._poses is not None
        values: dict[str, object] = {'poses': self._shown, 'listening': listening}
        blind = self._painter.problem if hasattr(self, '_timer') else ''
        if problem := self._problem or blind:
            return WARN, problem, values
        return OK, f'showing {self._key[1]}' if self._key and listening else 'ready', values

    def _look_around(self) -> None:
        watched = any(p.get_subscription_count() for p in self._topics)
        self._listen(self.active and watched)

    def _listen(self, wanted: bool) -> None:
        if wanted and self._poses is None:
            self._poses = self.create_subscription(
                ScenePose, 'scene_pose', self._on_pose, qos.MEASUREMENT
            )
        elif not wanted and self._poses is not None:
            self.destroy_subscription(self._poses)
            self._poses = None

    def _on_pose(self, message: ScenePose) -> None:
        drawing = self._drawn(message)
        if drawing is None:
            return
        qpos, mocap = np.array(message.qpos), np.array(message.mocap).reshape(-1, 7)
        if self._transforms is not None:
            edges = drawing.tree.moving
            poses = (edge.pose(qpos, mocap) for edge in edges)
            self._tf.publish(self._frames(message.header.stamp, edges, poses))
        if self._shapes is not None and self._markers.get_subscription_count():
            self._publish_markers(message, drawing, drawing.tree.poses(qpos, mocap))
        watched = any(p.get_subscription_count() for p in (self._picture, self._camera))
        if watched and time.monotonic() - self._drawn_at > PICTURE_PERIOD:
            self._drawn_at = time.monotonic()
            state = SceneState(qpos, mocap, np.array(message.goal), message.time)
            self._painter.offer(
                message.suite,
                message.key.task,
                state,
                (WIDTH, HEIGHT),
                lambda frame: self._publish_picture(message, drawing, frame),
            )
        self._shown += 1

    def _publish_picture(self, message: ScenePose, drawing: Drawing, frame: Any) -> None:
        """Publish row 0 as its camera sees it; called by the thread that draws."""
        picture = CompressedImage(format='jpeg')
        picture.data.frombytes(imageio.imwrite('<bytes>', frame, extension='.jpeg'))
        info = CameraInfo(width=WIDTH, height=HEIGHT, distortion_model='plumb_bob', d=[0.0] * 5)
        f, x, y = drawing.focal_length, WIDTH / 2.0, HEIGHT / 2.0
        info.k = [f, 0.0, x, 0.0, f, y, 0.0, 0.0, 1.0]
        info.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
        info.p = [f, 0.0, x, 0.0, 0.0, f, y, 0.0, 0.0, 0.0, 1.0, 0.0]
        for sent in (picture, info):
            sent.header.stamp = message.header.stamp
            sent.header.frame_id = self._frame(drawing.camera)
        self._picture.publish(picture)
        self._camera.publish(info)

    def _drawn(self, message: ScenePose) -> Drawing | None:
        """Return what to draw; a new task has a new description."""
        key = (message.suite, message.key.task, tuple(message.goal))
        if key != self._key:
            self._forget()
            self._key = key
            try:
                self._drawing = Drawing(message.suite, message.key.task, np.array(message.goal))
            except LpgftwError as error:
                self._problem = f'nothing to draw: {error}'
                self.get_logger().warning(self._problem)
                return None
            self._describe(self._drawing, message)
        return self._drawing

    def _describe(self, drawing: Drawing, message: ScenePose) -> None:
        self._description.publish(String(data=drawing.urdf))
        if self._transforms is not None:
            edges = drawing.tree.fixed
            poses = (edge.origin for edge in edges)
            self._tf_static.publish(self._frames(message.header.stamp, edges, poses))
        self.get_logger().info(f'showing {message.key.task}: {len(drawing.tree.links)} links')

    def _frames(self, stamp: Any, edges: Iterable[Edge], poses: Iterable[Pose]) -> Any:
        transforms = []
        for edge, pose in zip(edges, poses, strict=True):
            transform = TransformStamped(child_frame_id=self._frame(edge.child))
            transform.header.stamp, transform.header.frame_id = stamp, self._frame(edge.parent)
            place, turn = transform.transform.translation, transform.transform.rotation
            place.x, place.y, place.z = pose.position.tolist()
            turn.w, turn.x, turn.y, turn.z = pose.quaternion.tolist()
            transforms.append(transform)
        return self._transforms.TFMessage(transforms=transforms)

    def _frame(self, link: str) -> str:
        return self.config.frame_prefix + link

    def _publish_markers(
        self, message: ScenePose, drawing: Drawing, poses: dict[str, Pose]
    ) -> None:
        shape, markers = self._shapes.Marker, []
        if len(message.goal) == 3:
            goal = self._marker(message, 'goal', 0, shape.SPHERE, GOAL_SIZE, GOAL_COLOUR)
            goal.pose = _place(np.array(message.goal))
            markers.append(goal)
        for number, link in enumerate(drawing.objects):
            thing = self._marker(
                message, 'object', number, shape.SPHERE, OBJECT_SIZE, OBJECT_COLOUR
            )
            thing.pose = _place(poses[link].position)
            markers.append(thing)
        if HAND in poses:
            trail = self._marker(message, 'hand', 0, shape.LINE_STRIP, TRAIL_WIDTH, TRAIL_COLOUR)
            trail.points = [_point(place) for place in self._went(message, poses[HAND].position)]
            markers.append(trail)
        self._markers.publish(self._shapes.MarkerArray(markers=markers))

    def _marker(
        self,
        message: ScenePose,
        name: str,
        number: int,
        kind: int,
        size: float,
        colour: tuple[float, ...],
    ) -> Any:
        marker = self._shapes.Marker(ns=name, id=number, type=kind)
        marker.header.stamp, marker.header.frame_id = message.header.stamp, self._frame(WORLD)
        marker.scale.x = marker.scale.y = marker.scale.z = size
        marker.pose.orientation.w = 1.0
        marker.color = ColorRGBA(**dict(zip('rgba', map(float, colour), strict=True)))
        return marker

    def _went(self, message: ScenePose, hand: Array) -> Iterable[Array]:
        """Return where the hand was in this trajectory, the latest last."""
        trajectory = (message.key.rollout, message.trajectory)
        if trajectory != self._trajectory:
            self._trajectory = trajectory
            self._trail.clear()
        self._trail.append(hand)
        return self._trail


def _place(position: Array) -> PoseMsg:
    pose = PoseMsg(position=_point(position))
    pose.orientation.w = 1.0
    return pose


def _point(position: Array) -> Point:
    x, y, z = position.tolist()
    return Point(x=x, y=y, z=z)


def main() -> None:
    """Run the node."""
    sys.exit(run([Scene]))


if __name__ == '__main__':
    main()
