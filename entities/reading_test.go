package entities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A different reason is reported even if the verdict is the same. If only its numbers change, it is reported from time to time.
func TestReasonsAreRefreshed_A13(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	read := func(reason string, at time.Time) CheckReading {
		return CheckReading{Verdict: Wait, Reason: reason, At: at}
	}
	known := func(kind CheckKind, r CheckReading) Evaluation {
		return Evaluation{Kind: kind, KnownDigest: r.Digest(), ReasonDigest: r.ReasonDigest(), ReasonAt: r.At}
	}
	for name, row := range map[string]struct {
		kind     CheckKind
		was, now string
		after    time.Duration
		want     bool
	}{
		"the same":                      {CheckAlertmanager, "disk full fires", "disk full fires", time.Hour, false},
		"another alert":                 {CheckAlertmanager, "disk full fires", "CPU hot fires", time.Second, true},
		"a metric":                      {CheckPrometheus, "0.51% of requests failed", "0.52% of requests failed", time.Minute, false},
		"a metric after a while":        {CheckPrometheus, "0.51% of requests failed", "0.52% of requests failed", numberChangeInterval, true},
		"another service's version":     {CheckVersionOrder, "api has v1; expected at least v3", "api has v2; expected at least v3", time.Second, true},
		"the status of another service": {CheckServiceStable, "api is CONVERGING", "api is DEGRADED", time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := known(row.kind, read(row.was, noon))
			require.Equal(t, row.want, read(row.now, noon.Add(row.after)).ReasonChanged(e))
			require.Equal(t, Evaluation{Kind: row.kind}, e.WithoutResult(), "the question is the same")
		})
	}
	require.False(t, read("anything", noon).ReasonChanged(Evaluation{}), "nothing is known yet")
}
