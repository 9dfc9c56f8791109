module penstock.dev/harness/pause

go 1.24
