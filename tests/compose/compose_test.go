// Package compose runs docker-compose.yml.
package compose

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/tests/temporaltest"
)

const file = "../../docker-compose.yml"

// compose runs Docker Compose in the root of the repository.
func compose(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	cmd := exec.Command("docker", append([]string{"compose"}, args...)...) //nolint:noctx // it ends by itself
	cmd.Dir = "../.."
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// docker-compose.yml starts Temporal on PostgreSQL, two workers and the board, and releases an example, which is converged. The commands are
// those of the file's head.
func TestDockerComposeIsUp(t *testing.T) {
	if os.Getenv("CONVERGE_COMPOSE") == "" {
		t.Skip("it needs Docker and its images, which make compose-test makes")
	}
	run := func(args ...string) string {
		out, err := compose(t, args...)
		require.NoError(t, err, "docker compose %s: %s", strings.Join(args, " "), out)
		return out
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := compose(t, "logs", "--tail", "15")
			t.Log(out)
		}
		run("down", "-v", "--remove-orphans")
	})
	began := time.Now()
	run("up", "-d", "--wait")
	t.Logf("up after %s", time.Since(began).Round(time.Second))
	require.Contains(t, run("run", "--rm", "-T", "converge", "wait", "hello/web"), "web converged in staging, production.")
	status := run("run", "--rm", "-T", "converge", "status")
	require.Equal(t, 2, strings.Count(status, "CONVERGED"), status)
	t.Logf("converged after %s", time.Since(began).Round(time.Second))
	require.Contains(t, run("run", "--rm", "-T", "converge", "release", "hello/web", "v2", "--wait"), "CONVERGED")
	t.Log(run("run", "--rm", "-T", "converge", "admin", "doctor", "--exit-code"))
	require.Equal(t, 2, strings.Count(run("ps", "--format", "{{.Service}}", "worker"), "worker"))
	measureImage(t, run)
	built, err := exec.Command("docker", "build", "-t", "converge-tools", "--build-arg", "TOOLS=temporalio/admin-tools:"+version(t, "go.temporal.io/server"), //nolint:noctx // it ends
		"../../examples/compose").CombinedOutput()
	require.NoError(t, err, string(built))
	t.Setenv("CONVERGE_IMAGE", "converge-tools")
	run("up", "-d", "--wait")
	require.Contains(t, run("run", "--rm", "-T", "converge", "release", "hello/web", "v3", "--wait"), "CONVERGED")
	require.Contains(t, run("exec", "-T", "worker", "sh", "-c", "test -w /var/lib/converge && converge version"), "converge")
	for address, expected := range map[string]string{"http://127.0.0.1:8234/services": "hello/web", "http://127.0.0.1:8080": "<html"} {
		temporaltest.WaitFor(t, time.Minute, func() (bool, string) {
			response, err := http.Get(address) //nolint:noctx,gosec // of a test
			if err != nil {
				return false, err.Error()
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			return err == nil && strings.Contains(string(body), expected), fmt.Sprint(address, " ", string(body))
		})
	}
}

// measureImage logs how large the image is, how soon a worker of it serves, and its memory then, and holds size and memory to their limits.
func measureImage(t *testing.T, run func(args ...string) string) {
	t.Helper()
	archives, err := filepath.Glob("../../.cache/image/converge_*.docker.tar") // its layers are compressed
	require.NoError(t, err)
	require.Len(t, archives, 1)
	archive, err := os.Stat(archives[0])
	require.NoError(t, err)
	const largest = 60 << 20
	require.Less(t, archive.Size(), int64(largest))
	t.Logf("the image has %.1f MiB compressed", float64(archive.Size())/(1<<20))

	run("restart", "worker")
	for _, id := range strings.Fields(run("ps", "-q", "worker")) {
		var served time.Time
		started, err := time.Parse(time.RFC3339Nano, docker(t, "inspect", "-f", "{{.State.StartedAt}}", id))
		require.NoError(t, err)
		temporaltest.WaitFor(t, time.Minute, func() (bool, string) {
			logged := docker(t, "logs", "--timestamps", "--since", started.Format(time.RFC3339Nano), id)
			for line := range strings.Lines(logged) {
				if at, text, _ := strings.Cut(line, " "); strings.Contains(text, "serving; ") {
					served, err = time.Parse(time.RFC3339Nano, at)
					return err == nil, fmt.Sprint(err)
				}
			}
			return false, logged
		})
		used := docker(t, "stats", "--no-stream", "--format", "{{.MemUsage}}", id)
		t.Logf("a worker of the image serves %s after its start, with %s", served.Sub(started).Round(10*time.Millisecond), used)
		mebibytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.Fields(used)[0], "MiB"), 64)
		require.NoError(t, err, used)
		require.LessOrEqual(t, mebibytes, 80.0)
	}
}

func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", args...).CombinedOutput()
	require.NoError(t, err, "docker %s: %s", strings.Join(args, " "), out)
	return strings.TrimSpace(string(out))
}

// version is that of a module which Converge is built with, and which the images of this test are made from, without the v.
func version(t *testing.T, module string) string {
	t.Helper()
	var versions []string
	for _, file := range []string{"../../go.mod", "temporal/go.mod"} {
		modules, err := os.ReadFile(file)
		require.NoError(t, err)
		m := regexp.MustCompile(`(?m)^\s+` + regexp.QuoteMeta(module) + ` v(\S+)`).FindStringSubmatch(string(modules))
		require.NotNil(t, m, "%s in %s", module, file)
		versions = append(versions, m[1])
	}
	require.Equal(t, versions[0], versions[1], module)
	return versions[0]
}

// The versions of Temporal in docker-compose.yml are those that Converge is built with and tested on, every image is pinned, every port is
// on the loopback address, and what waits for a service names one that is there.
func TestDockerComposeNamesWhatIsTested(t *testing.T) {
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var project struct {
		Services map[string]struct {
			Image     string         `yaml:"image"`
			Ports     []string       `yaml:"ports"`
			DependsOn map[string]any `yaml:"depends_on"`
		} `yaml:"services"`
	}
	require.NoError(t, yaml.Unmarshal(data, &project))
	for repository, module := range map[string]string{
		"temporalio/server": "go.temporal.io/server", "temporalio/admin-tools": "go.temporal.io/server", "temporalio/ui": "github.com/temporalio/ui-server/v2",
	} {
		found := false
		for name, service := range project.Services {
			if strings.HasPrefix(service.Image, repository+":") {
				found = true
				require.Equal(t, repository+":"+version(t, module), service.Image, name)
			}
		}
		require.True(t, found, repository)
	}
	for name, service := range project.Services {
		require.Regexp(t, `^([a-z/-]+:[0-9][0-9.]*|\$\{CONVERGE_IMAGE:-converge:latest\})$`, service.Image, name)
		for other := range service.DependsOn {
			require.Contains(t, project.Services, other, name)
		}
		for _, port := range service.Ports {
			require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s: %s", name, port)
		}
	}
}
