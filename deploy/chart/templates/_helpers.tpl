{{- define "converge.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "converge.account" -}}
{{- .Values.serviceAccount.name | default (include "converge.name" .) -}}
{{- end -}}

{{- define "converge.version" -}}
{{- if .Values.image.tag }}{{ .Values.image.tag }}{{ else }}{{ .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- define "converge.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ required "image.tag or image.digest is required: the version of Converge to run" (include "converge.version" .) }}
{{- end -}}
{{- end -}}

{{/* Labels of an object: (list . COMPONENT). */}}
{{- define "converge.selector" -}}
app.kubernetes.io/name: converge
app.kubernetes.io/instance: {{ include "converge.name" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* And of its version, which is the current one unless it is given: (list . COMPONENT VERSION). */}}
{{- define "converge.labels" -}}
{{- $version := include "converge.version" (index . 0) -}}
{{- if gt (len .) 2 }}{{ $version = index . 2 }}{{ end -}}
{{ include "converge.selector" . }}
{{- with $version }}
app.kubernetes.io/version: {{ . | quote }}
{{- end }}
{{- with (index . 0).Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* 90% of a limit of memory in Mi or Gi, for Go. */}}
{{- define "converge.memory" -}}
{{- $limit := toString . -}}
{{- if hasSuffix "Mi" $limit }}{{ div (mul (trimSuffix "Mi" $limit | int) 90) 100 }}MiB
{{- else if hasSuffix "Gi" $limit }}{{ div (mul (trimSuffix "Gi" $limit | int) 1024 90) 100 }}MiB
{{- end -}}
{{- end -}}

{{/* Environment of any program: (list TEMPORAL RESOURCES), the connection to Temporal, and 90% of the memory for Go. */}}
{{- define "converge.baseEnv" -}}
{{- with index . 0 }}
- {name: TEMPORAL_ADDRESS, value: {{ required "temporal.address is required: HOST:PORT of your Temporal" .address | quote }}}
- {name: TEMPORAL_NAMESPACE, value: {{ .namespace | quote }}}
{{- with .apiKeySecret }}{{ if .name }}
- {name: TEMPORAL_API_KEY, valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}}
{{- end }}{{ end }}
{{- with .tls }}{{ if .secret }}
- {name: TEMPORAL_TLS_CLIENT_CERT_PATH, value: /etc/temporal/tls.crt}
- {name: TEMPORAL_TLS_CLIENT_KEY_PATH, value: /etc/temporal/tls.key}
{{- if .ca }}
- {name: TEMPORAL_TLS_SERVER_CA_CERT_PATH, value: /etc/temporal/ca.crt}
{{- end }}
{{- if .serverName }}
- {name: TEMPORAL_TLS_SERVER_NAME, value: {{ .serverName | quote }}}
{{- end }}
{{- end }}{{ end }}
{{- end }}
{{- with dig "limits" "memory" "" (index . 1) }}{{ with include "converge.memory" . }}
- {name: GOMEMLIMIT, value: {{ . }}}
{{- end }}{{ end }}
{{- end -}}

{{/* Environment of a program: (list . RESOURCES ENV). */}}
{{- define "converge.env" -}}
{{- $ := index . 0 -}}
{{ include "converge.baseEnv" (list $.Values.temporal (index . 1)) | trim }}
- {name: CONVERGE_STORE, value: {{ required "store.url is required: a bucket, such as s3://releases?region=eu-west-1" $.Values.store.url | quote }}}
{{- with $.Values.store.keySecret }}{{ if .name }}
- {name: CONVERGE_STORE_KEY, value: file:/etc/converge/store.key}
{{- end }}{{ end }}
{{- if $.Values.store.encryptPayloads }}
- {name: CONVERGE_ENCRYPT_PAYLOADS, value: "true"}
{{- end }}
{{- with index . 2 }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Environment from whole objects: (list . ENVFROM). */}}
{{- define "converge.envFrom" -}}
{{- $ := index . 0 -}}
{{- if or $.Values.store.credentialsSecret (index . 1) -}}
envFrom:
{{- with $.Values.store.credentialsSecret }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- with index . 1 }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "converge.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "converge.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "converge.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: home, mountPath: /home/converge}
{{- if .Values.temporal.tls.secret }}
- {name: temporal-tls, mountPath: /etc/temporal, readOnly: true}
{{- end }}
{{- if .Values.store.keySecret.name }}
- {name: store-key, mountPath: /etc/converge, readOnly: true}
{{- end }}
{{- end -}}

{{- define "converge.volumes" -}}
- {name: tmp, emptyDir: {}}
- {name: home, emptyDir: {}}
{{- with .Values.temporal.tls.secret }}
- {name: temporal-tls, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with .Values.store.keySecret }}{{ if .name }}
- {name: store-key, secret: {secretName: {{ .name }}, defaultMode: 0440, items: [{key: {{ .key }}, path: store.key}]}}
{{- end }}{{ end }}
{{- end -}}

{{/* A deployment of workers: (list . NAME COMPONENT ARGS VALUES TAG); TAG is "" for the current version. */}}
{{- define "converge.workers" -}}
{{- $ := index . 0 -}}
{{- $name := index . 1 -}}
{{- $component := index . 2 -}}
{{- $w := index . 4 -}}
{{- $tag := index . 5 -}}
{{- $labels := include "converge.labels" (concat (list $ $component) (compact (list $tag))) -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  replicas: {{ $w.replicas }}
  selector:
    matchLabels:
      {{- include "converge.selector" (list $ $component) | nindent 6 }}
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}  # the new workers serve before the old ones stop
  template:
    metadata:
      labels:
        {{- $labels | nindent 8 }}
      {{- with $w.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "converge.account" $ }}
      {{- with $.Values.imagePullSecrets }}
      imagePullSecrets:
      {{- toYaml . | nindent 6 }}
      {{- end }}
      terminationGracePeriodSeconds: {{ $w.terminationGracePeriodSeconds }}
      securityContext:
        {{- include "converge.podSecurity" $ | nindent 8 }}
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector:
          matchLabels:
            {{- include "converge.selector" (list $ $component) | nindent 12 }}
      containers:
      - name: worker
        image: {{ if $tag }}{{ $.Values.image.repository }}:{{ $tag }}{{ else }}{{ include "converge.image" $ }}{{ end }}
        imagePullPolicy: {{ $.Values.image.pullPolicy }}
        args:
        {{- concat (list "worker") (index . 3) (list "--metrics" "0.0.0.0:9464" "--log-format" $w.logFormat "--log-level" $w.logLevel "--stop-timeout" $w.stopTimeout) $w.args | toYaml | nindent 8 }}
        env:
        {{- include "converge.env" (list $ $w.resources $w.env) | nindent 8 }}
        {{- with include "converge.envFrom" (list $ $w.envFrom) }}
        {{- . | nindent 8 }}
        {{- end }}
        ports:
        - {name: metrics, containerPort: 9464}
        readinessProbe: {httpGet: {path: /readyz, port: metrics}, periodSeconds: 10, timeoutSeconds: 5}
        livenessProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 10, timeoutSeconds: 5}
        resources:
          {{- toYaml $w.resources | nindent 10 }}
        securityContext:
          {{- include "converge.containerSecurity" $ | nindent 10 }}
        volumeMounts:
        {{- include "converge.mounts" $ | nindent 8 }}
        {{- with $w.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
      {{- include "converge.volumes" $ | nindent 6 }}
      {{- with $w.volumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with include "converge.scheduling" $w | trim }}{{ . | nindent 6 }}{{ end }}
{{- end -}}

{{/* What schedules a pod: NODESELECTOR, TOLERATIONS and AFFINITY of values. */}}
{{- define "converge.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A CronJob of the program: (list . NAME SCHEDULE ARGS CLAIM). */}}
{{- define "converge.cronJob" -}}
{{- $ := index . 0 -}}
{{- $component := index . 1 -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ include "converge.name" $ }}-{{ $component }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "converge.labels" (list $ $component) | nindent 4 }}
spec:
  schedule: {{ index . 2 | quote }}
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      backoffLimit: 2
      template:
        metadata:
          labels:
            {{- include "converge.labels" (list $ $component) | nindent 12 }}
        spec:
          restartPolicy: Never
          serviceAccountName: {{ include "converge.account" $ }}
          automountServiceAccountToken: false
          {{- with $.Values.imagePullSecrets }}
          imagePullSecrets:
          {{- toYaml . | nindent 10 }}
          {{- end }}
          securityContext:
            {{- include "converge.podSecurity" $ | nindent 12 }}
          containers:
          - name: {{ $component }}
            image: {{ include "converge.image" $ }}
            imagePullPolicy: {{ $.Values.image.pullPolicy }}
            args:
            {{- toYaml (index . 3) | nindent 12 }}
            env:
            - {name: JOB, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            {{- include "converge.env" (list $ $.Values.jobs.resources list) | nindent 12 }}
            {{- with include "converge.envFrom" (list $ list) }}
            {{- . | nindent 12 }}
            {{- end }}
            resources:
              {{- toYaml $.Values.jobs.resources | nindent 14 }}
            securityContext:
              {{- include "converge.containerSecurity" $ | nindent 14 }}
            volumeMounts:
            {{- include "converge.mounts" $ | nindent 12 }}
            {{- if index . 4 }}
            - {name: backup, mountPath: /backup}
            {{- end }}
          volumes:
          {{- include "converge.volumes" $ | nindent 10 }}
          {{- with index . 4 }}
          - {name: backup, persistentVolumeClaim: {claimName: {{ . }}}}
          {{- end }}
          {{- with include "converge.scheduling" $.Values.jobs | trim }}{{ . | nindent 10 }}{{ end }}
{{- end -}}

{{/* The pod that adds the search attributes: (list . IMAGE TEMPORAL). It has no account of Kubernetes, and does not know the store. */}}
{{- define "converge.attributesPod" -}}
{{- $ := index . 0 -}}
{{- $temporal := index . 2 -}}
metadata:
  labels:
    {{- include "converge.selector" (list $ "attributes") | nindent 4 }}
    {{- with $.Values.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  {{- with $.Values.imagePullSecrets }}
  imagePullSecrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- include "converge.podSecurity" $ | nindent 4 }}
  containers:
  - name: attributes
    image: {{ index . 1 }}
    imagePullPolicy: {{ $.Values.image.pullPolicy }}
    args: [admin, search-attributes]
    env:
    {{- include "converge.baseEnv" (list $temporal $.Values.jobs.resources) | trim | nindent 4 }}
    resources:
      {{- toYaml $.Values.jobs.resources | nindent 6 }}
    securityContext:
      {{- include "converge.containerSecurity" $ | nindent 6 }}
    {{- with $temporal.tls.secret }}
    volumeMounts:
    - {name: temporal-tls, mountPath: /etc/temporal, readOnly: true}
    {{- end }}
  {{- with $temporal.tls.secret }}
  volumes:
  - {name: temporal-tls, secret: {secretName: {{ . }}, defaultMode: 0440}}
  {{- end }}
  {{- with include "converge.scheduling" $.Values.jobs | trim }}{{ . | nindent 2 }}{{ end }}
{{- end -}}
