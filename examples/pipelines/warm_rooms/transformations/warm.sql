-- Measures above twenty degrees with the floor of their room.
CREATE TEMPORARY VIEW warm AS
SELECT value.room, rooms.floor, value.degrees, value.at, measures.offset
FROM STREAM measures JOIN rooms ON value.room = rooms.room
WHERE value.degrees > 20;
