# SPDX-License-Identifier: Apache-2.0
"""SGLang's weights as the content of an image, if FOUNDRY_SGLANG_WEIGHTS asks for that."""
import functools
import os

from ..engines import weights
from ..engines.session import Unfit
from .facts import PREFIX

VARIABLE = "FOUNDRY_SGLANG_WEIGHTS"
_FILL = "sglang.srt.model_loader.loader.DefaultModelLoader.load_weights_and_postprocess"
# Facts of a start that decide how the tensors are filled.
FACTS = ("sglang", "torch", "packages", "source", "config", "dtype", "context")


def hooks():
    """Return {name of a function of SGLang: function that wraps it}. Raises AttributeError if it is
    missing.
    """
    from sglang.srt.model_loader.loader import DefaultModelLoader
    return {_FILL: _fill} if DefaultModelLoader.load_weights_and_postprocess else {}


def wanted():
    """Return "" if weights are not to be in images; "1" if their files identify them; otherwise the
    text that does.
    """
    value = os.environ.get(VARIABLE, "")
    return "" if value == "0" else value


def loading(session):
    """Return a context in which SGLang's loader uses the images of a Session, if that is wanted."""
    return weights.of(session if wanted() else None)


def _fill(original, model, files, device):
    """Replaces the function that reads files and fills a model. It is a static method. Other
    loaders of SGLang call it, too, or fill the model in their own way.
    """
    session, fill = weights.current(), functools.partial(original, model, files, device)
    if session is None:
        fill()
        return
    session.weights_seen = True
    weights.Weights(session, model, ByFiles(session, model, fill)).fill()


class ByFiles(weights.Loader):
    """SGLang's loader for the model of a session."""

    def __init__(self, session, model, fill):
        self.session, self.model, self.fill = session, model, fill
        self.format = str(getattr(session.runner.server_args.load_format, "value",
                                  session.runner.server_args.load_format))

    def identity(self):
        """Return the given text, or an identity of the files."""
        from sglang.srt.model_loader.loader import DefaultModelLoader
        if wanted() != "1":
            return f"revision {wanted()}"
        loader, config = self.session.runner.loader, self.session.runner.model_config
        if type(loader) is not DefaultModelLoader:
            raise Unfit(f"the files of the format '{self.format}' are not known: set {VARIABLE} to "
                        "a text that identifies them")
        if getattr(self.model, "secondary_weights", ()):
            raise Unfit("the model has further weights")
        _, files, _ = loader._prepare_weights(
            config.model_path, config.revision,
            getattr(self.model, "fall_back_to_pt_during_load", True))
        return weights.identity_of(files)

    def made_by(self):
        return [self.session.facts[PREFIX + name] for name in FACTS]
