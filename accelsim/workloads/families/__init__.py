"""Where each model family lives, so that reading one workload imports one family module.

A family registers itself in `model.FAMILIES` when its module is imported. This table names the
module of every family; a test checks that it agrees with what the modules register.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from accelsim.errors import UnknownNameError
from accelsim.workloads.model import FAMILIES, Family

__all__ = ["FAMILY_MODULES", "load_family"]

_PACKAGE = "accelsim.workloads.families"
#: Module, within this package, that registers each family.
FAMILY_MODULES: Mapping[str, str] = {
    "boosted-trees": "trees",
    "collaborative-filtering": "recommender",
    "darknet": "darknet",
    "decoder": "decoder",
    "densenet": "vision",
    "dlrm": "recommender",
    "edge-classifier": "edge_classifiers",
    "edge-detector": "edge_detectors",
    "edge-segmenter": "edge_segmenters",
    "efficientnet": "mobile",
    "encoder": "encoder",
    "encoder-decoder": "encoder_decoder",
    "googlenet": "inception",
    "inception-resnet-v2": "inception",
    "inception-v1": "inception",
    "inception-v2": "inception",
    "inception-v3": "inception",
    "inception-v4": "inception",
    "latent-decoder": "diffusion",
    "latent-diffusion": "diffusion",
    "layers": "layer_stack",
    "mean-embedding": "text",
    "mobilenet-v1": "mobile",
    "mobilenet-v2": "mobile",
    "mobilenet-v3": "mobile",
    "recurrent": "recurrent",
    "recurrent-translator": "recurrent",
    "resnet": "vision",
    "resnet-variant": "residual_variants",
    "retinanet": "feature_pyramid",
    "speech-transducer": "recurrent",
    "sphereface": "residual_variants",
    "ssd-mobilenet-v1": "detection",
    "ssd-resnet34": "detection",
    "ssd-vgg16": "detection",
    "text-cnn": "text",
    "unet": "segmentation",
    "vision-transformer": "encoder",
    "volumetric-unet": "volumetric",
    "wav2vec2": "speech",
    "whisper": "speech",
    "yolo-v3": "darknet",
    "yolo-v8": "yolo",
}


def load_family(name: str) -> Family:
    """A family by name, importing its module if need be.

    Args:
        name: The `family` of a workload file.

    Raises:
        UnknownNameError: If there is no such family.
    """
    if name not in FAMILIES and name in FAMILY_MODULES:
        import_module(f"{_PACKAGE}.{FAMILY_MODULES[name]}")
    found = FAMILIES.get(name)
    if found is None:
        raise UnknownNameError("model family", name, sorted({*FAMILY_MODULES, *FAMILIES}))
    return found
