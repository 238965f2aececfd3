"""A model in, the same model for another engine out, proven to say the same; and other people's models made ours.

ctranslate2   a model in CTranslate2's own format
onnx          a model as ONNX graphs
targets       the table of both: what can be written, of which kind of model
verify        original and exported side by side
downloaded    what a Hugging Face directory holds
imported      what becomes of it
names         what others call the parts of a model
vocabulary    the entries of others with our control tokens first
original      the same model in transformers, to compare with
marian        Marian models
gpt2          GPT-2
bert          BERT, with its heads, without, or trained to label texts
vit           Vision Transformers
huggingface   the table of families that can be read
"""
