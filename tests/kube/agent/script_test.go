package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestScript(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	for _, row := range []struct {
		name        string
		image       string
		init        bool
		sidecar     bool
		annotations map[string]string
		job         bool
		want        script
	}{
		{name: "any image", image: "shop/web:v1", want: script{}},
		{name: "cannot be pulled", image: "registry:5000/shop/web:nopull@sha256:00", want: script{noPull: true}},
		{name: "a registry's port is no tag", image: "crash:5000/web", want: script{}},
		{name: "crashes", image: "web:crash", want: script{exits: true, exitCode: 1, message: "played: web:crash exits with code 1"}},
		{
			name: "ends as annotated", image: "web:v1",
			annotations: map[string]string{ExitCode: "3", ExitIn: "1s", ExitMessage: "no"},
			want:        script{exits: true, exitCode: 3, exitIn: time.Second, message: "no"},
		},
		{name: "slow", image: "web:slow", want: script{readyIn: slowReadyIn}},
		{name: "slow as annotated", image: "web:slow", annotations: map[string]string{ReadyIn: "7s"}, want: script{readyIn: 7 * time.Second}},
		{name: "a Job's", image: "web:v1", job: true, want: script{process: true}},
		{name: "a Job's, played", image: "web:v1", job: true, annotations: map[string]string{RunProcesses: "false"}, want: script{exits: true}},
		{name: "run as a process", image: "web:v1", annotations: map[string]string{RunProcesses: "true"}, want: script{process: true}},
		{name: "an init container", image: "web:v1", init: true, annotations: map[string]string{ExitCode: "3"}, want: script{exits: true}},
		{name: "an init container that hangs", image: "web:notready", init: true, want: script{neverReady: true}},
		{name: "a sidecar", image: "web:v1", init: true, sidecar: true, want: script{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: row.annotations}}
			pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
			if row.job {
				controller := true
				pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Controller: &controller}}
				pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			}
			container := &corev1.Container{Image: row.image}
			if row.sidecar {
				container.RestartPolicy = &always
			}
			require.Equal(t, row.want, scriptOf(pod, container, row.init))
		})
	}
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	mapped := files{{"/etc/web/deep", "/D"}, {"/etc/web", "/W"}}
	for text, want := range map[string]string{
		"/etc/web":                       "/W",
		"/etc/web/page":                  "/W/page",
		"/etc/web/deep/page":             "/D/page",
		"/etc/website":                   "/etc/website",
		"/srv/etc/web":                   "/srv/etc/web",
		"cat '/etc/web/a' >/etc/web;":    "cat '/W/a' >/W;",
		"--config=/etc/web/a:/etc/web/b": "--config=/W/a:/W/b",
		"file:///etc/web/a":              "file:///etc/web/a",
		"nothing":                        "nothing",
		"":                               "",
	} {
		require.Equal(t, want, mapped.rewrite(text), text)
	}
	require.True(t, mapped.mapped("/etc/web/x"))
	require.False(t, mapped.mapped("/etc/website"))
}

func TestTail(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		content string
		lines   int
		want    string
	}{
		{"a\nb\nc\n", 1, "c\n"},
		{"a\nb\nc", 2, "b\nc"},
		{"a\nb\nc\n", 3, "a\nb\nc\n"},
		{"a\nb\nc\n", 9, "a\nb\nc\n"},
		{"a\nb\n", 0, ""},
		{"", 5, ""},
	} {
		require.Equal(t, row.want, string(tail([]byte(row.content), row.lines)), "%q %d", row.content, row.lines)
	}
}
