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

SENSOR = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=5)
"""What people watch."""
