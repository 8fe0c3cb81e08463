"""Which variables keep a middleware off shared memory."""

from pathlib import Path
import xml.etree.ElementTree as ElementTree

import pytest

from lpgftw_ros.nodes.transport import udp_only

FAST_DDS = 'rmw_fastrtps_cpp'


def test_on_this_machine_a_profile_takes_the_place_of_the_range() -> None:
    found = udp_only(FAST_DDS, {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'})
    assert found.pop('ROS_AUTOMATIC_DISCOVERY_RANGE') == 'SYSTEM_DEFAULT'
    (profile,) = set(found.values())
    words = ElementTree.fromstring(Path(profile).read_text()).itertext()
    texts = {word.strip() for word in words} - {''}
    assert texts == {'udp', 'UDPv4', '32', 'false', '127.0.0.1'}  # nobody else is looked for


@pytest.mark.parametrize('reach', ['SUBNET', 'OFF', 'SYSTEM_DEFAULT', ''])
def test_elsewhere_the_choice_of_transports_is_enough(reach: str) -> None:
    found = udp_only(FAST_DDS, {'ROS_AUTOMATIC_DISCOVERY_RANGE': reach})
    assert found == {'FASTDDS_BUILTIN_TRANSPORTS': 'UDPv4'}


@pytest.mark.parametrize(
    ('rmw', 'variable'),
    [
        ('rmw_cyclonedds_cpp', ''),
        (FAST_DDS, 'FASTRTPS_DEFAULT_PROFILES_FILE'),
        (FAST_DDS, 'FASTDDS_DEFAULT_PROFILES_FILE'),
        (FAST_DDS, 'FASTDDS_BUILTIN_TRANSPORTS'),
    ],
)
def test_other_middleware_and_the_users_own_choice_stay(rmw: str, variable: str) -> None:
    chosen = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST', variable: 'mine'}
    assert udp_only(rmw, chosen) == {}
