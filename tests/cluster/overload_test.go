package cluster

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/cluster/lab"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/programtest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// The load of TestOverloadedServerFinishesEverything.
var (
	crowd = flag.Int("services", 1000, "services that are published at once to a server with half a core")
	takes = flag.Duration("apply", time.Minute, "how long each of their applies takes")
)

// A server with half a core gets many services at once, each with a version to apply. All of them converge, and no apply is begun twice.
func TestOverloadedServerFinishesEverything_F7(t *testing.T) {
	onlyInClusterTest(t)
	w, server, _, _ := newWorld(t)
	remove, err := server.Limit(0.5)
	if errors.Is(err, lab.ErrNoCgroups) {
		t.Skip("NOT RUN: ", err)
	}
	require.NoError(t, err)
	t.Cleanup(remove)
	startWorker(w)
	startWorker(w)
	one := min(publishCrowd(t, w, "first", 1), publishCrowd(t, w, "one", 1)) // the first one finds new search attributes
	all := publishCrowd(t, w, "crowd", *crowd)
	t.Logf("one service converged %s after its publication, and all of %d after %s", one.Round(time.Second/10), *crowd, all.Round(time.Second))
}

// A worker begins no more changes than the server keeps up with. The others are put off, which a person can see, and begin later. None of
// that counts as an attempt.
func TestChangesWithoutAPlaceArePutOff_F7(t *testing.T) {
	t.Parallel()
	w, _, _, _ := newWorld(t)
	const services = 150 // the limit is 64 at first, and grows
	programtest.Write(t, filepath.Join(w.Dir, "apply.sh"), "#!/bin/sh\necho $NAME >>log\n[ -e over ] || read end <gate\n")
	gate := filepath.Join(w.Dir, "gate")
	require.NoError(t, exec.Command("mkfifo", gate).Run())
	startWorker(w)
	w.Write(crowdOf(services))
	publishNew(w)
	var late string
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		var err error
		if late, err = putOffIn(w, services); late == "" {
			return false, fmt.Sprintf("nothing is put off; %v", err)
		}
		says := program(t, w, "explain", w.App+"/"+late) // it may begin meanwhile
		return strings.Contains(says, "put off in production: apply of v1, since "), says
	})
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "over"), nil, 0o600))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		open, err := os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0) // without a reader it cannot be opened
		if err == nil {
			err = open.Close()
		}
		var s protocol.Status
		if queryErr := w.Query(w.ID(late), protocol.QueryStatus, &s); queryErr != nil {
			return false, queryErr.Error()
		}
		return stage.Channels(s) == "production CONVERGED v1", fmt.Sprintf("%s; %d begun; %v", stage.Channels(s), len(begunIn(t, w.Dir)), err)
	})
	s := w.Await(late, "production CONVERGED v1")
	require.NotContains(t, journalOf(s), "was begun")
	require.Equal(t, 1, begunIn(t, w.Dir)[late])
}

// putOffIn is a service whose change is put off; "" if there is none.
func putOffIn(w *stage.World, services int) (string, error) {
	for n := range services {
		service := fmt.Sprintf("web%d", n)
		d, err := w.Client.DescribeWorkflowExecution(w.T.Context(), w.ID(service), "")
		if err != nil {
			return "", err
		}
		for _, pending := range d.GetPendingActivities() {
			if pending.GetLastFailure().GetApplicationFailureInfo().GetType() == protocol.ErrPutOff {
				return service, nil
			}
		}
	}
	return "", nil
}

// crowdOf is an application of so many services with a version.
func crowdOf(services int) string {
	yaml := commands
	for n := range services {
		yaml += fmt.Sprintf("---\n{apiVersion: converge/v1, kind: Service, name: web%d, initialVersion: v1, custom: {env: {NAME: web%[1]d}}}\n", n)
	}
	return yaml
}

// begunIn is how often the apply of each service was begun.
func begunIn(t *testing.T, dir string) map[string]int {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	require.NoError(t, err)
	begun := map[string]int{}
	for service := range strings.Lines(string(log)) {
		begun[strings.TrimSpace(service)]++
	}
	return begun
}

// publishCrowd publishes an application of so many services, and returns how long it took until each has converged.
func publishCrowd(t *testing.T, w *stage.World, name string, services int) time.Duration {
	t.Helper()
	w.App, w.Dir = name, t.TempDir()
	programtest.Write(t, filepath.Join(w.Dir, "apply.sh"), fmt.Sprintf("#!/bin/sh\necho $NAME >>log\nsleep %g\n", takes.Seconds()))
	w.Write(crowdOf(services))
	began := time.Now()
	publishNew(w)
	query := fmt.Sprintf("WorkflowType='%s' AND %s='%s' AND %s='CONVERGED'", protocol.ServiceWorkflow, protocol.AttrApplication, name, protocol.AttrStatus)
	temporaltest.WaitFor(t, time.Hour, func() (bool, string) {
		found, err := w.Client.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Query: query})
		return found.GetCount() == int64(services), fmt.Sprintf("%d of %d services converged %v", found.GetCount(), services, err)
	})
	took := time.Since(began)
	begun := begunIn(t, w.Dir)
	require.Len(t, begun, services)
	for service, times := range begun {
		if times > 1 {
			t.Errorf("the apply of %s was begun %d times", service, times)
		}
	}
	return took
}
