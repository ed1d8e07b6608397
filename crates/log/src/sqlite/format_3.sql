-- The text so far of the message that an agent is writing; see partial_text.rs. A session has at most one, in pieces. Start
-- is the number of bytes before a piece.
CREATE TABLE partial_texts (
    session INTEGER NOT NULL,
    start INTEGER NOT NULL,
    message TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (session, start)
) STRICT, WITHOUT ROWID;
