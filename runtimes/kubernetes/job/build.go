package job

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/runtimes"
)

const (
	container    = "command"
	volume       = "files"
	maxFilesSize = 1000 << 10 // bytes of files, a little below the limit of a ConfigMap
)

// check refuses a request that every server would reject.
func (r Request) check() error {
	size := 0
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		size += len(r.Files[name])
		local, err := filepath.Localize(path.Clean(name))
		if err != nil || local == "." {
			return runtimes.Permanent(fmt.Errorf("file %q is not a path inside its directory", name))
		}
	}
	switch {
	case r.Namespace == "" || r.Image == "" || len(r.Command) == 0:
		return runtimes.Permanent(fmt.Errorf("a job needs a namespace, an image and a command"))
	case size > maxFilesSize:
		return runtimes.Permanent(fmt.Errorf("the files have %d KiB; expected at most %d, which is what a ConfigMap holds", size>>10, maxFilesSize>>10))
	case r.Timeout <= 0:
		return runtimes.Permanent(fmt.Errorf("a job needs a timeout"))
	}
	return nil
}

// needsObjects reports whether other objects must exist before the pod starts.
func (r Request) needsObjects() bool { return len(r.Secrets)+len(r.Files) > 0 }

// job is the Job of an attempt. If it needs a Secret or a ConfigMap, it is created suspended. The Job owns them from their creation,
// so no object is ever left without an owner.
func (a *attempt) job() *batchv1.Job {
	r := a.request
	seconds := int64((r.Timeout + overtime) / time.Second)
	labels := maps.Clone(r.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelJob] = r.Purpose
	annotations := map[string]string{annotationKey: r.Key, annotationDigest: a.digest, annotationWaiter: a.waiter}
	maps.Copy(annotations, r.Annotations)
	never := batchv1.Failed
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: a.name, Namespace: r.Namespace, Labels: labels, Annotations: annotations},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32), ActiveDeadlineSeconds: &seconds, TTLSecondsAfterFinished: new(int32(keepFinished / time.Second)),
			PodReplacementPolicy: &never, Suspend: new(r.needsObjects()),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: r.Annotations},
				Spec:       a.pod(),
			},
		},
	}
}

func (a *attempt) pod() corev1.PodSpec {
	r := a.request
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: r.ServiceAccount, NodeSelector: r.NodeSelector, Tolerations: r.Tolerations,
		AutomountServiceAccountToken:  new(r.ServiceAccount != ""),
		TerminationGracePeriodSeconds: new(int64(gracePeriod / time.Second)),
		SecurityContext:               r.podSecurity(),
		ImagePullSecrets:              r.pullSecrets(), PriorityClassName: r.PriorityClass,
		Containers: []corev1.Container{{
			Name: container, Image: r.Image, Command: a.command(), Env: a.env(), Resources: r.Resources,
			SecurityContext: r.security(),
		}},
	}
	if len(r.Files) > 0 {
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: volume, MountPath: MountPath, ReadOnly: true}}
		spec.Volumes = []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: a.name}, Items: a.items(),
		}}}}
	}
	return spec
}

// command is the command of the container. The wrapper's timeout is a little earlier than ours, so that its document comes in time.
func (a *attempt) command() []string {
	r := a.request
	var argv []string
	if r.Wrapper != "" {
		margin := min(3*time.Second, r.Timeout/10)
		argv = []string{r.Wrapper, "exec", "--deadline", a.deadline.Add(-margin).UTC().Format(time.RFC3339Nano)}
		if r.Limit > 0 {
			argv = append(argv, "--limit", strconv.Itoa(r.Limit))
		}
		if r.StopAtLimit {
			argv = append(argv, "--stop-at-limit")
		}
		argv = append(argv, "--")
	}
	for _, arg := range r.Command {
		argv = append(argv, escapeExpansions(arg))
	}
	return argv
}

func (a *attempt) env() []corev1.EnvVar {
	r := a.request
	var env []corev1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		if _, secret := r.Secrets[name]; !secret {
			env = append(env, corev1.EnvVar{Name: name, Value: escapeExpansions(r.Env[name])})
		}
	}
	if len(r.Files) > 0 && r.FilesVariable != "" {
		env = append(env, corev1.EnvVar{Name: r.FilesVariable, Value: MountPath})
	}
	for i, name := range slices.Sorted(maps.Keys(r.Secrets)) {
		env = append(env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: a.name}, Key: key(i),
		}}})
	}
	return env
}

// secret holds the values of Request.Secrets, under keys that do not depend on the names of variables.
func (a *attempt) secret(owner *batchv1.Job) *corev1.Secret {
	data := map[string][]byte{}
	for i, name := range slices.Sorted(maps.Keys(a.request.Secrets)) {
		data[key(i)] = []byte(a.request.Secrets[name])
	}
	return &corev1.Secret{ObjectMeta: a.ownedMeta(owner), Data: data, Immutable: new(true)}
}

// files holds the contents of Request.Files; a key cannot contain the slashes of a path.
func (a *attempt) files(owner *batchv1.Job) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: a.ownedMeta(owner), Data: map[string]string{}, BinaryData: map[string][]byte{}, Immutable: new(true)}
	for i, name := range slices.Sorted(maps.Keys(a.request.Files)) {
		if content := a.request.Files[name]; utf8.ValidString(content) {
			m.Data[key(i)] = content
		} else {
			m.BinaryData[key(i)] = []byte(content)
		}
	}
	return m
}

func (a *attempt) items() []corev1.KeyToPath {
	var items []corev1.KeyToPath
	for i, name := range slices.Sorted(maps.Keys(a.request.Files)) {
		items = append(items, corev1.KeyToPath{Key: key(i), Path: path.Clean(name)})
	}
	return items
}

func (a *attempt) ownedMeta(owner *batchv1.Job) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: a.name, Namespace: a.request.Namespace, Labels: owner.Labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, batchv1.SchemeGroupVersion.WithKind("Job"))},
	}
}

func key(i int) string { return fmt.Sprintf("value-%d", i) }

// escapeExpansions prevents Kubernetes from expanding $(NAME), and from replacing $$ with $, in a command or a variable: it doubles
// each run of $ that Kubernetes would change.
func escapeExpansions(text string) string {
	return expansionRE.ReplaceAllStringFunc(text, func(found string) string {
		return strings.TrimSuffix(found, "(") + found
	})
}

var expansionRE = regexp.MustCompile(`\$\$+|\$\(`)

// maxPrefixLength leaves space for the suffix: a Job's name is a label value of its pods, at most 63 characters.
const maxPrefixLength = 45

// jobName returns the name of a Job: always the same for an exclusiveKey, otherwise a new one.
func jobName(prefix, exclusiveKey string) string {
	suffix := strings.ToLower(rand.Text()[:10])
	if exclusiveKey != "" {
		sum := sha256.Sum256([]byte(exclusiveKey))
		suffix = hex.EncodeToString(sum[:6])
	}
	return label(prefix) + "-" + suffix
}

// label converts text to a part of a name: lower case letters, digits and single dashes.
func label(text string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(text) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	trimmed := b.String()
	trimmed = strings.Trim(trimmed[:min(len(trimmed), maxPrefixLength)], "-")
	if trimmed == "" || trimmed[0] >= '0' && trimmed[0] <= '9' {
		return strings.TrimSuffix("converge-"+trimmed, "-")
	}
	return trimmed
}

// digest distinguishes requests with different Jobs. It omits the values of secrets, since a digest allows guesses.
func (r Request) digest() string {
	secrets := map[string]string{}
	for name := range r.Secrets {
		secrets[name] = ""
	}
	r.Secrets = secrets
	text, err := json.Marshal(r)
	if err != nil {
		return "" // cannot happen: JSON can encode all of it
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
