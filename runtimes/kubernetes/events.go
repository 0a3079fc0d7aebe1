package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
)

const (
	eventsTTL        = 30 * time.Second // at most one request per object and this period
	eventsGrace      = time.Minute      // younger pending objects get this time before their events are requested
	eventsTimeout    = 2 * time.Second  // events are optional: an observation does not wait long for them
	maxEventRequests = 2                // requests of one runtime: a server has no index for events and reads all of a namespace
	maxEvents        = 10
	maxRecent        = 2000 // objects
)

// recentCache caches the events of objects for a few seconds. The zero value is ready.
type recentCache struct {
	inFlight atomic.Int32
	mu       sync.Mutex
	events   map[types.UID]recentEvents
	logs     map[string]recentLog // by pod, container and number of its ends
}

type recentEvents struct {
	at      time.Time
	events  []entities.Event
	warning warning // the last warning
}

// events lists the recent events of an unhealthy object, of its newest ReplicaSet and of a failing pod. They are for people:
// unreadable events are omitted.
func (ob *observation) events(ctx context.Context, object entities.Object, live *unstructured.Unstructured, p parts, found podFailure) []entities.Event {
	newest := live
	if p.newest != nil {
		newest = p.newest
	}
	begun := p.newest == nil || podStamp(p.newest) == templateStamp(live)
	young := !begun || ob.now().Sub(waitingSince(newest, p.targets, ob.now())) < eventsGrace
	if young && object.Status == entities.ObjectPending && found.message == "" && !conditionOf(newest, "ReplicaFailure").is("True") {
		return nil
	}
	all := ob.lastLogLines(ctx, found)
	ctx, cancel := context.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	seen := map[types.UID]bool{}
	for _, o := range []*unstructured.Unstructured{live, p.newest, found.pod} {
		if o != nil && !seen[o.GetUID()] {
			seen[o.GetUID()] = true
			all = append(all, ob.eventsOf(ctx, o)...)
		}
	}
	slices.SortStableFunc(all, func(a, b entities.Event) int { return a.Timestamp.Compare(b.Timestamp) })
	return all[max(0, len(all)-maxEvents):]
}

// waitingSince is the start of the wait: that of the pod that is not ready for the longest, or else of its controller. If no pod of
// a ReplicaSet waits, a pod was just removed, or the ReplicaSet reports that it cannot create any (ReplicaFailure).
func waitingSince(newest *unstructured.Unstructured, pods []*unstructured.Unstructured, now time.Time) (since time.Time) {
	for _, pod := range pods {
		if !runs(pod) || conditionOf(pod, "Ready").is("True") {
			continue
		}
		if at := notReadySince(pod); since.IsZero() || at.Before(since) {
			since = at
		}
	}
	switch {
	case !since.IsZero():
		return since
	case newest.GetKind() == "ReplicaSet":
		return now
	}
	return newest.GetCreationTimestamp().Time
}

// eventsOf requests the events of one object, unless it did so a moment ago or many requests are under way: when a whole cluster is
// unhealthy, its server should not get more load.
func (ob *observation) eventsOf(ctx context.Context, o *unstructured.Unstructured) []entities.Event {
	return ob.cachedEvents(ctx, o).events
}

func (ob *observation) cachedEvents(ctx context.Context, o *unstructured.Unstructured) recentEvents {
	now := ob.now()
	ob.recent.mu.Lock()
	known, ok := ob.recent.events[o.GetUID()]
	ob.recent.mu.Unlock()
	if ok && now.Sub(known.at) < eventsTTL {
		return known
	}
	defer ob.recent.inFlight.Add(-1)
	if ob.recent.inFlight.Add(1) > maxEventRequests {
		return known
	}
	known = ob.fetchEvents(ctx, o)
	known.at = now
	ob.recent.mu.Lock()
	defer ob.recent.mu.Unlock()
	if len(ob.recent.events) >= maxRecent || ob.recent.events == nil {
		ob.recent.events = map[types.UID]recentEvents{}
	}
	ob.recent.events[o.GetUID()] = known
	return known
}

func (ob *observation) fetchEvents(ctx context.Context, o *unstructured.Unstructured) (recent recentEvents) {
	clients, err := ob.cluster.connect(ctx)
	if err != nil {
		return recent
	}
	namespace := cmp.Or(o.GetNamespace(), metav1.NamespaceDefault) // the namespace of events of cluster-scoped objects
	list, err := clients.typed.Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(o.GetUID())})
	if err != nil {
		return recent
	}
	last := time.Time{}
	for i := range list.Items {
		e := &list.Items[i]
		text := fmt.Sprintf("%s %s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
		if e.Count > 1 {
			text += fmt.Sprintf(" (%d times)", e.Count)
		}
		if at := lastTime(e); e.Type == corev1.EventTypeWarning && !at.Before(last) {
			last, recent.warning = at, warning{reason: e.Reason, message: e.Message}
		}
		recent.events = append(recent.events, entities.Event{Timestamp: lastTime(e), Message: text})
	}
	return recent
}

func lastTime(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.UTC()
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.UTC()
	case !e.EventTime.IsZero():
		return e.EventTime.UTC()
	}
	return e.CreationTimestamp.UTC()
}
