-- The content of attached files, which all nodes share. The id is the SHA-256 of the content in hexadecimal digits. A file is
-- stored before an event refers to it, and renewed when it is used again; see media.rs.
CREATE TABLE media_files (
    id bytea PRIMARY KEY,
    size bigint NOT NULL,
    renewed timestamptz NOT NULL
);

-- Number is 1 for the first piece. All pieces but the last have the same size.
CREATE TABLE media_pieces (
    id bytea NOT NULL,
    number bigint NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (id, number)
);
-- Attached files are mostly compressed already.
ALTER TABLE media_pieces ALTER COLUMN content SET STORAGE EXTERNAL;

-- When the session last got an event that refers to the file. Nodes of an older version set it with the first.
ALTER TABLE media ADD COLUMN at timestamptz NOT NULL DEFAULT now();
CREATE INDEX media_by_id ON media (id);
