"""Quality of service of every topic, in one place."""

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

LOCK_STEP = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=1, reliability=ReliabilityPolicy.RELIABLE
)
"""Observations and actions: only the newest counts."""

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
"""State a late joiner needs: knowledge, policy in training, active task, status."""

MEASUREMENT = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=5, reliability=ReliabilityPolicy.BEST_EFFORT
)
"""What an arm and its sensors send; as a subscription it hears every kind of sender."""

BUTTON = (BATCHES, MEASUREMENT, LATCHED)
"""Subscriptions that together miss no message of a button, however it is sent."""

SENSOR = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=5)
"""What people watch."""
