{{- define "penstock-operator.name" -}}
{{- if eq .Release.Name .Chart.Name -}}{{ .Chart.Name }}{{- else -}}{{ printf "%s-operator" (trunc 50 .Release.Name) }}{{- end -}}
{{- end -}}

{{- define "penstock-operator.selector" -}}
app.kubernetes.io/name: penstock-operator
app.kubernetes.io/instance: {{ .Release.Name }}
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

{{- define "penstock-operator.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
