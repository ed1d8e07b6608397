-- One line about each session; see record.rs.
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

-- An event's place is its session's key times 2^32, plus its seq: a session's events stand together
-- and in order, and need no index beside the table. See row/ for version and body.
CREATE TABLE events (
    place INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;

-- The latest events of all sessions, in the order in which they came; see fresh.rs. What a session
-- has here comes after all that it has in events.
CREATE TABLE fresh (
    number INTEGER PRIMARY KEY,
    place INTEGER NOT NULL UNIQUE,
    id TEXT NOT NULL,
    at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;

-- Which stored files the events of a session speak of.
CREATE TABLE media (
    session INTEGER NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

-- Who may write which session. The holder is a file in holders/; pid and since are for people.
CREATE TABLE leases (
    session TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
