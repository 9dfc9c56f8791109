-- Measures above twenty degrees with the floor of their room; what is written for whom is the sinks' affair.
SELECT value.room, rooms.floor, value.degrees, value.at, source.offset
FROM source JOIN rooms ON value.room = rooms.room
WHERE value.degrees > 20
