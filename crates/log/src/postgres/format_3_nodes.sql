-- The label of the file system that the working folders of a node are on, and of the node that created a session: only
-- nodes with the same label open it. Null is that of older nodes, whose sessions any node may open. Labels have no NUL.
ALTER TABLE nodes ADD COLUMN workspace text;
ALTER TABLE sessions ADD COLUMN workspace text;
-- A writer sets the label for its connection, so that appends need not name it. Nodes of format 1 set none.
ALTER TABLE sessions
    ALTER COLUMN workspace SET DEFAULT nullif(current_setting('parlor.workspace', true), '');

-- Small values that all nodes share, such as the token of the supr door; see shared_values.rs.
CREATE TABLE shared_values (
    name text PRIMARY KEY,
    value bytea NOT NULL
);
