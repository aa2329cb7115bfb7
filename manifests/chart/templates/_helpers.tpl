{{/* The templates read the manifests that kustomize also uses, and change only what the values set. */}}

{{/* pillion.text returns a manifest in the release's namespace. Arguments: the root, and the file. */}}
{{- define "pillion.text" -}}
{{- $root := index . 0 -}}
{{- $text := $root.Files.Get (printf "files/%s" (index . 1)) -}}
{{- if not $text -}}
{{- fail (printf "the chart has no file files/%s; clone the repository with symbolic links, or use a packaged chart" (index . 1)) -}}
{{- end -}}
{{- replace "pillion-system" $root.Release.Namespace $text -}}
{{- end -}}

{{/* pillion.files prints manifests. Arguments: the root, and the files. */}}
{{- define "pillion.files" -}}
{{- $root := first . -}}
{{- range rest . }}
---
{{ include "pillion.text" (list $root .) }}
{{- end }}
{{- end -}}

{{/* pillion.objects returns the objects of a manifest as a JSON list. The arguments are those of pillion.text. */}}
{{- define "pillion.objects" -}}
{{- $objects := list -}}
{{- range splitList "\n---\n" (include "pillion.text" .) -}}
{{- $objects = append $objects (fromYaml .) -}}
{{- end -}}
{{- toJson $objects -}}
{{- end -}}

{{- define "pillion.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* pillion.excluded returns the namespaces that Pillion leaves alone, as a JSON list. */}}
{{- define "pillion.excluded" -}}
{{- $excluded := list -}}
{{- if eq .Values.certificates.source "cert-manager" -}}
{{- $excluded = list .Values.certificates.certManager.namespace -}}
{{- end -}}
{{- toJson (concat $excluded .Values.excludeNamespaces | uniq) -}}
{{- end -}}

{{/* pillion.pod sets what all pods have in common. Arguments: the root, and the spec of the pod. */}}
{{- define "pillion.pod" -}}
{{- $values := (index . 0).Values -}}
{{- $spec := index . 1 -}}
{{- $container := first $spec.containers -}}
{{- $_ := set $container "image" (include "pillion.image" (index . 0)) -}}
{{- with $values.image.pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end -}}
{{- with $values.image.pullSecrets -}}
{{- $secrets := list -}}
{{- range . }}{{ $secrets = append $secrets (dict "name" .) }}{{ end -}}
{{- $_ := set $spec "imagePullSecrets" $secrets -}}
{{- end -}}
{{- $_ := set $spec "nodeSelector" (merge $spec.nodeSelector $values.nodeSelector) -}}
{{- with $values.tolerations }}{{ $_ := set $spec "tolerations" . }}{{ end -}}
{{- end -}}
