"""A step function and settings in, finished sequences out; search sees `(ids, state) -> (logits, state)` and no model.

settings      what a user may choose; needs no torch
hypothesis    what it gives back; needs no torch
step          what search asks of a model
repeats       what makes a loop; needs no torch
constraints   which tokens may not come next
ranking       the best tokens of a vocabulary, quickly
search        the hypotheses under way, and those that are done
chance        numbers to draw with; needs no torch
greedy        the likeliest token each time
sampling      a token drawn each time
beam          several hypotheses side by side
strategies    `generate`, and the table of the three
"""
