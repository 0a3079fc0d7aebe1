package checks_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// ranges serves the given answers to range queries, by "query [start end step]", and to instant queries, by "query [time]".
func ranges(t *testing.T, answers map[string]string) (string, checks.Sources) {
	t.Helper()
	url, sources := serving(t, func(w http.ResponseWriter, r *http.Request) {
		at := []string{r.PostFormValue("time")}
		if strings.HasSuffix(r.URL.Path, "/query_range") {
			at = []string{r.PostFormValue("start"), r.PostFormValue("end"), r.PostFormValue("step")}
		}
		query := fmt.Sprintf("%s %s", r.PostFormValue("query"), strings.ReplaceAll(fmt.Sprint(at), "2026-11-23T", ""))
		if answers[query] == "" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"status":"error","errorType":"bad_data","error":%q}`, "unexpected query "+query+" "+r.Header.Get("Authorization"))
			return
		}
		data, warning, _ := strings.Cut(answers[query], "!")
		fmt.Fprintf(w, `{"status":"success","data":%s,"warnings":[%q]}`, data, cmp.Or(warning, "PromQL info: nothing"))
	})
	sources.Own = stableStatus
	return url, sources
}

// stableStatus is the status of the service: v2-i7 has been stable in prod for half an hour.
func stableStatus(ctx context.Context) (protocol.Status, error) {
	s, err := fakeStatus(ctx)
	s.Channels[1].StableSince = time.Date(2026, 11, 23, 8, 30, 0, 0, time.UTC)
	return s, err
}

// warned returns an answer with a warning.
func warned(of, answer string) string { return answer + "!" + of }

// matrix returns an answer with these series, each given by its values.
func matrix(series ...string) string {
	for i, values := range series {
		points := strings.Fields(values)
		for n, v := range points {
			points[n] = fmt.Sprintf(`[%d,%q]`, 1763+n, v)
		}
		series[i] = `{"metric":{},"values":[` + strings.Join(points, ",") + `]}`
	}
	return `{"resultType":"matrix","result":[` + strings.Join(series, ",") + `]}`
}

func TestCompare_D26_A20(t *testing.T) {
	t.Parallel()
	const ten, twenty = "[08:30:30Z 08:40:00Z 30]", "[08:30:30Z 08:50:00Z 30]"
	slow, fast := strings.Repeat("2.5 3.5 ", 4), strings.Repeat("1.5 2 ", 4)
	count := func(v string) string { return vector("{} " + v) }
	server, sources := ranges(t, map[string]string{
		`took{v="v2"} ` + ten: matrix(slow), "before " + ten: matrix(fast), "same " + ten: matrix(slow),
		`took{v="v2"} [2026-11-22T08:30:30Z 2026-11-22T08:40:00Z 30]`: matrix(fast),
		"few " + ten: matrix("1 2 3"), "few " + twenty: matrix("1 2 3"), `took{v="v2"} ` + twenty: matrix(slow), "later " + ten: matrix("1 2 3"), "later " + twenty: matrix(fast),
		"nan " + ten: matrix(fast + "NaN"), "none " + ten: matrix(), "two " + ten: matrix(slow, fast), "one " + ten: count("1"),
		"histograms " + ten:            `{"resultType":"matrix","result":[{"metric":{},"histograms":[[1,{}]]}]}`,
		"errors[600000ms] [08:40:00Z]": count("30.4"), "requests[600000ms] [08:40:00Z]": count("499.6"),
		"old_errors[600000ms] [08:40:00Z]": count("5"), "old_requests[600000ms] [08:40:00Z]": count("500"), "below [08:40:00Z]": count("-1"),
		"no_errors [08:40:00Z]": vector(), "over [08:40:00Z]": count("502"), "far_over [08:40:00Z]": count("900"),
		"partial " + ten: warned("a store did not answer for Bearer "+secret, matrix(fast)), "partial " + twenty: matrix(fast), "still_partial " + ten: warned("no", matrix(fast)), "still_partial " + twenty: warned("a store did not answer", matrix(fast)),
		"hinted " + ten: warned("PromQL info: metric might not be a counter", matrix(slow)), `took{v="v2"} [08:30:30Z 2026-11-24T08:30:00Z 30]`: matrix(slow), "day [08:30:30Z 2026-11-24T08:30:00Z 30]": matrix(slow), "none[600000ms] [08:40:00Z]": count("0"),
		"late " + twenty: matrix(fast), "many " + ten: matrix(strings.Repeat("1 ", 22)), "many " + twenty: matrix(strings.Repeat("1 ", 42)),
	})
	row := func(change func(*entities.CompareCheck)) checks.Request {
		return newRequest(entities.CheckCompare, func(d *entities.CheckDefinition) {
			d.Compare = &entities.CompareCheck{
				URL: server, Token: &entities.Value{WorkerEnv: "TOKEN"}, Query: `took{v="${{ version }}"}`, Control: "before",
				Direction: "increase", Alpha: 0.01, Comparisons: 2, Tolerance: 0.1, MinSamples: 8, For: 10 * time.Minute, Deadline: 20 * time.Minute, Step: 30 * time.Second,
			}
			change(d.Compare)
		})
	}
	plain := func(*entities.CompareCheck) {}
	against := func(query string) checks.Request { return row(func(c *entities.CompareCheck) { c.Control = query }) }
	shares := func(change func(*entities.CompareCheck)) checks.Request {
		return row(func(c *entities.CompareCheck) {
			c.Query, c.Total, c.Control, c.ControlTotal = "errors[$__range]", "requests[$__range]", "old_errors[$__range]", "old_requests[$__range]"
			change(c)
		})
	}
	early := func(a checks.Request, minute int) checks.Request {
		a.Now = time.Date(2026, 11, 23, 8, minute, 0, 0, time.UTC)
		return a
	}
	tomorrow := func(a checks.Request) checks.Request {
		a.Now = time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)
		return a
	}
	ofFleet := sources // its last instance has another target
	ofFleet.Own = func(ctx context.Context) (protocol.Status, error) {
		s, err := stableStatus(ctx)
		s.Channels[1].Target = "v1"
		return s, err
	}
	paused := sources // for ten minutes, which moved the windows
	paused.Own = func(ctx context.Context) (protocol.Status, error) {
		s, err := stableStatus(ctx)
		s.Channels[1].StableFrom, s.Channels[1].StableSince = s.Channels[1].StableSince, s.Channels[1].StableSince.Add(10*time.Minute)
		return s, err
	}
	unstable := sources
	unstable.Own = fakeStatus
	at := host(t, server)
	const when = ", from 2026-11-23 08:30:00 to 08:40:00 UTC"
	const worse = "increased, 3 against 1.75 (+71.4 %, tolerance 10 %), 8 samples against 8, p 7.77e-05 (level 0.005 = 0.01 / 2), exact Mann-Whitney" + when
	page, err := os.ReadFile("../../docs/validation.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "\n```text\n"+worse+"\n```\n", "what the page shows")
	Conform(t, Kind{Kind: entities.CheckCompare, Secrets: []string{secret}, Rows: []Row{
		{Name: "worse", Sources: sources, Request: row(plain), Want: entities.Fail, Reason: worse},
		{Name: "not worse", Sources: sources, Request: against("same"), Want: entities.Pass, Reason: "no increase shown, 3 against 3 (+0 %, tolerance 10 %), 8 samples against 8, p …"},
		{Name: "against the past", Sources: sources, Request: row(func(c *entities.CompareCheck) { c.Control, c.Offset = "", 24*time.Hour }), Want: entities.Fail, Reason: worse + ", against 24h before (weaker than a control group at the same time)"},
		{Name: "in a fleet", Sources: ofFleet, Request: against("same"), Want: entities.Pass, Reason: "no increase shown, 3 against 3 …"},
		{Name: "a pause does not move the period", Sources: paused, Request: row(plain), Want: entities.Fail, Reason: worse},
		{Name: "before the evaluation", Sources: sources, Request: early(row(plain), 39), Want: entities.Wait, Reason: "evaluation at 08:40:00 UTC, since 08:30:00"},
		{Name: "too few samples wait", Sources: sources, Request: early(against("few"), 41), Want: entities.Wait, Reason: "INCONCLUSIVE: too few samples, 3 against 2 (+50 %, tolerance 10 %), 8 samples against 3; at least 8 of each are needed" + when + "; evaluation at 08:50:00 UTC, since 08:30:00"},
		{Name: "too few at the deadline", Sources: sources, Request: against("few"), Want: entities.Fail, Reason: "INCONCLUSIVE: too few samples, 3 against 2 (+50 %, tolerance 10 %), 8 samples against 3; at least 8 of each are needed, from 2026-11-23 08:30:00 to 08:50:00 UTC; which is declared to fail"},
		{Name: "too few at the deadline pass", Sources: sources, Request: row(func(c *entities.CompareCheck) { c.Control, c.InconclusivePasses = "few", true }), Want: entities.Pass, Reason: "INCONCLUSIVE: too few samples, 3 against 2 …"},
		{Name: "no traffic yet", Sources: sources, Request: early(shares(func(c *entities.CompareCheck) { c.Query, c.Total = "none[$__range]", "none[$__range]" }), 41), Want: entities.Wait, Reason: "INCONCLUSIVE: too few requests, 0 against 0.01 (-100 %, tolerance 10 %), 0 requests against 500; …"},
		{Name: "partial data waits", Sources: sources, Request: early(against("partial"), 41), Want: entities.Wait, Reason: "INCONCLUSIVE: " + at + " warns: a store did not answer for Bearer ***; evaluation at 08:50:00 UTC, since 08:30:00"},
		{Name: "partial data at first", Sources: sources, Request: against("partial"), Want: entities.Fail, Reason: "increased, 3 against 1.75 …"},
		{Name: "partial data at the deadline", Sources: sources, Request: against("still_partial"), Want: entities.Fail, Reason: "INCONCLUSIVE: " + at + " warns: a store did not answer; which is declared to fail"},
		{Name: "a hint is not partial data", Sources: sources, Request: against("hinted"), Want: entities.Pass, Reason: "no increase shown, 3 against 3 …"},
		{Name: "over midnight", Sources: sources, Request: tomorrow(row(func(c *entities.CompareCheck) { c.Control, c.For, c.Deadline = "day", 24*time.Hour, 48*time.Hour })), Want: entities.Pass, Reason: "no increase shown, 3 against 3 (+0 %, tolerance 10 %), 8 samples against 8, p 0.69 (level 0.005 = 0.01 / 2), exact Mann-Whitney, from 2026-11-23 08:30:00 to 2026-11-24 08:30:00 UTC"},
		{Name: "before an evaluation on the next day", Sources: sources, Request: row(func(c *entities.CompareCheck) { c.For, c.Deadline = 24*time.Hour, 48*time.Hour }), Want: entities.Wait, Reason: "evaluation at 2026-11-24 08:30:00 UTC, since 08:30:00"},
		{Name: "enough samples at the deadline", Sources: sources, Request: against("later"), Want: entities.Fail, Reason: "increased, 3 against 1.75 …"},
		{Name: "no first evaluation", Sources: sources, Request: against("late"), Want: entities.Fail, Reason: "increased, 3 against 1.75 …"},
		{Name: "no first evaluation, before the deadline", Sources: sources, Request: early(against("late"), 41), Want: entities.Error, Reason: "control group: " + at + " answered 400: …"},
		{Name: "too many samples", Sources: sources, Request: against("many"), Want: entities.Error, Reason: "control group: 22 samples; expected at most 21"},
		{Name: "part extrapolated above the total", Sources: sources, Request: shares(func(c *entities.CompareCheck) { c.Query, c.Control = "over", "over" }), Want: entities.Pass, Reason: "no increase shown, 1 against 1 …"},
		{Name: "part far above the total", Sources: sources, Request: shares(func(c *entities.CompareCheck) { c.Query = "far_over" }), Want: entities.Error, Reason: "900 of 500 is not a valid count"},
		{Name: "no number", Sources: sources, Request: against("nan"), Want: entities.Error, Reason: "1 of 9 samples of the control group are not finite numbers"},
		{Name: "no number is dropped", Sources: sources, Request: row(func(c *entities.CompareCheck) { c.Control, c.DropNaN = "nan", true }), Want: entities.Fail, Reason: "increased, 3 against 1.75 (+71.4 %, tolerance 10 %), 8 samples against 8, 1 dropped, …"},
		{Name: "no data", Sources: sources, Request: against("none"), Want: entities.Error, Reason: "no samples of the control group"},
		{Name: "no data is declared to pass", Sources: sources, Request: row(func(c *entities.CompareCheck) { c.Control, c.EmptyPasses = "none", true }), Want: entities.Pass, Reason: "no samples of the control group, which is declared to pass"},
		{Name: "nothing was counted, which is declared to pass", Sources: sources, Request: shares(func(c *entities.CompareCheck) { c.Control, c.EmptyPasses = "no_errors", true }), Want: entities.Pass, Reason: "control group: the query returned no samples, which is declared to pass"},
		{Name: "two series", Sources: sources, Request: against("two"), Want: entities.Error, Reason: "control group: the query returned 2 series; expected one, by sum() or max()"},
		{Name: "histograms", Sources: sources, Request: against("histograms"), Want: entities.Error, Reason: "control group: " + at + ": the query returned histograms; expected numbers"},
		{Name: "no range", Sources: sources, Request: against("one"), Want: entities.Error, Reason: "control group: " + at + ": the query returned a vector; expected a matrix"},
		{Name: "refused, with the token in the answer", Sources: sources, Request: against("("), Want: entities.Error, Reason: "control group: " + at + " answered 400: bad_data: unexpected query ( " + ten + " Bearer ***"},
		{Name: "more errors", Sources: sources, Request: shares(plain), Want: entities.Fail, Reason: "increased, 0.06 against 0.01 (+500 %, tolerance 10 %), 500 requests against 500, p 8.16e-06 (level 0.005 = 0.01 / 2), exact Fisher" + when},
		{Name: "no error was ever counted", Sources: sources, Request: shares(func(c *entities.CompareCheck) { c.Control = "no_errors" }), Want: entities.Error, Reason: "control group: the query returned no samples"},
		{Name: "no count", Sources: sources, Request: shares(func(c *entities.CompareCheck) { c.Control = "below" }), Want: entities.Error, Reason: "control group: -1 is not a count of at most a billion"},
		{Name: "not stable", Sources: unstable, Request: row(plain), Want: entities.Error, Reason: "the objects of v2-i7 are not stable in prod"},
	}})
	r := checks.Evaluate(t.Context(), sources, early(row(plain), 39))
	require.Equal(t, time.Date(2026, 11, 23, 8, 40, 0, 0, time.UTC), r.Next)
}
