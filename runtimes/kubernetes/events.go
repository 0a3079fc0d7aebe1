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
	eventsFor     = 30 * time.Second // at most one request per object and this period
	eventsPatient = time.Minute      // younger pending objects get this time before their events are requested
	eventsTimeout = 2 * time.Second  // events are optional: an observation does not wait long for them
	eventsAtOnce  = 2                // requests of one runtime: a server has no index for events and reads all of a namespace
	maxEvents     = 10
	maxRemembered = 2000 // objects
)

// happened caches the events of objects for a few seconds. The zero value is ready.
type happened struct {
	asking atomic.Int32
	mu     sync.Mutex
	all    map[types.UID]recentEvents
	said   map[string]recentWords // by pod, container and number of its ends
}

type recentEvents struct {
	at      time.Time
	events  []entities.Event
	warning warning // the last warning
}

// events lists the recent events of a troubled object, of its newest ReplicaSet and of a failing pod. They are for people:
// unreadable events are omitted.
func (ob *observation) events(ctx context.Context, object entities.Object, live *unstructured.Unstructured, p parts, found trouble) []entities.Event {
	newest := live
	if p.newest != nil {
		newest = p.newest
	}
	begun := p.newest == nil || madeStamp(p.newest) == templateStamp(live)
	young := !begun || ob.now().Sub(waitingSince(newest, p.targets, ob.now())) < eventsPatient
	if young && object.Status == entities.ObjectPending && found.message == "" && !conditionOf(newest, "ReplicaFailure").is("True") {
		return nil
	}
	all := ob.lastWords(ctx, found)
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

// eventsOf requests the events of one object, unless it did so a moment ago or many requests are under way: when a whole cluster has
// trouble, its server should not get more load.
func (ob *observation) eventsOf(ctx context.Context, o *unstructured.Unstructured) []entities.Event {
	return ob.recentOf(ctx, o).events
}

func (ob *observation) recentOf(ctx context.Context, o *unstructured.Unstructured) recentEvents {
	now := ob.now()
	ob.happened.mu.Lock()
	known, ok := ob.happened.all[o.GetUID()]
	ob.happened.mu.Unlock()
	if ok && now.Sub(known.at) < eventsFor {
		return known
	}
	defer ob.happened.asking.Add(-1)
	if ob.happened.asking.Add(1) > eventsAtOnce {
		return known
	}
	known = ob.askEvents(ctx, o)
	known.at = now
	ob.happened.mu.Lock()
	defer ob.happened.mu.Unlock()
	if len(ob.happened.all) >= maxRemembered || ob.happened.all == nil {
		ob.happened.all = map[types.UID]recentEvents{}
	}
	ob.happened.all[o.GetUID()] = known
	return known
}

func (ob *observation) askEvents(ctx context.Context, o *unstructured.Unstructured) (recent recentEvents) {
	clients, err := ob.cluster.connect(ctx)
	if err != nil {
		return recent
	}
	namespace := cmp.Or(o.GetNamespace(), metav1.NamespaceDefault) // the namespace of events of cluster-scoped objects
	list, err := clients.named.Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(o.GetUID())})
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
