"""An exported model in, its answers out: what runs where there is no torch.

directory            what an exported directory holds
texts                translators: strings in, strings out, over any engine
writing              the same for language models
classifying          ... classifiers
filling              ... BERTs
seeing               ... and Vision Transformers
ctranslate2          translators by CTranslate2
ctranslate2_writing  language models by CTranslate2
onnx                 translators by ONNX Runtime and numpy, driven by `search` and its five
onnx_writing         language models
onnx_reading         all that read and answer at once
graph                an ONNX file as a function
search               greedy search and sampling
beam                 several paths side by side
hypotheses           hypotheses under way and done
drawing              how tokens are drawn
rules                which tokens may not come next
ranking              the best tokens of a vocabulary, quickly
opening              the table of engines
extras               packages that are not always there
"""
