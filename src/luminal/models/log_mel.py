"""Log-mel spectrograms as Whisper takes them. Radford et al., arXiv 2212.04356."""

from __future__ import annotations

from typing import Any

import numpy as np

from luminal.base.records import dataclass

Array = np.ndarray[Any, Any]

_LINEAR_END = 1000.0  # hertz: the scale is linear below
_HERTZ_PER_MEL = 200 / 3
_LOG_STEP = np.log(6.4) / 27  # of a mel above
_FLOOR = 1e-10  # of a power
_RANGE = 8.0  # powers of ten below the loudest
_BLOCK = 3000  # frames at once: the spectra of an hour would take gigabytes


@dataclass(frozen=True, slots=True)
class LogMel:
    """Power spectra of `n_fft` samples every `hop` samples, summed into `mels` bands."""

    mels: int = 80
    n_fft: int = 400
    hop: int = 160
    rate: int = 16000

    def __call__(self, samples: Array) -> Array:
        """(count,) samples to (mels, count // hop), float32, of which the loudest spans 2."""
        # As librosa centres frames: the first one lies around the first sample, and what is missing
        # before it is mirrored.
        padded = np.pad(samples, self.n_fft // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, self.n_fft)[:: self.hop]
        frames = frames[: len(samples) // self.hop]
        window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.n_fft) / self.n_fft)
        filters = self.filters()
        bands = [
            np.abs(np.fft.rfft(frames[at : at + _BLOCK] * window)) ** 2 @ filters
            for at in range(0, len(frames), _BLOCK)
        ]
        logs = np.log10(np.maximum(np.concatenate(bands), _FLOOR))
        # The loudest of the whole recording, not of a window, as Whisper's own transcription has
        # it.
        features: Array = ((np.maximum(logs, logs.max() - _RANGE) + 4) / 4).T.astype(np.float32)
        return features

    def filters(self) -> Array:
        """(n_fft // 2 + 1, mels): triangles of equal area, their corners equally far apart in mels.

        Slaney, Auditory Toolbox, 1998.
        """
        last = _LINEAR_END / _HERTZ_PER_MEL + np.log(8000.0 / _LINEAR_END) / _LOG_STEP
        mel = np.linspace(0, last, self.mels + 2)
        linear = mel * _HERTZ_PER_MEL
        curved = _LINEAR_END * np.exp(_LOG_STEP * (mel - _LINEAR_END / _HERTZ_PER_MEL))
        corners = np.where(linear < _LINEAR_END, linear, curved)
        hertz = np.fft.rfftfreq(self.n_fft, 1 / self.rate)[:, None]
        low, middle, high = corners[:-2], corners[1:-1], corners[2:]
        rising, falling = (hertz - low) / (middle - low), (high - hertz) / (high - middle)
        triangles: Array = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
        return triangles
