"""Nine small forms of attention to learn from, each one idea beyond the one before, to be read in this order.

1. `attention_function` - attention as a function: match, share, mix.
2. `self_attention`     - a sentence attends to itself, with nothing to learn yet.
3. `parameter_head`     - one head whose three matrices are bare `nn.Parameter`s.
4. `linear_head`        - the same head with `nn.Linear`.
5. `masked_head`        - the same head, told where it may look.
6. `multi_head`         - several heads side by side, in a plain loop.
7. `folded_heads`       - the same heads without the loop, folded into the batch.
8. `post_norm_block`    - attention and feed-forward, each added to its input, then normalised.
9. `additive_attention` - the older way to score a match, beside the dot product.

The forms need only torch, and jaxtyping for the shapes. The tests prove each one equal to torch's own and to its
production twin in `clearhead.nn`.
To add a form, write one file, give it a line above and a place below.
"""

READING_ORDER = (
    "attention_function",
    "self_attention",
    "parameter_head",
    "linear_head",
    "masked_head",
    "multi_head",
    "folded_heads",
    "post_norm_block",
    "additive_attention",
)
