from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recsys.metrics import ne
from recsys.prepare.criteo_kaggle import CriteoKaggle
from scripts import peers, peers_fit

ROOT = Path(__file__).resolve().parents[2]


def write_tsv(path: Path, num_rows: int, seed: int = 0) -> Path:
    """Rows in Criteo's format; the first category decides the label."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(num_rows):
        category = int(rng.integers(4))
        label = int(rng.random() < (0.1, 0.3, 0.6, 0.9)[category])
        integers = ["" if rng.random() < 0.2 else str(int(rng.integers(-1, 50))) for _ in range(13)]
        others = ["" if rng.random() < 0.2 else f"{int(rng.integers(9)):08x}" for _ in range(25)]
        lines.append("\t".join([str(label), *integers, f"{category:08x}", *others]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("num_rows", [101, 237])
def test_the_rows_are_those_that_the_product_trains_on(tmp_path: Path, num_rows: int) -> None:
    path = write_tsv(tmp_path / "rows.tsv", num_rows)
    test_labels = peers.write_rows(path, tmp_path)
    rows = peers_fit.read(tmp_path)
    splits = CriteoKaggle(str(path), cache_dir=str(tmp_path / "cache")).splits(batch_size=16, seed=0)
    ours = [np.concatenate([batch.labels for batch in source]) for source in (splits.valid, splits.test)]
    _, valid, test = rows.parts
    assert np.array_equal(rows.labels[valid], ours[0])
    assert np.array_equal(rows.labels[test], ours[1]) and np.array_equal(test_labels, ours[1])
    assert rows.integers.shape == (13, num_rows) and rows.categories.shape == (26, num_rows)
    assert np.array_equal(np.isnan(rows.integers), rows.bins == rows.bins.min())


def test_target_means_do_not_know_their_own_label() -> None:
    rng = np.random.default_rng(0)
    column, labels = rng.integers(0, 30, 400), rng.integers(0, 2, 400)
    frequency, means = peers_fit.encode(column, labels, 300, smoothing=5.0)
    for row in (0, 7, 299):
        changed = labels.copy()
        changed[row] ^= 1
        _, others = peers_fit.encode(column, changed, 300, smoothing=5.0)
        assert others[row] == means[row]
        assert not np.array_equal(others, means), "but other rows see it"
    held_out = labels.copy()
    held_out[300:] ^= 1
    assert np.array_equal(peers_fit.encode(column, held_out, 300, smoothing=5.0)[1], means)
    # A held-out row, by hand.
    same = column[:300] == column[350]
    expected = (labels[:300][same].sum() + 5 * labels[:300].mean()) / (same.sum() + 5)
    assert means[350] == pytest.approx(expected)
    assert frequency[350] == pytest.approx(np.log1p(same.sum()))
    assert frequency[0] == pytest.approx(np.log1p((column[:300] == column[0]).sum() - 1))


def test_hashed_features() -> None:
    columns = np.array([[5, 5, 5, 7, 9, 9], [5, 5, 5, 7, 9, 9]])
    features = peers_fit.hashed_one_hot(columns, 4, bits=20, min_count=2)
    a, b = features
    assert a[0] == a[1] == a[2] and a[3] == a[4] == a[5] != a[0], "rare and unseen values share a feature"
    assert not set(a) & set(b), "columns do not"
    assert features.max() < 2**20
    assert len(set(peers_fit.hashed_one_hot(np.arange(5000)[None], 5000, bits=30, min_count=1)[0])) == 5000


def test_normalized_entropy_is_the_products() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=500), rng.integers(0, 2, 500)
    assert peers_fit.normalized_entropy(logits, labels) == pytest.approx(ne(logits, labels), rel=1e-12)


def test_a_peer_is_tuned_on_valid_rows_and_tested_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tsv(tmp_path / "rows.tsv", 1500)
    test_labels = peers.write_rows(path, tmp_path)
    settings = [{"bits": 12, "min_count": 1, "C": c} for c in (1e-6, 0.1)]
    (tmp_path / "logistic.settings.json").write_text(json.dumps(settings))
    peers_fit.main(tmp_path, "logistic", 1)
    result = peers.read_result(tmp_path, "logistic", test_labels)
    assert result["chosen"]["settings"] == settings[1]
    assert result["chosen"]["valid_ne"] == min(trial["valid_ne"] for trial in result["trials"])
    assert result["test"]["ne"] < 0.9 and result["test"]["rows"] == 150
    text = peers.markdown({"file": path.name, "versions": {"numpy": "2"}, "peers": [result]})
    assert f"{result['test']['ne']:.5f}" in text and "C=0.1" in text
    assert capsys.readouterr().out.count("logistic: ") == 2


def test_too_few_rows_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tsv(tmp_path / "rows.tsv", 5)
    with pytest.raises(SystemExit) as ended:
        peers.main([str(path), "--out", str(tmp_path / "out")])
    assert ended.value.code == 1
    assert f"error: {path}: 5 rows are too few" in capsys.readouterr().err


def test_the_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []
    monkeypatch.setattr(peers, "_run", lambda command, _: commands.append(" ".join(map(str, command))))
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert peers.make_environment(tmp_path / "env") == python
    assert len(commands) == 2 and commands[1].endswith(" ".join(peers.PACKAGES))
    peers.make_environment(tmp_path / "env")
    assert len(commands) == 2


def test_the_environment_is_not_committed() -> None:
    assert ".peers-venv/" in (ROOT / ".gitignore").read_text().splitlines()
