-- The record of each session; see record.rs.
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    title TEXT,
    door TEXT NOT NULL,
    agent TEXT,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    head INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    running TEXT
) STRICT;
CREATE INDEX sessions_by_update ON sessions (updated, id);

-- The place of an event is the key of its session times 2^32, plus its seq: the events of a session are stored together
-- and in order, and need no index. See row/ for version and body.
CREATE TABLE events (
    place INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;

-- The latest events of all sessions in the order of their arrival; see fresh.rs. The events of a session here come
-- after those in the table events.
CREATE TABLE fresh (
    number INTEGER PRIMARY KEY,
    place INTEGER NOT NULL UNIQUE,
    id TEXT NOT NULL,
    at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;

-- The stored files that the events of a session refer to.
CREATE TABLE media (
    session INTEGER NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

-- Who may write which session. The holder is the name of a lock file in holders/; pid and since are for error messages.
CREATE TABLE leases (
    session TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
