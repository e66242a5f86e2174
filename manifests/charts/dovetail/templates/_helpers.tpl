{{/* Labels that every object has in addition to those of the manifests. */}}
{{- define "dovetail.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* ServiceAccount of the provisioner. */}}
{{- define "dovetail.account" -}}
{{ .Values.serviceAccount.name | default "dovetail-provisioner" }}
{{- end }}

{{/* An image by tag, and by digest where there is one. */}}
{{- define "dovetail.reference" -}}
{{ .repository }}:{{ .tag }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "dovetail.image" -}}
{{ include "dovetail.reference" (dict "repository" .Values.image.repository "tag" (.Values.image.tag | default .Chart.AppVersion) "digest" .Values.image.digest) }}
{{- end }}

{{- define "dovetail.schedulerImage" -}}
{{ include "dovetail.reference" .Values.scheduler.image }}
{{- end }}

{{/* Affinity, whose terms for pods are about the pods of the same program unless they say otherwise. */}}
{{- define "dovetail.affinity" -}}
{{- $selector := dict "matchLabels" .labels -}}
{{- $affinity := deepCopy .affinity -}}
{{- range $kind := list "podAffinity" "podAntiAffinity" -}}
{{- $rules := get $affinity $kind | default dict -}}
{{- range get $rules "requiredDuringSchedulingIgnoredDuringExecution" | default list -}}
{{- if not (hasKey . "labelSelector") -}}{{- $_ := set . "labelSelector" $selector -}}{{- end -}}
{{- end -}}
{{- range get $rules "preferredDuringSchedulingIgnoredDuringExecution" | default list -}}
{{- if not (hasKey .podAffinityTerm "labelSelector") -}}{{- $_ := set .podAffinityTerm "labelSelector" $selector -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end }}

{{- define "dovetail.topologySpreadConstraints" -}}
{{- $selector := dict "matchLabels" .labels -}}
{{- $constraints := deepCopy .topologySpreadConstraints -}}
{{- range $constraints -}}
{{- if not (hasKey . "labelSelector") -}}{{- $_ := set . "labelSelector" $selector -}}{{- end -}}
{{- end -}}
{{- toYaml $constraints -}}
{{- end }}

{{/* Feature gates as Name=true,Name=false. */}}
{{- define "dovetail.gates" -}}
{{- $pairs := list -}}
{{- range $key, $on := .given -}}
{{- if and (hasKey $.names $key) (not (kindIs "invalid" $on)) -}}{{- $pairs = append $pairs (printf "%s=%t" (get $.names $key) $on) -}}{{- end -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end }}

{{/* A mapping as name=value,name=value. */}}
{{- define "dovetail.pairs" -}}
{{- $pairs := list -}}
{{- range $name, $value := . -}}
{{- $pairs = append $pairs (printf "%s=%v" $name $value) -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end }}
