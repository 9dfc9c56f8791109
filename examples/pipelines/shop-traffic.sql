-- Requests of each hour and section of a shop; what only looks whether the shop is alive has no section and is left out.
SELECT window.start AS hour, section, requests, errors, bytes
FROM (
    SELECT window(at, '1 hour') AS window, sections.section, count(*) AS requests,
        count_if(value.status >= 500) AS errors, sum(value.bytes) AS bytes
    FROM source
    JOIN sections ON sections.path = coalesce(nullif(split_part(split_part(value.path, '?', 1), '/', 2), ''), 'home')
    WHERE value.method <> 'HEAD'
    GROUP BY window(at, '1 hour'), sections.section
)
