#!/usr/bin/python3
"""Trains a small CNN on an ImageFolder. An ordinary PyTorch script: it knows of the dataset's path and of nothing else.

quickstart_train.py DATASET [--epochs N] [--workers N]
"""

import argparse
import io
import time

import torch
from PIL import Image
from torch import nn
from torchvision import datasets, transforms

IMAGE_SIZE = 32
# A few posters of the clip-art collection have up to 623 million pixels, two thirds of all its pixels in 19 of its
# 8,121 files. They are read like the others, but decoding them would be most of the run: they train as blank sheets.
MAX_PIXELS = 16_000_000
Image.MAX_IMAGE_PIXELS = None  # the limit above replaces Pillow's


def load_image(path):
    """The image on white paper: clip art is mostly transparent."""
    with open(path, "rb") as file:
        data = file.read()
    paper = Image.new("RGB", (IMAGE_SIZE, IMAGE_SIZE), "white")
    with Image.open(io.BytesIO(data)) as image:
        if image.width * image.height <= MAX_PIXELS:
            image = image.convert("RGBA").resize(paper.size, Image.Resampling.BILINEAR)
            paper.paste(image, mask=image)
    return paper


def small_cnn(classes):
    def block(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    features = IMAGE_SIZE // 8
    return nn.Sequential(
        *block(3, 16), *block(16, 32), *block(32, 64), nn.Flatten(), nn.Linear(64 * features * features, classes)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    dataset = datasets.ImageFolder(args.dataset, transform=transforms.ToTensor(), loader=load_image)
    batches = torch.utils.data.DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        generator=torch.Generator().manual_seed(args.seed),
    )
    model = small_cnn(len(dataset.classes))
    optimizer = torch.optim.Adam(model.parameters())
    loss_of = nn.CrossEntropyLoss()
    print(f"{len(dataset)} images, {len(dataset.classes)} classes", flush=True)
    for epoch in range(1, args.epochs + 1):
        start = time.monotonic()
        seen = right = total_loss = 0
        for images, labels in batches:
            scores = model(images)
            loss = loss_of(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(labels)
            right += (scores.argmax(1) == labels).sum().item()
            total_loss += loss.item() * len(labels)
        seconds = time.monotonic() - start
        print(
            f"epoch {epoch}: {seen} samples in {seconds:.2f} s, loss {total_loss / seen:.3f}, right {right / seen:.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
