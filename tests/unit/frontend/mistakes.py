"""Forty typical mistakes of those who know PyTorch, each as a small file, and what must be said.

`# HERE` marks the line that must be named. `text`, in order: the value, the rule that it breaks and
the fix. `module`: the path that must be named; `is_run`: the error comes in a run, far from the
line that recorded what is wrong.
"""

from __future__ import annotations

from typing import NamedTuple

HEAD = (
    "import numpy as np\nimport luminal as lm\nfrom luminal import nn, optim\nF = nn.functional\n"
)
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(15, 4)
    def forward(self, x):
        h = self.up(x).relu()  # UP
        return self.down(h)  # DOWN
"""
COMPILED = """
cx = lm.Graph()
a = cx.tensor(("n", 4), name="image")
b = cx.tensor(("n", 4), name="mask")
(a + b).output("y")
exe = lm.compile(cx, "reference")
ones = np.ones((3, 4), np.float32)
"""
LAZY = """
cx = lm.Graph()
a, b = cx.tensor((3,), name="a"), cx.tensor((3,), name="b")
"""


class Mistake(NamedTuple):
    """A file, and what its error names."""

    source: str
    text: tuple[str, str, str]
    module: str = ""
    is_run: bool = False


MISTAKES = {
    # --- layers that do not fit
    "a layer made for other features": Mistake(
        NET.replace("# DOWN", "# HERE") + "Net()(lm.ones((2, 8)))",
        ("f32[2, 16] ends in 16", "in_features is 15", "make the layer with in_features=16"),
        "down, a Linear of Net",
    ),
    "an input of other features, under jit": Mistake(
        NET.replace("# UP", "# HERE")
        + "lm.jit(nn.Sequential(nn.ReLU(), Net()))(np.ones((2, 9), np.float32))",
        ("f32[2, 9] ends in 9", "in_features is 8", "give it what ends in 8"),
        "1.up, a Linear of Sequential",
    ),
    "a norm of another width": Mistake(
        "nn.Sequential(nn.Linear(4, 7), nn.LayerNorm(8))(lm.ones((2, 4)))  # HERE",
        ("f32[2, 7] ends in 7", "normalized_shape is 8", "normalized_shape=7"),
        "1, a LayerNorm of Sequential",
    ),
    "channels last": Mistake(
        "nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())(lm.ones((1, 32, 32, 3)))  # HERE",
        ("f32[1, 32, 32, 3] has 32", "takes 3 channels", "permute them"),
        "0, a Conv2d of Sequential",
    ),
    "no channels": Mistake(
        "nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())(lm.ones((32, 32)))  # HERE",
        ("got f32[32, 32]", "takes (batch, channels, 2 spatial dims)", "or without batch"),
        "0, a Conv2d of Sequential",
    ),
    "floats into an embedding": Mistake(
        "nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2))(lm.ones((2, 3)))  # HERE",
        ("f32[2, 3]", "does not hold integers", ".to(lm.int64)"),
        "0, an Embedding of Sequential",
    ),
    "an index past the vocabulary": Mistake(
        "net = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2))\n"
        'cx = lm.Graph()\nnet(cx.tensor((2,), lm.int64, "ids")).output("y")  # HERE\n'
        'lm.compile(cx, "reference")({"ids": np.array([3, 12])})',
        ("ids: index 12", "out of range for an extent of 10", "indices lie in -10..9"),
        "0 (Embedding)",
        is_run=True,
    ),
    "a class past the last": Mistake(
        'cx = lm.Graph()\nx, t = cx.tensor((2, 3), name="x"), cx.tensor((2,), lm.int64, "t")\n'
        'F.cross_entropy(x, t).output("y")  # HERE\n'
        'lm.compile(cx, "reference")({"x": np.ones((2, 3), np.float32), "t": np.array([0, 3])})',
        ("t: index 3", "out of range for an extent of 3", "indices lie in"),
        is_run=True,
    ),
    "heads that do not divide": Mistake(
        "nn.MultiheadAttention(10, 3)  # HERE",
        ("embed_dim 10", "does not divide into 3 heads", "choose heads that divide it"),
    ),
    "groups that do not divide": Mistake(
        "nn.Conv2d(3, 8, 3, groups=2)  # HERE",
        ("3 and 8 channels", "do not divide into 2 groups", "choose groups that divide both"),
    ),
    "a probability in percent": Mistake(
        "nn.Dropout(50)  # HERE", ("p is 50", "it is a probability", "in 0..1")
    ),
    # --- modules that are not written as they must be
    "no forward": Mistake(
        "class Net(nn.Module):\n    def foward(self, x):\n        return x\n"
        "nn.Sequential(nn.ReLU(), Net())(lm.ones((2, 8)))  # HERE",
        ("has 'foward'", "cannot be called", "write def forward(self, ...) in class Net"),
        "1, a Net of Sequential",
    ),
    "a forward without return": Mistake(
        "class Net(nn.Module):\n    def forward(self, x):\n        x.relu()\n"
        "nn.Sequential(Net(), nn.Linear(4, 4))(lm.ones((2, 4)))  # HERE",
        ("got None", "takes Tensors", "return its result?"),
        "1, a Linear of Sequential",
    ),
    "an array into a model": Mistake(
        "nn.Sequential(nn.Linear(4, 2))(np.ones((2, 4), np.float32))  # HERE",
        ("got a numpy.ndarray", "takes Tensors", "lm.jit(model)"),
        "0, a Linear of Sequential",
    ),
    "a list into a model": Mistake(
        "nn.Sequential(nn.Linear(4, 2))([[1.0, 2.0, 3.0, 4.0]])  # HERE",
        ("got a list", "takes Tensors", "pass lm.as_tensor(x)"),
        "0, a Linear of Sequential",
    ),
    "an array in place of a Parameter": Mistake(
        "net = nn.Linear(2, 3)\nnet.weight = np.ones((3, 2), np.float32)  # HERE",
        ("got a ndarray", "Linear.weight is a Parameter", "write self.weight.set(value)"),
    ),
    # --- weights
    "other names in a state_dict": Mistake(
        "net = nn.Sequential(nn.Linear(4, 2, bias=False))\n"
        "net.load_state_dict({'0.weights': np.ones((2, 4), np.float32)})  # HERE",
        (
            "unexpected: 0.weights",
            "does not fit; missing: 0.weight",
            "rename 0.weights to 0.weight",
        ),
    ),
    "a prefix in a state_dict": Mistake(
        "net = nn.Sequential(nn.Linear(4, 2, bias=False))\n"
        "net.load_state_dict({'module.0.weight': np.ones((2, 4), np.float32)})  # HERE",
        ("unexpected: module.0.weight", "missing: 0.weight", "take 'module.' off the names"),
    ),
    "other shapes in a state_dict": Mistake(
        "net = nn.Sequential(nn.Linear(4, 2, bias=False))\n"
        "net.load_state_dict({'0.weight': np.ones((4, 2), np.float32)})  # HERE",
        ("got (4, 2)", "0.weight: expected shape (2, 4)", "transpose it"),
    ),
    "the arguments of save the other way round": Mistake(
        "lm.save(nn.Linear(2, 3).state_dict(), 'model.safetensors')  # HERE",
        ("save", "the path comes first", "lm.save(path, model.state_dict())"),
    ),
    "a folder that is not there": Mistake(
        "lm.save('no-such-folder/a.safetensors', nn.Linear(2, 3).state_dict())  # HERE",
        ("no-such-folder/a.safetensors", "No such file or directory", "make the folder first"),
    ),
    "a checkpoint that is not there": Mistake(
        "lm.load('no-such-file.safetensors')  # HERE",
        ("no-such-file.safetensors", "cannot be read", "No such file"),
    ),
    # --- values that are not there yet
    "the value of what is recorded": Mistake(
        LAZY + "(a * 2).numpy()  # HERE",
        ("f32[3] of", "needs a, which has no value yet", "call set(array) on a"),
    ),
    "an if on a value": Mistake(
        "class Gate(nn.Module):\n    def forward(self, x):\n        if x.sum() > 0:  # HERE\n"
        "            return x\n        return -x\n"
        "lm.jit(nn.Sequential(nn.ReLU(), Gate()))(np.ones(3, np.float32))",
        ("bool[] has no value", "records Sequential, which it does once for all", "lm.where"),
        "1, a Gate of Sequential",
    ),
    "item() under jit": Mistake(
        "@lm.jit\ndef f(x):\n    return x * x.sum().item()  # HERE\nf(np.ones(3, np.float32))",
        ("f32[] has no value", "records f, which it does once for all", "static="),
    ),
    "a loop over a dim": Mistake(
        'x = lm.Graph().tensor(("n", 4), name="x")\nfor k in range(x.shape[0]):  # HERE\n    pass',
        ("n is known in a run only", "known in a run only", "lm.scan"),
    ),
    "a mask that decides the shape": Mistake(
        LAZY + "a[a > 0]  # HERE",
        ("the mask bool[3]", "fixed before a run", "use lm.where"),
    ),
    "a list of Tensors for one": Mistake(
        "x = lm.ones((3,))\nx + [lm.ones((3,)), lm.ones((3,))]  # HERE",
        ("a list that holds Tensors", "constant", "lm.stack"),
    ),
    "data of Tensors that have no value": Mistake(
        LAZY + "lm.tensor([a, b])  # HERE",
        ("f32[3] of", "has no value yet", "by lm.stack"),
    ),
    "values of two graphs": Mistake(
        "a = lm.Graph('one').tensor((3,), name='a')\nb = lm.Graph('two').tensor((3,), name='b')\n"
        "a + b  # HERE",
        ("b: f32[3] of two, used in one", "tensors of two graphs meet", "record both in one graph"),
    ),
    # --- shapes, dtypes, names
    "a change in place": Mistake(
        "x = lm.ones((2, 3))\nx.add_(1)  # HERE",
        ("add_", "Tensors do not change", "write x = x.add(...)"),
    ),
    "a part set": Mistake(
        "x = lm.ones((2, 3))\nx[0] = 5  # HERE",
        ("f32[2, 3]", "does not change", "use index_put"),
    ),
    "a product that does not fit": Mistake(
        "lm.ones((2, 3)) @ lm.ones((2, 3))  # HERE",
        ("(2, 3) @ (2, 3)", "inner dims differ", "transpose one"),
    ),
    "a sum that does not fit": Mistake(
        "lm.ones((2, 3)) + lm.ones((2, 4))  # HERE",
        ("(2, 3) and (2, 4)", "do not fit: 3 != 4", "make them equal or one of them 1"),
    ),
    "a view of another size": Mistake(
        "lm.ones((2, 6)).view(5, -1)  # HERE",
        ("f32[2, 6]", "does not divide into (5, -1)", "must divide the number of elements"),
    ),
    "tensors that are no list": Mistake(
        "lm.cat(lm.ones((2, 3)), lm.ones((2, 4)))  # HERE",
        ("concat", "takes a list of Tensors", "write concat([a, b], dim)"),
    ),
    "a method that is spelt otherwise": Mistake(
        "lm.ones((2, 3)).softmx(-1)  # HERE",
        ("'softmx'", "a Tensor has no attribute", "did you mean 'softmax'?"),
    ),
    "a layer that is spelt otherwise": Mistake(
        "nn.Liner(3, 4)  # HERE",
        ("'Liner'", "luminal.nn has no attribute", "did you mean 'Linear'?"),
    ),
    "a keyword that is called otherwise": Mistake(
        "nn.Linear(4, 2, use_bias=False)  # HERE",
        ("'use_bias'", "unexpected keyword argument", "did you mean 'bias'?"),
    ),
    # --- losses and training
    "targets that are floats": Mistake(
        "F.cross_entropy(lm.ones((4, 10)), lm.ones((4,)))  # HERE",
        ("f32[4]", "they take f32[4, 10]", ".to(lm.int64)"),
    ),
    "targets in a column": Mistake(
        "F.cross_entropy(lm.ones((4, 10)), lm.zeros((4, 1), dtype=lm.int64))  # HERE",
        ("i64[4, 1]", "takes (4)", "reshape it"),
    ),
    "backward of many values": Mistake(
        "nn.Linear(2, 3)(lm.ones((4, 2))).backward()  # HERE",
        ("f32[4, 3]", "is no scalar", "reduce it (loss.mean(), loss.sum())"),
    ),
    "an optimizer of a Tensor": Mistake(
        "optim.SGD(lm.ones((2, 3)), lr=0.1)  # HERE",
        ("f32[2, 3]", "is no Parameter of floats", "pass model.parameters()"),
    ),
    "an optimizer of nothing": Mistake(
        "optim.Adam([], lr=0.1)  # HERE",
        ("Adam", "got no parameters", "pass model.parameters()"),
    ),
    # --- runs and devices
    "dims that differ": Mistake(
        COMPILED + 'exe({"image": ones, "mask": ones[:2]})  # HERE',
        ("mask of shape (2, 4) says 2", "n: image says 3", "all occurrences of a dim agree"),
    ),
    "an input that is spelt otherwise": Mistake(
        COMPILED + 'exe({"images": ones, "mask": ones})  # HERE',
        ("images", "no such input or weight", "did you mean 'image'?"),
    ),
    "an input of integers": Mistake(
        COMPILED + 'exe({"image": ones.astype(np.int64), "mask": ones})  # HERE',
        ("got int64", "image: expected float32", "pass x.astype(np.float32)"),
    ),
    "an input that lacks": Mistake(
        COMPILED + 'exe({"image": ones})  # HERE',
        ("mask", "no value yet", 'exe({"mask": array})'),
    ),
    "a graph without outputs": Mistake(
        LAZY + "a.exp()\nlm.compile(cx)  # HERE",
        ("graph", "nothing to compute", "call .output(name)"),
    ),
    "a device by PyTorch's method": Mistake(
        "nn.Linear(2, 3).cuda()  # HERE",
        ("a Linear has no attribute 'cuda'", "compiled for one device", "lm.device(...)"),
    ),
    "a device that there is none of": Mistake(
        LAZY + 'a.exp().output("y")\nlm.compile(cx, "gpu")  # HERE',
        ("backend 'gpu'", "takes 'cpu'", "or 'auto'"),
    ),
}
