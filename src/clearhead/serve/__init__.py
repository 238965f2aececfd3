"""Models in, an HTTP server out: a page to look at them, and the APIs of LibreTranslate and OpenAI.

bounds        what a request may ask for at most
refusals      every answer that is a no, in the words of each API
backends      what computes: translators, writers, classifiers, inspectors
engine        one bounded waiting room, batches by token budget, streams, cancellation
tasks         what a batch is made of
continuing    language models of any engine as backends
labelling     classifiers of any engine as backends
exported      models on CTranslate2 and ONNX Runtime as backends
torch_lane    where torch models take turns, and how they give up rows
torch_models  torch models as backends
catalogue     the models that are served, and the languages they know
opening       directories → served models, each on its engine
sentences     texts → sentences that a model can read, and back
markup        HTML → texts, and back
detecting     which language a text is in
names         what languages are called
bodies        a request's JSON or form → checked fields
schema        what the routes take and give
gate          what every request passes first: host, rate, key, size
keys, rates   who may ask, and how often
metrics       counts and times for Prometheus
routes        the routes of each API
documents     the pages, and the documentation of the API
app           all of it as one application
running       the application on a port, until it is told to stop
"""
