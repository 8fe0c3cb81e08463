"""Which variables confine a middleware to this machine and keep it off shared memory."""

from pathlib import Path
import xml.etree.ElementTree as ElementTree

import pytest

from lpgftw_ros.graph.supervisor import transports, UDP_ONLY_VARIABLE

FAST_DDS = 'rmw_fastrtps_cpp'
UDP_ONLY = {UDP_ONLY_VARIABLE: '1'}


@pytest.mark.parametrize(
    ('how', 'used'), [(UDP_ONLY, {'udp', 'UDPv4'}), ({}, {'udp', 'UDPv4', 'memory', 'SHM'})]
)
def test_on_this_machine_a_profile_takes_the_place_of_the_range(how, used) -> None:
    found = transports(FAST_DDS, {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST', **how})
    assert found.pop('ROS_AUTOMATIC_DISCOVERY_RANGE') == 'SYSTEM_DEFAULT'
    (profile,) = set(found.values())
    tree = ElementTree.fromstring(Path(profile).read_text())
    texts = {word.strip() for word in tree.itertext()} - {''}
    assert texts == used | {'32', 'false', '127.0.0.1'}  # nobody else is looked for
    (listened,) = [item for item in tree.iter() if item.tag.endswith('interfaceWhiteList')]
    assert ''.join(listened.itertext()).split() == ['127.0.0.1']


@pytest.mark.parametrize('reach', ['SUBNET', 'OFF', 'SYSTEM_DEFAULT', ''])
def test_elsewhere_the_choice_of_transports_is_enough(reach: str) -> None:
    found = transports(FAST_DDS, {'ROS_AUTOMATIC_DISCOVERY_RANGE': reach, **UDP_ONLY})
    assert found == {'FASTDDS_BUILTIN_TRANSPORTS': 'UDPv4'}
    assert transports(FAST_DDS, {'ROS_AUTOMATIC_DISCOVERY_RANGE': reach}) == {}


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
    assert transports(rmw, chosen) == {}
