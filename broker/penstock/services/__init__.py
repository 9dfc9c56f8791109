"""The use cases of a broker, one module a subject. Front ends know these; they know no front end."""
