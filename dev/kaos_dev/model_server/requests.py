"""What the endpoints accept. Unknown fields and loose types are refused, as OpenAI does."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kaos_dev.model_server.errors import ApiError

MAX_EMBEDDING_INPUTS = 2048
MAX_RERANK_DOCUMENTS = 1000


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ContentPart(_Strict):
    """A part of a message; only text is understood."""

    type: Literal["text"]
    text: str


class Message(_Strict):
    """One message of a conversation."""

    role: Literal["developer", "system", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    # What a client sends back that repeats an earlier answer as it got it.
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None

    @property
    def text(self) -> str:
        """The whole text."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class ResponseFormat(_Strict):
    """How the answer shall be written."""

    type: Literal["text", "json_object"]


class StreamOptions(_Strict):
    """What a stream carries besides the text."""

    include_usage: bool = False


class ChatRequest(_Strict):
    """`POST /v1/chat/completions`."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    response_format: ResponseFormat | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # Known, checked, and without influence on a deterministic answer.
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: dict[str, float] | None = None
    metadata: dict[str, str] | None = None
    n: Literal[1] | None = None
    parallel_tool_calls: bool | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    reasoning_effort: str | None = None
    seed: int | None = None
    service_tier: str | None = None
    stop: str | list[str] | None = None
    store: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: Annotated[list[dict[str, Any]], Field(min_length=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    user: str | None = None

    def check(self) -> None:
        """Check the rules that span fields.

        Raises:
            ApiError: One is broken.
        """
        for index, message in enumerate(self.messages):
            if message.content is None and not (message.tool_calls or message.refusal):
                raise ApiError(
                    "Invalid value for 'content': expected a string, got null.",
                    param=f"messages.[{index}].content",
                )
            if message.role == "tool" and not message.tool_call_id:
                param = f"messages[{index}].tool_call_id"
                raise ApiError(
                    f"Missing required parameter: '{param}'.",
                    param=param,
                    code="missing_required_parameter",
                )
        if self.wants_json and not any("json" in m.text.lower() for m in self.messages):
            raise ApiError(
                "'messages' must contain the word 'json' in some form, to use "
                "'response_format' of type 'json_object'.",
                param="messages",
            )
        if self.tool_choice is not None and not self.tools:
            raise ApiError(
                "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' "
                "are specified.",
                param="tool_choice",
            )
        if self.stream_options is not None and not self.stream:
            raise ApiError(
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
                param="stream_options",
            )

    @property
    def wants_json(self) -> bool:
        """Whether the answer must be a JSON object."""
        return self.response_format is not None and self.response_format.type == "json_object"


class EmbeddingRequest(_Strict):
    """`POST /v1/embeddings`."""

    model: str
    input: Any
    dimensions: Annotated[int, Field(ge=1)] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: str | None = None

    def texts(self) -> list[str]:
        """Return the texts to embed.

        Raises:
            ApiError: There are none or too many, one is empty, or something is not a text.
        """
        given: list[Any] = self.input if isinstance(self.input, list) else [self.input]
        texts = [text for text in given if isinstance(text, str) and text]
        if not texts or len(texts) != len(given):
            raise ApiError(
                "'$.input' is invalid. Please check the API reference: "
                "https://platform.openai.com/docs/api-reference."
            )
        if len(texts) > MAX_EMBEDDING_INPUTS:
            raise ApiError(
                f"Invalid 'input': array too long. Expected an array with maximum length "
                f"{MAX_EMBEDDING_INPUTS}, but got an array with length {len(texts)} instead.",
                param="input",
                code="array_above_max_length",
            )
        return texts


class RerankRequest(_Strict):
    """`POST /v1/rerank`."""

    model: str
    query: str
    documents: Annotated[list[str], Field(min_length=1)]
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool | None = None

    def check(self) -> None:
        """Check what the types do not say.

        Raises:
            ApiError: The query or a document is empty, or there are too many documents.
        """
        if not self.query.strip():
            raise ApiError("Invalid 'query': must not be empty.", param="query")
        if not all(document.strip() for document in self.documents):
            raise ApiError("Invalid 'documents': none may be empty.", param="documents")
        if len(self.documents) > MAX_RERANK_DOCUMENTS:
            raise ApiError(
                f"Invalid 'documents': array too long. Expected an array with maximum length "
                f"{MAX_RERANK_DOCUMENTS}, but got an array with length {len(self.documents)} "
                "instead.",
                param="documents",
                code="array_above_max_length",
            )
