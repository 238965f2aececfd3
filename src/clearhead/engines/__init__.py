"""An exported model in, translations out: what runs where there is no torch.

directory     what an exported directory holds
texts         strings in, strings out, over any engine
ctranslate2   CTranslate2
onnx          ONNX Runtime and numpy, driven by the four below
search        hypotheses under way and done; greedy and beam
drawing       sampling
rules         which tokens may not come next
ranking       the best tokens of a vocabulary, quickly
opening       the table of engines
extras        packages that are not always there
"""
