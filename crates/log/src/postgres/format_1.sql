-- PostgreSQL cannot store NUL in text, so everything that a user or a client chose is bytea. The body of an event is JSON,
-- which escapes NUL.

-- The record of each session; see record.rs.
CREATE TABLE sessions (
    id bytea PRIMARY KEY,
    title bytea,
    door bytea NOT NULL,
    agent bytea,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    head bigint NOT NULL,
    messages bigint NOT NULL,
    bytes bigint NOT NULL,
    running bytea
);
CREATE INDEX sessions_by_update ON sessions (updated, id);

-- See row/ for version and body.
CREATE TABLE events (
    session bytea NOT NULL,
    seq bigint NOT NULL,
    id bytea NOT NULL,
    at bigint NOT NULL,
    version bigint NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (session, seq)
);

-- The stored files that the events of a session refer to.
CREATE TABLE media (
    session bytea NOT NULL,
    id bytea NOT NULL,
    PRIMARY KEY (session, id)
);

-- The text so far of the message that an agent is writing; see partial_text.rs. A session has at most one, in pieces. Start
-- is the number of bytes before a piece.
CREATE TABLE partial_texts (
    session bytea NOT NULL,
    start bigint NOT NULL,
    message bytea NOT NULL,
    text bytea NOT NULL,
    PRIMARY KEY (session, start)
);

-- Usage by day (days since 1970, UTC) and model; the rows with an empty model count runs, and usage without a model. Each
-- node has rows of its own, so that nodes do not wait for each other. The rows stay when sessions are deleted.
CREATE TABLE usage (
    day bigint NOT NULL,
    model bytea NOT NULL,
    node bytea NOT NULL,
    runs bigint NOT NULL,
    failed bigint NOT NULL,
    input bigint NOT NULL,
    output bigint NOT NULL,
    cache_read bigint NOT NULL,
    cache_write bigint NOT NULL,
    cost bigint NOT NULL,
    PRIMARY KEY (day, model, node)
);

-- The processes that have the log open. Each time a process opens the log, and each time it was away for too long, it
-- chooses a new incarnation. One that expired never comes back to life; see node.rs.
--
-- Incarnations and tokens are random. A sequence could give a number out twice: a standby that becomes the primary may not
-- have the last numbers.
CREATE TABLE nodes (
    incarnation bigint PRIMARY KEY,
    node bytea NOT NULL,
    pid bigint NOT NULL,
    address bytea,
    version bytea,
    started timestamptz NOT NULL,
    heartbeat timestamptz NOT NULL,
    expired boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- Who may write which session; see leases.rs. Pid and since are for error messages.
CREATE TABLE leases (
    session bytea PRIMARY KEY,
    token bigint NOT NULL,
    incarnation bigint NOT NULL,
    pid bigint NOT NULL,
    since bigint NOT NULL
);
CREATE INDEX leases_by_incarnation ON leases (incarnation);

-- One row for each node, which it writes to find out whether a commit is durable now.
CREATE TABLE write_probes (
    node bytea PRIMARY KEY,
    at timestamptz NOT NULL
) WITH (fillfactor = 50);
