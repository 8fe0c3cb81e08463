"""Quality of service of every topic, in one place."""

from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

LOCK_STEP = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=1, reliability=ReliabilityPolicy.RELIABLE
)
"""Commands and other words of which only the newest counts."""

QUESTIONS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=2, reliability=ReliabilityPolicy.RELIABLE
)
"""Observations and actions: one for each of the two parts a rollout may have."""

BATCHES = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=2, reliability=ReliabilityPolicy.RELIABLE
)
"""Finished trajectories."""

LATCHED = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
"""State that late subscribers need: knowledge, policy in training, active task, status."""

LATCHED_AMONG_STRANGERS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=20,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
"""As `LATCHED`, for subscribers that must not miss one: all publishers share a depth of 1."""

FRAMES = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=100, reliability=ReliabilityPolicy.RELIABLE
)
"""Transforms, as tf2 publishes them."""

MEASUREMENT = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=5, reliability=ReliabilityPolicy.BEST_EFFORT
)
"""Messages of an arm and its sensors; a subscription with it matches every publisher."""

BUTTON = tuple(
    QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=1000, reliability=reliability, durability=durability
    )
    for reliability, durability in (
        (ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE),
        (ReliabilityPolicy.BEST_EFFORT, DurabilityPolicy.VOLATILE),
        (ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL),
    )
)
"""Subscriptions that together receive a button from any kind of publisher. All publishers share a
depth: with a small one, the words of another node push a press out before it is read."""

SENSOR = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=5)
"""Monitoring topics."""

NEWEST = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=1, reliability=ReliabilityPolicy.BEST_EFFORT
)
"""Poses for viewers: late ones are useless."""


def short_lived(seconds: float) -> QoSProfile:
    """Return `LOCK_STEP` for messages that are never delivered after this time."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=1,
        reliability=ReliabilityPolicy.RELIABLE,
        lifespan=Duration(seconds=seconds),
    )
