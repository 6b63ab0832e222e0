# SPDX-License-Identifier: Apache-2.0
import os

import torch

LOADS = []  # of files


class BaseModelLoader:
    def __init__(self, load_config):
        self.load_config = load_config


class DefaultModelLoader(BaseModelLoader):
    """The file model/weight contains a number."""

    def _prepare_weights(self, model, _subfolder, _revision, _fall_back, _patterns):
        return model, [os.path.join(model, "weight")], True

    def load_weights(self, model, model_config):
        with open(os.path.join(model_config.model, "weight"), encoding="ascii") as f:
            value = torch.full(model.weights.shape, float(f.read()))
        LOADS.append(value.tolist()[0])
        model.weights.copy_(value)
        model.after_loading()


class DummyModelLoader(BaseModelLoader):
    """It makes the tensors of the model."""

    def load_weights(self, model, model_config):
        model.load()
        model.after_loading()


_LOAD_FORMAT_TO_MODEL_LOADER = {"auto": DefaultModelLoader, "dummy": DummyModelLoader}


def register_model_loader(name):
    def register(loader):
        _LOAD_FORMAT_TO_MODEL_LOADER[name] = loader
        return loader
    return register


def get_model_loader(config):
    return _LOAD_FORMAT_TO_MODEL_LOADER[config.load_format](config)
