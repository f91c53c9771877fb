"""Operations that combine the elements along a dim."""
