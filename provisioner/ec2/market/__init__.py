"""What a region sells, for what, and what is short: types, offerings, prices, unavailable offerings. Read in the background, taken without waiting."""
