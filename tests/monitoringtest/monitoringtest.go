// Package monitoringtest gives tests a real Prometheus and a real Alertmanager. `make monitoring` fetches them from
// Debian; without them tests that want them are skipped, and say so.
//
// Each test has its own pair: what is scraped and what alerts is the test's alone, and both end with it.
package monitoringtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds the wait for a process to serve, on a busy machine.
const patience = 60 * time.Second

// Stack is a Prometheus that scrapes every 200 ms and the Alertmanager that it tells of alerts. Both fields are URLs.
type Stack struct {
	Prometheus   string
	Alertmanager string
}

// Rule is an alert: it fires as soon as the expression has a sample.
type Rule struct {
	Name   string
	Expr   string
	Labels map[string]string
}

// Start runs both for a test. Targets are addresses ("127.0.0.1:8101") whose /metrics are scraped, by the value of the
// label `channel` that their samples get.
func Start(t testing.TB, targets map[string]string, rules ...Rule) *Stack {
	t.Helper()
	dir := t.TempDir()
	alertmanager := serve(t, "prometheus-alertmanager", "/-/ready", func(address string) []string {
		write(t, dir, "alertmanager.yml", alertmanagerConfig)
		return []string{
			"--config.file", filepath.Join(dir, "alertmanager.yml"), "--storage.path", filepath.Join(dir, "alerts"),
			"--web.listen-address", address, "--cluster.listen-address=", "--log.level=error",
		}
	})
	prometheus := serve(t, "prometheus", "/-/ready", func(address string) []string {
		write(t, dir, "rules.json", marshal(t, ruleFile(rules)))
		write(t, dir, "prometheus.json", marshal(t, prometheusConfig(targets, alertmanager, filepath.Join(dir, "rules.json"))))
		return []string{
			"--config.file", filepath.Join(dir, "prometheus.json"), "--storage.tsdb.path", filepath.Join(dir, "samples"),
			"--web.listen-address", address, "--rules.alert.resend-delay=1s", "--query.lookback-delta=5s", "--log.level=error",
		}
	})
	awaitScrapes(t, "http://"+prometheus, len(targets))
	return &Stack{Prometheus: "http://" + prometheus, Alertmanager: "http://" + alertmanager}
}

// awaitScrapes waits until each target has been scraped, even if none answers yet. A new Prometheus finds its targets seconds after it is
// ready (its discovery passes them on each five seconds), and what happens before that is in no sample.
func awaitScrapes(t testing.TB, prometheus string, targets int) {
	t.Helper()
	var scraped int
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var answer struct {
			Data struct {
				ActiveTargets []struct {
					Health string `json:"health"`
				} `json:"activeTargets"`
			} `json:"data"`
		}
		response, err := http.Get(prometheus + "/api/v1/targets?state=active") //nolint:noctx // of a test
		if err != nil {
			continue
		}
		err = json.NewDecoder(response.Body).Decode(&answer)
		_ = response.Body.Close()
		scraped = 0
		for _, target := range answer.Data.ActiveTargets {
			if err == nil && target.Health != "unknown" {
				scraped++
			}
		}
		if scraped == targets {
			return
		}
	}
	t.Fatalf("Prometheus has scraped %d of %d targets within a minute", scraped, targets)
}

const alertmanagerConfig = `route: {receiver: nobody, group_wait: 0s, group_interval: 1s}
receivers: [{name: nobody}]
`

// ruleFile and prometheusConfig are JSON, which is YAML too.
func ruleFile(rules []Rule) any {
	list := make([]any, 0, len(rules))
	for _, r := range rules {
		list = append(list, map[string]any{"alert": r.Name, "expr": r.Expr, "labels": r.Labels})
	}
	return map[string]any{"groups": []any{map[string]any{"name": "test", "interval": "200ms", "rules": list}}}
}

func prometheusConfig(targets map[string]string, alertmanager, rules string) any {
	static := make([]any, 0, len(targets))
	for channel, address := range targets {
		static = append(static, map[string]any{"targets": []string{address}, "labels": map[string]string{"channel": channel}})
	}
	return map[string]any{
		"global":         map[string]string{"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
		"rule_files":     []string{rules},
		"alerting":       map[string]any{"alertmanagers": []any{map[string]any{"static_configs": []any{map[string]any{"targets": []string{alertmanager}}}}}},
		"scrape_configs": []any{map[string]any{"job_name": "test", "static_configs": static}},
	}
}

func marshal(t testing.TB, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serve starts a program on a free port and returns its address once it is ready. Another one may have taken the port
// in between, so it is tried again with another.
func serve(t testing.TB, name, ready string, arguments func(address string) []string) string {
	t.Helper()
	path := Program(t, name)
	var last string
	for range 5 {
		address := freeAddress(t)
		if last = start(t, path, "http://"+address+ready, arguments(address)); last == "" {
			return address
		}
	}
	t.Fatalf("%s does not start: %s", name, last)
	return ""
}

// Program is the path of a program that `make monitoring` fetched.
func Program(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(dir, ".cache", "monitoring", "usr", "bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s: run make monitoring (Debian, 30 MB, once)", name)
	}
	return path
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// start runs the program until the test ends; what it returns is why it did not become ready.
func start(t testing.TB, path, ready string, arguments []string) string {
	t.Helper()
	var output bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, path, arguments...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		cancel()
		return err.Error()
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = command.Wait() }()
	stop := func() { cancel(); <-ended }
	deadline := time.After(patience)
	for {
		if answers(ready) {
			t.Cleanup(stop)
			return ""
		}
		select {
		case <-ended:
			cancel()
			return strings.TrimSpace(output.String())
		case <-deadline:
			stop()
			return "not ready within " + patience.String() + ": " + strings.TrimSpace(output.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func answers(url string) bool {
	client := http.Client{Timeout: 2 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Query answers an instant query with the value of its first sample; false: there is none.
func (s *Stack) Query(t testing.TB, query string) (string, bool) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, s.Prometheus+"/api/v1/query", nil)
	if err != nil {
		t.Fatal(err)
	}
	values := request.URL.Query()
	values.Set("query", query)
	request.URL.RawQuery = values.Encode()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Data struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Data.Result) == 0 {
		return "", false
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1]), true
}

// Firing reports whether the Alertmanager knows an active alert of that name, neither silenced nor inhibited.
func (s *Stack) Firing(t testing.TB, name string) bool {
	t.Helper()
	response, err := http.Get(s.Alertmanager + "/api/v2/alerts?active=true&silenced=false&inhibited=false&filter=alertname%3D" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var alerts []any
	if err := json.NewDecoder(response.Body).Decode(&alerts); err != nil {
		t.Fatal(err)
	}
	return len(alerts) > 0
}
