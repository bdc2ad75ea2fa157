"""Builds a policy of the parameters and attributes that mamba_ssm's modules have, and exports it: the modules themselves need a
GPU. Run by test/export_test.exs: python3 export_mamba.py EXAMPLES FOLDER"""

import sys

import torch
from torch import nn

sys.path.insert(0, sys.argv[1])
from export_mamba import export  # noqa: E402

MODEL, HEADS, DIM, STATE, GROUPS = 6, 4, 3, 8, 2
INNER = HEADS * DIM


class Norm(nn.Module):
    def __init__(self, size, eps, before=False):
        super().__init__()
        self.eps, self.norm_before_gate = eps, before
        self.weight = nn.Parameter(torch.rand(size) + 0.5)


class Mixer(nn.Module):
    def fill(self, **shapes):
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.rand(*shape) - 0.5))


class Mamba2(Mixer):
    def __init__(self):
        super().__init__()
        self.ngroups, self.dt_limit, self.rmsnorm = GROUPS, (0.0, float("inf")), True
        channels = INNER + 2 * GROUPS * STATE
        self.in_proj = nn.Linear(MODEL, INNER + channels + HEADS, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, 4, groups=channels)
        self.norm, self.out_proj = Norm(INNER, 1e-5, True), nn.Linear(INNER, MODEL, bias=False)
        self.fill(dt_bias=(HEADS,), A_log=(HEADS,), D=(HEADS,))


class Mamba3(Mixer):
    def __init__(self):
        super().__init__()
        self.num_bc_heads, self.A_floor, self.is_mimo = GROUPS, 0.25, False
        self.in_proj = nn.Linear(MODEL, 2 * INNER + 2 * GROUPS * STATE + 3 * HEADS + STATE // 4, bias=False)
        self.B_norm, self.C_norm = Norm(STATE, 1e-5), Norm(STATE, 1e-5)
        self.out_proj = nn.Linear(INNER, MODEL, bias=False)
        self.fill(dt_bias=(HEADS,), D=(HEADS,), B_bias=(HEADS, 1, STATE), C_bias=(HEADS, 1, STATE))


class Block(nn.Module):
    def __init__(self, mixer):
        super().__init__()
        self.norm, self.mixer = Norm(MODEL, 0.001), mixer()


class Backbone(nn.Module):
    def __init__(self, mixer):
        super().__init__()
        self.layers, self.norm_f = nn.ModuleList([Block(mixer), Block(mixer)]), Norm(MODEL, 0.001)


class Policy(nn.Module):
    def __init__(self, mixer):
        super().__init__()
        self.input_proj, self.backbone, self.head = nn.Linear(5, MODEL), Backbone(mixer), nn.Linear(MODEL, 3)


for each in (Mamba2, Mamba3):
    export(Policy(each), f"{sys.argv[2]}/{each.__name__.lower()}.safetensors")
