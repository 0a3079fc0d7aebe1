// Package kubetest gives tests a real Kubernetes control plane: API server, controllers, and nodes that play pods
// (tests/kube). `make kube-build` builds it; without it tests that want one are skipped, and say so.
//
// One cluster serves all tests of a program: a test keeps to namespaces of its own, for which Namespace makes one, and
// to cluster-wide names of its own. It lives until the program ends, and ends with it, however that ends. A test that
// stops or restarts parts of a cluster starts its Own.
package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/converge-engine/converge/tests/kubetest/kubelab"
	"github.com/converge-engine/converge/tests/kubetest/program"
)

// Cluster is an API server with what belongs to it, and its admin's ways to it.
type Cluster struct {
	// Name is that of the context in the kubeconfig.
	Name string
	// Kubeconfig is the path of a file with a context for each cluster of the lab. The current one is the first's.
	Kubeconfig string
	// Config and Client are not limited in their rate.
	Config *rest.Config
	Client kubernetes.Interface

	lab *lab
	own bool
}

// sharedLab starts on first use, and ends with this program.
var sharedLab = sync.OnceValues(func() (*lab, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	return startLab(kubelab.Program().Path(root), sharedName)
})

const sharedName = "shared"

// Start returns the cluster of this test program, which the first call starts in about three seconds.
func Start(t testing.TB) *Cluster {
	t.Helper()
	binary(t, kubelab.Program())
	l, err := sharedLab()
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.cluster(sharedName)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Own starts clusters for this test alone, which ends them: one for each name, with one kubeconfig for all, or one
// without a name.
func Own(t testing.TB, names ...string) []*Cluster {
	t.Helper()
	if len(names) == 0 {
		names = []string{"own"}
	}
	return own(t, kubelab.Program(), names...)
}

// Oldest starts a cluster of the oldest release of Kubernetes that is supported, for this test alone, which ends it. `make kube-oldest`
// builds it; without it the test is skipped.
func Oldest(t testing.TB) *Cluster {
	t.Helper()
	return own(t, kubelab.Oldest(), "oldest")[0]
}

func own(t testing.TB, p program.Program, names ...string) []*Cluster {
	t.Helper()
	path := binary(t, p)
	l, err := startLab(path, names...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.stop)
	clusters := make([]*Cluster, len(names))
	for i, name := range names {
		if clusters[i], err = l.cluster(name); err != nil {
			t.Fatal(err)
		}
		clusters[i].own = true
	}
	return clusters
}

func (l *lab) cluster(name string) (*Cluster, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: l.kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: name},
	).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of cluster %s: %w", name, err)
	}
	config.QPS = -1
	config.UserAgent = "kubetest"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of cluster %s: %w", name, err)
	}
	return &Cluster{Name: name, Kubeconfig: l.kubeconfig, Config: config, Client: client, lab: l}, nil
}

var (
	namespaceCount atomic.Int64
	notInName      = regexp.MustCompile(`[^a-z0-9]+`)
)

// Namespace makes a namespace for this test, named after it, and returns when its default service account is there.
// It is deleted when the test ends; that takes seconds, and nobody waits.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	const longest = 40
	name = fmt.Sprintf("%s-%d", strings.Trim(name[:min(len(name), longest)], "-"), namespaceCount.Add(1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := c.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create namespace %s: %v", name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}) // the cluster may have ended before
	})
	WaitFor(t, time.Minute, func() (bool, string) {
		_, err := c.Client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return name
}

// AwaitRefusal waits until the API server refuses a pod, with that text, in a dry run: its admission learns of a new quota or label a
// moment later than its readers. The pod has one container, and what change adds.
func AwaitRefusal(t testing.TB, client kubernetes.Interface, namespace, text string, change func(*corev1.PodSpec)) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe:1"}}},
	}
	if change != nil {
		change(&pod.Spec)
	}
	WaitFor(t, time.Minute, func() (bool, string) {
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), text), fmt.Sprint(err)
	})
}

// WaitFor asks cond again and again until it reports true. When it has not by the deadline, the test fails with the last
// message, which should say what was seen instead.
func WaitFor(t testing.TB, deadline time.Duration, cond func() (bool, string)) {
	t.Helper()
	const longest = 100 * time.Millisecond
	end := time.NewTimer(deadline)
	defer end.Stop()
	for interval := time.Millisecond; ; interval = min(2*interval, longest) {
		done, message := cond()
		if done {
			return
		}
		select {
		case <-end.C:
			t.Fatalf("not after %s; last: %s", deadline, message)
		case <-time.After(interval):
		}
	}
}

// moduleRoot is the nearest folder above the test's that has a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the working directory is in no module")
		}
	}
}
