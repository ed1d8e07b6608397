-- The last snapshot of each session; see snapshot.rs. Seq and event are the last event that it includes. Nodes of an older
-- version delete a session without knowing of its snapshot.
CREATE TABLE snapshots (
    session bytea PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    seq bigint NOT NULL,
    event bytea NOT NULL,
    version bigint NOT NULL,
    body text NOT NULL
);
