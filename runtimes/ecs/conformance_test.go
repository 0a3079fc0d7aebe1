package ecs

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/ecsfake"
	"github.com/converge-engine/converge/tests/runtimetest"
)

// speed is how fast the fake's clock goes: a rollout takes about a minute of it.
const speed = 2000

func TestConformance(t *testing.T) {
	for name, rollback := range map[string]ecsfake.Rollback{
		"rollbacks promote the old deployment": ecsfake.RollbackPromotes, "rollbacks start a new deployment": ecsfake.RollbackStartsNew,
	} {
		t.Run(name, func(t *testing.T) {
			runtimetest.Run(t, runtimetest.Harness{New: func(t *testing.T) runtimetest.Subject {
				return subject(newTestCluster(t, ecsfake.Options{Speed: speed, Rollback: rollback}))
			}})
		})
	}
}

// versioned is the runtime with payloads that differ by version, as those of releases do, and switches that make its next call fail.
type versioned struct {
	*Runtime
	fake        *testCluster
	refuseApply atomic.Bool
	failReading atomic.Bool
}

// filled names the image by the version.
func filled(in runtimes.Request) runtimes.Request {
	if in.Payload == nil || in.FullVersion == "" {
		return in
	}
	p := *payload(serviceSpec{image: "shop/web:" + in.FullVersion, change: func(definition, service map[string]any) {
		definition["family"], service["serviceName"] = "web-"+in.ID.Channel, "web-"+in.ID.Channel
	}})
	p.Channel = in.ID.Channel
	in.Payload = &p
	return in
}

func (v *versioned) Apply(ctx context.Context, in runtimes.Request) (runtimes.Output, error) {
	in = filled(in)
	if v.refuseApply.CompareAndSwap(true, false) {
		in.Payload.ECS.Objects[0] = json.RawMessage(`{"family": "web-staging", "containerDefinitions": [{"name": "web", "memory": 128}]}`)
	}
	return v.Runtime.Apply(ctx, in)
}

func (v *versioned) Observe(ctx context.Context, in runtimes.Request) ([]entities.Object, error) {
	if v.failReading.CompareAndSwap(true, false) {
		defer v.fake.Break(ecsfake.Fault{Kind: ecsfake.ServerError, Operations: []string{"DescribeServices"}})()
	}
	return v.Runtime.Observe(ctx, filled(in))
}

func (v *versioned) Remove(ctx context.Context, in runtimes.Request) error {
	return v.Runtime.Remove(ctx, filled(in))
}

func subject(l *testCluster) runtimetest.Subject {
	v := &versioned{Runtime: l.Runtime, fake: l}
	return runtimetest.Subject{
		Runtime: v,
		Changes: func(string) int { return writes(l.Calls()) },
		FailApply: func(permanent bool) {
			if permanent {
				v.refuseApply.Store(true)
				return
			}
			l.Break(ecsfake.Fault{Kind: ecsfake.AccessDenied, Operations: []string{"UpdateService", "CreateService"}, Times: 1})
		},
		FailReading: func() { v.failReading.Store(true) },
		Hang: func(arrived func()) {
			l.ResetCalls()
			l.Break(ecsfake.Fault{Kind: ecsfake.Hang})
			go func() {
				require.Eventually(l.T, func() bool { return len(l.Calls()) > 0 }, time.Minute, time.Millisecond)
				arrived()
			}()
		},
	}
}
