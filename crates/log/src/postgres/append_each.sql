-- Appends events and keeps partial text for those of many sessions for which that is possible.
--
-- The lease of each session is locked, so that nobody can take it over before the commit. What is not held, or has another
-- head than expected, is left out; the others are not affected.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::text[]) WITH ORDINALITY AS a (session, token, hash, number)
),
held AS MATERIALIZED (
    SELECT a.number, a.session, a.hash
    FROM leases AS l JOIN asked AS a ON l.session = a.session AND l.token = a.token
    -- The order in which everybody locks leases, so that there is no deadlock.
    ORDER BY l.session
    FOR SHARE OF l
),
records AS MATERIALIZED (
    SELECT h.session, h.hash, r.*
    FROM unnest($4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bigint[], $10::bigint[],
        $11::bigint[], $12::bigint[], $13::bigint[], $14::bytea[])
        AS r (number, after, title, door, agent, created, updated, head, messages, bytes, running)
    JOIN held AS h ON h.number = r.number
),
created AS (
    INSERT INTO sessions (id, title, door, agent, created, updated, head, messages, bytes, running)
    SELECT session, title, door, agent, created, updated, head, messages, bytes, running
    FROM records WHERE after = 0
    ON CONFLICT (id) DO NOTHING
    RETURNING id
),
updated AS (
    UPDATE sessions AS s
    SET title = r.title, door = r.door, agent = r.agent, created = r.created, updated = r.updated, head = r.head,
        messages = r.messages, bytes = r.bytes, running = r.running
    FROM records AS r
    WHERE s.id = r.session AND r.after > 0 AND s.head = r.after
    RETURNING s.id
),
appended AS MATERIALIZED (
    SELECT r.number, r.session, r.hash, r.head FROM records AS r
    WHERE r.session IN (SELECT id FROM created UNION ALL SELECT id FROM updated)
),
new_events AS (
    INSERT INTO events (session, seq, id, at, version, body)
    SELECT p.session, e.seq, e.id, e.at, e.version, e.body
    FROM unnest($15::bigint[], $16::bigint[], $17::bytea[], $18::bigint[], $19::bigint[], $20::text[])
        AS e (number, seq, id, at, version, body)
    JOIN appended AS p ON p.number = e.number
),
new_media AS (
    INSERT INTO media (session, id)
    SELECT DISTINCT p.session, m.id
    FROM unnest($21::bigint[], $22::bytea[]) AS m (number, id) JOIN appended AS p ON p.number = m.number
    ON CONFLICT (session, id) DO UPDATE SET at = excluded.at
),
added_usage AS (
    INSERT INTO usage AS u (day, model, node, runs, failed, input, output, cache_read, cache_write, cost)
    SELECT n.day, n.model, $23::bytea, sum(n.runs)::bigint, sum(n.failed)::bigint, sum(n.input)::bigint,
        sum(n.output)::bigint, sum(n.cache_read)::bigint, sum(n.cache_write)::bigint, sum(n.cost)::bigint
    FROM unnest($24::bigint[], $25::bigint[], $26::bytea[], $27::bigint[], $28::bigint[], $29::bigint[], $30::bigint[],
        $31::bigint[], $32::bigint[], $33::bigint[])
        AS n (number, day, model, runs, failed, input, output, cache_read, cache_write, cost)
    JOIN appended AS p ON p.number = n.number
    GROUP BY n.day, n.model
    ORDER BY n.day, n.model
    ON CONFLICT (day, model, node) DO UPDATE
    SET runs = u.runs + excluded.runs, failed = u.failed + excluded.failed, input = u.input + excluded.input,
        output = u.output + excluded.output, cache_read = u.cache_read + excluded.cache_read,
        cache_write = u.cache_write + excluded.cache_write, cost = u.cost + excluded.cost
),
ended_texts AS (
    DELETE FROM partial_texts AS t USING appended AS p WHERE t.session = p.session AND p.number = ANY ($34::bigint[])
),
pieces AS MATERIALIZED (
    SELECT h.session, p.start, p.message, p.text
    FROM unnest($35::bigint[], $36::bigint[], $37::bytea[], $38::bytea[]) AS p (number, start, message, text)
    JOIN held AS h ON h.number = p.number
),
replaced_texts AS (
    DELETE FROM partial_texts AS t USING pieces AS p
    WHERE t.session = p.session AND t.start <> p.start AND (t.start > p.start OR t.message <> p.message)
),
kept_texts AS (
    INSERT INTO partial_texts (session, start, message, text) SELECT session, start, message, text FROM pieces
    ON CONFLICT (session, start) DO UPDATE SET message = excluded.message, text = excluded.text
),
notified AS MATERIALIZED (
    -- Each pair takes at most 38 bytes, and a payload may have 8,000.
    SELECT pg_notify($39::text, $40::text || ';' || string_agg(hash || ':' || head, ','))
    FROM appended GROUP BY (number - 1) / 200
)
SELECT h.number IS NOT NULL, p.number IS NOT NULL
FROM asked AS a LEFT JOIN held AS h ON h.number = a.number LEFT JOIN appended AS p ON p.number = a.number
WHERE (SELECT count(*) FROM notified) >= 0
ORDER BY a.number
