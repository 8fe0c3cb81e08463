"""A policy's mean action as an ONNX graph, for runtimes that do not speak Python."""

from dataclasses import asdict
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper, TensorProto

from lpgftw_ros.deploy.export import ExportedPolicy, write_file
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.policies import PolicySnapshot, split_head, split_theta

_OPSET, _IR_VERSION = 17, 8
"""Old enough for the runtimes of robots that are not updated every month."""


def layers(policy: PolicySnapshot) -> list[tuple[Array, Array]]:
    """Return weights (out, in) and biases (out,) of each layer, tanh between them."""
    spec = policy.spec
    if not spec.hidden:
        rows = policy.theta.reshape(spec.act_dim, spec.obs_dim + 1)
        return [(rows[:, :-1], rows[:, -1])]
    W0, b0, W1, b1 = split_theta(spec, policy.theta)  # noqa: N806
    return [(W0, b0), (W1, b1), split_head(spec, policy.head)]


def policy_graph(exported: ExportedPolicy) -> onnx.ModelProto:
    """Return observation (n, obs_dim) -> action (n, act_dim) in float32."""
    spec, nodes, numbers, value = exported.policy.spec, [], [], 'observation'
    stack = layers(exported.policy)
    for i, (weights, biases) in enumerate(stack):
        last = i == len(stack) - 1
        for name, array in ((f'weights_{i}', weights), (f'biases_{i}', biases)):
            numbers.append(numpy_helper.from_array(np.asarray(array, dtype=np.float32), name))
        linear = 'action' if last else f'linear_{i}'
        inputs = [value, f'weights_{i}', f'biases_{i}']
        nodes.append(helper.make_node('Gemm', inputs, [linear], transB=1))
        if not last:
            value = f'hidden_{i}'
            nodes.append(helper.make_node('Tanh', [linear], [value]))
    graph = helper.make_graph(
        nodes,
        f'policy of {exported.task}',
        [helper.make_tensor_value_info('observation', TensorProto.FLOAT, ['n', spec.obs_dim])],
        [helper.make_tensor_value_info('action', TensorProto.FLOAT, ['n', spec.act_dim])],
        initializer=numbers,
    )
    model = helper.make_model(
        graph,
        producer_name='lpgftw_ros',
        opset_imports=[helper.make_opsetid('', _OPSET)],
        ir_version=_IR_VERSION,
    )
    helper.set_model_props(model, {'contract': json.dumps(asdict(exported.contract))})
    onnx.checker.check_model(model)
    return model


def save_onnx(exported: ExportedPolicy, path: Path) -> None:
    """Write the graph."""
    write_file(path, policy_graph(exported).SerializeToString())
