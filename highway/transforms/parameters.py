"""Types for the parameters of transforms, with the allowed ranges. Most types do not allow NaN and infinity."""

from __future__ import annotations

from typing import Annotated

from highway.parameters.ranges import Predicate, Range

_LIMIT = 2.0**53  # greater values are probably mistakes

Number = Annotated[float, Range(gt=-_LIMIT, lt=_LIMIT, words="a finite number")]
Amount = Annotated[float, Range(ge=0, lt=_LIMIT, words="a finite number, at least 0")]
_FACTORS = "(least, greatest), factors from 0 to 10"
Distances = Annotated[tuple[float, float], Range(ge=0, le=10, words=_FACTORS), Predicate(lambda some: some[0] <= some[1], _FACTORS)]
Distance = Annotated[
    float,
    Range(ge=0, le=10, words="how far a factor may be from 1, at most 10: 0.4 draws factors from 0.6 to 1.4, not levels"),
]
Positive = Annotated[float, Range(gt=0, lt=_LIMIT, words="a finite number above 0")]
Share = Annotated[float, Range(ge=0, le=1, words="a share, from 0 to 1")]
Turn = Annotated[float, Range(ge=0, le=0.5, words="a share of the circle, from 0 to 0.5")]
Degrees = Annotated[float, Range(ge=0, lt=_LIMIT, words="degrees, at least 0")]
Slant = Annotated[float, Range(ge=0, lt=90, words="degrees, from 0 to below 90")]

_AT_LEAST_0, _ABOVE_0 = "(least, greatest), at least 0 and finite", "(least, greatest), above 0 and finite"
Amounts = Annotated[tuple[float, float], Range(ge=0, words=_AT_LEAST_0), Predicate(lambda some: some[0] <= some[1] < _LIMIT, _AT_LEAST_0)]
Factors = Annotated[tuple[float, float], Range(gt=0, words=_ABOVE_0), Predicate(lambda some: some[0] <= some[1] < _LIMIT, _ABOVE_0)]
_ENLARGING = "(least, greatest) factors, above 0 and at most 10, such as (0.9, 1.2)"
Enlargements = Annotated[tuple[float, float], Range(gt=0, le=10, words=_ENLARGING), Predicate(lambda some: some[0] <= some[1], _ENLARGING)]
Shares = Annotated[tuple[float, float], Predicate(lambda some: 0 < some[0] <= some[1] <= 1, "(least, greatest), within 0 to 1")]
Centers = Annotated[
    tuple[float, float], Range(ge=0, le=1), Predicate(lambda shares: shares[0] <= shares[1], "(least, greatest), from 0 to 1")
]
Counts = Annotated[tuple[int, int], Range(ge=1), Predicate(lambda some: some[0] <= some[1], "(least, greatest), at least 1")]

PerChannel = Annotated[
    float | tuple[float, ...],
    Range(gt=-_LIMIT, lt=_LIMIT, words="finite numbers"),
    Predicate(lambda value: value != (), "a number, or one for each channel"),
]
