"""Compiled bodies: gravity, geometry and masses of the task variants."""

from pathlib import Path
import xml.etree.ElementTree as ElementTree

import gymnasium
import mujoco
import numpy as np
import pytest

from lpgftw_ros.domains.bodies.env import compile_body, RULES
from lpgftw_ros.domains.bodies.settings import BODY_PARTS, BodySettings
from lpgftw_ros.domains.suites import load_suite

BODIES = tuple(BODY_PARTS)


def settings_of(suite, index):
    return BodySettings.from_mapping(load_suite(suite).tasks[index].settings)


def compiled_from_edited_xml(settings):
    """Multiply sizes in the XML, as the authors' code does with theirs.

    Their Hopper and Walker2d have end points in place of a half length, so that only the radius
    is in the size attribute.
    """
    scaled = 2 if settings.body == 'halfcheetah' else 1
    assets = Path(gymnasium.__file__).parent / 'envs' / 'mujoco' / 'assets'
    root = ElementTree.parse(assets / RULES[settings.body].xml).getroot()
    for name, factor in zip(BODY_PARTS[settings.body], settings.parts, strict=True):
        geom = root.find(f".//geom[@name='{name}']")
        sizes = [float(number) for number in geom.get('size').split()]
        sizes[:scaled] = [size * factor for size in sizes[:scaled]]
        geom.set('size', ' '.join(map(repr, sizes)))
    return mujoco.MjModel.from_xml_string(ElementTree.tostring(root, encoding='unicode'))


@pytest.mark.parametrize('body', BODIES)
@pytest.mark.parametrize('index', [0, 1, -1])
def test_gravity_is_scaled_with_full_precision(body, index):
    settings = settings_of(f'{body}-gravity', index)
    gravity = compile_body(settings).opt.gravity
    np.testing.assert_array_equal(gravity, [0.0, 0.0, -9.81 * settings.gravity])


@pytest.mark.parametrize('body', BODIES)
@pytest.mark.parametrize('index', [0, 1, -1])
def test_body_parts_equal_the_recompiled_xml(body, index):
    settings = settings_of(f'{body}-bodyparts', index)
    ours, theirs = compile_body(settings), compiled_from_edited_xml(settings)
    for name in ('geom_size', 'geom_pos', 'body_mass', 'body_inertia', 'dof_M0', 'opt.timestep'):
        mine, expected = ours, theirs
        for part in name.split('.'):
            mine, expected = getattr(mine, part), getattr(expected, part)
        np.testing.assert_array_equal(mine, expected, err_msg=name)


@pytest.mark.parametrize('body', ['hopper', 'walker2d'])
def test_capsules_given_by_end_points_scale_in_radius_only(body):
    nominal = compile_body(BodySettings(body=body))
    scaled = compile_body(BodySettings(body=body, parts=(0.5, 0.6, 1.4, 1.5)))
    for name, factor in zip(BODY_PARTS[body], (0.5, 0.6, 1.4, 1.5), strict=True):
        np.testing.assert_allclose(
            scaled.geom(name).size, nominal.geom(name).size * [factor, 1.0, 1.0], rtol=1e-12
        )


def test_half_cheetah_legs_scale_in_radius_and_length():
    nominal = compile_body(BodySettings(body='halfcheetah'))
    scaled = compile_body(BodySettings(body='halfcheetah', parts=(1.0, 0.5, 1.0, 1.0)))
    np.testing.assert_allclose(scaled.geom('fthigh').size[:2], nominal.geom('fthigh').size[:2] / 2)


def test_half_cheetah_keeps_its_total_mass():
    scaled = compile_body(BodySettings(body='halfcheetah', parts=(0.5, 0.5, 0.5, 0.5)))
    assert scaled.body_mass.sum() == pytest.approx(14.0)
    assert scaled.body('fthigh').mass[0] == pytest.approx(0.34, abs=0.005)
    assert scaled.body('bthigh').mass[0] == pytest.approx(2.93, abs=0.005)


def test_half_cheetah_torso_has_todays_capsule_mass():
    nominal = compile_body(BodySettings(body='halfcheetah'))
    assert nominal.body('torso').mass[0] == pytest.approx(6.25, abs=0.005)


def test_the_left_leg_of_walker2d_stays_nominal():
    nominal = compile_body(BodySettings(body='walker2d'))
    scaled = compile_body(BodySettings(body='walker2d', parts=(1.5, 1.5, 1.5, 1.5)))
    for name in ('thigh_left', 'leg_left', 'foot_left'):
        assert scaled.body(name).mass == nominal.body(name).mass
