package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/runtimetest"
)

func TestConformance(t *testing.T) {
	runtimetest.Run(t, runtimetest.Harness{New: func(t *testing.T) runtimetest.Subject {
		d := newExclusiveTestCluster(t).recording()
		rt := &recoveringRuntime{Runtime: d.Runtime, recording: d}
		return runtimetest.Subject{
			Runtime: rt,
			Payload: func(p *entities.Payload) {
				p.Address = map[string]string{"namespace": d.namespace}
				p.Kubernetes = d.instance("", configOf("settings-"+p.Channel, "x"), deploymentIn(p.Channel)).Payload.Kubernetes
			},
			Changes: func(channel string) int {
				return d.generation("Deployment", "web-"+channel) + d.version("ConfigMap", "settings-"+channel)
			},
			FailApply:   func(permanent bool) { d.failOnce(permanent) },
			FailReading: rt.close,
			Hang: func(arrived func()) {
				var once sync.Once
				d.injectFault(func(req *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
					once.Do(arrived)
					<-req.Context().Done()
					return nil, req.Context().Err()
				})
			},
		}
	}})
}

func deploymentIn(channel string) string {
	return strings.ReplaceAll(deploymentOf("web:1", 1, ""), "web}", "web-"+channel+"}")
}

// generation counts what was changed of an object's spec.
func (d *recordingCluster) generation(kind, name string) int {
	d.Helper()
	return int(d.liveObject(kind, name).GetGeneration())
}

// version changes with every change of an object.
func (d *recordingCluster) version(kind, name string) int {
	d.Helper()
	n, err := strconv.Atoi(d.liveObject(kind, name).GetResourceVersion())
	require.NoError(d, err)
	return n
}

// failOnce makes the server refuse the next object.
func (d *recordingCluster) failOnce(permanent bool) {
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "busy"}
	if permanent {
		status.Code, status.Reason, status.Message = http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "never"
	}
	var once sync.Once
	d.injectFault(func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		failed := false
		if req.Method == http.MethodPatch {
			once.Do(func() { failed = true })
		}
		if !failed {
			return send()
		}
		body, err := json.Marshal(status)
		require.NoError(d, err)
		return &http.Response{
			StatusCode: int(status.Code), Request: req, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(bytes.NewReader(body)),
		}, nil
	})
}

// recoveringRuntime is a runtime whose server is available again after one failed reading.
type recoveringRuntime struct {
	*Runtime
	recording *recordingCluster
	shut      bool
}

func (o *recoveringRuntime) Observe(ctx context.Context, in runtimes.Request) ([]entities.Object, error) {
	objects, err := o.Runtime.Observe(ctx, in)
	if err != nil && o.shut {
		o.shut = false
		o.recording.proxy.unlock()
		o.until("the watches to recover", func(err error) bool { return err == nil })
	}
	return objects, err
}

// close shuts the proxy, and returns when the watches have noticed.
func (o *recoveringRuntime) close() {
	o.recording.proxy.shut()
	o.until("the watches to notice", func(err error) bool {
		var reading *entities.ReadingError
		return errors.As(err, &reading)
	})
	o.shut = true
}

func (o *recoveringRuntime) until(what string, is func(error) bool) {
	in := o.recording.instance("v1", configOf("settings-staging", "x"), deploymentIn("staging"))
	in.Application, in.ID = "demo", entities.Only("staging")
	o.recording.wait(what, func() bool {
		_, err := o.Runtime.Observe(o.recording.Context(), in)
		return is(err)
	}, func() any { return nil })
}
