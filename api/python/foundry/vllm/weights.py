# SPDX-License-Identifier: Apache-2.0
"""vLLM's `--load-format foundry`: weights as the content of an image."""
from ..engines import weights
from ..engines.session import Unfit
from .facts import PREFIX

FORMAT = "foundry"
VERSIONS = ("vllm", "torch", "packages", "source")  # facts that a start states without weights, too


def register():
    """Let vLLM know the load format."""
    from vllm.config.utils import replace
    from vllm.model_executor import model_loader

    if FORMAT in getattr(model_loader, "_LOAD_FORMAT_TO_MODEL_LOADER", ()):
        return

    @model_loader.register_model_loader(FORMAT)
    class Loader(model_loader.BaseModelLoader):
        """format, in model_loader_extra_config: of the files, "auto" if it is not stated; revision:
        an identity of the weights in place of that of their files.
        """

        def __init__(self, config):
            super().__init__(config)
            more = dict(config.model_loader_extra_config)
            self.revision, self.format = more.pop("revision", None), more.pop("format", "auto")
            self.files = model_loader.get_model_loader(replace(
                config, load_format=self.format, model_loader_extra_config=more))

        def download_model(self, model_config):
            self.files.download_model(model_config)

        def load_weights(self, model, model_config):
            session = weights.current()
            if session is None:
                self.files.load_weights(model, model_config)
            else:
                weights.Weights(session, model, ByFiles(self, model, model_config, session)).fill()


class ByFiles(weights.Loader):
    """The loader for files that a load format names. own: what register() registers."""

    def __init__(self, own, model, config, session):
        self.own, self.model, self.config, self.session = own, model, config, session
        self.format = own.format

    def fill(self):
        self.own.files.load_weights(self.model, self.config)

    def identity(self):
        """Return the given revision, or an identity of the files."""
        if self.own.revision is not None:
            return f"revision {self.own.revision}"
        if self.format == "dummy":
            return f"dummy {self.config.seed}"
        if not hasattr(self.own.files, "_prepare_weights"):
            raise Unfit(f"the files of the format '{self.format}' are not known: state a "
                        "revision in model_loader_extra_config")
        if getattr(self.model, "secondary_weights", ()):
            raise Unfit("the model has further weights")
        _, files, _ = self.own.files._prepare_weights(
            self.config.model, None, self.config.revision,
            getattr(self.model, "fall_back_to_pt_during_load", True),
            getattr(self.model, "allow_patterns_overrides", None))
        return weights.identity_of(files)

    def made_by(self):
        return [self.config.compute_hash(),
                *(self.session.facts[PREFIX + name] for name in VERSIONS)]
