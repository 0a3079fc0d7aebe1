package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/buckettest"
	"github.com/converge-engine/converge/tests/chaos/record"
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
}

// newWorld builds the programs and starts everything, in a directory that is empty.
func newWorld(ctx context.Context, dir string, services []string) (*world, error) {
	const module = "github.com/converge-engine/converge/"
	bin, err := programtest.Build(ctx, "", module+"cmd/converge", module+"tests/chaos/site")
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, bin: bin, services: services, processes: map[string]*process{}, proxies: map[string]*proxy.Proxy{}}
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
releaseChannels:
- {name: staging, runtimes: [{name: site}]}
- name: production
  runtimes: [{name: site}]
  preconditions: [{releaseChannelStable: {releaseChannel: staging}}, {manualApproval: {}}]
---
%s`, application, w.siteRuntime())
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

// converge runs the command line on behalf of somebody, and decodes what it prints, if that is wanted.
func (w *world) converge(ctx context.Context, by string, into any, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.bin, "converge"), append(args, "--address", w.proxies[""].Address())...)
	cmd.Dir, cmd.Env = w.dir, append(w.env(by), "CONVERGE_STORE="+w.store())
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
	return s, w.query(ctx, service, protocol.QueryStatus, &s)
}

// query asks a service that runs.
func (w *world) query(ctx context.Context, service, query string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := w.client.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: protocol.ServiceID(application, service), QueryType: query,
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

// snapshot is how a service is at one moment: its answer, what the site has, and the number of the last line of its
// history. Nothing came between them: the line is the same before and after.
type snapshot struct {
	status protocol.Status
	rest   []record.Rest
	line   int64
}

// errMoved says that something happened while a snapshot was taken.
var errMoved = errors.New("something happened meanwhile")

// snapshot takes one. An error may be gone at the next try.
func (w *world) snapshot(ctx context.Context, service string) (snapshot, error) {
	before, err := w.lastLine(ctx, service)
	if err != nil {
		return snapshot{}, err
	}
	there := w.there(service)
	s, err := w.status(ctx, service)
	if err != nil {
		return snapshot{}, err
	}
	after, err := w.lastLine(ctx, service)
	if err != nil {
		return snapshot{}, err
	}
	taken := snapshot{status: s, line: after}
	for _, c := range s.Channels {
		taken.rest = append(taken.rest, record.Rest{Channel: c.Name, Status: c.Status, Target: c.Target, Current: c.Current, Site: there[c.Name]})
	}
	if before != after || !maps.Equal(there, w.there(service)) {
		return taken, errMoved
	}
	return taken, nil
}

// there is what the site has of a service, by channel.
func (w *world) there(service string) map[string]string {
	versions := map[string]string{}
	for _, channel := range []string{record.Staging, record.Production} {
		version, err := os.ReadFile(filepath.Join(w.site(), service+"-"+channel+".version"))
		if err != nil && !os.IsNotExist(err) {
			version = []byte(err.Error())
		}
		versions[channel] = string(version)
	}
	return versions
}

// lastLine is the number of the last line of a service's history.
func (w *world) lastLine(ctx context.Context, service string) (int64, error) {
	var tail protocol.HistoryAnswer
	if err := w.query(ctx, service, protocol.QueryHistory, &tail); err != nil {
		return 0, err
	}
	if n := len(tail.Entries); n > 0 {
		return tail.Entries[n-1].N, nil
	}
	return tail.Stored, nil
}

// restless are the statuses that end by themselves.
var restless = map[string]bool{
	string(entities.StatusConverging): true, string(entities.StatusRollingBack): true, string(entities.StatusUnknown): true,
	string(entities.StatusDegraded): true, string(entities.StatusPreconditions): true,
}

// looks is how often in a row a service that rests looks the same.
const looks = 3

// awaitRest waits until nothing of a service moves any more: three snapshots in a row are the same and could stay so. The
// last of them is what is judged.
func (w *world) awaitRest(ctx context.Context, service string, within time.Duration) (snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var last snapshot
	for same := 0; ; {
		now, err := w.snapshot(ctx, service)
		switch {
		case err != nil && !errors.Is(err, errMoved): // nothing is known
			same = 0
		case err != nil || now.restless():
			same = 0
			last = now
		default:
			if same++; now.line != last.line || !slices.Equal(now.rest, last.rest) {
				same = 1
			}
			if last = now; same == looks {
				return now, nil
			}
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("%s does not come to rest within %s: %v %s", service, within, last.rest, last.status.Headline)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (s snapshot) restless() bool {
	return slices.ContainsFunc(s.rest, func(c record.Rest) bool { return restless[c.Status] })
}
