"""A custom call as a JAX function that is sharded and vmapped over its rows: the leading dimension of what is marked as rows.

Over several devices each one calls the library with the rows that it has, and what has no rows, such as the gradient of A, is summed
over them. Under vmap the new rows join the old ones, so that it stays one call, unless something without rows differs between them.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from .library import register


def varying(tensors):
    """The axes of an enclosing shard_map over which one of the tensors differs."""
    # JAX 0.10 renamed the attribute.
    types = [jax.typeof(tensor) for tensor in tensors]
    axes = [kind.mat.varying if hasattr(kind, "mat") else getattr(kind, "vma", frozenset()) for kind in types]
    return frozenset().union(*axes)


def alike(tensors):
    """The tensors, all of them varying over the axes of any. The gradient of one that did not vary is summed over them."""
    axes = varying(tensors)
    return tuple(_cast(tensor, axes) for tensor in tensors)


def _cast(tensor, axes):
    missing = tuple(sorted(axes - varying([tensor])))
    return jax.lax.pcast(tensor, missing, to="varying") if missing else tensor


def call(target, tensors, results, rows, result_rows, attributes):
    """The results of `target`, whose shapes and types are `results`. rows, result_rows: whether each has rows."""
    register()
    tails = tuple((out.shape[1:] if row else out.shape, jnp.dtype(out.dtype)) for out, row in zip(results, result_rows))
    plain, function = _functions(target, tuple(attributes.items()), tails, tuple(rows), tuple(result_rows))
    # Inside shard_map there is nothing left to partition.
    return (plain if not any(rows) or varying(tensors) else function)(*tensors)


@functools.lru_cache(maxsize=4096)
def _functions(target, attributes, tails, rows, result_rows):
    def plain(*tensors):
        batch = next((tensor.shape[0] for tensor, row in zip(tensors, rows) if row), 0)
        axes = varying(tensors)
        shapes = [(batch, *tail) if row else tail for (tail, _), row in zip(tails, result_rows)]
        results = [jax.ShapeDtypeStruct(shape, dtype) for shape, (_, dtype) in zip(shapes, tails)]
        outs = jax.ffi.ffi_call(target, results, vmap_method="sequential")(*tensors, **dict(attributes))
        return tuple(_cast(out, axes) for out in outs)

    partitioned = _partitioned(plain, rows, result_rows, [len(tail) for tail, _ in tails])
    function = jax.custom_batching.custom_vmap(lambda *tensors: partitioned(*tensors))

    @function.def_vmap
    def _(size, batched, *tensors):
        if all(result_rows) and not any(mapped and not row for mapped, row in zip(batched, rows)):
            full = [
                _joined(tensor if mapped else jnp.broadcast_to(tensor, (size, *tensor.shape))) if row else tensor
                for tensor, mapped, row in zip(tensors, batched, rows)
            ]
            outs = [out.reshape(size, out.shape[0] // size, *out.shape[1:]) for out in function(*full)]
            return tuple(outs), tuple(True for _ in outs)
        mapped_only = [tensor for tensor, mapped in zip(tensors, batched) if mapped]

        def one(values):
            values = iter(values)
            return function(*(next(values) if mapped else tensor for tensor, mapped in zip(tensors, batched)))

        outs = jax.lax.map(one, mapped_only)
        return outs, tuple(True for _ in outs)

    return plain, function


def _joined(tensor):
    return tensor.reshape(tensor.shape[0] * tensor.shape[1], *tensor.shape[2:])


def _partitioned(plain, rows, result_rows, result_ranks):
    function = custom_partitioning(plain)

    # The axes that share out the rows; none where they do not divide them.
    def row_axes(mesh, arguments):
        for argument, row in zip(arguments, rows):
            spec = getattr(argument.sharding, "spec", None) if row else None
            if spec and spec[0] is not None:
                names = spec[0] if isinstance(spec[0], tuple) else (spec[0],)
                parts = 1
                for name in names:
                    parts *= mesh.shape[name]
                return names if argument.shape[0] % parts == 0 else None
        return None

    def shardings(mesh, axes, marks):
        return tuple(NamedSharding(mesh, PartitionSpec(axes) if axes and mark else PartitionSpec()) for mark in marks)

    def infer(mesh, arguments, _results):
        return shardings(mesh, row_axes(mesh, arguments), result_rows)

    def partition(mesh, arguments, _results):
        axes = row_axes(mesh, arguments)

        def local(*tensors):
            outs = plain(*tensors)
            return tuple(out if row or not axes else jax.lax.psum(out, axes) for out, row in zip(outs, result_rows))

        return mesh, local, shardings(mesh, axes, result_rows), shardings(mesh, axes, rows)

    def rule(_mesh, operands, _results):
        ranks = [len(operand.shape) for operand in operands]
        return f"{_factors('i', ranks, rows)} -> {_factors('o', result_ranks_full, result_rows)}"

    result_ranks_full = [rank + 1 if row else rank for rank, row in zip(result_ranks, result_rows)]
    function.def_partition(partition, infer_sharding_from_operands=infer, sharding_rule=rule)
    return function


def _factors(letter, ranks, marks):
    """Shardy's names of the dimensions: `rows` for those, and one of its own for each other."""
    return ", ".join(
        " ".join("rows" if mark and d == 0 else f"{letter}{n}_{d}" for d in range(rank))
        for n, (rank, mark) in enumerate(zip(ranks, marks))
    )
