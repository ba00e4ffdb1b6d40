"""What clients of a server can ask for at most, and how long they may take."""

from __future__ import annotations

from pydantic import Field

from deepwire.config.section import Section


class Limits(Section):
    """The limits of a server; seconds where nothing else is said."""

    header_seconds: float = Field(5.0, gt=0, le=3600, description="from connecting to the end of the headers")
    body_seconds: float = Field(10.0, gt=0, le=3600, description="for sending the body of a request")
    request_seconds: float = Field(60.0, gt=0, le=3600, description="to the answer; again for fetching it")
    drain_seconds: float = Field(25.0, ge=0, le=3600, description="for requests in work when it is stopped")
    batch_wait_ms: float = Field(
        5.0, ge=0, le=1000, description="how long the first text of a batch waits for others, milliseconds"
    )
    body_bytes: int = Field(1 << 20, ge=1, le=1 << 30, description="size of the body of a request")
    texts: int = Field(128, ge=1, le=100_000, description="texts, or lines of text, in a request")
    characters: int = Field(5000, ge=1, le=1_000_000, description="characters in a text")
    subwords: int = Field(512, ge=1, le=100_000, description="subwords in a line")
    beam: int = Field(8, ge=1, le=1000, description="beam that a request can ask for")
    queue: int = Field(8192, ge=1, le=1_000_000, description="texts of all clients that wait or are in work")
    client_queue: int = Field(4096, ge=1, le=1_000_000, description="texts of one client that wait")
    connections: int = Field(1024, ge=1, le=100_000, description="connections at a time")
    client_connections: int = Field(512, ge=1, le=100_000, description="connections of one client at a time")
