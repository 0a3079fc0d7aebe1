package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// gatedChannels is two channels of which production has a gate of every kind that a workflow treats
// differently: an approval, checks before and after, an extension, and a runtime that bounds applies.
const gatedChannels = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: staging, runtimes: [{name: APP-rt}]}
- name: production
  runtimes: [{name: APP-rt}]
  preconditions:
  - releaseChannelStable: {releaseChannel: staging}
  - sharedManualApproval: {name: go-live, minApprovers: 2}
  protections:
  - {name: denied, deniedVersions: {versions: [v13], reason: unlucky}}
  - {name: switch, command: {command: [sh, -c, "cat switch.txt; exit $(cat switch)"]}, interval: 200ms, lifecycle: [postApproval: {}, postDeployment: {for: 1s}]}
  extensions:
  - {name: migrate, lifecycle: postApproval, command: [echo, "migrated to ${{ version }}"]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
maxConcurrentApplies: 1
fake: {pollInterval: 100ms, steadyPollInterval: 300ms, retry: {maxAttempts: 3, backoff: 100ms, maxBackoff: 1s}}
`

// gatedLife leads a service through its gates and back: approvals, a rejection, a denied version with
// a bypass, a rollback by a check and one by a person, a pin, a pause of the application, and its end.
func gatedLife(w *world) {
	shut := func(code string) {
		require.NoError(w.T, os.WriteFile(filepath.Join(w.Dir, "switch.txt"), []byte("the switch says "+code+"\n"), 0o600))
		require.NoError(w.T, os.WriteFile(filepath.Join(w.Dir, "switch"), []byte(code), 0o600))
	}
	approve := func(version string) {
		for _, who := range []string{"alice", "bob"} {
			w.Act("web", protocol.Approve, `{"version":"`+version+`","topic":"go-live","by":"`+who+`"}`)
		}
	}
	whole := func(verb, payload string) {
		var answer protocol.Answer
		require.NoError(w.T, w.Update(protocol.ApplicationID(w.App), verb, json.RawMessage(payload), &answer))
	}
	shut("0")
	w.Write(gatedChannels + stage.Web + "onDelete: remove\n")
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	w.Signal("web", protocol.Approve, `{"version":"v9","topic":"go-live","by":"alice"}`)
	approve("v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production WAITING_MANUAL_APPROVAL v1")
	w.Act("web", protocol.Reject, `{"version":"v2","topic":"go-live","by":"alice","comment":"no"}`)

	w.Release("web", "v13")
	w.Await("web", "staging CONVERGED v13, production BLOCKED v1")
	w.Act("web", protocol.Bypass, `{"version":"v13","channel":"production","condition":"denied","by":"bob","reason":"we dare"}`)
	shut("2")
	approve("v13")
	w.Await("web", "staging CONVERGED v13, production WAITING_PRECONDITIONS v1")
	shut("0")
	w.Await("web", "staging CONVERGED v13, production CONVERGED v13")

	w.Act("web", protocol.Pin, `{"channel":"production","version":"v1","by":"bob","reason":"printing"}`)
	w.Await("web", "staging CONVERGED v13, production CONVERGED v1")
	w.Act("web", protocol.Unpin, `{"channel":"production","by":"bob"}`) // the way back asks all gates
	w.Await("web", "staging CONVERGED v13, production BLOCKED v1")
	w.Act("web", protocol.Bypass, `{"version":"v13","channel":"production","condition":"denied","by":"bob","reason":"we dare again"}`)
	approve("v13")
	w.Await("web", "staging CONVERGED v13, production CONVERGED v13")
	w.Act("web", protocol.Rollback, `{"version":"v13","channel":"production","by":"bob","reason":"errors"}`)
	w.Await("web", "staging CONVERGED v13, production ROLLED_BACK v1")

	w.Release("web", "v14")
	w.Await("web", "staging CONVERGED v14, production WAITING_MANUAL_APPROVAL v1")
	approve("v14")
	w.AwaitThat("web", "soaking", func(s protocol.Status) bool {
		return len(s.Channels[1].Reasons) > 0 && strings.Contains(s.Channels[1].Reasons[0].Text, "soaking")
	})
	shut("2")
	w.Await("web", "staging CONVERGED v14, production ROLLED_BACK v1")

	whole(protocol.Pause, `{"by":"bob","reason":"incident 12"}`)
	w.Await("web", "staging PAUSED v14, production PAUSED v1")
	whole(protocol.Resume, `{"by":"bob"}`)
	w.Await("web", "staging CONVERGED v14, production ROLLED_BACK v1")

	w.Write(strings.Replace(gatedChannels, "---", "---\n{apiVersion: converge/v1, kind: Service, name: other}\n---", 1))
	w.Publish()
	require.NoError(w.T, w.Client.GetWorkflow(w.T.Context(), w.ID("web"), "").Get(w.T.Context(), nil))
}
