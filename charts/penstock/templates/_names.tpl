{{- define "penstock.name" -}}
{{- .Values.name | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "penstock.labels" -}}
app.kubernetes.io/part-of: penstock
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "penstock.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* Whether a part that needs the Prometheus operator is wanted: auto means where it is. */ -}}
{{- define "penstock.wanted" -}}
{{- $wanted := toString (index . 0) -}}
{{- $root := index . 1 -}}
{{- or (eq $wanted "true") (and (eq $wanted "auto") ($root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
{{- end -}}

{{- /* A name for an object of Kubernetes out of any name, told apart by a digest where letters were lost. */ -}}
{{- define "penstock.object" -}}
{{- $plain := . | lower | replace "." "-" | replace "_" "-" | replace "/" "-" -}}
{{- $kept := regexReplaceAll "[^a-z0-9-]" $plain "" | trunc 40 | trimAll "-" -}}
{{- if eq $kept . -}}{{ $kept }}{{- else -}}{{ printf "%s-%s" $kept (sha256sum . | trunc 6) | trimPrefix "-" }}{{- end -}}
{{- end -}}

{{- /* Local volumes have a class of their own: classes belong to the whole Kubernetes, so its name has the namespace in it. */ -}}
{{- define "penstock.storageClass" -}}
{{- if .Values.localVolumes -}}
{{ .Release.Namespace }}-{{ include "penstock.name" . }}-local
{{- else -}}
{{ .Values.storage.storageClassName }}
{{- end -}}
{{- end -}}
