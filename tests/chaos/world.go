package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/buckettest"
	"github.com/converge-engine/converge/tests/chaos/record"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/proxy"
	"github.com/converge-engine/converge/tests/programtest"
)

// What can go wrong has these names.
const (
	worker1    = "worker-1"
	worker2    = "worker-2"
	serverName = "server"
	storeName  = "store"
)

const application = "shop"

// world is the processes of a run, the proxies between them, and a directory that holds all that they keep.
//
//	worker-1 ── line ──┐
//	worker-2 ── line ──┼── server        workers and people ── line ── store
//	people   ── line ──┘
type world struct {
	dir       string
	bin       string
	services  []string
	processes map[string]*process
	proxies   map[string]*proxy.Proxy // by the process whose connections they carry; "" is the clients'
	client    client.Client
	issuer    *idptest.Issuer // of everybody's tokens; no fault meets it
}

// newWorld builds the programs and starts everything, in a directory that is empty.
func newWorld(ctx context.Context, dir string, services []string) (*world, error) {
	const module = "github.com/converge-engine/converge/"
	bin, err := programtest.Build(ctx, "", module+"cmd/converge", module+"tests/chaos/site")
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, bin: bin, services: services, processes: map[string]*process{}, proxies: map[string]*proxy.Proxy{}}
	if w.issuer, err = idptest.Start(); err != nil {
		return nil, err
	}
	for _, sub := range []string{w.site(), w.config(), w.path("bucket"), w.path("logs")} {
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{worker1, worker2, storeName, ""} {
		p, err := proxy.New("")
		if err != nil {
			return nil, err
		}
		w.proxies[name] = p
	}
	w.client, err = client.NewLazyClient(client.Options{
		HostPort: w.proxies[""].Address(), Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return nil, err
	}
	return w, w.start()
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }
func (w *world) site() string            { return w.path("site") }
func (w *world) config() string          { return w.path("config") }
func (w *world) store() string           { return buckettest.URL("http://" + w.proxies[storeName].Address()) }

// start starts the processes and returns when they are up.
func (w *world) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	w.keep(storeName, func() *exec.Cmd { return exec.Command(self, storeRole, w.path("bucket")) }, w.proxies[storeName].SetTarget)
	w.keep(serverName, func() *exec.Cmd { return exec.Command(self, serverRole, w.path("temporal.db")) }, func(address string) {
		for _, name := range []string{worker1, worker2, ""} {
			w.proxies[name].SetTarget(address)
		}
	})
	for _, name := range []string{storeName, serverName} {
		w.processes[name].awaitUp()
	}
	for _, name := range []string{worker1, worker2} {
		w.keep(name, func() *exec.Cmd {
			cmd := exec.Command(filepath.Join(w.bin, "converge"), "worker", "--store", w.store(), "--address", w.proxies[name].Address())
			cmd.Dir, cmd.Env = w.dir, w.env("")
			return cmd
		}, nil)
	}
	return nil
}

func (w *world) keep(name string, make func() *exec.Cmd, up func(string)) {
	p := newProcess(name, w.path("logs"), make, up)
	w.processes[name] = p
	go p.keep()
}

// env is the environment of the programs, for somebody.
func (w *world) env(by string) []string {
	return append(os.Environ(), "CONVERGE_BY="+by, "AWS_ACCESS_KEY_ID=chaos", "AWS_SECRET_ACCESS_KEY=chaos", "AWS_CONFIG_FILE="+os.DevNull,
		"AWS_RESPONSE_CHECKSUM_VALIDATION=when_required")
}

// stop ends everything. What a run leaves stays in the directory.
func (w *world) stop() {
	w.client.Close()
	w.issuer.Close()
	for _, p := range w.processes {
		p.end()
	}
	for _, p := range w.proxies {
		p.Close()
	}
}

// configure writes the configuration: each round is another payload of every service.
func (w *world) configure(round int) error {
	text := fmt.Sprintf(`apiVersion: converge/v1
kind: Application
name: %s
%sreleaseChannels:
- {name: staging, runtimes: [{name: site}]}
- name: production
  runtimes: [{name: site}]
  preconditions: [{releaseChannelStable: {releaseChannel: staging}}, {manualApproval: {}}]
---
%s`, application, w.rules(), w.siteRuntime())
	for _, service := range w.services {
		text += fmt.Sprintf("---\napiVersion: converge/v1\nkind: Service\nname: %s\ncustom: {env: {ROUND: \"%d\"}}\n", service, round)
	}
	return os.WriteFile(filepath.Join(w.config(), "converge.yaml"), []byte(text), 0o600)
}

// siteRuntime declares the runtime.
func (w *world) siteRuntime() string {
	return fmt.Sprintf(`apiVersion: converge/v1
kind: Runtime
name: site
custom:
  apply: {command: [%[1]s/site, apply, %[2]s], timeout: 2m}
  fetch: {command: [%[1]s/site, fetch, %[2]s], mode: structured, timeout: 20s}
  pollInterval: 500ms
  steadyPollInterval: 5s
  gracePeriod: 20s
  retry: {maxAttempts: 3, backoff: 300ms, maxBackoff: 2s}
`, w.bin, w.site())
}

// converge runs the command line on behalf of who publishes first, who proves nothing, and decodes what it prints, if that is wanted.
func (w *world) converge(ctx context.Context, into any, args ...string) error {
	return w.convergeAs(ctx, record.First, "", into, args...)
}

// convergeAs is converge on behalf of somebody with a token; empty: none.
func (w *world) convergeAs(ctx context.Context, by, token string, into any, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.bin, "converge"), append(args, "--address", w.proxies[""].Address())...)
	cmd.Dir, cmd.Env = w.dir, append(w.env(by), "CONVERGE_STORE="+w.store(), "CONVERGE_TOKEN="+token)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("converge %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(out, into)
}

// errGone is a service whose workflow does not run.
var errGone = errors.New("there is no such workflow")

// status asks a service, as people do: whatever goes wrong is tried again by whoever wants to know.
func (w *world) status(ctx context.Context, service string) (s protocol.Status, err error) {
	return s, w.query(ctx, protocol.ServiceID(application, service), protocol.QueryStatus, &s)
}

// query asks a workflow that runs.
func (w *world) query(ctx context.Context, id, query string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := w.client.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: id, QueryType: query,
		QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	switch {
	case errors.As(err, new(*serviceerror.NotFound)):
		return errGone
	case err != nil:
		return err
	case answer.QueryRejected != nil:
		return errGone
	}
	return answer.QueryResult.Get(into)
}
