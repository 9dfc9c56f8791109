{{- /* Generated from the types: make crds */ -}}
{{- define "penstock-operator.kinds" -}}backups.penstock.dev bindings.penstock.dev clusters.penstock.dev exchanges.penstock.dev permissions.penstock.dev policies.penstock.dev queues.penstock.dev scheduledbackups.penstock.dev shards.penstock.dev streams.penstock.dev topicpermissions.penstock.dev users.penstock.dev vhosts.penstock.dev{{- end -}}
