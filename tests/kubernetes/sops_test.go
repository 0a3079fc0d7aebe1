package kubernetes_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

const encryptedService = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: production, runtimes: [{name: APP-rt, namespace: NAMESPACE}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
kubernetes: {kubeconfig: "KUBECONFIG", context: CONTEXT, failAfter: 500ms, pollInterval: 100ms, retry: {maxAttempts: 1, backoff: 100ms, maxBackoff: 1s}}
---
apiVersion: converge/v1
kind: Service
name: web
kubernetes: {manifests: [db.yaml]}
`

// sopsWorld is a service that is made of a Secret that SOPS encrypted, on a server whose database a test can read, with
// workers that are processes of their own.
type sopsWorld struct {
	*stage.World
	cluster   *kubetest.Cluster
	namespace string
	database  string
	mu        sync.Mutex
	said      bytes.Buffer // by all programs
}

func newSopsWorld(t *testing.T) *sopsWorld {
	t.Helper()
	c := kubetest.Start(t)
	s := &sopsWorld{cluster: c, namespace: c.Namespace(t), database: filepath.Join(t.TempDir(), "temporal.db")}
	s.World = shared.Unserved(t, embedded.Options{DBFile: s.database})
	s.Write(strings.NewReplacer("NAMESPACE", s.namespace, "KUBECONFIG", c.Kubeconfig, "CONTEXT", c.Name).Replace(encryptedService))
	return s
}

// encrypts makes the Secret one of those that were recorded, changed somewhere.
func (s *sopsWorld) encrypts(name string, oldnew ...string) {
	s.T.Helper()
	text, err := os.ReadFile("../../intent/sops/testdata/recorded/" + name)
	require.NoError(s.T, err)
	require.NoError(s.T, os.WriteFile(filepath.Join(s.Dir, "db.yaml"), []byte(strings.NewReplacer(oldnew...).Replace(string(text))), 0o600))
}

// note keeps what a program says.
func (s *sopsWorld) note(text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said.Write(text)
}

type noted struct{ *sopsWorld }

func (n noted) Write(text []byte) (int, error) {
	n.note(text)
	return len(text), nil
}

// worker starts one with those identities, and returns what stops it.
func (s *sopsWorld) worker(keys ...string) (stop func()) {
	s.T.Helper()
	args := []string{"worker", "--address", s.Address, "--store", s.Store}
	for _, name := range keys {
		text, err := os.ReadFile("../../intent/sops/testdata/recorded/" + name)
		require.NoError(s.T, err)
		file := filepath.Join(s.T.TempDir(), name)
		require.NoError(s.T, os.WriteFile(file, text, 0o600))
		args = append(args, "--sops-age-key-file", file)
	}
	cmd := exec.Command(shared.Converge(s.T), args...)
	cmd.Stdout, cmd.Stderr = noted{s}, noted{s}
	require.NoError(s.T, cmd.Start())
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // it may have been told before
	})
	s.T.Cleanup(stop)
	return stop
}

// shows is what the command line says.
func (s *sopsWorld) shows(args ...string) string {
	s.T.Helper()
	cmd := exec.CommandContext(s.T.Context(), shared.Converge(s.T), append(args, "--address", s.Address)...)
	out, err := cmd.CombinedOutput()
	require.NoError(s.T, err, string(out))
	s.note(out)
	return string(out)
}

func (s *sopsWorld) secret() *corev1.Secret {
	s.T.Helper()
	secret, err := s.cluster.Client.CoreV1().Secrets(s.namespace).Get(s.T.Context(), "db", metav1.GetOptions{})
	require.NoError(s.T, err)
	return secret
}

// nowhere refuses values of the Secret in what the programs said, in the store, and in Temporal's database.
func (s *sopsWorld) nowhere() {
	s.T.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	places := map[string][]byte{"what was said": s.said.Bytes()}
	for _, dir := range []string{s.Store, s.Dir, filepath.Dir(s.database)} {
		require.NoError(s.T, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				places[path], err = os.ReadFile(path)
			}
			return err
		}))
	}
	for place, text := range places {
		for _, plain := range []string{"hunter2hunter2", "hunter-is-base64", "eve-was-here", "AGE-SECRET-KEY-"} {
			for _, form := range []string{plain, base64.StdEncoding.EncodeToString([]byte(plain))} {
				require.False(s.T, bytes.Contains(text, []byte(form)), "%s is in %s", form, place)
			}
		}
	}
	require.NotEmpty(s.T, places[s.database])
	require.Contains(s.T, string(places[s.database]), s.App, "it is not compressed")
}

// A Secret that SOPS encrypted waits for a worker with the key, is applied decrypted, is held to what it is, and its
// values are nowhere but in the cluster.
func TestEncryptedSecretIsAppliedDecrypted_G5(t *testing.T) {
	t.Parallel()
	s := newSopsWorld(t)
	s.encrypts("secret.yaml")
	s.shows("config", "validate", s.Dir)
	stop := s.worker("other.txt") // nobody gave it the right one
	s.shows("config", "publish", s.Dir, "--store", s.Store)
	s.shows("release", s.App+"/web", "v1")
	s.AwaitThat("web", "that it cannot be decrypted", func(st protocol.Status) bool {
		return strings.Contains(reasons(st, "production"), "this worker has no age identity for it: it has those of age1")
	})
	explained := s.shows("explain", s.App+"/web", "production")
	require.Contains(t, explained, "decrypt Secret db, which SOPS encrypted for age1")
	stop()

	s.worker("other.txt", "key.txt")
	s.AwaitThat("web", "convergence", func(st protocol.Status) bool { return channelOf(st, "production").Status == "CONVERGED" })
	history := s.shows("history", s.App+"/web")
	require.NotContains(t, history, "failed", "a missing key is no failure of the release")
	applied := s.secret()
	want := map[string]string{"user": "admin", "password": "hunter2hunter2", "motd": "first\nsecond ü€\n", "empty": "", "template": "${{ version }}", "key": "hunter-is-base64"}
	require.Equal(t, want, textsOf(applied))
	require.Equal(t, "back", applied.Labels["tier"])

	s.edited("password", "eve-was-here")
	temporaltest.WaitFor(t, byWatch, func() (bool, string) {
		return textsOf(s.secret())["password"] == "hunter2hunter2", "it is not put back"
	})
	st := s.AwaitThat("web", "its repair", func(st protocol.Status) bool {
		return channelOf(st, "production").Status == "CONVERGED" && strings.Contains(fmt.Sprint(st.Journal), "data.password")
	})
	require.Contains(t, fmt.Sprint(st.Journal), "data.password ***, declared *** (changed)")

	s.encrypts("again.yaml") // the same, encrypted anew
	s.shows("plan", s.Dir, "--store", s.Store)
	before := s.secret()
	s.shows("config", "publish", s.Dir, "--store", s.Store)
	s.AwaitThat("web", "the config release", func(st protocol.Status) bool {
		return channelOf(st, "production").Status == "CONVERGED" && channelOf(st, "production").Current == "v1-i2"
	})
	require.Equal(t, before.UID, s.secret().UID)
	require.Equal(t, want, textsOf(s.secret()))
	for _, verb := range [][]string{{"explain", s.App + "/web", "production"}, {"status", s.App + "/web", "--output", "json"}, {"history", s.App + "/web"}, {"logs", s.App + "/web", "production", "--store", s.Store}} {
		s.shows(verb...)
	}
	s.nowhere()
}

// What was changed after it was encrypted is not applied, whoever has the key; what runs stays, and is taken down without one.
func TestChangedEncryptedSecretIsNotApplied_G5(t *testing.T) {
	t.Parallel()
	s := newSopsWorld(t)
	s.encrypts("secret.yaml")
	stop := s.worker("key.txt")
	s.shows("config", "publish", s.Dir, "--store", s.Store)
	s.shows("release", s.App+"/web", "v1")
	s.AwaitThat("web", "convergence", func(st protocol.Status) bool { return channelOf(st, "production").Status == "CONVERGED" })
	s.encrypts("secret.yaml", "tier: back", "tier: front")
	s.shows("config", "publish", s.Dir, "--store", s.Store)
	s.AwaitThat("web", "a refusal", func(st protocol.Status) bool {
		return strings.Contains(fmt.Sprint(st.Journal)+reasons(st, "production"), "its MAC does not match: the file was changed after it was encrypted")
	})
	require.Equal(t, "back", s.secret().Labels["tier"])

	stop()
	s.worker() // without a key: what is taken down need not be read
	config, err := os.ReadFile(filepath.Join(s.Dir, "converge.yaml"))
	require.NoError(t, err)
	other := "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}"
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "other.yaml"), []byte(other), 0o600))
	s.Write(strings.NewReplacer("name: web", "name: other", "db.yaml", "other.yaml").Replace(string(config)))
	s.shows("config", "publish", s.Dir, "--store", s.Store)
	s.shows("channel", "delete", s.App+"/web", "--yes")
	temporaltest.WaitFor(t, byWatch, func() (bool, string) {
		_, err := s.cluster.Client.CoreV1().Secrets(s.namespace).Get(t.Context(), "db", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	s.nowhere()
}

func (s *sopsWorld) edited(key, value string) {
	s.T.Helper()
	patch := fmt.Sprintf(`{"stringData":{%q:%q}}`, key, value)
	_, err := s.cluster.Client.CoreV1().Secrets(s.namespace).Patch(s.T.Context(), "db", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	require.NoError(s.T, err)
}

func textsOf(secret *corev1.Secret) map[string]string {
	texts := map[string]string{}
	for key, value := range secret.Data {
		texts[key] = string(value)
	}
	return texts
}
