-- Usage by day (days since 1970, UTC) and model; the row with the model '' counts runs, and usage without a model. It
-- stays when sessions are deleted.
CREATE TABLE usage (
    day INTEGER NOT NULL,
    model TEXT NOT NULL,
    runs INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    input INTEGER NOT NULL,
    output INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    PRIMARY KEY (day, model)
) STRICT, WITHOUT ROWID;

-- Counts the existing events. Parses only events that can matter, and skips damaged ones.
CREATE TEMP TABLE told AS
SELECT at / 86400000 AS day, json_extract(body, '$.run.run') AS run, json_extract(body, '$.run.event') AS event
FROM (SELECT at, version, body FROM events UNION ALL SELECT at, version, body FROM fresh)
WHERE CASE
    WHEN version <> 1 THEN 0
    WHEN body NOT LIKE '{"run":{%"event":{"consumed":{%'
        AND body NOT LIKE '{"run":{%"event":{"started":{%'
        AND body NOT LIKE '{"run":{%"event":{"ended":{"ending":{"failed":{%' THEN 0
    ELSE json_valid(body)
END;
INSERT INTO usage
SELECT day, coalesce(json_extract(event, '$.consumed.model'), ''), 0, 0,
    sum(json_extract(event, '$.consumed.usage.input_tokens')),
    sum(json_extract(event, '$.consumed.usage.output_tokens')),
    sum(json_extract(event, '$.consumed.usage.cache_read_tokens')),
    sum(json_extract(event, '$.consumed.usage.cache_write_tokens')),
    sum(json_extract(event, '$.consumed.usage.cost_micros'))
FROM told WHERE json_type(event, '$.consumed') IS NOT NULL GROUP BY 1, 2;
INSERT INTO usage
SELECT day, '', sum(json_type(event, '$.started') IS NOT NULL), sum(json_type(event, '$.ended') IS NOT NULL),
    0, 0, 0, 0, 0
FROM told
WHERE json_type(event, '$.consumed') IS NULL
    AND run NOT IN (SELECT run FROM told WHERE json_type(event, '$.started.parent') IS NOT NULL)
GROUP BY 1
ON CONFLICT (day, model) DO UPDATE SET runs = excluded.runs, failed = excluded.failed;
DROP TABLE told;
