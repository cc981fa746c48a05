"""ONNX networks as `onnx.helper` makes them, and the torch modules they are."""

from __future__ import annotations

from math import prod

import torch
from onnx import TensorProto, helper
from torch import nn
from torch.nn import functional


def saved(path, nodes, inputs, weights, *, outputs=("y",), opset=22, values=(), domain=""):
    """Write a network: inputs as (name, type, sizes), weights as name -> sizes, values as
    (name, type, sizes, numbers).
    """
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [
            *(
                helper.make_tensor(name, TensorProto.FLOAT, sizes, bytes(4 * prod(sizes)), raw=True)
                for name, sizes in weights.items()
            ),
            *(helper.make_tensor(*one) for one in values),
        ],
    )
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    return path


node = helper.make_node
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Residual(nn.Module):
    """Part of a ResNet with its head."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16)
        self.first, self.second = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 10)

    def forward(self, x):
        x = functional.max_pool2d(torch.relu(self.norm(self.stem(x))), 3, 2, 1)
        x = torch.relu(self.second(torch.relu(self.first(x))) + x)
        return self.head(self.pool(x).flatten(1)).softmax(-1)


def residual(path):
    nodes = [
        node("Conv", ["x", "w0"], ["a"], name="/stem/Conv", strides=[2, 2], pads=[3, 3, 3, 3]),
        node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"], name="/norm/Norm"),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["p", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"], auto_pad="SAME_UPPER"),
        node("Add", ["c2", "p"], ["sum"]),
        node("Relu", ["sum"], ["r2"]),
        node("GlobalAveragePool", ["r2"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w3", "b3"], ["h"], transB=1),
        node("Softmax", ["h"], ["y"]),
    ]
    norm = dict.fromkeys("sbmv", (16,))
    weights = {"w0": (16, 3, 7, 7), "w1": (16, 16, 3, 3), "w2": (16, 16, 3, 3), "w3": (10, 16)}
    weights |= norm | {"b1": (16,), "b2": (16,), "b3": (10,)}
    return saved(path, nodes, [("x", FLOAT, ["batch", 3, 64, 64])], weights)


class Block(nn.Module):
    """A transformer block as exporters write it: attention by its parts, a table in front."""

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.last = nn.Embedding(100, 64), nn.LayerNorm(64), nn.LayerNorm(64)
        self.query, self.key, self.value, self.out = (nn.Linear(64, 64) for _ in range(4))
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, tokens):
        x = self.table(tokens)
        y = self.norm(x)
        split = (*y.shape[:2], 4, 16)
        q, v = (one(y).view(split).transpose(1, 2) for one in (self.query, self.value))
        k = self.key(y).view(split).permute(0, 2, 3, 1)
        scores = ((q @ k) / 4.0).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.last(x))))


def block(path):
    def heads(name, axes):
        return [
            node("MatMul", ["n", f"w{name}"], [f"m{name}"], name=f"/{name}/MatMul"),
            node("Add", [f"b{name}", f"m{name}"], [f"a{name}"]),
            node("Reshape", [f"a{name}", "split"], [f"s{name}"]),
            node("Transpose", [f"s{name}"], [f"h{name}"], perm=axes),
        ]

    nodes = [
        node("Gather", ["tokens", "table"][::-1], ["e"]),
        node("LayerNormalization", ["e", "g0", "l0"], ["n"]),
        node("Shape", ["tokens"], ["shape"]),
        node("Concat", ["shape", "width"], ["split"], axis=0),
        node("Concat", ["shape", "wide"], ["merged"], axis=0),
        *heads("q", [0, 2, 1, 3]),
        *heads("k", [0, 2, 3, 1]),
        *heads("v", [0, 2, 1, 3]),
        node("MatMul", ["hq", "hk"], ["scores"]),
        node("Div", ["scores", "root"], ["scaled"]),
        node("Softmax", ["scaled"], ["weights"], axis=-1),
        node("MatMul", ["weights", "hv"], ["context"]),
        node("Transpose", ["context"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "merged"], ["flat"]),
        node("MatMul", ["flat", "wo"], ["mo"]),
        node("Add", ["mo", "bo"], ["ao"]),
        node("Add", ["e", "ao"], ["r"]),
        node("LayerNormalization", ["r", "g1", "l1"], ["n1"]),
        node("MatMul", ["n1", "wu"], ["mu"]),
        node("Add", ["mu", "bu"], ["au"]),
        node("Gelu", ["au"], ["gelu"]),
        node("MatMul", ["gelu", "wd"], ["md"]),
        node("Add", ["md", "bd"], ["ad"]),
        node("Add", ["r", "ad"], ["y"]),
    ]
    weights = {f"w{name}": (64, 64) for name in "qkvo"} | {f"b{name}": (64,) for name in "qkvod"}
    weights |= {"table": (100, 64), "wu": (64, 256), "bu": (256,), "wd": (256, 64)}
    weights |= dict.fromkeys(("g0", "l0", "g1", "l1"), (64,))
    values = [
        ("width", INT64, [2], [4, 16]),
        ("wide", INT64, [1], [64]),
        ("root", FLOAT, [], [4.0]),
    ]
    return saved(path, nodes, [("tokens", INT64, ["batch", "length"])], weights, values=values)


class Recurrent(nn.Module):
    """An LSTM over embedded words."""

    def __init__(self):
        super().__init__()
        self.table, self.lstm = nn.Embedding(50, 16), nn.LSTM(16, 32, bidirectional=True)
        self.head = nn.Linear(64, 5)

    def forward(self, words):
        return self.head(self.lstm(self.table(words))[0])


def recurrent(path):
    nodes = [
        node("Gather", ["table", "words"], ["e"]),
        node("LSTM", ["e", "w", "r", "b"], ["l"], hidden_size=32, direction="bidirectional"),
        node("Transpose", ["l"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "flat"], ["f"]),
        node("MatMul", ["f", "wh"], ["mh"]),
        node("Add", ["mh", "bh"], ["y"]),
    ]
    weights = {"table": (50, 16), "w": (2, 128, 16), "r": (2, 128, 32), "b": (2, 256)}
    weights |= {"wh": (64, 5), "bh": (5,)}
    values = [("flat", INT64, [3], [0, 0, -1])]
    return saved(path, nodes, [("words", INT64, [7, 3])], weights, values=values)
