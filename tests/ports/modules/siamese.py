"""A siamese network: one convolutional tower, two images, and a contrastive loss of distances."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR


class SiameseNetwork(nn.Module):
    def __init__(self):
        super(SiameseNetwork, self).__init__()
        self.cnn1 = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(1, 4, kernel_size=3),
            nn.ReLU(inplace=True),
            nn.BatchNorm2d(4),
            nn.Dropout2d(p=0.0),
            nn.MaxPool2d(2, stride=2),
            nn.Conv2d(4, 8, kernel_size=3, padding=1),
            nn.LeakyReLU(0.1, inplace=True),
            nn.AdaptiveAvgPool2d((2, 2)),
        )
        self.fc1 = nn.Sequential(
            nn.Linear(8 * 2 * 2, 16),
            nn.PReLU(),
            nn.Linear(16, 5),
        )

    def forward_once(self, x):
        output = self.cnn1(x)
        output = output.view(output.size()[0], -1)
        output = self.fc1(output)
        return output

    def forward(self, input1, input2):
        return self.forward_once(input1), self.forward_once(input2)


class ContrastiveLoss(torch.nn.Module):
    def __init__(self, margin=2.0):
        super(ContrastiveLoss, self).__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        euclidean_distance = F.pairwise_distance(output1, output2, keepdim=True)
        loss_contrastive = torch.mean(
            (1 - label) * torch.pow(euclidean_distance, 2)
            + label * torch.pow(torch.clamp(self.margin - euclidean_distance, min=0.0), 2)
        )
        return loss_contrastive


def build():
    net = SiameseNetwork()
    for m in net.modules():
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    return net


def batch(rng):
    images = rng.random((2, 4, 1, 9, 9)).astype("float32")
    return images[0], images[1], rng.integers(0, 2, (4, 1)).astype("float32")


def predict(model, a, b, label):
    return model(a, b)


def optimizer(model):
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    optimizer.scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    return optimizer


def train_step(model, optimizer, a, b, label):
    criterion = ContrastiveLoss()
    optimizer.zero_grad()
    output1, output2 = model(a, b)
    loss = criterion(output1, output2, label)
    triplet = nn.TripletMarginLoss(margin=1.0, p=2)
    total = loss + 0.1 * triplet(output1, output2, output2.flip(0))
    total.backward()
    optimizer.step()
    optimizer.scheduler.step()
    return total.item()


def after(model, a, b, label):
    model.eval()
    with torch.no_grad():
        o1, o2 = model(a, b)
    return F.cosine_similarity(o1, o2), torch.cdist(o1, o2)
