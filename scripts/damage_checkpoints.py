"""Make hostile and damaged checkpoints and try to load each: all must be refused with a message.

    python scripts/damage_checkpoints.py                 # 500 damaged ones, and every hostile one
    python scripts/damage_checkpoints.py --damaged 2000

A damaged one is a sound one with a flipped bit, a cut or lengthened file, a block of zeros, a missing file, or a file
of another checkpoint. A hostile one has right checksums and wants to be more than data: to run code, to name files
elsewhere, to use up the memory, to be something else than it says.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import random
import shutil
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from recsys.checkpoint.manifest import MANIFEST, STATE
from recsys.checkpoint.strict_json import dump
from recsys.errors import UserError
from scripts.fault_job import Job

Body = dict[str, Any]
RANK = "rank_00000.safetensors"


def damage(folder: Path, other: Path, draw: random.Random) -> str:
    """Damage the checkpoint in ``folder`` in one way; what was done."""
    path = draw.choice(sorted(folder.iterdir()))
    data = bytearray(path.read_bytes())
    kind = draw.choices(("flip", "cut", "longer", "zeros", "missing", "swapped", "link"), (10, 4, 1, 2, 1, 2, 1))[0]
    at = draw.randrange(len(data))
    if kind == "flip":
        data[at] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del data[at:]
    elif kind == "longer":
        data += draw.randbytes(draw.randrange(1, 64))
    elif kind == "zeros":
        size = min(512, len(data) - at)
        if not any(data[at : at + size]):
            data[at] = 1  # there were zeros already
        else:
            data[at : at + size] = bytes(size)
    if kind == "missing":
        path.unlink()
    elif kind == "swapped":
        shutil.copy(other / path.name, path)
    elif kind == "link":
        moved = folder.parent / f"elsewhere-{path.name}"
        shutil.move(path, moved)
        path.symlink_to(moved)
    else:
        path.write_bytes(data)
    return kind


def edit_manifest(folder: Path, change: Callable[[Body], object]) -> None:
    """Change the manifest and make its checksums right again, those of the files included."""
    path = folder / MANIFEST
    body = json.loads(path.read_bytes())["body"]
    for name, entry in body["files"].items():
        data = (folder / name).read_bytes() if (folder / name).is_file() else b""
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change(body)
    seal(folder, dump(body))


def seal(folder: Path, body: bytes) -> None:
    """Write a manifest of ``body`` with a right checksum."""
    digest = hashlib.sha256(body).hexdigest().encode()
    (folder / MANIFEST).write_bytes(b'{"sha256":"' + digest + b'","body":' + body + b"}\n")


def edit_state(folder: Path, change: Callable[[Body], object]) -> None:
    """Change ``state.json`` and make every checksum right again."""
    state = json.loads((folder / STATE).read_bytes())
    change(state)
    put(folder, STATE, json.dumps(state).encode())


def put(folder: Path, name: str, data: bytes) -> None:
    """Write a file and make every checksum right again."""
    (folder / name).write_bytes(data)
    edit_manifest(folder, lambda body: None)


class Bomb:
    """Runs a command when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self._canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._canary}",)


def header(folder: Path, change: Callable[[Body], object]) -> None:
    """Change the header of the tensors' file and make every checksum right again."""
    data = (folder / RANK).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    raw = json.loads(data[8 : 8 + size])
    change(raw)
    text = json.dumps(raw).encode()
    put(folder, RANK, struct.pack("<Q", len(text)) + text + data[8 + size :])


def first(body: Body, prefix: str = "model/") -> Body:
    """The entry of a tensor in a manifest."""
    return body["tensors"][next(n for n in body["tensors"] if n.startswith(prefix))]


def nested(depth: int) -> bytes:
    """JSON that is ``depth`` lists deep."""
    return b'{"a":' + b"[" * depth + b"]" * depth + b"}"


def _rename_tensor(body: Body) -> None:
    tensors = body["tensors"]
    a, b = [n for n in tensors if n.startswith("model/") and tensors[n]["shape"] == [40, 16]][:2]
    tensors[a]["pieces"], tensors[b]["pieces"] = tensors[b]["pieces"][:0], tensors[a]["pieces"]


def _grow(body: Body) -> None:
    entry = next(t for n, t in body["tensors"].items() if n.endswith("exp_avg"))
    entry["shape"] = [1 << 40, 1 << 20]
    entry["pieces"][0]["shape"] = entry["shape"]


def hostile_cases(canary: Path) -> dict[str, Callable[[Path], object]]:
    """Name -> what makes a sound checkpoint hostile."""
    bomb = pickle.dumps(Bomb(canary))

    def torch_file(folder: Path) -> None:
        torch.save({"x": Bomb(canary)}, folder / RANK)
        edit_manifest(folder, lambda body: None)

    def pipe(folder: Path) -> None:
        (folder / RANK).unlink()
        os.mkfifo(folder / RANK)

    def device(folder: Path) -> None:
        (folder / STATE).unlink()
        (folder / STATE).symlink_to("/dev/zero")

    def dcp(folder: Path) -> None:
        (folder / MANIFEST).unlink()
        (folder / ".metadata").write_bytes(bomb)

    def manifest(change: Callable[[Body], object]) -> Callable[[Path], object]:
        return lambda folder: edit_manifest(folder, change)

    def state(change: Callable[[Body], object]) -> Callable[[Path], object]:
        return lambda folder: edit_state(folder, change)

    def offsets(raw: Body) -> None:
        keys = [k for k in raw if raw[k]["data_offsets"][1] - raw[k]["data_offsets"][0] == 2560]
        raw[keys[0]]["data_offsets"] = raw[keys[1]]["data_offsets"]

    files = lambda body: body["files"]  # noqa: E731
    return {
        "tensors are a pickle that runs code": lambda f: put(f, RANK, bomb),
        "tensors are a torch file that runs code": torch_file,
        "state is a pickle that runs code": lambda f: put(f, STATE, bomb),
        "manifest is a pickle that runs code": lambda f: (f / MANIFEST).write_bytes(bomb),
        "manifest's body is a pickle that runs code": lambda f: seal(f, bomb),
        "a folder of torch.distributed.checkpoint": dcp,
        "a file elsewhere": manifest(lambda b: files(b).update({"../../etc/passwd": files(b)[RANK]})),
        "an absolute path": manifest(lambda b: files(b).update({"/etc/passwd": files(b)[RANK]})),
        "a piece in a file that is not listed": manifest(lambda b: first(b)["pieces"][0].update(file="x.safetensors")),
        "a piece in the state": manifest(lambda b: first(b)["pieces"][0].update(file=STATE)),
        "a pipe": pipe,
        "a device": device,
        "a folder instead of a file": lambda f: ((f / STATE).unlink(), (f / STATE).mkdir()),
        "a manifest 100,000 lists deep": lambda f: seal(f, nested(100_000)),
        "a state 100,000 lists deep": lambda f: put(f, STATE, nested(100_000)),
        "a number of 5,000 digits": lambda f: put(f, STATE, b'{"fit":' + b"9" * 5000 + b"}"),
        "a tensor of 2**60 elements": manifest(_grow),
        "a negative shape": manifest(lambda b: first(b).update(shape=[-40, -16])),
        "a shape of fractions": manifest(lambda b: first(b).update(shape=[40.0, 16])),
        "a shape of truths": manifest(lambda b: first(b).update(shape=[True, 16])),
        "a piece outside of its tensor": manifest(lambda b: first(b)["pieces"][0].update(offset=[1, 0])),
        "a piece twice": manifest(lambda b: first(b)["pieces"].append(first(b)["pieces"][0])),
        "a tensor without pieces": manifest(lambda b: first(b).update(pieces=[])),
        "a tensor under another's name": manifest(_rename_tensor),
        "an unknown dtype": manifest(lambda b: first(b).update(dtype="object")),
        "a tensor too few": manifest(lambda b: b["tensors"].pop(next(iter(b["tensors"])))),
        "a tensor too many": manifest(lambda b: b["tensors"].update({"model/more": {**first(b)}})),
        "another version": manifest(lambda b: b.update(version=2)),
        "no files": manifest(lambda b: b.update(files={})),
        "a list instead of the manifest": lambda f: seal(f, b"[]"),
        "keys that stand twice": lambda f: seal(f, b'{"format":"x","format":"recsys checkpoint"}'),
        "a header that overlaps itself": lambda f: header(f, offsets),
        "a header of another dtype": lambda f: header(f, lambda raw: next(iter(raw.values())).update(dtype="I64")),
        "a header of 2**63 bytes": lambda f: put(f, RANK, struct.pack("<Q", 1 << 63) + b"{}"),
        "an empty tensors' file": lambda f: put(f, RANK, b""),
        "a step below zero": state(lambda s: s["fit"].update(step=-1)),
        "a step of words": state(lambda s: s["fit"].update(step="9")),
        "an epoch out of range": state(lambda s: s["fit"].update(epoch=0, batch=10**6)),
        "a curve of code": state(lambda s: s["fit"].update(curve=[["__import__('os')", 1.0]])),
        "an NE that is no number": state(lambda s: s["fit"].update(best_ne=float("nan"))),
        "a running NE of words": state(lambda s: s.update(running_ne=[["x", "y"]])),
        "random states of another kind": state(lambda s: s["random"].update(python=[3, [1, 2], None])),
        "no random states": state(lambda s: s.pop("random")),
        "a random state that is none": manifest(
            lambda b: b["tensors"].update({"random/00000/torch": first(b, "optim/")})
        ),
    }


def try_to_load(folder: Path) -> str | None:
    """Train from the checkpoint in ``folder``: the message of a refusal, or None if it was taken."""
    try:
        Job(folder.parent, data=None).fit._restore()
    except UserError as error:
        return str(error)
    return None


def check_hostile(workplace: Path) -> int:
    """Try every hostile checkpoint; how many were refused.

    Raises:
        AssertionError: one was taken, code in one ran, or a refusal says nothing.
    """
    sound, _ = sound_ones(workplace)
    canary = workplace / "canary"
    cases = hostile_cases(canary)
    for number, (name, spoil) in enumerate(cases.items()):
        folder = workplace / f"hostile-{number}" / sound.name
        shutil.copytree(sound, folder)
        spoil(folder)
        assert_refused(folder, name)
    assert not canary.exists(), "code in a checkpoint was run"
    return len(cases)


def check_damaged(count: int, workplace: Path, seed: int = 0) -> Counter[str]:
    """Try ``count`` damaged checkpoints; kind -> how many were refused.

    Raises:
        AssertionError: one was taken, or a refusal says nothing.
    """
    sound, older = sound_ones(workplace)
    refused: Counter[str] = Counter()
    draw = random.Random(seed)
    for number in range(count):
        folder = workplace / f"damaged-{number}" / sound.name
        shutil.copytree(sound, folder)
        kind = damage(folder, older, draw)
        assert_refused(folder, f"damaged {number} ({kind})")
        refused[kind] += 1
        shutil.rmtree(folder.parent)
    return refused


def sound_ones(workplace: Path) -> tuple[Path, Path]:
    """The newest checkpoint of a job, and the one before it."""
    if not (workplace / "sound").exists():
        Job(workplace / "sound").run()
    older, sound = sorted((workplace / "sound").iterdir())
    assert try_to_load(sound) is None, "the sound one is refused"
    return sound, older


def assert_refused(folder: Path, name: str) -> None:
    """See that ``folder`` is refused with a message that says where."""
    message = try_to_load(folder)
    assert message is not None, f"{name}: was taken"
    assert str(folder.parent) in message and len(message) > 40, f"{name}: is refused with {message!r}"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--damaged", type=int, default=500, help="how many damaged ones")
    parser.add_argument("--seed", type=int, default=0, help="of what is damaged, and where")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hostile = check_hostile(Path(folder))
        refused = check_damaged(args.damaged, Path(folder), args.seed)
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(refused.items()))
    print(f"{hostile} hostile and {refused.total()} damaged checkpoints ({kinds}): all refused, none loaded")


if __name__ == "__main__":
    main()
