"""The words that all rooms share: names, argument values, records of what a vhost holds, errors. Imports no room."""
