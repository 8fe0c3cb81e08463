"""`composed`: bridge and policy in one process, the same two nodes with the same names."""

from collections.abc import Callable
import sys

from lpgftw_ros.nodes.lifecycle import LifelongNode
from lpgftw_ros.nodes.policy import Policy
from lpgftw_ros.nodes.process import run
from lpgftw_ros.nodes.sim_bridge import SimBridge


def co_located() -> list[Callable[[], LifelongNode]]:
    """Return the makers of both nodes; the bridge calls the policy directly."""
    policy: list[Policy] = []

    def make_policy() -> Policy:
        node = Policy()
        node.colocated = True
        policy.append(node)
        return node

    def make_bridge() -> SimBridge:
        node = SimBridge()
        node.policy_server = policy[0].server
        return node

    return [make_policy, make_bridge]


def main() -> None:
    """Run both nodes on one executor."""
    sys.exit(run(co_located()))


if __name__ == '__main__':
    main()
