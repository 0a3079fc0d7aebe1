package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/chaos/record"
)

// snapshot is how a service is at one moment: its answer, what the site has, and the number of the last line of its
// history. Nothing came between them: the line is the same before and after.
type snapshot struct {
	status protocol.Status
	rest   []record.Rest
	line   int64
}

// errMoved says that something happened while a snapshot was taken.
var errMoved = errors.New("something happened meanwhile")

// snapshot takes one. An error may be gone at the next try.
func (w *world) snapshot(ctx context.Context, service string) (snapshot, error) {
	before, err := w.lastLine(ctx, service)
	if err != nil {
		return snapshot{}, err
	}
	there := w.there(service)
	s, err := w.status(ctx, service)
	if err != nil {
		return snapshot{}, err
	}
	after, err := w.lastLine(ctx, service)
	if err != nil {
		return snapshot{}, err
	}
	taken := snapshot{status: s, line: after}
	for _, c := range s.Channels {
		taken.rest = append(taken.rest, record.Rest{Channel: c.Name, Status: c.Status, Target: c.Target, Current: c.Current, Site: there[c.Name]})
	}
	if before != after || !maps.Equal(there, w.there(service)) {
		return taken, errMoved
	}
	return taken, nil
}

// there is what the site has of a service, by channel.
func (w *world) there(service string) map[string]string {
	versions := map[string]string{}
	for _, channel := range []string{record.Staging, record.Production} {
		version, err := os.ReadFile(filepath.Join(w.site(), service+"-"+channel+".version"))
		if err != nil && !os.IsNotExist(err) {
			version = []byte(err.Error())
		}
		versions[channel] = string(version)
	}
	return versions
}

// lastLine is the number of the last line of a service's history.
func (w *world) lastLine(ctx context.Context, service string) (int64, error) {
	var tail protocol.HistoryAnswer
	if err := w.query(ctx, protocol.ServiceID(application, service), protocol.QueryHistory, &tail); err != nil {
		return 0, err
	}
	if n := len(tail.Entries); n > 0 {
		return tail.Entries[n-1].N, nil
	}
	return tail.Stored, nil
}

// restless are the statuses that end by themselves.
var restless = map[string]bool{
	string(entities.StatusConverging): true, string(entities.StatusRollingBack): true, string(entities.StatusUnknown): true,
	string(entities.StatusDegraded): true, string(entities.StatusPreconditions): true, string(entities.StatusProgressing): true,
}

// restless says why more may come, as far as the statuses tell, or "". People do not wait for more, since a pause may last.
func (s snapshot) restless() string {
	for _, c := range s.rest {
		if restless[c.Status] {
			return c.Channel + " is " + c.Status
		}
	}
	return ""
}

// unsure says why what is there may not be the end, though nobody does anything more, or "". A snapshot is judged once there is no reason:
// what a pause held back is still to come when it has ended, and a status may be older than what the site has by then.
func (s snapshot) unsure() string {
	if why := s.restless(); why != "" {
		return why
	}
	if len(s.status.Pauses) > 0 {
		return "it is paused"
	}
	if len(s.rest) == 0 {
		return "it has no channels"
	}
	for _, c := range s.rest {
		if c.Status == string(entities.StatusPaused) {
			return c.Channel + " is paused"
		}
		if why := c.Unsettled(); why != "" {
			return c.Channel + ": " + why
		}
	}
	return ""
}

// looks is how often in a row a service that rests looks the same.
const looks = 3

// resting counts snapshots that look the same.
type resting struct {
	moves func(snapshot) string // why more may come
	last  snapshot              // the last one of which something is known
	why   string                // it is not at rest
	same  int
}

// see takes the next snapshot, with the error of taking it, and tells whether the service is at rest.
func (r *resting) see(now snapshot, err error) bool {
	switch {
	case err != nil && !errors.Is(err, errMoved): // nothing is known
		r.same, r.why = 0, err.Error()
		return false
	case err != nil:
		r.same, r.why = 0, err.Error()
	default:
		if r.why = r.moves(now); r.why != "" {
			r.same = 0
		} else if r.same++; now.line != r.last.line || !slices.Equal(now.rest, r.last.rest) {
			r.same = 1
		}
	}
	r.last = now
	return r.same >= looks
}

// awaitRest waits until nothing of a service moves any more: three snapshots in a row are the same, and nothing says that more comes. The
// last of them is returned.
func (w *world) awaitRest(ctx context.Context, service string, within time.Duration, moves func(snapshot) string) (snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r := resting{moves: moves}
	for {
		now, err := w.snapshot(ctx, service)
		if r.see(now, err) {
			return r.last, nil
		}
		select {
		case <-ctx.Done():
			return r.last, fmt.Errorf("%s does not come to rest within %s: %s: %v %s", service, within, r.why, r.last.rest, r.last.status.Headline)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// awaitAnnounced waits until the application and the runtime have told every service of the newest incarnation and of the end of every
// pause. Before that a service rests only for as long as it does not know.
func (w *world) awaitAnnounced(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		why := w.unannounced(ctx)
		if why == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not every service is told within %s: %s", within, why)
		case <-time.After(inBetween):
		}
	}
}

// unannounced says what services are not told yet, or "".
func (w *world) unannounced(ctx context.Context) string {
	var a protocol.ApplicationStatus
	var r protocol.RuntimeStatus
	if err := w.query(ctx, protocol.ApplicationID(application), protocol.QueryStatus, &a); err != nil {
		return err.Error()
	}
	if err := w.query(ctx, protocol.RuntimeID("site"), protocol.QueryStatus, &r); err != nil && !errors.Is(err, errGone) { // nobody paused it
		return err.Error()
	}
	return untold(a, r)
}

func untold(a protocol.ApplicationStatus, r protocol.RuntimeStatus) string {
	switch {
	case a.Notified != a.Newest:
		return fmt.Sprintf("incarnation %d is known up to %d", a.Newest, a.Notified)
	case a.Announcing, r.Announcing:
		return "a pause or its end is being announced"
	case a.Pause != nil, r.Pause != nil:
		return "a pause is in force"
	}
	return ""
}
