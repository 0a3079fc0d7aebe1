package security

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/converge-engine/converge/client/codecserver"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
	"github.com/converge-engine/converge/workflows"
)

// newKey writes a key file and returns the reference to it.
func newKey(t *testing.T) string {
	t.Helper()
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(secret)), 0o600))
	return "file:" + path
}

// keyed is a codec of keys, that encrypts or only decrypts.
func keyed(t *testing.T, encrypt string, keys ...string) *codec.Codec {
	t.Helper()
	c, err := codec.Load(strings.Join(keys, ","), encrypt)
	require.NoError(t, err)
	return c
}

// connected is a connection of somebody who has a codec.
func connected(t *testing.T, w *stage.World, payloads *codec.Codec) client.Client {
	t.Helper()
	data, failures := payloads.Converters()
	c, err := client.Dial(client.Options{HostPort: w.Address, Logger: stage.Quiet{}, DataConverter: data, FailureConverter: failures})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// stock runs the stock CLI, and returns what it prints with payloads as they are.
func stock(t *testing.T, w *stage.World, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stage.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, temporaltest.CLI(t), append(args, "--address", w.Address, "--disable-config-file")...)
	out, err := cmd.CombinedOutput()
	legible := encoded.ReplaceAllStringFunc(string(out), func(text string) string {
		data, _ := base64.StdEncoding.DecodeString(encoded.FindStringSubmatch(text)[1])
		return string(data)
	})
	return legible, err
}

// encoded is how the CLI prints what a payload holds.
var encoded = regexp.MustCompile(`"data": "([^"]*)"`)

// everything is all events of all workflows, as the server keeps them.
func everything(t *testing.T, w *stage.World) (events []*historypb.HistoryEvent) {
	t.Helper()
	plain := connected(t, w, &codec.Codec{})
	all, err := plain.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{PageSize: 100})
	require.NoError(t, err)
	require.NotEmpty(t, all.GetExecutions())
	for _, e := range all.GetExecutions() {
		history := plain.GetWorkflowHistory(t.Context(), e.GetExecution().GetWorkflowId(), e.GetExecution().GetRunId(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for history.HasNext() {
			event, err := history.Next()
			require.NoError(t, err)
			events = append(events, event)
		}
	}
	return events
}

// clear are the payloads of events that anybody can read.
func clear(t *testing.T, events []*historypb.HistoryEvent) (out []string) {
	t.Helper()
	require.NoError(t, proxy.VisitPayloads(t.Context(), &historypb.History{Events: events}, proxy.VisitPayloadsOptions{
		SkipSearchAttributes: true,
		Visitor: func(_ *proxy.VisitPayloadsContext, payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
			for _, p := range payloads {
				if !codec.Is(p) && string(p.GetData()) != `"ACTIVITY_ID_NOT_STARTED"` { // the server's own word
					out = append(out, string(p.GetData()))
				}
			}
			return payloads, nil
		},
	}))
	return out
}

func replays(t *testing.T, payloads *codec.Codec, events []*historypb.HistoryEvent) error {
	t.Helper()
	data, failures := payloads.Converters()
	r, err := sdkworker.NewWorkflowReplayerWithOptions(sdkworker.WorkflowReplayerOptions{
		DataConverter: data, FailureConverter: failures, Interceptors: []interceptor.WorkerInterceptor{&workflows.Arrivals{}},
	})
	require.NoError(t, err)
	r.RegisterWorkflowWithOptions(workflows.Service, workflow.RegisterOptions{Name: protocol.ServiceWorkflow})
	return r.ReplayWorkflowHistory(stage.Quiet{}, &historypb.History{Events: events})
}

const (
	converged = "staging CONVERGED v1, production CONVERGED v1"
	canary    = "canary-of-the-cellar"
)

// With encryption switched on nothing that anybody says, or is told, lies in Temporal in clear: inputs, signals, answers,
// failures, memos, summaries. The stock CLI reads it by way of the codec server, and may send verbs in plain all the same.
func TestPayloadsAreEncrypted_G5(t *testing.T) {
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	key := newKey(t)
	w.Client = connected(t, w, keyed(t, "true", key))
	stop := w.StartWorkerAs(worker.Options{Payloads: keyed(t, "true", key)})
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	w.Fake.At(w.App, "web", "staging").FailApplies(1, canary+" failed")
	request := protocol.ReleaseRequest{RequestMeta: protocol.RequestMeta{By: "test", Reason: canary}, Version: "v1", Parameters: map[string]any{"greeting": canary}}
	require.NoError(t, w.Update(w.ID("web"), protocol.Release, request, new(protocol.ReleaseAnswer)))
	w.Await("web", converged)
	w.Signal("web", protocol.Pause, `{"by":"alice","channel":"staging","reason":"`+canary+`"}`)
	w.AwaitThat("web", "a pause", func(s protocol.Status) bool { return s.Channels[0].Status == "PAUSED" })
	err := w.Update(w.ID("web"), protocol.Pin, map[string]any{"by": "alice", "channel": "staging", "version": canary}, new(protocol.Answer))
	require.ErrorContains(t, err, canary, "a refusal is read with the key")

	events := everything(t, w)
	require.Empty(t, clear(t, events))
	raw, err := proto.Marshal(&historypb.History{Events: events})
	require.NoError(t, err)
	require.False(t, bytes.Contains(raw, []byte(canary)), "nor in the message of a failure")
	own := w.History(w.ID("web"))
	require.NoError(t, replays(t, keyed(t, "", key), own), "by a worker that only decrypts, too")
	require.ErrorContains(t, replays(t, &codec.Codec{}, own), "it is encrypted, and this process does not have the key; set CONVERGE_STORE_KEY")

	throughTheStockCLI(t, w, key)

	stop()
	failing := worker.Options{Store: w.Store, Payloads: &codec.Codec{}}
	_, err = worker.Start(t.Context(), connected(t, w, failing.Payloads), failing)
	require.ErrorContains(t, err, "this worker does not have; set CONVERGE_STORE_KEY [no-payload-key]")
	_, err = worker.Start(t.Context(), connected(t, w, keyed(t, "", newKey(t))), worker.Options{Store: w.Store, Payloads: keyed(t, "", newKey(t))})
	require.ErrorContains(t, err, "[no-payload-key]", "nor has one with another key")
}

// throughTheStockCLI reads by the codec server, and sends in plain.
func throughTheStockCLI(t *testing.T, w *stage.World, key string) {
	t.Helper()
	secret := rand.Text()
	handler, err := codecserver.New(codecserver.Options{Codec: keyed(t, "", key), Secret: secret})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	show := []string{"workflow", "show", "-w", w.ID("web"), "--output", "json"}
	out, err := stock(t, w, show...)
	require.NoError(t, err, out)
	require.NotContains(t, out, canary)
	out, err = stock(t, w, append(show, "--codec-endpoint", server.URL, "--codec-auth", "Bearer "+secret)...)
	require.NoError(t, err, out)
	require.Contains(t, out, canary)
	out, err = stock(t, w, append(show, "--codec-endpoint", server.URL, "--codec-auth", "Bearer wrong")...)
	require.NotContains(t, out, canary, err)
	out, err = stock(t, w, "workflow", "query", "-w", w.ID("web"), "--type", protocol.QueryStatus, "--codec-endpoint", server.URL, "--codec-auth", "Bearer "+secret)
	require.NoError(t, err, out)
	require.Contains(t, out, canary)
	out, err = stock(t, w, "workflow", "signal", "-w", w.ID("web"), "--name", protocol.Resume, "--input", `{"by":"bob","channel":"staging"}`)
	require.NoError(t, err, out)
	w.Await("web", converged)
	out, err = stock(t, w, "workflow", "update", "start", "--wait-for-stage", "accepted", "-w", w.ID("web"), "--name", protocol.Pause, "--input", `{"by":"bob","channel":"staging"}`)
	require.NoError(t, err, out)
	out, err = stock(t, w, "workflow", "update", "execute", "-w", w.ID("web"), "--name", protocol.Resume, "--input", `{"by":"bob","channel":"staging"}`, "--codec-endpoint", server.URL, "--codec-auth", "Bearer "+secret)
	require.NoError(t, err, out)
	out, err = stock(t, w, "workflow", "signal", "-w", w.ID("web"), "--name", protocol.Pause, "--input", `{"by":"bob","channel":"staging"}`, "--codec-endpoint", server.URL, "--codec-auth", "Bearer "+secret)
	require.NoError(t, err, out)
	w.AwaitThat("web", "a pause", func(s protocol.Status) bool { return s.Channels[0].Status == "PAUSED" })
}

// Encryption is switched on, off, and its key changed, under a service that runs; histories of before go on. What nobody has
// a key for is no message: it is refused, with a trace, by signal and by update, and holds nothing up.
func TestEncryptionIsSwitchedOnUnderARunningService_G5(t *testing.T) {
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	old, next := newKey(t), newKey(t)
	releasing := func(version string, payloads *codec.Codec) {
		t.Helper()
		stop := w.StartWorkerAs(worker.Options{Payloads: payloads})
		defer stop()
		w.Client = connected(t, w, payloads)
		if version == "v1" {
			w.Write(stage.TwoChannels + stage.Web)
			w.Publish()
		}
		w.Release("web", version)
		w.Await("web", strings.ReplaceAll(converged, "v1", version))
	}
	releasing("v1", &codec.Codec{})
	releasing("v2", keyed(t, "", old))
	require.NotEmpty(t, clear(t, everything(t, w)), "nothing is encrypted by a worker that only has a key")
	releasing("v3", keyed(t, "true", old))
	releasing("v4", keyed(t, "true", old, next))
	releasing("v5", keyed(t, "true", next, old))
	releasing("v6", keyed(t, "", next, old))

	w.StartWorkerAs(worker.Options{Payloads: keyed(t, "", next, old)})
	forger := connected(t, w, keyed(t, "true", newKey(t)))
	require.NoError(t, forger.SignalWorkflow(t.Context(), w.ID("web"), "", protocol.Pause, protocol.ManageRequest{RequestMeta: protocol.RequestMeta{By: "mallory"}}))
	s := w.AwaitThat("web", "a refusal", func(s protocol.Status) bool { return len(s.Refused) > 0 })
	require.Contains(t, s.Refused[0].Reason, "pause")
	handle, err := forger.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: w.ID("web"), UpdateName: protocol.Pause, WaitForStage: client.WorkflowUpdateStageCompleted, Args: []any{protocol.ManageRequest{RequestMeta: protocol.RequestMeta{By: "mallory"}}},
	})
	if err == nil {
		err = handle.Get(t.Context(), nil)
	}
	require.ErrorContains(t, err, "it is encrypted, and this process does not have the key")
	w.Release("web", "v7")
	w.Await("web", strings.ReplaceAll(converged, "v1", "v7"))
	again := keyed(t, "", next, old)
	again.SetKnown(nil)
	require.NoError(t, replays(t, again, w.History(w.ID("web"))))
}

// The command line reads with the key, or by a codec server that knows who asks, and else says what is missing.
func TestCommandLineReadsEncryptedPayloads_G5(t *testing.T) {
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	key := newKey(t)
	w.Client = connected(t, w, keyed(t, "true", key))
	w.StartWorkerAs(worker.Options{Payloads: keyed(t, "true", key)})
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	secret := rand.Text()
	handler, err := codecserver.New(codecserver.Options{Codec: keyed(t, "true", key), Secret: secret})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	converge := func(env []string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), stage.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, shared.Converge(t), append(args, "--address", w.Address)...)
		cmd.Env = append(os.Environ(), append(env, "TEMPORAL_CONFIG_FILE=/dev/null", "CONVERGE_TOKEN=none")...)
		out, _ := cmd.CombinedOutput() // what it says is looked at
		return string(out)
	}
	service, withKey := w.App+"/web", []string{"CONVERGE_STORE_KEY=" + key}
	asking := func(token string) []string {
		return []string{"TEMPORAL_CODEC_ENDPOINT=" + server.URL, "TEMPORAL_CODEC_AUTH=" + token}
	}
	require.Contains(t, converge(withKey, "release", service, "v1", "--encrypt-payloads"), "v1")
	w.Await("web", converged)
	require.Contains(t, converge(withKey, "status", service), "CONVERGED")
	require.Contains(t, converge(nil, "status", service), "set CONVERGE_STORE_KEY")
	require.Contains(t, converge(nil, "channel", "pin", service, "staging", "v9"), "set CONVERGE_STORE_KEY to the key, or TEMPORAL_CODEC_ENDPOINT to a codec server")
	require.Contains(t, converge(asking(secret), "status", service), "missing credentials; expected Authorization: Bearer TOKEN")
	require.Contains(t, converge(asking("Bearer "+secret), "status", service), "CONVERGED")
	require.Empty(t, clear(t, everything(t, w)))
	require.NotContains(t, converge(asking("Bearer "+secret), "pause", service, "--channel", "staging", "--reason", canary), "usage")
	w.AwaitThat("web", "a pause", func(s protocol.Status) bool { return s.Channels[0].Status == "PAUSED" })
	require.Empty(t, clear(t, everything(t, w)), "what the server was sent was encrypted")
}
