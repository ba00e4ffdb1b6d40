"""``deepwire results``: systems trained, scored and timed by one plan, beside the claims of the papers."""
