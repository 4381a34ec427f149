from __future__ import annotations

import pytest

from scripts import doctor, install


@pytest.mark.parametrize(
    ("traceback", "words"),
    [
        (
            'Traceback (most recent call last):\n  File "x"\nOSError: libfbgemm.so: undefined symbol: _ZN3c10\n',
            "fbgemm-gpu was built for another torch (OSError: libfbgemm.so: undefined symbol: _ZN3c10)",
        ),
        (
            "OSError: libnvidia-ml.so.1: cannot open shared object file: No such file or directory",
            "the CUDA build of fbgemm-gpu needs the NVIDIA driver, and there is none (OSError: libnvidia-ml.so.1: "
            "cannot open shared object file: No such file or directory)",
        ),
        ("ValueError: something else", "ValueError: something else"),
        ("", "the process died without a message"),
    ],
)
def test_loader_errors_in_plain_words(traceback: str, words: str) -> None:
    assert doctor.plain_words(traceback) == words


def verdicts(host: install.Host) -> dict[str, bool | None]:
    return {finding.name: finding.ok for finding in doctor.examine_host(host)}


def test_a_driver_too_old_matters_to_the_cuda_build_only() -> None:
    host = install.Host("Linux", "x86_64", (3, 12), driver="535.1", torch="2.13.0", torch_build="cuda")
    assert verdicts(host) == {"python": True, "platform": True, "NVIDIA driver": False, "torch build": True}
    host = install.Host("Linux", "x86_64", (3, 12), driver="535.1", torch="2.13.0+cpu", torch_build="cpu")
    assert verdicts(host) == {"python": True, "platform": True, "NVIDIA driver": None, "torch build": None}


def test_a_cuda_build_needs_a_driver() -> None:
    host = install.Host("Linux", "x86_64", (3, 10), torch="2.13.0", torch_build="cuda")
    assert verdicts(host) == {"python": False, "platform": True, "NVIDIA driver": None, "torch build": False}


def test_this_environment_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.main()
    assert "All is well" in capsys.readouterr().out


def test_a_broken_environment_ends_with_the_mending_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "load_for_real", lambda: "fbgemm-gpu was built for another torch")
    with pytest.raises(SystemExit, match="1"):
        doctor.main()
    printed = capsys.readouterr().out
    assert "They do not load together: fbgemm-gpu was built for another torch" in printed
    assert install.load_versions().mending_line() in printed
