"""Exports a PyTorch policy with Mamba-2 or Mamba-3 layers as a safetensors file that Policy.load reads without options.

The policy has input_proj and head around a backbone as mamba_ssm builds it: layers of norm and mixer, then norm_f.
"""

from safetensors.torch import save_file


def export(policy, path):
    first = policy.backbone.layers[0]
    mixer, kind = first.mixer, type(first.mixer).__name__.lower()
    stated = {"mixer": kind, "norm_epsilon": first.norm.eps}
    if kind == "mamba2":
        least, most = mixer.dt_limit
        stated.update(ngroups=mixer.ngroups, dt_limit_min=least, dt_limit_max=most)
        if mixer.rmsnorm:
            stated.update(norm_before_gate=mixer.norm.norm_before_gate, mixer_norm_epsilon=mixer.norm.eps)
    else:
        stated.update(ngroups=mixer.num_bc_heads, A_floor=mixer.A_floor, is_mimo=mixer.is_mimo)
    metadata = {name: str(value).lower() for name, value in stated.items()}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in policy.state_dict().items()}
    save_file(tensors, path, metadata=metadata)
