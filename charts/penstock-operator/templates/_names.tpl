{{- define "penstock-operator.name" -}}
{{- if eq .Release.Name .Chart.Name -}}{{ .Chart.Name }}{{- else -}}{{ printf "%s-operator" (trunc 50 .Release.Name) }}{{- end -}}
{{- end -}}

{{- define "penstock-operator.selector" -}}
app.kubernetes.io/name: penstock-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "penstock-operator.labels" -}}
{{ include "penstock-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* The watched namespaces, with commas; empty for all. */ -}}
{{- define "penstock-operator.watched" -}}
{{- if not .Values.watchAllNamespaces -}}
{{ join "," (.Values.watchNamespaces | default (list .Release.Namespace)) }}
{{- end -}}
{{- end -}}

{{- /* Not empty if a part that needs the Prometheus operator is wanted: auto means where it is. */ -}}
{{- define "penstock-operator.wanted" -}}
{{- $wanted := toString (index . 0) -}}
{{- if or (eq $wanted "true") (and (eq $wanted "auto") ((index . 1).Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}true{{- end -}}
{{- end -}}

{{- define "penstock-operator.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* Of a kind: own if this release may install it, because it is absent or of this release; other if it belongs to
another release or to none, because Helm refuses to touch it; off if the kinds are not wanted. Without a cluster, as in
`helm template`, every kind is absent. */ -}}
{{- define "penstock-operator.kind" -}}
{{- $release := (index . 1).Release -}}
{{- if not (index . 1).Values.crds.install -}}off
{{- else -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (index . 0) -}}
{{- $owner := dict -}}
{{- if $found -}}{{- $owner = $found.metadata.annotations | default dict -}}{{- end -}}
{{- $is_own := and (eq (get $owner "meta.helm.sh/release-name") $release.Name) (eq (get $owner "meta.helm.sh/release-namespace") $release.Namespace) -}}
{{- if or (not $found) $is_own -}}own{{- else -}}other{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The kinds that this release leaves as they are, separated by spaces. */ -}}
{{- define "penstock-operator.others" -}}
{{- $found := list -}}
{{- $root := . -}}
{{- range splitList " " (include "penstock-operator.kinds" .) -}}
{{- if eq "other" (include "penstock-operator.kind" (list . $root)) -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- join " " $found -}}
{{- end -}}

{{- /* The annotations of an alert that name a section of docs/failures.md, by its anchor. */ -}}
{{- define "penstock-operator.runbook" -}}
{{- $anchor := index . 0 -}}
runbook: {{ printf "docs/failures.md#%s" $anchor | quote }}
{{- with (index . 1).Values.alerts.runbookUrl }}
runbook_url: {{ printf "%s#%s" . $anchor | quote }}
{{- end }}
{{- end -}}
