# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# Classifies pictures with a ResNet-18: captured in the first run, loaded in later ones. Weights are
# random, from a seed, and so are the pictures. FOUNDRY_STORE names another store than the default
# one.
# %%
import sys
import time
import foundry  # before torch

try:
    import torch
    import torchvision
except ImportError as e:
    sys.exit(f"no GPU, or none with {e.name}")
if not torch.cuda.is_available():
    sys.exit("no GPU")

# %%
torch.manual_seed(0)
model = torchvision.models.resnet18().cuda().eval()
examples = [(torch.zeros(n, 3, 224, 224, device="cuda"),) for n in (1, 8)]
began = time.perf_counter()
classify = foundry.compile(model, examples, ref="examples/classify")
print(classify, f"{1e3 * (time.perf_counter() - began):.0f} ms")

# %%
with torch.no_grad():
    for count in (1, 8):
        pictures = torch.randn(count, 3, 224, 224, device="cuda")
        classes = classify(pictures).argmax(1)
        assert torch.equal(classes, model(pictures).argmax(1))
        print(f"{count} pictures: classes {classes.tolist()}")
