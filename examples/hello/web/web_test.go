package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
	"github.com/converge-engine/converge/tests/runtimetest"
)

var program string // the program, built

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hello-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "web")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build: %v\n%s", err, out))
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// place is a separate directory with the example's runtime; its servers end with the test.
type place struct {
	*testing.T
	*custom.Runtime
	dir      string
	ports    map[string]string // channel → port
	greeting string
}

func newPlace(t *testing.T) *place {
	dir := t.TempDir()
	rt, err := custom.New(entities.RuntimeDefinition{
		Name: "local", Owner: "hello", Kind: entities.RuntimeCustom, Dir: dir,
		Custom: &entities.CustomRuntime{
			Apply:  entities.Command{Argv: []string{program, "apply"}, RetryableExitCodes: []int{exitTryLater}},
			Fetch:  &entities.Command{Argv: []string{program, "fetch"}},
			Remove: &entities.Command{Argv: []string{program, "remove"}},
			Mode:   entities.FetchStructured,
		},
	})
	require.NoError(t, err)
	p := &place{T: t, Runtime: rt, dir: dir, ports: map[string]string{}, greeting: "Hello"}
	t.Cleanup(func() { p.stop() })
	for _, channel := range []string{"staging", "production", "prod-0", "prod-1", "prod-2"} {
		p.ports[channel] = freePort(t)
	}
	return p
}

var nextPort = 10000 + os.Getpid()%20000

// freePort returns a port below the range that systems use for outgoing connections, because those ports become busy at random.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		nextPort++
		port := strconv.Itoa(nextPort)
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			require.NoError(t, l.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

func (p *place) stop(channel ...string) string {
	p.Helper()
	cmd := exec.Command(program, append([]string{"stop"}, channel...)...)
	cmd.Dir = p.dir
	out, err := cmd.CombinedOutput()
	require.NoError(p, err, string(out))
	return string(out)
}

func (p *place) payload(payload *entities.Payload) {
	payload.Custom = &entities.CustomPayload{Env: map[string]entities.Value{
		"PORT": {Literal: p.ports[payload.Channel]}, "GREETING": {Literal: p.greeting},
	}}
}

func (p *place) at(version string) runtimes.Request {
	payload := &entities.Payload{Channel: "staging"}
	p.payload(payload)
	return runtimes.Request{
		Owner: runtimes.Owner{Application: "hello", Service: "web", ID: entities.Only("staging")}, ServiceID: "id-1", FullVersion: version, Payload: payload,
	}
}

func (p *place) apply(version string) string {
	p.Helper()
	out, err := p.Apply(p.Context(), p.at(version))
	require.NoError(p, err)
	return out.Stdout
}

func (p *place) look() entities.Object {
	p.Helper()
	objects, err := p.Observe(p.Context(), p.at("v1"))
	require.NoError(p, err)
	require.Len(p, objects, 1)
	return objects[0]
}

func (p *place) state() state {
	p.Helper()
	s, err := load(filepath.Join(p.dir, wish{Service: "web", Channel: "staging"}.file(".json")))
	require.NoError(p, err)
	return s
}

func (p *place) page() string {
	p.Helper()
	answer, err := http.Get("http://127.0.0.1:" + p.ports["staging"])
	require.NoError(p, err)
	defer func() { require.NoError(p, answer.Body.Close()) }()
	b, err := io.ReadAll(answer.Body)
	require.NoError(p, err)
	return string(b)
}

// The example conforms to the contract of a runtime.
func TestConformance(t *testing.T) {
	runtimetest.Run(t, runtimetest.Harness{New: func(t *testing.T) runtimetest.Subject {
		p := newPlace(t)
		return runtimetest.Subject{
			Runtime: p.Runtime, Application: "hello",
			Payload: p.payload,
			Changes: func(channel string) int {
				log, err := os.ReadFile(filepath.Join(p.dir, wish{Service: "web", Channel: channel}.file(".log")))
				require.NoError(t, err)
				return bytes.Count(log, []byte(" started as "))
			},
		}
	}})
}

func TestServesItsVersionAndConfiguration(t *testing.T) {
	p := newPlace(t)
	require.Equal(t, "was never started", p.look().Message)

	p.apply("v1")
	require.Contains(t, p.page(), "<h1>Hello</h1>\n<p>This is web v1 in staging.</p>")
	o := p.look()
	require.Equal(t, []entities.ObjectVersion{{Version: "v1", Active: true, Replicas: 1, AvailableReplicas: 1, TargetReplicas: 1}}, o.Versions)
	require.Equal(t, []entities.Link{
		{Type: "DETAIL", URL: "http://127.0.0.1:" + p.ports["staging"] + "/", Name: "page"},
		{Type: "LOG", URL: "file://" + filepath.Join(p.dir, defaultFolder, "web-staging.log"), Name: "log"},
	}, o.Links)
	require.Len(t, o.Events, 1)

	p.greeting = "Good <evening>" // a change of configuration alone is a new full version
	p.apply("v1-i2")
	require.Contains(t, p.page(), "<h1>Good &lt;evening&gt;</h1>\n<p>This is web v1-i2 in staging.</p>")

	events := p.look().Events
	require.Len(t, events, 3)
	require.Regexp(t, `^v1 ended: process \d+ was asked to stop$`, events[1].Message)
	require.Regexp(t, `^v1-i2 started as process \d+ on port \d+$`, events[2].Message)
}

// The death of a server process is detected, and an apply starts it again.
func TestKilledProcessIsSeenAndRepaired(t *testing.T) {
	p := newPlace(t)
	p.apply("v1")
	s := p.state()
	require.NoError(t, syscall.Kill(s.PID, syscall.SIGKILL))
	require.True(t, s.goneWithin(10*time.Second))

	o := p.look()
	require.Empty(t, o.Versions)
	require.Equal(t, entities.ObjectPending, o.Status)
	require.Equal(t, fmt.Sprintf("process %d is gone", s.PID), o.Message)
	require.Equal(t, fmt.Sprintf("process %d was found gone", s.PID), o.Events[1].Message)

	p.apply("v1")
	require.Equal(t, entities.ObjectSucceeded, p.look().Status)
	require.NotEqual(t, s.PID, p.state().PID)
}

// A process that hangs is alive but not available, and an apply replaces it.
func TestHangingProcessIsReplaced(t *testing.T) {
	p := newPlace(t)
	p.apply("v1")
	s := p.state()
	require.NoError(t, syscall.Kill(s.PID, syscall.SIGSTOP))
	o := p.look()
	for range 1000 { // kill returns before all threads have stopped
		if o.Status == entities.ObjectPending {
			break
		}
		o = p.look()
	}
	require.Equal(t, entities.ObjectPending, o.Status)
	require.Equal(t, 0, o.Versions[0].AvailableReplicas)
	require.Contains(t, o.Message, fmt.Sprintf("process %d does not answer", s.PID))

	require.NoError(t, syscall.Kill(s.PID, syscall.SIGCONT)) // otherwise the graceful stop would use its whole timeout
	p.apply("v2")
	require.Equal(t, entities.ObjectSucceeded, p.look().Status)
	require.False(t, s.alive())
}

// A process that reuses the id of an ended server is not mistaken for that server, and never killed.
func TestProcessIDOfAnother(t *testing.T) {
	p := newPlace(t)
	p.apply("v1")
	p.stop()
	innocent := exec.Command("tail", "-f", "/dev/null")
	require.NoError(t, innocent.Start())
	defer func() { _ = innocent.Process.Kill(); _ = innocent.Wait() }()
	t.Chdir(p.dir)
	s := p.state()
	s.PID, s.Exited = innocent.Process.Pid, false
	require.NoError(t, s.save())

	require.Equal(t, fmt.Sprintf("process %d is gone", s.PID), p.look().Message)
	p.apply("v2")
	p.stop()
	require.NotEmpty(t, processMark(innocent.Process.Pid), "it was killed")
}

func TestServiceIDOfAnother(t *testing.T) {
	p := newPlace(t)
	p.apply("v1")
	in := p.at("v1")
	in.ServiceID = "id-2"
	objects, err := p.Observe(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []entities.ObjectVersion{{Active: true, Replicas: 1, AvailableReplicas: 1, TargetReplicas: 1}}, objects[0].Versions)
	require.Equal(t, `started for the service with id "id-1", not for "id-2"`, objects[0].Message)
}

func TestPortOfAnother(t *testing.T) {
	p := newPlace(t)
	l, err := net.Listen("tcp", "127.0.0.1:"+p.ports["staging"])
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	_, err = p.Apply(t.Context(), p.at("v1"))
	require.EqualError(t, err, fmt.Sprintf("%s exited 75: port %s is taken by another program: stop it, or change constants.port of release channel staging", program, p.ports["staging"]))
	require.False(t, runtimes.IsPermanent(err))
}

func TestNothingToServe(t *testing.T) {
	p := newPlace(t)
	p.greeting = ""
	_, err := p.Apply(t.Context(), p.at("v1"))
	require.ErrorContains(t, err, `exited 1: nothing to serve: version "v1"`)
	require.True(t, runtimes.IsPermanent(err))
}

// Ctrl-C in the terminal of `converge dev` goes to that terminal's process group. The server is in its own session, and also ignores
// the signal.
func TestOutlivesTheTerminal(t *testing.T) {
	p := newPlace(t)
	p.apply("v1")
	pid := p.state().PID
	group, err := syscall.Getpgid(pid)
	require.NoError(t, err)
	require.Equal(t, pid, group)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		require.NoError(t, syscall.Kill(-group, signal))
	}
	require.Equal(t, entities.ObjectSucceeded, p.look().Status)
	require.Equal(t, pid, p.state().PID)

	require.Empty(t, p.stop("production"))
	require.Equal(t, fmt.Sprintf("stopped web v1 in staging, process %d\n", pid), p.stop("staging"))
	require.Equal(t, fmt.Sprintf("process %d is gone", pid), p.look().Message)
}

// The script builds a missing program and, before an apply, a changed one. It also works outside of a module, and with only the
// environment of a custom runtime.
func TestRunScript(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "web"), os.DirFS(".")))
	script, err := os.ReadFile("../run")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run"), script, 0o600))
	built := filepath.Join(dir, ".converge", "bin", "web")
	run := func(verb string) (stdout string, builtAt time.Time) {
		t.Helper()
		cmd := exec.Command("sh", filepath.Join(dir, "run"), verb)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PVN_SERVICE=web", "PVN_RELEASE_CHANNEL=staging", "PVN_SERVICE_VERSION=v1"}
		out, err := cmd.Output()
		if verb == "fetch" {
			require.NoError(t, err)
		}
		if info, err := os.Stat(built); err == nil {
			builtAt = info.ModTime()
		}
		return string(out), builtAt
	}
	out, at := run("fetch")
	require.Equal(t, "{\"objects\": []}\n", out)
	require.Zero(t, at, "nothing to look at, nothing to build")

	require.NoError(t, os.MkdirAll(filepath.Join(dir, defaultFolder), 0o700))
	out, first := run("fetch")
	_, err = custom.ParseDocument([]byte(out))
	require.NoError(t, err)
	require.NotZero(t, first)

	touched := time.Now().Add(time.Minute)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "web", "serve.go"), touched, touched))
	_, second := run("fetch")
	require.Equal(t, first, second, "a fetch does not build again")
	_, third := run("apply")
	require.True(t, third.After(second), "an apply does")
}
