"""What the routes take and give, as the documentation shows it, and as bodies and answers are checked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from clearhead.serve.bodies import MOST_FIELDS


class Given(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(strict=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > MOST_FIELDS:
            raise ValueError(f"there are too many fields, there may be at most {MOST_FIELDS}")
        return value


class Told(BaseModel):
    """What the server answers."""

    model_config = ConfigDict(use_attribute_docstrings=True)


Some = Annotated[str, StringConstraints(min_length=1)]
MOST_ITEMS = 10_000
"""A longer list is refused unseen: a million wrong things would be a million complaints."""
MOST_IDS = 320_000
"""Tokens of all prompts together: 64 prompts of 5,000."""


def _short(value: Any) -> Any:
    if isinstance(value, (list, dict)) and len(value) > MOST_ITEMS:
        raise ValueError(f"there are too many items, there may be at most {MOST_ITEMS}")
    return value


def _short_together(value: Any) -> Any:
    if isinstance(_short(value), list) and sum(len(one) for one in value if isinstance(one, list)) > MOST_IDS:
        raise ValueError(f"there are too many items, there may be at most {MOST_IDS} in all lists together")
    return value


Texts = Annotated[list[str], Field(fail_fast=True), BeforeValidator(_short)]
Ids = Annotated[list[int], Field(fail_fast=True), BeforeValidator(_short)]
Prompts = Annotated[
    str | Texts | Ids | Annotated[list[Ids], Field(fail_fast=True)] | None, BeforeValidator(_short_together)
]

# LibreTranslate's; its routes check their fields themselves, in its words and order.


class TranslateBody(BaseModel):
    """Texts to translate."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    q: Some | list[str]
    """The text, or several."""
    source: Some
    """The language of the text, or `auto`."""
    target: Some
    """The language to translate to."""
    format: Literal["text", "html"] = "text"
    """Whether there is markup in the text."""
    alternatives: int = Field(0, ge=0)
    """How many other translations are wanted."""
    model: str | None = None
    """The model that translates; of several that can, the first, if none is named."""
    api_key: str | None = None
    """A key, if the server asks for one."""


class Detection(Told):
    """A language that a text may be in."""

    language: str
    confidence: float = Field(ge=0, le=100)


class TranslateAnswer(Told):
    """Translations."""

    translatedText: str | list[str]
    detectedLanguage: Detection | list[Detection] | None = None
    """With source `auto`: the language of each text."""
    alternatives: list[str] | list[list[str]] | None = None
    """If wanted: other translations of each text."""


class DetectBody(BaseModel):
    """A text whose language is wanted."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    q: Some | list[str]
    """The text, or several that are taken together."""
    api_key: str | None = None
    """A key, if the server asks for one."""


class Language(Told):
    """A language, and those it can be translated to."""

    code: str
    name: str
    targets: list[str]


class Failure(Told):
    """Why there is no answer."""

    error: str


# OpenAI's.


class StreamOptions(Given):
    """What a stream tells beside the text."""

    include_usage: bool = False
    include_obfuscation: bool | None = None


class CompletionBody(Given):
    """A text to be continued."""

    model: str
    """The name of a language model."""
    prompt: Prompts = None
    """The text, or several, or their tokens; nothing is the beginning of a text."""
    max_tokens: int | None = Field(16, ge=0)
    """The longest continuation, in tokens."""
    n: int | None = Field(1, ge=1)
    """Continuations of each prompt."""
    best_of: int | None = Field(None, ge=1)
    """Of this many, the `n` with the highest probability per token are given."""
    temperature: float | None = Field(1.0, ge=0, le=2, allow_inf_nan=False)
    """Below 1 is more careful, 0 always takes the likeliest token."""
    top_p: float | None = Field(1.0, ge=0, le=1, allow_inf_nan=False)
    """Draw from the likeliest tokens that together reach this probability."""
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    """The same seed gives the same continuation."""
    stop: str | Texts | None = None
    """A continuation ends before the first of these texts."""
    logprobs: int | None = Field(None, ge=0, le=5)
    """Tell the log-probabilities of the chosen tokens, and of this many of the likeliest."""
    echo: bool | None = False
    """Give the prompt back before the continuation."""
    stream: bool | None = False
    """Send the text as it is written."""
    stream_options: StreamOptions | None = None
    frequency_penalty: float | None = Field(0.0, ge=-2, le=2, allow_inf_nan=False)
    """Only 0 is supported."""
    presence_penalty: float | None = Field(0.0, ge=-2, le=2, allow_inf_nan=False)
    """Only 0 is supported."""
    logit_bias: Annotated[dict[str, float], BeforeValidator(_short)] | None = None
    """Not supported."""
    suffix: str | None = None
    """Not supported."""
    user: str | None = None
    """Ignored."""


class LogProbs(Told):
    """How likely each token was."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(Told):
    """One continuation."""

    index: int
    text: str
    logprobs: LogProbs | None
    finish_reason: Literal["stop", "length"] | None


class Usage(Told):
    """How many tokens there were."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(Told):
    """Continuations."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class ModelCard(Told):
    """A model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "clearhead"


class ModelCards(Told):
    """The models that are served."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class OpenAIError(Told):
    """What was wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIFailure(Told):
    """Why there is no answer, in OpenAI's form."""

    error: OpenAIError


# Our own.


class ServedModel(Told):
    """A model, and what can be asked of it."""

    name: str
    kind: str
    engine: str
    """What computes its answers: torch, ctranslate2 or onnx."""
    parameters: int | None
    """How many numbers it has learnt; an exported model does not say."""
    sources: list[str]
    """The languages it translates from, as far as they are known."""
    target: str | None
    route: str
    """Where it is asked."""
    shows_attention: bool


class Models(Told):
    """The models that are served, and what may be asked of them at most."""

    models: list[ServedModel]
    bounds: dict[str, int]


class ClassifyBody(Given):
    """Texts to be given labels."""

    text: str | Texts
    """The text, or several."""
    model: str | None = None
    """A classifier; if none is named, the first."""


class LabelAnswer(Told):
    """A label and how likely it is."""

    label: str
    probability: float


class ClassifyAnswer(Told):
    """The labels of each text, likeliest first."""

    model: str
    labels: list[LabelAnswer] | list[list[LabelAnswer]]


class AttentionBody(Given):
    """A text to look at while a model reads it."""

    text: Some
    model: str | None = None
    """A model that can be looked into; if none is named, the first."""
    target: Some | None = None
    """Lead the model to this output instead of its own."""
    sentence: int = Field(0, ge=0)
    """Of several sentences, which."""
    ablate: Texts = Field(default=[], max_length=512)
    """Heads or layers to switch off, such as decoder.2.cross.5 or encoder.0."""


class AttentionAnswer(Told):
    """What every head looked at."""

    sentence: int
    sentences: list[str]
    """The sentences of the text."""
    text: str
    """What the model wrote."""
    loss: float | None
    """The mean negative log-probability of a token of that."""
    view: dict[str, Any]
    """Everything, in the format of `clearhead inspect --json`."""


class Health(Told):
    """Whether all is well."""

    status: str
