package security

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// oneWord is one channel with an approval. RULES are further rules of the application, WHO those of the approval, MORE further gates.
const oneWord = `apiVersion: converge/v1
kind: Application
name: APP
RULESreleaseChannels:
- name: production
  runtimes: [{name: APP-rt}]
  preconditions: [{sharedManualApproval: {name: go-live, approvers: [WHO]}}]
MORE---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
`

const strictPeople = `identity: {issuer: "ISSUER", audience: converge}
authorization:
- {verbs: [publish, pinApplication], to: ["group:lead"]}
- {verbs: [delete, bypass], to: ["group:lead"]}
`

// deny denies v2 and v3.
const deny = "  protections: [{name: bad, deniedVersions: {versions: [v2, v3], reason: they lose orders}}]\n"

// older is a world that began without rules: v1 runs, and v2 waits for an approval by anyone. Stricter rules are published later.
type older struct {
	*stage.World
	issuer *idptest.Issuer
}

func (o *older) configuration(strict bool) string {
	rules := strings.NewReplacer("RULES", "", "approvers: [WHO]", "minApprovers: 1", "MORE", "")
	if strict {
		rules = strings.NewReplacer("RULES", strings.ReplaceAll(strictPeople, "ISSUER", o.issuer.URL), "WHO", `"group:sre"`, "MORE", deny)
	}
	return rules.Replace(oneWord) + stage.Web
}

func (o *older) as(group string) string {
	return o.issuer.Token(o.T, map[string]any{"sub": group, "email": group + "@shop.dev", "email_verified": true, "groups": []string{group}})
}

// publishes publishes a configuration as a group. A worker that is too busy to answer a query is queried again.
func (o *older) publishes(configuration, group string, before func(publish.Result) error) error {
	o.T.Helper()
	o.Write(configuration)
	began := false
	options := publish.Options{Client: o.Client, Dir: o.Dir, StoreURL: o.Store, By: "test", Fake: true, Before: func(r publish.Result) error {
		began = true
		if before != nil {
			return before(r)
		}
		return nil
	}}
	if group != "" {
		options.Token = o.as(group)
	}
	var err error
	temporaltest.WaitFor(o.T, stage.Patience, func() (bool, string) {
		_, err = publish.Publish(o.T.Context(), options)
		return began || err == nil || !strings.Contains(err.Error(), "no worker answers"), fmt.Sprint(err)
	})
	return err
}

// tighten publishes the stricter rules.
func (o *older) tighten() {
	o.T.Helper()
	require.NoError(o.T, o.publishes(o.configuration(true), "", nil))
}

// tightened waits until web knows them.
func (o *older) tightened() {
	o.T.Helper()
	o.tighten()
	o.AwaitThat("web", "the stricter rules", func(s protocol.Status) bool { return s.Incarnation == 2 })
}

func (o *older) application(verb, payload string) error {
	return o.Update(protocol.ApplicationID(o.App), verb, raw(payload), &protocol.Answer{})
}

// approval is one without proof.
func approval(version, by string) string {
	return fmt.Sprintf(`{"version":%q,"topic":"go-live","by":%q}`, version, by)
}

// closed requires that a version is held by the stricter rules, whoever approves it.
func (o *older) closed(version string) {
	o.T.Helper()
	denied := func(s protocol.Status) bool {
		return strings.Contains(textOf(o.T, s), version+" is denied: they lose orders")
	}
	o.AwaitThat("web", version+" to be denied", denied)
	tried(o.T, o.World, "web", protocol.Approve, func() string { return approval(version, "mallory") }, "approve needs proof of identity")
	o.Act("web", protocol.Approve, fmt.Sprintf(`{"version":%q,"topic":"go-live","token":%q}`, version, o.as("sre")))
	s := o.AwaitThat("web", "the approval, and the denial", func(s protocol.Status) bool { return hasApproved(s, version) && denied(s) })
	require.Equal(o.T, "v1", s.Channels[0].Current)
	require.Equal(o.T, 1, o.Fake.At(o.App, "web", "production").Applies())
	err := o.application(protocol.Pin, fmt.Sprintf(`{"incarnation":1,"reason":"back","token":%q}`, o.as("sre")))
	require.ErrorContains(o.T, err, "sre@shop.dev may not pinApplication")
}

func hasApproved(s protocol.Status, version string) bool {
	for _, r := range s.Releases {
		if r.Version == version && len(r.Approvals) > 0 {
			return true
		}
	}
	return false
}

// resetTo resets the present run of a workflow to an event, without what came after it.
func resetTo(w *stage.World, id string, event int64) {
	w.T.Helper()
	_, err := w.Client.ResetWorkflowExecution(w.T.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id}, Reason: "to be free of rules",
		WorkflowTaskFinishEventId: event, RequestId: fmt.Sprint(id, event, time.Now().UnixNano()),
		ResetReapplyExcludeTypes: []enumspb.ResetReapplyExcludeType{enumspb.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL, enumspb.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE},
	})
	require.NoError(w.T, err)
}

// taskOf is the first or the last event of the present run to which it can be reset.
func taskOf(w *stage.World, id string, last bool) (event int64) {
	w.T.Helper()
	for _, e := range w.History(id) {
		if e.EventType == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED && (event == 0 || last) {
			event = e.EventId
		}
	}
	return event
}

// restarted waits until a service continued from its checkpoint.
func (o *older) restarted(why string) {
	o.T.Helper()
	o.AwaitThat("web", "its checkpoint", func(s protocol.Status) bool { return len(journalled(s, "continues from its checkpoint: "+why)) > 0 })
}

// startedBy starts the workflow of the service as anyone can who may start workflows, together with a bypass that is refused.
func (o *older) startedBy(who string) {
	o.T.Helper()
	bypass := fmt.Sprintf(`{"by":%q,"version":"v2","channel":"production","condition":"approval/go-live","reason":"now"}`, who)
	_, err := o.Client.SignalWithStartWorkflow(o.T.Context(), o.ID("web"), protocol.Bypass, raw(bypass),
		client.StartWorkflowOptions{TaskQueue: protocol.TaskQueue}, protocol.ServiceWorkflow,
		protocol.ServiceInput{Application: o.App, Service: "web", StartMode: protocol.StartMode{Adopt: true}})
	require.NoError(o.T, err)
	temporaltest.WaitFor(o.T, stage.Patience, func() (bool, string) {
		var s protocol.Status
		if err := o.Query(o.ID("web"), protocol.QueryStatus, &s); err != nil { // a query sees a run that was ended again, if that had begun
			return o.endedUnread(), err.Error()
		}
		return len(s.Refused) > 0 && strings.Contains(s.Refused[0].Reason, "bypass needs proof of identity"), fmt.Sprint(s.Refused)
	})
}

// endedUnread reports whether the present run of the service was ended before a worker had read anything of it.
func (o *older) endedUnread() bool {
	o.T.Helper()
	d, err := o.Client.DescribeWorkflowExecution(o.T.Context(), o.ID("web"), "")
	require.NoError(o.T, err)
	return d.WorkflowExecutionInfo.Status == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED && taskOf(o.World, o.ID("web"), false) == 0
}

func (o *older) gone() {
	o.T.Helper()
	temporaltest.WaitFor(o.T, stage.Patience, func() (bool, string) {
		d, err := o.Client.DescribeWorkflowExecution(o.T.Context(), o.ID("web"), "")
		require.NoError(o.T, err)
		return d.WorkflowExecutionInfo.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, "it runs"
	})
}

// Nothing brings back rules that are older than the newest incarnation: v2, which anyone could approve when it was released, stays denied.
func TestNoWayLeadsToOlderRules_G2(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]func(o *older){
		"a release from before": func(o *older) { o.tightened() },
		"reset of the service to its start": func(o *older) {
			o.tightened()
			resetTo(o.World, o.ID("web"), taskOf(o.World, o.ID("web"), false))
			o.restarted("it was started again")
		},
		"reset of the service to before the rules": func(o *older) {
			event := taskOf(o.World, o.ID("web"), true)
			o.tightened()
			resetTo(o.World, o.ID("web"), event)
			o.restarted("it was reset")
		},
		"reset of the application": func(o *older) {
			id := protocol.ApplicationID(o.App)
			event := taskOf(o.World, id, true)
			o.tightened()
			resetTo(o.World, id, event)
		},
		"an older checkpoint": func(o *older) {
			checkpoints := o.kept("v2")
			o.tightened()
			require.NoError(o.T, o.Client.TerminateWorkflow(o.T.Context(), o.ID("web"), "", "to be free of rules"))
			checkpoints.restore()
			o.restarted("")
		},
		"an older checkpoint without history": func(o *older) {
			checkpoints := o.kept("v2")
			o.tightened()
			_, err := o.Client.WorkflowService().DeleteWorkflowExecution(o.T.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
				Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: o.ID("web")},
			})
			require.NoError(o.T, err)
			checkpoints.restore()
			o.restarted("")
		},
		"unmanaged meanwhile": func(o *older) {
			require.NoError(o.T, o.application(protocol.Unmanage, `{"by":"test","service":"web","reason":"moves away"}`))
			o.gone()
			o.tighten()
			require.NoError(o.T, o.application(protocol.Manage, `{"by":"test","service":"web","reason":"moves away"}`))
			o.restarted("managed again")
		},
		"unmanaged meanwhile, and started by anyone": func(o *older) {
			require.NoError(o.T, o.application(protocol.Unmanage, `{"by":"test","service":"web","reason":"moves away"}`))
			o.gone()
			o.tighten()
			o.awaitNotified(2)
			o.startedBy("mallory")
			require.NoError(o.T, o.application(protocol.Manage, `{"by":"test","service":"web","reason":"moves away"}`))
			runsAgain(o.World, o.ID("web"))
		},
		"paused meanwhile": func(o *older) {
			o.Act("web", protocol.Pause, `{"by":"test"}`)
			o.tightened()
			o.Act("web", protocol.Resume, `{"by":"test"}`)
		},
		"the older incarnation, published again": func(o *older) {
			o.tightened()
			for _, group := range []string{"", "sre"} {
				require.ErrorContains(o.T, o.publishes(o.configuration(false), group, nil), "publish")
			}
		},
		"a pin before, and its end": func(o *older) {
			require.NoError(o.T, o.application(protocol.Pin, `{"incarnation":1,"by":"test","reason":"stay"}`))
			o.tighten()
			o.underRules(2)
			o.closed("v2")
			require.NoError(o.T, o.application(protocol.Unpin, fmt.Sprintf(`{"token":%q}`, o.as("lead"))))
			o.AwaitThat("web", "the newest incarnation", func(s protocol.Status) bool { return s.Incarnation == 2 })
		},
		"a pin while a publication is on its way": func(o *older) {
			require.NoError(o.T, o.publishes(o.configuration(true), "", func(publish.Result) error {
				return o.application(protocol.Pin, `{"incarnation":1,"by":"test","reason":"stay"}`)
			}))
			o.underRules(2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := olderWorld(t, shared.World(t))
			way(o)
			if len(approvalsOf(o.Status("web"), "v2")) == 0 {
				o.closed("v2")
			}
			require.Equal(t, 1, o.Fake.At(o.App, "web", "production").Applies())
		})
	}
}

// kept are the checkpoints of web, once the last one knows a version.
func (o *older) kept(version string) checkpointed {
	o.T.Helper()
	at, err := store.Open(o.T.Context(), o.Store)
	require.NoError(o.T, err)
	defer at.Close() // only read
	temporaltest.WaitFor(o.T, stage.Patience, func() (bool, string) {
		c, err := at.Checkpoint(o.T.Context(), o.ID("web"))
		if err != nil {
			return false, err.Error()
		}
		var plain json.RawMessage
		require.NoError(o.T, c.State.Unpack(&plain))
		return strings.Contains(string(plain), version), "not in its checkpoint"
	})
	return keptCheckpoints(o.T, o.World, "web")
}

func olderWorld(t *testing.T, w *stage.World) *older {
	t.Helper()
	o := &older{w, idptest.New(t)}
	require.NoError(t, o.publishes(o.configuration(false), "", nil))
	o.Release("web", "v1")
	o.Act("web", protocol.Approve, approval("v1", "alice"))
	o.Await("web", "production CONVERGED v1")
	o.Release("web", "v2")
	o.AwaitThat("web", "v2 to wait", func(s protocol.Status) bool { return s.Channels[0].Status == "WAITING_MANUAL_APPROVAL" })
	return o
}

func approvalsOf(s protocol.Status, version string) (by []string) {
	for _, r := range s.Releases {
		for _, a := range r.Approvals {
			if r.Version == version {
				by = append(by, a.Who.Name)
			}
		}
	}
	return by
}

func (o *older) underRules(n int64) {
	o.T.Helper()
	o.AwaitThat("web", "the newest rules", func(s protocol.Status) bool {
		return strings.Contains(textOf(o.T, s), fmt.Sprintf("incarnation 1, under the rules of incarnation %d", n))
	})
}

func (o *older) awaitNotified(n int64) {
	o.T.Helper()
	temporaltest.WaitFor(o.T, stage.Patience, func() (bool, string) {
		var s protocol.ApplicationStatus
		err := o.Query(protocol.ApplicationID(o.App), protocol.QueryStatus, &s)
		return err == nil && s.Notified == n, fmt.Sprint(s.Notified, s.Problem, err)
	})
}

// An incarnation that waits with its new names for a release applies its rules at once: the release does not pass by the older ones.
func TestRulesOfARenameApplyAtOnce_G2(t *testing.T) {
	t.Parallel()
	o := olderWorld(t, shared.World(t))
	o.Act("web", protocol.Cancel, `{"by":"test","version":"v2"}`)
	renamed := strings.Replace(o.configuration(true), "- name: production\n", "- name: prod\n  renamedFrom: production\n", 1)
	require.NoError(t, o.publishes(renamed, "", func(publish.Result) error { o.Release("web", "v3"); return nil }))
	o.underRules(2)
	o.closed("v3")
	o.Act("web", protocol.Cancel, fmt.Sprintf(`{"by":"test","version":"v3","token":%q}`, o.as("sre")))
	s := o.AwaitThat("web", "the new name", func(s protocol.Status) bool { return s.Incarnation == 2 })
	require.Equal(t, "prod CONVERGED v1", stage.Channels(s))
}

// What is left of a service that is not declared any more is under the newest rules about people: those of the incarnation that removed it,
// and of every later one.
func TestUndeclaredServiceHasTheNewestRules_G2(t *testing.T) {
	t.Parallel()
	o := &older{shared.World(t), idptest.New(t)}
	api := strings.ReplaceAll(stage.Web, "name: web", "name: api")
	require.NoError(t, o.publishes(o.configuration(false)+api, "", nil))
	o.Release("web", "v1")
	o.Act("web", protocol.Approve, approval("v1", "alice"))
	o.Await("web", "production CONVERGED v1")
	without := func(strict bool) string { return strings.ReplaceAll(o.configuration(strict), "name: web", "name: api") }
	require.NoError(t, o.publishes(without(false), "", nil))
	o.AwaitThat("web", "its removal", func(s protocol.Status) bool { return s.Incarnation == 2 })
	o.kept("v1")
	require.NoError(t, o.publishes(without(true), "", nil))
	o.AwaitThat("web", "the stricter rules", func(s protocol.Status) bool { return s.Incarnation == 3 })
	tried(t, o.World, "web", protocol.Delete, func() string { return `{"by":"mallory"}` }, "delete needs proof of identity")
	tried(t, o.World, "web", protocol.Delete, func() string { return fmt.Sprintf(`{"token":%q}`, o.as("sre")) }, "sre@shop.dev may not delete")
	o.Act("web", protocol.Delete, fmt.Sprintf(`{"token":%q}`, o.as("lead")))
}

// A condition of the newest incarnation on a channel that the pinned one does not have never passes: what it asks for cannot happen there.
func TestPinnedConditionOnANewerChannel_G2(t *testing.T) {
	t.Parallel()
	o := olderWorld(t, shared.World(t))
	staged := strings.Replace(o.configuration(false), "- name: production\n", "- {name: staging, runtimes: [{name: APP-rt}]}\n- name: production\n", 1)
	staged = strings.Replace(staged, "preconditions: [", "preconditions: [{releaseChannelStable: {releaseChannel: staging}}, ", 1)
	require.NoError(t, o.application(protocol.Pin, `{"incarnation":1,"by":"test","reason":"stay"}`))
	require.NoError(t, o.publishes(staged, "", nil))
	o.underRules(2)
	o.Release("web", "v3")
	for _, version := range []string{"v2", "v3"} {
		o.Act("web", protocol.Approve, approval(version, "alice"))
	}
	s := o.AwaitThat("web", "v3 to be held", func(s protocol.Status) bool {
		return s.Channels[0].Status == "BLOCKED" && hasApproved(s, "v3") &&
			strings.Contains(textOf(t, s), "incarnation 2 requires a success in channel staging, which incarnation 1 does not have")
	})
	require.Contains(t, textOf(t, s), "converge config unpin "+o.App+", or: converge bypass")
	require.Equal(t, "production BLOCKED v1", stage.Channels(s))
	require.Equal(t, 1, o.Fake.At(o.App, "web", "production").Applies())
	require.NoError(t, o.application(protocol.Unpin, `{"by":"test"}`))
	o.AwaitThat("web", "the newest incarnation", func(s protocol.Status) bool { return s.Incarnation == 2 })
	o.Release("web", "v4")
	o.Act("web", protocol.Approve, approval("v4", "alice"))
	o.Await("web", "staging CONVERGED v4, production CONVERGED v4")
}

// ordered are two services that a plan deploys one after the other.
const ordered = `---
{apiVersion: converge/v1, kind: Service, name: db, initialVersion: v2, custom: {}}
---
{apiVersion: converge/v1, kind: Service, name: api, initialVersion: v2, requires: [db], custom: {}}
`

// A plan that began under the older rules lets a service enter, and the gates of the newest rules hold it.
func TestPlanBegunUnderOlderRules_G2(t *testing.T) {
	t.Parallel()
	o := &older{shared.World(t), idptest.New(t)}
	text := strings.Replace(oneWord, "  preconditions: [{sharedManualApproval: {name: go-live, approvers: [WHO]}}]\n", "", 1)
	release := o.Fake.At(o.App, "db", "production").HangApplies()
	require.NoError(t, o.publishes(strings.NewReplacer("RULES", "", "MORE", "").Replace(text)+ordered, "", nil))
	o.AwaitThat("api", "the plan to hold it", func(s protocol.Status) bool {
		return len(s.Releases) == 1 && strings.Contains(textOf(t, s), "DEPLOY db")
	})
	require.NoError(t, o.Fake.Await(t.Context(), func() bool { return o.Fake.At(o.App, "db", "production").Applying() }))
	require.NoError(t, o.publishes(strings.NewReplacer("RULES", "", "MORE", deny).Replace(text)+ordered, "", nil))
	o.AwaitThat("api", "the stricter rules", func(s protocol.Status) bool { return s.Incarnation == 2 })
	release()
	o.Await("db", "production CONVERGED v2")
	o.AwaitThat("api", "the denial", func(s protocol.Status) bool {
		return strings.Contains(textOf(t, s), "v2 is denied: they lose orders") && strings.Contains(textOf(t, s), "plan i1 lets it enter")
	})
	require.Zero(t, o.Fake.At(o.App, "api", "production").Applies())
}

// The store is restored to a backup with older rules: the next apply, of the same configuration, records the newest rules again, also for a
// service that continues from the backup. An operator resets the installation to before its rules were set: those in the store hold.
func TestRestoreAndResetBringBackNoRules_G2_F4(t *testing.T) {
	t.Parallel()
	o := olderWorld(t, shared.OwnServer(t, 0))
	archive := filepath.Join(t.TempDir(), "backup.tar.gz")
	checkpoints := o.kept("v2")
	converge(o.World, "admin", "export", archive, "--store", o.Store)
	o.tightened()
	o.Lose()
	converge(o.World, "admin", "import", "--restore", "--store", o.Store, archive)
	require.NoError(t, o.publishes(o.configuration(true), "lead", nil), "the same again")
	at, err := store.Open(t.Context(), o.Store)
	require.NoError(t, err)
	defer at.Close() // only read
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		notice, err := at.NewestNotice(t.Context(), o.App)
		return err == nil && notice.Incarnation.Number == 2, fmt.Sprint(notice.Incarnation.Number, err)
	})
	require.NoError(t, o.Client.TerminateWorkflow(t.Context(), o.ID("web"), "", "to be free of rules"))
	checkpoints.restore()
	o.restarted("")
	o.closed("v2")

	id := protocol.InstallationID()
	event := taskOf(o.World, id, true)
	require.NoError(t, sets(t, o.World, "authorization:\n- {verbs: [pause, resume], to: [alice]}\n", "olga", ""))
	resetTo(o.World, id, event)
	err = o.Update(id, protocol.Pause, raw(`{"by":"mallory","reason":"all"}`), &protocol.Answer{})
	require.ErrorContains(t, err, "mallory may not pause; allowed: alice")
	err = o.Update(id, protocol.Configure, raw(`{"by":"mallory","grants":[]}`), &protocol.Answer{})
	require.NoError(t, err, "nobody restricted it")
}
