"""A trained model in, a directory for another engine out, proven to say the same before it gets its name.

ctranslate2   a model in CTranslate2's own format
onnx          a model as ONNX graphs
targets       the table of both: what can be written, of which kind of model
verify        original and exported side by side
"""
