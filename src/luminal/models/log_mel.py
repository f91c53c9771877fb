"""Log-mel spectrograms, as Whisper and Parakeet take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from luminal.base.records import dataclass

Array = np.ndarray[Any, Any]

_LINEAR_END = 1000.0  # hertz: the scale is linear below
_HERTZ_PER_MEL = 200 / 3
_LOG_STEP = np.log(6.4) / 27  # of a mel above
_HIGHEST = 8000.0  # hertz that Whisper hears
_FLOOR = 1e-10  # of a power
_RANGE = 8.0  # powers of ten below the loudest
_GUARD = 2.0**-24  # is added to a power: silence has a logarithm, too
_LEAST_SPREAD = 1e-5  # is added to a deviation
_BLOCK = 3000  # frames at once: the spectra of an hour would take gigabytes


def mel_filters(mels: int, n_fft: int, rate: int, highest: float) -> Array:
    """(n_fft // 2 + 1, mels): triangles of equal area, their corners equally far apart in mels, up
    to `highest` hertz.

    Slaney, Auditory Toolbox, 1998.
    """
    mel = np.linspace(0, _mel_of(highest), mels + 2)
    linear = mel * _HERTZ_PER_MEL
    curved = _LINEAR_END * np.exp(_LOG_STEP * (mel - _LINEAR_END / _HERTZ_PER_MEL))
    corners = np.where(linear < _LINEAR_END, linear, curved)
    hertz = np.fft.rfftfreq(n_fft, 1 / rate)[:, None]
    low, middle, high = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (hertz - low) / (middle - low), (high - hertz) / (high - middle)
    triangles: Array = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
    return triangles


def _mel_of(hertz: float) -> float:
    if hertz < _LINEAR_END:
        return hertz / _HERTZ_PER_MEL
    return float(_LINEAR_END / _HERTZ_PER_MEL + np.log(hertz / _LINEAR_END) / _LOG_STEP)


def _bands(padded: Array, hop: int, count: int, window: Array, filters: Array) -> Array:
    """The power spectra of the first `count` frames, `hop` samples apart, summed into bands:
    (count, mels).
    """
    frames = np.lib.stride_tricks.sliding_window_view(padded, len(window))[::hop][:count]
    bands = [
        np.abs(np.fft.rfft(frames[at : at + _BLOCK] * window)) ** 2 @ filters
        for at in range(0, len(frames), _BLOCK)
    ]
    return np.concatenate(bands)


@dataclass(frozen=True, slots=True)
class LogMel:
    """Power spectra of `n_fft` samples every `hop` samples, summed into `mels` bands.

    Radford et al., arXiv 2212.04356.
    """

    mels: int = 80
    n_fft: int = 400
    hop: int = 160
    rate: int = 16000

    def __call__(self, samples: Array) -> Array:
        """(count,) samples to (mels, count // hop), float32, of which the loudest spans 2."""
        # As librosa centres frames: the first one lies around the first sample, and what is missing
        # before it is mirrored.
        padded = np.pad(samples, self.n_fft // 2, mode="reflect")
        window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.n_fft) / self.n_fft)
        filters = mel_filters(self.mels, self.n_fft, self.rate, _HIGHEST)
        bands = _bands(padded, self.hop, len(samples) // self.hop, window, filters)
        logs = np.log10(np.maximum(bands, _FLOOR))
        # The loudest of the whole recording, not of a window, as Whisper's own transcription has
        # it.
        features: Array = ((np.maximum(logs, logs.max() - _RANGE) + 4) / 4).T.astype(np.float32)
        return features


@dataclass(frozen=True, slots=True)
class StandardizedLogMel:
    """Logarithms of power in `mels` bands, each of mean 0 and variance 1 over a sound.

    Every `hop` samples `window` ones lie in the middle of `n_fft`. `preemphasis`: each sample less
    so much of the one before. Kuchaiev et al., NeMo, arXiv 1909.09577.
    """

    mels: int = 80
    n_fft: int = 512
    hop: int = 160
    rate: int = 16000
    window: int = 400
    preemphasis: float = 0.97

    def __call__(self, samples: Array) -> Array:
        """(count,) samples, of two hops at least, to (count // hop, mels), float32."""
        sharp = samples.astype(np.float64)
        sharp[1:] -= self.preemphasis * sharp[:-1]
        padded = np.pad(sharp, self.n_fft // 2)
        before = (self.n_fft - self.window) // 2
        window = np.pad(np.hanning(self.window), (before, self.n_fft - self.window - before))
        filters = mel_filters(self.mels, self.n_fft, self.rate, self.rate / 2)
        logs = np.log(_bands(padded, self.hop, len(samples) // self.hop, window, filters) + _GUARD)
        spread = logs.std(0, ddof=1) + _LEAST_SPREAD
        features: Array = ((logs - logs.mean(0)) / spread).astype(np.float32)
        return features
