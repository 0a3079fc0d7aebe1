package security

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// leaking is a service that writes what it is given to a file.
const leaking = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: production, runtimes: [{name: APP-rt}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
custom:
  apply: {command: [sh, -c, 'echo "$TOKEN" > LEAK']}
  retry: {maxAttempts: 1}
---
apiVersion: converge/v1
kind: Service
name: web
parameters: [{name: token, type: secretRef, default: {workerEnv: SHOP_TOKEN}}]
autoRollback: false
custom: {env: {TOKEN: "${{ params.token }}"}}
`

// Whoever may write a configuration, or may release, has the worker tell nothing of its environment but what it was started
// to tell: by an update, by a signal, and by naming the variable in the file. The trail says what was tried.
func TestWorkersCredentialsAreNotToBeHad_G5(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	leak := filepath.Join(t.TempDir(), "leak")
	w.Write(strings.ReplaceAll(leaking, "LEAK", leak))
	w.Publish()

	request := protocol.ReleaseRequest{RequestMeta: protocol.RequestMeta{By: "mallory"}, Version: "v1", Parameters: map[string]any{"token": map[string]any{"workerEnv": "PATH"}}}
	err := w.Update(w.ID("web"), protocol.Release, request, new(protocol.ReleaseAnswer))
	require.ErrorContains(t, err, "parameter token of web is set in the configuration only")
	w.Signal("web", protocol.Release, `{"by":"mallory","version":"v2","channelParameters":{"production":{"token":{"workerEnv":"PATH"}}}}`)
	s := w.AwaitThat("web", "a refusal", func(s protocol.Status) bool { return len(s.Refused) > 0 })
	require.Contains(t, s.Refused[0].Reason, "parameter token of web is set in the configuration only")

	w.Write(strings.ReplaceAll(strings.ReplaceAll(leaking, "LEAK", leak), "SHOP_TOKEN", "PATH"))
	w.Publish()
	w.Release("web", "v3")
	s = w.AwaitThat("web", "a failure", func(s protocol.Status) bool { return s.Channels[0].Status == "FAILED" })
	shown, err := json.Marshal(s)
	require.NoError(t, err)
	require.Contains(t, string(shown), "TOKEN cannot be resolved from the worker's environment variable PATH, which this worker does not allow")
	require.Equal(t, []string{"release of v3 from incarnation 2", "target v3", "failed"}, trail(t, w), "of the others nothing was begun")
	_, err = os.Stat(leak)
	require.ErrorIs(t, err, os.ErrNotExist)
}
