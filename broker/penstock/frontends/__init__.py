"""The front ends: one room a protocol, each with a door to the verbs and none to another front end."""
