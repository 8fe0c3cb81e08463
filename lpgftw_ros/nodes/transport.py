"""Which way messages go between processes: around an arm never through shared memory.

Before Fast DDS first sends to a process that has joined, it checks the process's shared-memory
port. When two processes check the same port at once, one of them waits a third of a second for
the next sign of life, and everything it publishes waits with it. A guard must not pause because
somebody types `ros2 topic echo`; over UDP there is no such check (docs/adr/0008).
"""

from collections.abc import Mapping

from lpgftw_ros.resources import data_folder

UDP_ONLY_VARIABLE = 'LPGFTW_UDP_ONLY'
"""Set for processes that must not use shared memory."""
_RANGE = 'ROS_AUTOMATIC_DISCOVERY_RANGE'
_PROFILES = ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE')
_BUILTIN = 'FASTDDS_BUILTIN_TRANSPORTS'


def udp_only(rmw: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep this middleware off shared memory; none if it has none.

    What the user has configured by a profile or a choice of transports stays. On this machine
    alone ROS adds shared memory whatever Fast DDS is told, unless the range is left to a profile.
    """
    chosen = any(environment.get(name) for name in (*_PROFILES, _BUILTIN))
    if not rmw.startswith('rmw_fastrtps') or chosen:
        return {}
    if environment.get(_RANGE) != 'LOCALHOST':
        return {_BUILTIN: 'UDPv4'}
    profile = str(data_folder('config') / 'udp_only.xml')
    return dict.fromkeys(_PROFILES, profile) | {_RANGE: 'SYSTEM_DEFAULT'}
