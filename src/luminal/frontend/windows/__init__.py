"""Operations over windows: convolution, pooling, resampling."""
