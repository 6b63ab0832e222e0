# SPDX-License-Identifier: Apache-2.0
import os

import torch

LOADS = []  # of files


class DefaultModelLoader:
    """The file model/weight contains a number."""

    def _prepare_weights(self, path, _revision, _fall_back_to_pt):
        return path, [os.path.join(path, "weight")], True

    def _get_all_weights(self, config):
        for path in self._prepare_weights(config.model_path, config.revision, True)[1]:
            with open(path, encoding="ascii") as f:
                LOADS.append(float(f.read()))
            yield LOADS[-1]

    def load_model(self, model, config):
        self.load_weights_and_postprocess(model, self._get_all_weights(config), "cuda")

    @staticmethod
    def load_weights_and_postprocess(model, weights, target_device):
        assert target_device == "cuda"
        for value in weights:
            model.weights.copy_(torch.full(model.weights.shape, value))
        model.after_loading()


class RunaiModelStreamerLoader(DefaultModelLoader):
    """Its files are not those of a folder."""


class DummyModelLoader:
    def load_model(self, model, config):
        pass


def get_model_loader(load_format):
    return {"auto": DefaultModelLoader, "runai_streamer": RunaiModelStreamerLoader,
            "dummy": DummyModelLoader}[load_format]()
