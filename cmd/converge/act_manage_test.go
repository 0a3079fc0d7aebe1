package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities/protocol"
)

// A service and an application are unmanaged, with a reason, and managed again.
func TestUnmanage(t *testing.T) {
	const who = `{"by":"alice","requestId":"ID"`
	for _, tt := range []struct {
		line, want string
		sent       []string
		code       int
	}{
		{line: "config unmanage shop/web --reason moving", want: "done\n", sent: []string{`application/shop unmanage ` + who + `,"reason":"moving","service":"web"}`}},
		{line: "config unmanage shop --reason drill --yes", want: "done\n", sent: []string{`application/shop unmanage ` + who + `,"reason":"drill"}`}},
		{line: "config unmanage shop --reason drill", code: 1, want: "! converge: unmanage all services of shop requires --yes when not running interactively\n"},
		{line: "config unmanage shop/web", code: 1, want: "! converge: --reason is required: it tells others why the service is unmanaged\n"},
		{line: "config unmanage shop/wob --reason x", code: 1, want: "! converge: no service shop/wob; did you mean shop/web?\n"},
		{line: "config manage shop/api", want: "done\n", sent: []string{`application/shop manage ` + who + `,"service":"api"}`}},
		{line: "config manage shop --yes", want: "done\n", sent: []string{`application/shop manage ` + who + `}`}},
		{line: "config manage shap --yes", code: 1, want: "! converge: manage shap: not found\n", sent: []string{`application/shap manage ` + who + `}`}},
		{line: "pause shop/api", code: 1, want: "! converge: shop/api accepts no requests: unmanaged by bob: drill; since 1970-01-01 00:00 UTC; until: converge config manage shop/api\n", sent: []string{`service/shop/api pause ` + who + `}`}},
	} {
		t.Run(tt.line, func(t *testing.T) {
			api := apiWithUnmanaged()
			c := newConsole(t, api)
			code, output := c.run(t, tt.line)
			require.Equal(t, tt.want, output)
			require.Equal(t, tt.code, code)
			require.Equal(t, tt.sent, api.updates)
		})
	}
}

// apiWithUnmanaged returns application shop: web runs, bob has unmanaged api, and the workflow of db has ended.
func apiWithUnmanaged() *fakeAPI {
	down := protocol.UnmanagedServices{"api": {By: "bob", Reason: "drill", At: time.Unix(0, 0)}}
	return &fakeAPI{
		answer: protocol.Answer{Message: "done"}, endedServices: []connection.ServiceName{{Application: "shop", Service: "api"}, {Application: "shop", Service: "db"}, {Application: "shop", Service: "web"}},
		howEnded: "its workflow was terminated by ops: by mistake",
		statuses: map[string][]any{
			"application/shop": {protocol.ApplicationStatus{Unmanaged: down}},
			"service/shop/web": {webStatus("staging CONVERGED v9 v9 succeeded")},
		},
	}
}

// The status shows unmanaged services with the reason: in the overview, alone, and as JSON. Running services are shown as usual.
func TestStatusOfUnmanaged(t *testing.T) {
	const (
		api   = "api\t-\tUNMANAGED\t\t\t\tunmanaged by bob: drill; since 1970-01-01 00:00 UTC; until: converge config manage shop/api\n"
		db    = "db\t-\tUNMANAGED\t\t\t\tits workflow was terminated by ops: by mistake; while it is declared, a worker restarts it within a minute\n"
		web   = "web\t1 channel\tCONVERGED\tv9\t\t\t\n"
		whole = "unmanaged by bob: drill; until: converge config manage shop\n"
	)
	for _, tt := range []struct{ line, want string }{
		{"status", header + api + db + web},
		{"status shop", header + api + db + web},
		{"status shop/db", header + db},
		{"status shop/api -o json", `{
  "schema": "converge.status/v1",
  "application": "shop",
  "service": "api",
  "status": "UNMANAGED",
  "incarnation": 0,
  "headline": "unmanaged by bob: drill; since 1970-01-01 00:00 UTC; until: converge config manage shop/api",
  "channels": [],
  "releases": [],
  "pauses": [],
  "pins": [],
  "refused": []
}
`},
	} {
		code, output := newConsole(t, apiWithUnmanaged()).run(t, tt.line)
		require.Zero(t, code)
		require.Equal(t, tt.want, output, tt.line)
	}
	all := protocol.UnmanagedServices{protocol.AllServices: {By: "bob", Reason: "drill"}}
	down := &fakeAPI{statuses: map[string][]any{"application/shop": {protocol.ApplicationStatus{Unmanaged: all}}}}
	_, output := newConsole(t, down).run(t, "status shop")
	require.Equal(t, header+"*\t-\tUNMANAGED\t\t\t\t"+whole, output, "the server no longer has their runs")
	down.endedServices = []connection.ServiceName{{Application: "shop", Service: "api"}}
	_, output = newConsole(t, down).run(t, "status")
	require.Equal(t, header+"api\t-\tUNMANAGED\t\t\t\t"+whole, output)
}

// After an export of the installation, the status does not claim that its services are restarted.
func TestStatusOfAnExportedInstallation_F4(t *testing.T) {
	api := &fakeAPI{endedServices: []connection.ServiceName{{Application: "shop", Service: "web"}}, terminationReason: "installation I" + protocol.ExportedBy + "alice"}
	code, output := newConsole(t, api).run(t, "status shop")
	require.Zero(t, code)
	require.Equal(t, header+"web\t-\tUNMANAGED\t\t\t\tinstallation I exported by alice, to continue elsewhere; nothing is managed here any more\n", output)
}
