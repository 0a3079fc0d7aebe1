package checks

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// alertmanager waits while a matching alert is active, neither silenced nor inhibited (A20).
type alertmanager struct{ sources Sources }

// alert is an alert in the answer of /api/v2/alerts.
type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	Status      struct {
		State       string   `json:"state"`
		SilencedBy  []string `json:"silencedBy"`
		InhibitedBy []string `json:"inhibitedBy"`
	} `json:"status"`
}

func (c alertmanager) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	d := a.Definition.Alertmanager
	switch {
	case d == nil:
		return incomplete(a)
	case len(d.Matchers) == 0:
		return unevaluated("it has no matchers, so every alert would block this release")
	}
	query := url.Values{"active": {"true"}, "silenced": {"false"}, "inhibited": {"false"}}
	var matchers []string
	for _, name := range slices.Sorted(maps.Keys(d.Matchers)) {
		matchers = append(matchers, name+"="+strconv.Quote(d.Matchers[name]))
	}
	query["filter"] = matchers
	r := httpRequest{sources: c.sources, url: strings.TrimRight(d.URL, "/") + "/api/v2/alerts?" + query.Encode(), token: d.Token}
	got, err := r.do(ctx)
	if err != nil {
		return entities.CheckReading{}, err
	}
	var alerts []alert
	if got.status != http.StatusOK {
		return unevaluated("%s answered %d: %s", r.hostName(), got.status, oneLine(got.text, maxExcerpt))
	}
	if err := json.Unmarshal(got.body, &alerts); err != nil {
		return unevaluated("%s did not answer like an Alertmanager: %s", r.hostName(), oneLine(got.text, maxExcerpt))
	}
	alerts = slices.DeleteFunc(alerts, func(a alert) bool { // in case a server ignores the filter of the request
		return len(a.Status.SilencedBy)+len(a.Status.InhibitedBy) > 0
	})
	if len(alerts) == 0 {
		return pass("no alert is active for %s", strings.Join(matchers, ", "))
	}
	return entities.CheckReading{Verdict: entities.Wait, Reason: r.secrets.hide(firingReason(alerts))}, nil
}

// firingReason names the alert that has been active longest, and the number of others.
func firingReason(alerts []alert) string {
	slices.SortFunc(alerts, func(a, b alert) int {
		return cmp.Or(a.StartsAt.Compare(b.StartsAt), cmp.Compare(a.Labels["alertname"], b.Labels["alertname"]))
	})
	first := alerts[0]
	name := first.Labels["alertname"]
	if name == "" {
		name = sample{labels: first.Labels}.seriesName()
	}
	text := fmt.Sprintf("alert %s is active since %s", oneLine(name, maxExcerpt), first.StartsAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	for _, annotation := range []string{"summary", "description"} {
		if note := oneLine(first.Annotations[annotation], maxExcerpt); note != "" {
			text += ": " + note
			break
		}
	}
	if more := len(alerts) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}
