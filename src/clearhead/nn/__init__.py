"""Tensors in, tensors out: the parts every model is wired from.

One layout, `(batch, heads, time, head_dim)`; one mask, bool, True = may look. The axes in every signature come from
this vocabulary, and the tests execute them:

    batch      examples side by side             heads      attention heads
    time       positions of one sequence         kv_heads   heads of keys and values (heads are shared out among them)
    query      positions that look               head_dim   width of one head
    key        positions that are looked at      dim        width of the model
    source     positions of the source side      ff_dim     inner width of a feed-forward
    target     positions of the target side      vocab      entries of a vocabulary
    input      tokens that came in               patches    squares of a picture
    fewer      tokens that are left              merged     tokens that go into others
    rows       hypotheses during generation      real       bool, True = not padding
"""
