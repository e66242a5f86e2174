import pytest

from provisioner.values.quantity import Format, Quantity, QuantityError

PRINTED = {
    "a plain number stays": ("16", "16"),
    "millicores stay": ("15900m", "15900m"),
    "a thousand millicores are one core": ("1000m", "1"),
    "a fraction becomes the next finer suffix": ("1.5", "1500m"),
    "a decimal suffix grows as far as it is exact": ("2000k", "2M"),
    "a binary suffix grows as far as it is exact": ("1024Mi", "1Gi"),
    "a binary fraction becomes the next smaller binary suffix": ("1.5Gi", "1536Mi"),
    "a binary amount that no larger suffix divides stays": ("1000Ki", "1000Ki"),
    "a binary amount under 1024 is printed without suffix": ("0.5Ki", "512"),
    "a binary amount that is no whole number is printed as decimal": ("1.0005Ki", "1024512m"),
    "an exponent stays an exponent, in steps of three": ("12E5", "1200e3"),
    "a small exponent stays one": ("1e-3", "1e-3"),
    "an exponent of zero vanishes": ("5e0", "5"),
    "capital E alone is exa": ("1E", "1E"),
    "zero has no suffix": ("0Gi", "0"),
    "a sign is kept": ("-5m", "-5m"),
    "a plus is not": ("+5m", "5m"),
    "a leading point is a number": (".5", "500m"),
    "a trailing point is a number": ("1.Ki", "1Ki"),
    "what is finer than a nano is rounded up": ("0.1n", "1n"),
    "a negative amount finer than a nano is rounded down": ("-0.1n", "-1n"),
    "what is beyond 64 bits is cut": ("9999E", "9223372036854775807"),
    "what is far beyond is cut too": ("1e999999999999", "9223372036854775807"),
    "what is far below is rounded up": ("1e-999999999999", "1e-9"),
    "spaces around do not count": (" 4Gi ", "4Gi"),
}


@pytest.mark.parametrize(("text", "want"), PRINTED.values(), ids=PRINTED)
def test_canonical_form(text: str, want: str) -> None:
    assert str(Quantity.parse(text)) == want


REFUSED: dict[str, tuple[object, str]] = {
    "an empty text": ("", "it is empty"),
    "a suffix alone": ("Ki", "it has no digits"),
    "an unknown suffix": ("1kk", "unknown"),
    "a lower-case binary suffix": ("1ki", "unknown"),
    "an exponent without number": ("1e", "unknown"),
    "two points": ("1.2.3", "unknown"),
    "a space inside": ("1 Gi", "unknown"),
    "a hexadecimal number": ("0x10", "unknown"),
    "digits of another script": ("\u0663", "unknown"),
    "not a number": (float("nan"), "unknown"),
    "infinity": (float("inf"), "unknown"),
    "a boolean": (True, "boolean"),
    "a text without end": ("1" * 200, "longer than 128"),
}


@pytest.mark.parametrize(("text", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_quantity_is_refused_with_its_text_and_an_example(text: str, problem: str) -> None:
    with pytest.raises(QuantityError, match=problem) as caught:
        Quantity.parse(text)
    assert repr(text)[:50] in str(caught.value)
    assert "512Mi" in str(caught.value)


def test_equal_amounts_are_equal_however_they_are_written() -> None:
    assert (
        Quantity.parse("1")
        == Quantity.parse("1000m")
        == Quantity.parse("1e0")
        == Quantity.parse(1)
        == Quantity.parse(1.0)
    )
    assert len({Quantity.parse("1Ki"), Quantity.parse("1024"), Quantity.parse("1.024k")}) == 1


def test_the_format_is_remembered() -> None:
    assert [Quantity.parse(text).format for text in ("1Gi", "1G", "1e9")] == [
        Format.BINARY_SI,
        Format.DECIMAL_SI,
        Format.DECIMAL_EXPONENT,
    ]


ROUNDED = {
    "a fraction of a millicore counts as one": ("100u", 1, 1),
    "a fraction of a byte counts as one": ("1500m", 1500, 2),
    "a whole number stays": ("3", 3000, 3),
    "zero stays": ("0", 0, 0),
}


@pytest.mark.parametrize(("text", "millis", "units"), ROUNDED.values(), ids=ROUNDED)
def test_integers_are_rounded_up(text: str, millis: int, units: int) -> None:
    assert (Quantity.parse(text).millis(), Quantity.parse(text).units()) == (millis, units)
