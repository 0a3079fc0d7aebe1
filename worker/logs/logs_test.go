package logs

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	sdklog "go.temporal.io/sdk/log"
)

// A record that names a workflow of a service names the service too, for every logger and every form of the attributes; no other record
// does.
func TestRecordsNameTheService_F10(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := New(&out, "json", "info")
	require.NoError(t, err)
	sdk := sdklog.NewStructuredLogger(log)
	line := func(say func()) map[string]any {
		t.Helper()
		out.Reset()
		say()
		var fields map[string]any
		require.NoError(t, json.Unmarshal(out.Bytes(), &fields), out.String())
		return fields
	}
	for name, say := range map[string]func(){
		"ours":                  func() { log.Warn("started again", "workflow", "service/shop/web") },
		"the SDK's":             func() { sdk.Error("Workflow panic", "WorkflowID", "service/shop/web", "RunID", "1") },
		"in earlier attributes": func() { sdklog.With(sdk, "WorkflowID", "service/shop/web").Warn("Activity error.") },
		"in a group":            func() { log.With("workflow", "service/shop/web").Warn("started again") },
		"the fields are present": func() {
			log.With("application", "shop", "service", "web").Warn("done", "workflow", "service/shop/first")
		},
	} {
		fields := line(say)
		require.Equal(t, "shop", fields["application"], name)
		require.Equal(t, "web", fields["service"], name)
	}
	require.NotContains(t, line(func() { log.Warn("started again", "workflow", "installation") }), "service")
	out.Reset()
	log.Debug("nothing")
	require.Empty(t, out.String())
}

func TestFormats(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := New(&out, "text", "warn")
	require.NoError(t, err)
	log.Warn("started again", "workflow", "service/shop/web")
	require.Regexp(t, `^time=\S+ level=WARN msg="started again" workflow=service/shop/web application=shop service=web\n$`, out.String())
	_, err = New(&out, "yaml", "warn")
	require.EqualError(t, err, `--log-format "yaml": expected text or json`)
	_, err = New(&out, "json", "loud")
	require.EqualError(t, err, `--log-level "loud": expected debug, info, warn or error`)
}
