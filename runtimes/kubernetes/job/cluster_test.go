package job_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes/api"
	"github.com/converge-engine/converge/runtimes/kubernetes/job"
)

// testCluster is a namespace of a real control plane whose node runs a Job's command as a local process.
type testCluster struct {
	*testing.T
	client    clientset.Interface
	worker    *api.Client // what a worker has
	config    *rest.Config
	namespace string
	wrapper   string
	dir       string // for the commands
}

func newTestCluster(t *testing.T) *testCluster {
	t.Parallel()
	config, namespace := cluster(t)
	client, err := clientset.NewForConfig(config)
	require.NoError(t, err)
	b := &testCluster{T: t, client: client, worker: workerClient(t, config), config: config, namespace: namespace, dir: t.TempDir()}
	b.wrapper = filepath.Join(b.dir, "converge-wrapper")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", b.wrapper, "github.com/converge-engine/converge/cmd/converge-wrapper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return b
}

func (b *testCluster) request(script string) job.Request {
	return job.Request{
		Namespace: b.namespace, Purpose: "apply", Prefix: "converge-shop-web", Labels: map[string]string{"team": "shop"},
		Image: "tool:1", Command: []string{"sh", "-c", script}, Env: map[string]string{"PATH": os.Getenv("PATH"), "DIR": b.dir},
		Wrapper: b.wrapper, Timeout: time.Minute,
	}
}

func (b *testCluster) run(r job.Request) (job.Result, error) {
	return job.Run(b.Context(), b.worker, r)
}

// jobs lists what is there, without what is being removed.
func (b *testCluster) jobs() []batchv1.Job {
	list, err := b.client.BatchV1().Jobs(b.namespace).List(context.Background(), metav1.ListOptions{})
	require.NoError(b, err)
	var all []batchv1.Job
	for _, j := range list.Items {
		if j.DeletionTimestamp == nil {
			all = append(all, j)
		}
	}
	return all
}

// waitClean waits until nothing of ours is left.
func (b *testCluster) waitClean() {
	b.Helper()
	core := b.client.CoreV1()
	require.EventuallyWithT(b, func(c *assert.CollectT) {
		require.Empty(c, b.jobs())
		ctx := context.Background()
		pods, err := core.Pods(b.namespace).List(ctx, metav1.ListOptions{})
		require.NoError(c, err)
		require.Empty(c, pods.Items)
		secrets, err := core.Secrets(b.namespace).List(ctx, metav1.ListOptions{LabelSelector: job.LabelJob})
		require.NoError(c, err)
		require.Empty(c, secrets.Items)
		maps, err := core.ConfigMaps(b.namespace).List(ctx, metav1.ListOptions{LabelSelector: job.LabelJob})
		require.NoError(c, err)
		require.Empty(c, maps.Items)
	}, time.Minute, 100*time.Millisecond)
}

// waitWritten waits until a command has written a file, and returns its lines.
func (b *testCluster) waitWritten(name string) []string {
	b.Helper()
	var lines []string
	require.Eventually(b, func() bool {
		text, err := os.ReadFile(filepath.Join(b.dir, name))
		lines = strings.Fields(string(text))
		return err == nil && len(lines) > 0
	}, time.Minute, 20*time.Millisecond)
	return lines
}

// The exit code, and both streams apart, though the log merges them.
func TestExitCodeAndStreams_C8(t *testing.T) {
	b := newTestCluster(t)
	res, err := b.run(b.request(`echo out; echo err >&2; echo "$DIR" | wc -l; exit 3`))
	require.NoError(t, err)
	require.Equal(t, 3, res.ExitCode)
	require.Equal(t, "out\n1\n", string(res.Stdout))
	require.Equal(t, "err\n", string(res.Stderr))
	require.False(t, res.Merged || res.Attached || res.TimedOut)
	require.WithinDuration(t, time.Now(), res.Started, time.Minute)
	require.Positive(t, res.Duration)
	b.waitClean()
}

// A complete structured answer arrives, in spite of a large stderr, of which the end is kept.
func TestLargeOutput_C6(t *testing.T) {
	b := newTestCluster(t)
	r := b.request(`head -c 262144 /dev/zero | tr '\0' '"'; head -c 3000000 /dev/zero >&2; echo last >&2`)
	r.Limit = 256 << 10
	res, err := b.run(r)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat(`"`, 262144), string(res.Stdout))
	require.False(t, res.StdoutTruncated)
	require.True(t, res.StderrTruncated)
	require.True(t, strings.HasSuffix(string(res.Stderr), "\x00last\n"))

	r = b.request("exec yes")
	r.Limit, r.StopAtLimit = 1000, true
	res, err = b.run(r)
	require.NoError(t, err)
	require.True(t, res.StdoutTruncated)
	require.Equal(t, "sh printed more than 1000 bytes and was ended", res.Problem)
}

// An image without the wrapper: the log as it is, and it is said so.
func TestWithoutWrapper(t *testing.T) {
	b := newTestCluster(t)
	r := b.request(`echo out; echo err >&2; exit 4`)
	r.Wrapper = ""
	res, err := b.run(r)
	require.NoError(t, err)
	require.Equal(t, 4, res.ExitCode)
	require.True(t, res.Merged)
	require.Equal(t, "out\nerr\n", string(res.Stdout))
	require.Empty(t, res.Stderr)

	r.Timeout = 3 * time.Second
	r.Command = []string{"sh", "-c", "echo waiting for the lock; exec sleep 1000"}
	res, err = b.run(r)
	require.EqualError(t, err, "sh did not finish within 3s: waiting for the lock")
	require.True(t, job.IsReason(err, job.ReasonTimeout))
	require.Equal(t, "waiting for the lock\n", string(res.Stdout))

	r = b.request("true")
	r.Wrapper = "/no/such/wrapper"
	_, err = b.run(r)
	require.ErrorContains(t, err, "image tool:1 cannot start /no/such/wrapper: ")
	require.True(t, job.IsReason(err, job.ReasonNotFound))
	b.waitClean()
}

// The wrapper ends a command in time for its document to be read.
func TestTimeout(t *testing.T) {
	b := newTestCluster(t)
	r := b.request("echo waiting >&2; exec sleep 1000")
	r.Timeout = 6 * time.Second
	res, err := b.run(r)
	require.NoError(t, err)
	require.True(t, res.TimedOut)
	require.Equal(t, "waiting\n", string(res.Stderr))
	b.waitClean()
}

// A context that ends leaves no process and no object behind.
func TestCancelled(t *testing.T) {
	b := newTestCluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := b.request(`echo $$ >"$DIR/pid"; exec sleep 1000`)
	r.Secrets = map[string]string{"TOKEN": "x"}
	failed := make(chan error, 1)
	go func() { _, err := job.Run(ctx, b.worker, r); failed <- err }()
	pid := b.waitWritten("pid")[0]
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	_, err := os.Stat("/proc/" + pid)
	require.True(t, os.IsNotExist(err), "the command is still running")
	b.waitClean()

	_, err = job.Run(ctx, b.worker, r)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, b.jobs())
}

func TestRefusals(t *testing.T) {
	b := newTestCluster(t)
	r := b.request("true")
	r.Image = "tool:nopull"
	begun := time.Now()
	_, err := b.run(r)
	require.ErrorContains(t, err, "image tool:nopull cannot be pulled: ImagePullBackOff")
	require.True(t, job.IsReason(err, job.ReasonImage))
	require.Less(t, time.Since(begun), r.Timeout/2, "early")

	strict := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	_, err = b.client.CoreV1().Namespaces().Patch(t.Context(), b.namespace, types.MergePatchType, strict, metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = b.run(b.request("true"))
	require.ErrorContains(t, err, "no pod is admitted: ")
	require.ErrorContains(t, err, `violates PodSecurity "restricted:latest"`)
	require.True(t, job.IsReason(err, job.ReasonRefused))
	b.waitClean()

	r = b.request("true")
	r.Namespace = "no-such-namespace"
	_, err = b.run(r)
	require.ErrorContains(t, err, `namespaces "no-such-namespace" not found`)
	require.False(t, runtimes.IsPermanent(err), "it may be created later")

	r = b.request("true")
	r.Env["a=b"] = "c"
	_, err = b.run(r)
	require.ErrorContains(t, err, "spec.template.spec.containers[0].env")
	require.True(t, runtimes.IsPermanent(err), "it stays as it is")
}

// A value that came from the worker's environment reaches the command, and is in no Job, pod or
// event; the Secret that carries it goes with the Job.
func TestSecrets(t *testing.T) {
	b := newTestCluster(t)
	const value = "s3cr3t-value"
	pods, err := b.client.CoreV1().Pods(b.namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer pods.Stop()
	r := b.request(`echo "$TOKEN" | wc -c; printf '%s' "$TOKEN" >"$DIR/token"`)
	r.One, r.Key = "x", "k"
	r.Secrets = map[string]string{"TOKEN": value}
	begun := make(chan string, 1)
	go func() {
		for e := range pods.ResultChan() {
			if e.Type == watch.Added {
				pod, _ := e.Object.(*corev1.Pod)
				begun <- fmt.Sprintf("%+v %+v", pod, b.jobs())
				return
			}
		}
	}()
	res, err := b.run(r)
	require.NoError(t, err)
	require.Equal(t, "13", strings.TrimSpace(string(res.Stdout)))
	require.Equal(t, value, b.waitWritten("token")[0])
	objects := <-begun
	require.Contains(t, objects, "secretKeyRef", "it was seen")
	require.NotContains(t, objects, value)
	b.waitClean()
}

func TestFiles(t *testing.T) {
	b := newTestCluster(t)
	r := b.request(`cat "$FILES/a.txt" "$FILES/routes/rules.json"`)
	r.Files, r.FilesVariable = map[string]string{"a.txt": "one\n", "./routes/rules.json": "two\xff\n"}, "FILES"
	res, err := b.run(r)
	require.NoError(t, err)
	require.Equal(t, "one\ntwo\xff\n", string(res.Stdout), "%s", res.Stderr)
	for _, name := range []string{"../out", "/etc/passwd", "."} {
		r.Files = map[string]string{name: ""}
		_, err := b.run(r)
		require.ErrorContains(t, err, "is not a path inside its directory")
		require.True(t, runtimes.IsPermanent(err))
	}
	b.waitClean()
}

// A worker is lost: the next worker that applies the same waits for the running Job, and does not start a second one. If the lost
// worker was only disconnected, it does not change the Job any more.
func TestTakeOver(t *testing.T) {
	b := newTestCluster(t)
	r := b.request(`echo run >>"$DIR/runs"; while [ ! -e "$DIR/go" ]; do sleep 0.05; done; echo done`)
	r.One, r.Key = "shop/web in staging", "v1"
	lost, lose := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { _, err := job.Run(lost, b.worker, r); first <- err }()
	b.waitWritten("runs")
	one := b.waitClaimed("")
	second := make(chan job.Result, 1)
	go func() {
		res, err := b.run(r)
		if err != nil {
			t.Error(err)
		}
		second <- res
	}()
	b.waitClaimed(one)
	lose()
	require.ErrorIs(t, <-first, context.Canceled)
	require.Len(t, b.jobs(), 1, "it is the second one's now")
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o600))
	res := <-second
	require.True(t, res.Attached)
	require.Equal(t, "done\n", string(res.Stdout))
	require.Equal(t, []string{"run"}, b.waitWritten("runs"))
	b.waitClean()
}

// waitClaimed waits until the Job has a waiter, another than that, and returns it.
func (b *testCluster) waitClaimed(other string) (waiter string) {
	b.Helper()
	require.Eventually(b, func() bool {
		for _, j := range b.jobs() {
			waiter = j.Annotations["converge/job-waiter"]
		}
		return waiter != "" && waiter != other
	}, 2*time.Minute, 5*time.Millisecond)
	return waiter
}

// abandon leaves a finished Job of a request, as a worker does that dies while it runs: the API
// server refuses it everything once the command has begun.
func (b *testCluster) abandon(r job.Request) {
	b.Helper()
	dying := losingClient(b)
	ctx, end := context.WithCancel(b.Context())
	failed := make(chan error, 1)
	go func() { _, err := job.Run(ctx, dying, r); failed <- err }()
	require.Eventually(b, func() bool {
		jobs := b.jobs()
		return len(jobs) == 1 && jobs[0].Status.Succeeded == 1
	}, time.Minute, 20*time.Millisecond)
	end()
	require.ErrorIs(b, <-failed, context.Canceled)
}

// waitGone waits until a Job's name is free.
func (b *testCluster) waitGone(name string) {
	b.Helper()
	require.Eventually(b, func() bool {
		_, err := b.client.BatchV1().Jobs(b.namespace).Get(b.Context(), name[strings.Index(name, "/")+1:], metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, time.Minute, 20*time.Millisecond)
}

// What a lost worker left finished is taken once, by the same unit of work only.
func TestFinishedResult(t *testing.T) {
	b := newTestCluster(t)
	script := `echo run >>"$DIR/runs"; wc -l <"$DIR/runs"`
	r := b.request(script)
	r.One, r.Key = "shop/web in staging", "v1"
	b.abandon(r)
	res, err := b.run(r)
	require.NoError(t, err)
	require.True(t, res.Attached)
	require.Equal(t, "1", strings.TrimSpace(string(res.Stdout)))

	res, err = b.run(r)
	require.NoError(t, err)
	require.False(t, res.Attached, "its result was used: this is another apply of the same")
	require.Equal(t, "2", strings.TrimSpace(string(res.Stdout)))

	b.abandon(r) // the third run
	r.Key = "v2"
	res, err = b.run(r)
	require.NoError(t, err)
	require.False(t, res.Attached, "the key is another one")
	require.Equal(t, "4", strings.TrimSpace(string(res.Stdout)))

	b.abandon(r)
	r.Env["ZONE"] = "eu"
	res, err = b.run(r)
	require.NoError(t, err)
	require.False(t, res.Attached, "the content is another one")
	b.waitClean()
}

// A lost worker's apply of something else is ended, and gone, before ours begins.
func TestNeverTwoJobsAtOnce(t *testing.T) {
	b := newTestCluster(t)
	old := b.request(`echo $$ >"$DIR/pid"; exec sleep 1000`)
	old.One, old.Key = "shop/web in staging", "v1"
	lost, lose := context.WithCancel(t.Context())
	defer lose()
	failed := make(chan error, 1)
	go func() { _, err := job.Run(lost, b.worker, old); failed <- err }()
	pid := b.waitWritten("pid")[0]
	r := b.request(`test ! -e /proc/` + pid + ` && echo alone`)
	r.One, r.Key = old.One, "v2"
	res, err := b.run(r)
	require.NoError(t, err)
	require.Equal(t, "alone\n", string(res.Stdout))
	require.True(t, job.IsReason(<-failed, job.ReasonLost))

	foreign := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: strings.Split(res.Job, "/")[1], Namespace: b.namespace}, Spec: batchv1.JobSpec{
		Suspend:  new(true),
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "x", Image: "x"}}}},
	}}
	b.waitGone(res.Job)
	_, err = b.client.BatchV1().Jobs(b.namespace).Create(t.Context(), foreign, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = b.run(r)
	require.ErrorContains(t, err, "exists, but is not a Job of Converge")
}

// losingClient is a client whose worker is lost once its Job is made: every later request fails.
func losingClient(b *testCluster) *api.Client {
	config := rest.CopyConfig(b.config)
	config.Wrap(func(real http.RoundTripper) http.RoundTripper {
		var made atomic.Bool
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if made.Load() {
				return nil, errors.New("this worker is dead")
			}
			made.Store(r.Method == http.MethodPost)
			return real.RoundTrip(r)
		})
	})
	return workerClient(b, config)
}

func workerClient(t testing.TB, config *rest.Config) *api.Client {
	t.Helper()
	client, err := api.New(config, nil)
	require.NoError(t, err)
	return client
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
