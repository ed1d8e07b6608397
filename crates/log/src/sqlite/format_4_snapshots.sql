-- The last snapshot of each session; see snapshot.rs. Seq and event are the last event that it includes.
CREATE TABLE snapshots (
    session INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    event TEXT NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
