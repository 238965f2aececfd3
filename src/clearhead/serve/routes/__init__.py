"""The routes of each API, one file for each.

libretranslate  /translate, /languages, /detect, and what else LibreTranslate's clients ask for
openai          /v1/models, /v1/completions
own             /models, /classify, /attention
health          /health, /livez, /readyz, /metrics
pages           the page at /, its modules, and the documentation at /docs
"""
