"""Operations that only move elements: views, subscripts, joins, scatters."""
