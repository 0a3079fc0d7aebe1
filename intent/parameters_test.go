package intent

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// D22: what a version has in a channel: a release's values over the configuration's.
func TestParametersIn_D22(t *testing.T) {
	inc := compileDir(t, "testdata/shop").Incarnation
	in := RenderInput{
		Version: "v1", Parameters: map[string]any{"region": "eu"},
		ChannelParameters: map[string]map[string]any{"prod-eu": {"replicas": 20}},
	}
	replicas := map[string]string{}
	for _, channel := range []string{"canary", "prod-eu", "prod-us"} {
		values, err := ParametersIn(inc, "web", channel, in)
		require.NoError(t, err)
		require.Equal(t, "eu", values["region"])
		require.NotContains(t, values, "dbPassword")
		replicas[channel] = fmt.Sprint(values["replicas"])
	}
	require.Equal(t, map[string]string{"canary": "1", "prod-eu": "20", "prod-us": "12"}, replicas)

	_, err := ParametersIn(inc, "nobody", "canary", in)
	require.ErrorContains(t, err, `no service "nobody"`)
	_, err = ParametersIn(inc, "web", "nowhere", in)
	require.ErrorContains(t, err, `release channel "nowhere"`)
	in.Parameters["odd"] = 1
	_, err = ParametersIn(inc, "web", "canary", in)
	require.ErrorContains(t, err, `no parameter "odd"`)
}

// A21: the output of extensions is kept beside that of applies, so many of each.
func TestStoreKeepsOutputOfExtensions_A21(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		put := func(entry LogEntry) string {
			key, err := s.PutLogKey(t.Context(), "shop", "web", "prod", entry)
			require.NoError(t, err)
			return key
		}
		first := put(LogEntry{Kind: LogExtension, Name: "migrate-db", At: auditStart})
		require.Equal(t, "logs/shop/web/prod/extension/migrate-db/", first[:len("logs/shop/web/prod/extension/migrate-db/")])
		require.NotEqual(t, first, put(LogEntry{Kind: LogExtension, Name: "migrate-db", At: auditStart}), "of one moment")
		for n := range 3 * keptLogs {
			put(LogEntry{Kind: LogExtension, Name: "migrate", At: auditStart.Add(time.Duration(n+1) * time.Second)})
		}
		put(LogEntry{Kind: LogApply, At: auditStart.Add(time.Hour)})
		logs, err := s.Logs(t.Context(), "shop", "web", "prod")
		require.NoError(t, err)
		names := map[string]int{}
		for _, l := range logs {
			names[string(l.Kind)+" "+l.Name]++
		}
		require.Equal(t, map[string]int{"apply ": 1, "extension migrate": keptLogs, "extension migrate-db": 2}, names)
	})
}
