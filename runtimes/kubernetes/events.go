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
	eventsFor     = 30 * time.Second // one request per object and this time at most
	eventsPatient = time.Minute      // what is younger and only pending is given time before it is asked about
	eventsTimeout = 2 * time.Second  // they are extra: an observation does not wait long for them
	eventsAtOnce  = 2                // requests of one runtime: a server has no index for them and reads all of a namespace
	maxEvents     = 10
	maxRemembered = 2000 // objects
)

// happened remembers the events of objects for a few seconds. The zero value is ready.
type happened struct {
	asking atomic.Int32
	mu     sync.Mutex
	all    map[types.UID]recentEvents
}

type recentEvents struct {
	at     time.Time
	events []entities.Event
}

// events lists what happened last to an object that is in trouble, to its newest ReplicaSet and to a
// pod that fails. They are for people: one that cannot be read is left out.
func (ob *observation) events(ctx context.Context, object entities.Object, live *unstructured.Unstructured, p parts, found trouble) []entities.Event {
	newest := live
	if p.newest != nil {
		newest = p.newest
	}
	begun := p.newest == nil || templateVersion(p.newest) == templateVersion(live)
	young := !begun || ob.now().Sub(newest.GetCreationTimestamp().Time) < eventsPatient
	if young && object.Status == entities.ObjectPending && found.message == "" && !conditionOf(newest, "ReplicaFailure").is("True") {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	var all []entities.Event
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

// eventsOf asks for the events of one object, unless it was done a moment ago or many are asked for
// just now: when a whole cluster is in trouble, its server has better things to do.
func (ob *observation) eventsOf(ctx context.Context, o *unstructured.Unstructured) []entities.Event {
	now := ob.now()
	ob.happened.mu.Lock()
	known, ok := ob.happened.all[o.GetUID()]
	ob.happened.mu.Unlock()
	if ok && now.Sub(known.at) < eventsFor {
		return known.events
	}
	defer ob.happened.asking.Add(-1)
	if ob.happened.asking.Add(1) > eventsAtOnce {
		return known.events
	}
	known = recentEvents{at: now, events: ob.askEvents(ctx, o)}
	ob.happened.mu.Lock()
	defer ob.happened.mu.Unlock()
	if len(ob.happened.all) >= maxRemembered || ob.happened.all == nil {
		ob.happened.all = map[types.UID]recentEvents{}
	}
	ob.happened.all[o.GetUID()] = known
	return known.events
}

func (ob *observation) askEvents(ctx context.Context, o *unstructured.Unstructured) (events []entities.Event) {
	clients, err := ob.cluster.connect(ctx)
	if err != nil {
		return nil
	}
	namespace := cmp.Or(o.GetNamespace(), metav1.NamespaceDefault) // where those of cluster-scoped objects are
	list, err := clients.typed.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(o.GetUID())})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		e := &list.Items[i]
		text := fmt.Sprintf("%s %s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
		if e.Count > 1 {
			text += fmt.Sprintf(" (%d times)", e.Count)
		}
		events = append(events, entities.Event{Timestamp: lastTime(e), Message: text})
	}
	return events
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
