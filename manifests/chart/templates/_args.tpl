{{/* pillion.args returns the arguments of pillion serve as a JSON list. Arguments: the root, and those of the base. */}}
{{- define "pillion.args" -}}
{{- $root := index . 0 -}}
{{- $values := $root.Values -}}
{{- $namespace := $root.Release.Namespace -}}
{{- $args := index . 1 -}}
{{- if eq $values.certificates.source "self-signed" -}}
{{- $args = without $args "--tls-cert-file=/etc/pillion/tls/tls.crt" "--tls-key-file=/etc/pillion/tls/tls.key" -}}
{{- $args = append $args (printf "--tls-secret=%s/pillion-tls" $namespace) -}}
{{- end -}}
{{- /* What pillion serve assumes is the namespace of the kustomize base. */ -}}
{{- if ne $namespace "pillion-system" -}}
{{- $args = append $args (printf "--exclude-namespace=%s" $namespace) -}}
{{- if eq $values.certificates.source "self-signed" -}}
{{- $args = append $args (printf "--tls-host=pillion.%s.svc" $namespace) -}}
{{- end -}}
{{- end -}}
{{- range include "pillion.excluded" $root | fromJsonArray -}}
{{- $args = append $args (printf "--exclude-namespace=%s" .) -}}
{{- end -}}
{{- if not $values.advise }}{{ $args = without $args "--advise" }}{{ end -}}
{{- if eq $values.failurePolicy.validating "Ignore" }}{{ $args = append $args "--uninjected-pods=Warn" }}{{ end -}}
{{- $args = concat $args (include "pillion.callers" $values.callers | fromJsonArray) $values.extraArgs -}}
{{- toJson $args -}}
{{- end -}}

{{/* pillion.callers returns the arguments for the authentication of callers as a JSON list. */}}
{{- define "pillion.callers" -}}
{{- $args := list -}}
{{- if ne .authentication "none" -}}
{{- $args = append $args (printf "--caller-authentication=%s" .authentication) -}}
{{- with .tokens }}{{ $args = append $args (printf "--caller-token-file=/etc/pillion/callers/%s" .) }}{{ end -}}
{{- with .basicAuth }}{{ $args = append $args (printf "--caller-basic-auth-file=/etc/pillion/callers/%s" .) }}{{ end -}}
{{- with .ca }}{{ $args = append $args (printf "--caller-ca-file=/etc/pillion/callers/%s" .) }}{{ end -}}
{{- range .names }}{{ $args = append $args (printf "--caller-name=%s" .) }}{{ end -}}
{{- with .jwt.issuer }}{{ $args = append $args (printf "--caller-jwt-issuer=%s" .) }}{{ end -}}
{{- range .jwt.audiences }}{{ $args = append $args (printf "--caller-jwt-audience=%s" .) }}{{ end -}}
{{- range .jwt.subjects }}{{ $args = append $args (printf "--caller-jwt-subject=%s" .) }}{{ end -}}
{{- end -}}
{{- toJson $args -}}
{{- end -}}
