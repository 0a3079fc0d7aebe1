package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
)

// jointStatuses returns release autumn of web v9 and api w2, and the answers of its services.
func jointStatuses(web, api string, journal ...string) map[string][]any {
	of := func(service, version, channels string) protocol.Status {
		s := webStatus(channels, journal...)
		s.Service, s.Releases[0].ID, s.Releases[0].Version = service, "autumn", version
		return s
	}
	application := protocol.ApplicationStatus{Application: "shop", Releases: []protocol.JointStatus{{
		ID: "autumn", Phase: protocol.JointCommitted, Services: map[string]string{"web": "v9", "api": "w2"},
	}, {
		ID: "winter", Phase: protocol.JointAborted, Why: "api: it is not managed", Services: map[string]string{"web": "v10", "api": "w3"},
	}}}
	return map[string][]any{
		"application/shop": {application}, "service/shop/web": {of("web", "v9", web)}, "service/shop/api": {of("api", "w2", api)},
		"service/shop/cellar": {webStatus("staging CONVERGED v1 v1 succeeded")},
	}
}

// One release of several services is sent to its application. It is followed in all services, and the gravest result counts.
func TestReleaseOfSeveralServices_B8(t *testing.T) {
	answer := protocol.JointAnswer{ID: "autumn", Services: map[string]string{"web": "v9", "api": "w2"}}
	const output = "release autumn: api w2, web v9\n"
	for _, tt := range []struct {
		line     string
		web, api string
		code     int
		want     string
	}{
		{"release shop web=v9 api=w2 --id autumn", "staging CONVERGED v8 v8 pending", "staging CONVERGED w1 w1 pending", outcome.Done, output},
		{
			"release shop web=v9 api=w2 --id autumn --wait", "staging CONVERGED v9 v9 succeeded", "staging CONVERGED w2 w2 succeeded", outcome.Done,
			output + "api w2 converged in staging.\nweb v9 converged in staging.\n",
		},
		{
			"release shop web=v9 api=w2 --id autumn --wait", "staging CONVERGED v9 v9 succeeded", "staging FAILED w1 w2 failed", outcome.Failed,
			output + "api w2 failed in staging. Next: retry, cancel, or release a fix. See: converge explain shop/api\nweb v9 converged in staging.\n",
		},
		{
			"release shop web=v9 api=w2 --id autumn --wait --stop-at-approval", "staging WAITING_MANUAL_APPROVAL v8 v9 pending", "staging CONVERGED w2 w2 succeeded", outcome.Person,
			output + "api w2 converged in staging.\nweb v9 waits for an approval in staging. See: converge explain shop/web\n",
		},
	} {
		c := newConsole(t, &fakeAPI{statuses: jointStatuses(tt.web, tt.api), answer: answer})
		code, text := c.run(t, tt.line)
		require.Equal(t, tt.want, text)
		require.Equal(t, tt.code, code)
		require.Equal(t, []string{
			`application/shop release {"by":"alice","requestId":"ID","id":"autumn","services":{"api":{"version":"w2"},"web":{"version":"v9"}}}`,
		}, c.api.updates)
	}
	c := newConsole(t, &fakeAPI{statuses: jointStatuses("staging CONVERGED v8 v8 pending", "staging CONVERGED w1 w1 pending"), answer: answer})
	code, _ := c.run(t, "release shop web=v9 api=w2 -p web/replicas=3 -p api/canary:replicas=1")
	require.Equal(t, outcome.Done, code)
	require.Equal(t, []string{`application/shop release {"by":"alice","requestId":"ID","services":{` +
		`"api":{"version":"w2","channelParameters":{"canary":{"replicas":1}}},"web":{"version":"v9","parameters":{"replicas":3}}}}`}, c.api.updates)
}

// APP@ID replaces SVC VERSION: an act on a release is sent to all its services, under one request id, and to no other service.
func TestVerbsActOnAReleaseByID_B8(t *testing.T) {
	const web, api = "staging CONVERGED v9 v9 succeeded, prod WAITING_MANUAL_APPROVAL v8 v9 pending", "staging CONVERGED w2 w2 succeeded"
	both := func(verb, payload string) []string {
		return []string{"service/shop/api " + verb + " " + payload, "service/shop/web " + verb + " " + payload}
	}
	for _, tt := range []struct {
		line, want string
		code       int
		updates    []string
	}{
		{"approve shop@autumn go-live", "shop/api: done\nshop/web: done\n", 0, both("approve", `{"by":"alice","requestId":"ID","version":"@autumn","topic":"go-live"}`)},
		{"cancel shop@autumn --reason wrong", "shop/api: done\nshop/web: done\n", 0, both("cancel", `{"by":"alice","requestId":"ID","reason":"wrong","version":"@autumn"}`)},
		{"rollback shop@autumn", "shop/api: done\nshop/web: done\n", 0, both("rollback", `{"by":"alice","requestId":"ID","version":"@autumn"}`)},
		{"retry shop@autumn -c prod", "shop/api: done\nshop/web: done\n", 0, both("retry", `{"by":"alice","requestId":"ID","version":"@autumn","channel":"prod"}`)},
		{"cancel shop@winter", "! converge: joint release shop@winter was refused: api: it is not managed\n", 1, nil},
		{"cancel shop@spring", "! converge: no service of shop has a release spring; finished releases are forgotten after a while\n", 1, nil},
		{"wait shop@autumn -c staging", "api w2 converged in staging.\nweb v9 converged in staging.\n", 0, nil},
		{"status shop@autumn", `RELEASE autumn api w2: staging succeeded
RELEASE autumn web v9: staging succeeded, prod pending
`, 0, nil},
		{"explain shop@autumn staging", "RELEASE autumn api w2: staging succeeded\nRELEASE autumn web v9: staging succeeded, prod pending\n", 0, nil},
	} {
		t.Run(tt.line, func(t *testing.T) {
			c := newConsole(t, &fakeAPI{statuses: jointStatuses(web, api), answer: protocol.Answer{Message: "done"}})
			code, output := c.run(t, tt.line)
			require.Equal(t, tt.want, output[:min(len(output), len(tt.want))])
			require.Equal(t, tt.code, code)
			require.ElementsMatch(t, tt.updates, c.api.updates)
			require.NotContains(t, output, "cellar")
		})
	}
	c := newConsole(t, &fakeAPI{statuses: jointStatuses(web, api), answer: protocol.Answer{Message: "done"}, refuse: []error{nil, &connection.RefusedError{Reason: "w2 is over"}}})
	code, output := c.run(t, "cancel shop@autumn")
	require.Equal(t, outcome.Error, code)
	require.Regexp(t, `^shop/(api|web): done\n! converge: shop/(api|web): refused: w2 is over\n$`, output, "the service that refused is named")
}
