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
#: Families by the module, within this package, that registers them.
_FAMILIES = {
    "convnext": "convnext",
    "decoder": "decoder",
    "detection_transformer": "detection-transformer",
    "diffusion": "latent-decoder latent-diffusion",
    "diffusion_transformer": "diffusion-transformer",
    "dual_encoder": "dual-encoder",
    "encoder": "encoder modern-encoder vision-transformer",
    "encoder_decoder": "encoder-decoder",
    "layer_stack": "layers",
    "mobile": "efficientnet mobilenet-v1 mobilenet-v2 mobilenet-v3",
    "networks": """darknet edge-classifier edge-detector edge-segmenter googlenet
        inception-resnet-v2 inception-v1 inception-v2 inception-v3 inception-v4 resnet-variant
        sphereface ssd-mobilenet-v1 ssd-resnet34 ssd-vgg16 yolo-11 yolo-v3 yolo-v8""",
    "picture_encoder": "picture-encoder",
    "recommender": "collaborative-filtering dlrm",
    "recurrent": "recurrent recurrent-translator speech-transducer",
    "segmentation": "unet volumetric-unet",
    "speech": "wav2vec2 whisper",
    "state_space": "state-space",
    "text": "mean-embedding text-cnn",
    "trees": "boosted-trees",
    "vision": "densenet resnet retinanet",
}
#: Module that registers each family.
FAMILY_MODULES: Mapping[str, str] = {
    name: module for module, names in _FAMILIES.items() for name in names.split()
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
    family_module = FAMILIES.get(name)
    if family_module is None:
        raise UnknownNameError("model family", name, sorted({*FAMILY_MODULES, *FAMILIES}))
    return family_module
