# SPDX-License-Identifier: Apache-2.0
"""Classifies pictures with a ResNet-18: captured in the first run, loaded in later ones.

    classify.py [--store STORE]

Weights are random, from a seed, and so are the pictures.
"""
import argparse
import sys
import time

import foundry  # before torch


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--store", help="a store's folder (the default store otherwise)")
    args = p.parse_args()
    try:
        import torch
        import torchvision
    except ImportError as e:
        sys.exit(f"no GPU, or none with {e.name}")
    if not torch.cuda.is_available():
        sys.exit("no GPU")
    torch.manual_seed(0)
    model = torchvision.models.resnet18().cuda().eval()
    examples = [(torch.zeros(n, 3, 224, 224, device="cuda"),) for n in (1, 8)]
    began = time.perf_counter()
    classify = foundry.compile(model, examples, ref="examples/classify", store=args.store)
    print(classify, f"{1e3 * (time.perf_counter() - began):.0f} ms")
    with torch.no_grad():
        for count in (1, 8):
            pictures = torch.randn(count, 3, 224, 224, device="cuda")
            classes = classify(pictures).argmax(1)
            assert torch.equal(classes, model(pictures).argmax(1))
            print(f"{count} pictures: classes {classes.tolist()}")


if __name__ == "__main__":
    main()
