"""Where it is kept: one contract, three backends. A store guards; it does not decide."""
