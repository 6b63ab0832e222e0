# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# Generates text as language models do: a decoder with a cache of keys and values, and one launch of
# a graph for each token. The first run captures the graph; later runs load it. The weights are
# random, so the text means nothing. FOUNDRY_STORE names another store than the default one.
# %%
import sys
import foundry  # before torch

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("no GPU, or none with torch")
if not torch.cuda.is_available():
    sys.exit("no GPU")


# %%
class Decoder(nn.Module):
    """Tokens are bytes. The cache is two buffers, in which each call writes one row."""

    def __init__(self, layers=4, heads=4, width=256, length=128):
        super().__init__()
        self.embed, self.head = nn.Embedding(256, width), nn.Linear(width, 256)
        self.mix = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(layers, heads, length, width // heads))

    def forward(self, token, at):
        hidden, (_, heads, length, size) = self.embed(token), self.keys.shape
        mask = torch.arange(length, device=at.device) <= at
        for keys, values, mix, norm, out in zip(self.keys, self.values, self.mix, self.norm,
                                                self.out):
            query, key, value = mix(norm(hidden)).view(3, heads, 1, size)
            keys.index_copy_(1, at, key)
            values.index_copy_(1, at, value)
            found = nn.functional.scaled_dot_product_attention(query, keys, values, mask)
            hidden = hidden + nn.functional.gelu(out(found.view(1, -1)))
        return self.head(hidden).argmax(-1)


def generate(step, prompt, count):
    token, at, found = prompt[:1], torch.zeros(1, dtype=torch.long, device=prompt.device), []
    for i in range(len(prompt) + count - 1):
        token = step(prompt[i:i + 1] if i < len(prompt) else token, at.fill_(i))
        found.append(token)
    return torch.cat(found[len(prompt) - 1:]).tolist()


# %%
torch.manual_seed(0)
model, prompt = Decoder().cuda().eval(), torch.tensor(list(b"Once upon"), device="cuda")
step = foundry.compile(model, (prompt[:1], prompt[:1] * 0), ref="examples/generate")
with torch.no_grad():
    assert (tokens := generate(step, prompt, 48)) == generate(model, prompt, 48)
print(step, "generated", bytes(tokens))
