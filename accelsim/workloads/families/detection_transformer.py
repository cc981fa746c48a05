"""DETR: a residual network, an encoder over the positions of its last map, a decoder over queries.

Carion et al., ECCV 2020 (arXiv:2005.12872), module names as in Hugging Face's
``DetrForObjectDetection``. Positions are added to queries and keys of every layer; these sums over
a thousand positions are left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.families.encoder import StackParameters, encoder_layer
from accelsim.workloads.families.transformer import LayerStates, transformer_layers
from accelsim.workloads.families.vision import Depths, image_input, residual_maps
from accelsim.workloads.family_parameters import Count, RectangleParameters
from accelsim.workloads.model import PassShape, family


class DetectionTransformerParameters(StackParameters, RectangleParameters):
    """A DETR; `classes` counts the one for no object, `layers` those of encoder and of decoder.

    Training leaves stem and first stage as they are (facebookresearch/detr, models/backbone.py).

    Attributes:
        depths: Blocks of each stage of the residual network.
        queries: Objects it detects at most.
    """

    untrained: ClassVar = tuple(
        f"model.backbone.{name}" for name in ("conv1", "bn1", "relu", "maxpool", "layer1")
    )
    depths: Depths
    queries: Count = 100


@family("detection-transformer", DetectionTransformerParameters, image=True)
def write_detection_transformer(
    b: GraphBuilder, p: DetectionTransformerParameters, shape: PassShape
) -> None:
    """Residual network with frozen norms, encoder, decoder, heads.

    Carion et al., ECCV 2020, arXiv:2005.12872.
    """
    b.norms_are_frozen = True
    inners = [64 << stage for stage, depth in enumerate(p.depths) for _ in range(depth)]
    with b.scope("model.backbone"):
        image = image_input(b, p, shape)
        maps = residual_maps(
            b, image, "resnet", p.depths, block="bottleneck", groups=1, inners=inners
        )
    x = b.conv(maps[-1], p.hidden_size, 1, bias=True, at="model.input_projection")
    batch, width, height, columns = x.shape
    memory = b.copy(x, shape=(batch, height * columns, width), name="channels_last")
    attention = replace(p.attention, masked=True, dropout=True)
    layer = encoder_layer(p, attention, "fairseq", norm_first=False)
    memory = transformer_layers(b, memory, [layer] * p.layers, "model.encoder.layers")
    b.parameters(p.queries * width)
    objects = b.input(batch, p.queries, width)
    layers = [replace(layer, cross=attention)] * p.layers
    objects = transformer_layers(
        b, objects, layers, "model.decoder.layers", LayerStates(memory=memory)
    )
    objects = b.layer_norm(objects, at="model.decoder.layernorm")
    b.linear(objects, p.classes, at="class_labels_classifier")
    for index, outputs in enumerate((width, width, 4)):
        with b.scope(f"bbox_predictor.layers.{index}"):
            objects = b.linear(objects, outputs)
            objects = b.activation(objects, "sigmoid" if index == 2 else "relu")
