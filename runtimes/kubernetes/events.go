package kubernetes

import (
	"context"
	"fmt"
	"sort"
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
	eventsTimeout = 2 * time.Second  // they are extra: a look does not wait long for them
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
func (l *look) events(ctx context.Context, object entities.Object, live *unstructured.Unstructured, p parts, found trouble) []entities.Event {
	newest := live
	if p.newest != nil {
		newest = p.newest
	}
	begun := p.newest == nil || templateVersion(p.newest) == templateVersion(live)
	young := !begun || l.now().Sub(newest.GetCreationTimestamp().Time) < eventsPatient
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
			all = append(all, l.eventsOf(ctx, o)...)
		}
	}
	sort.SliceStable(all, func(a, b int) bool { return all[a].Timestamp.Before(all[b].Timestamp) })
	return all[max(0, len(all)-maxEvents):]
}

// eventsOf asks for the events of one object, unless it was done a moment ago or many are asked for
// just now: when a whole cluster is in trouble, its server has better things to do.
func (l *look) eventsOf(ctx context.Context, o *unstructured.Unstructured) []entities.Event {
	now := l.now()
	l.happened.mu.Lock()
	known, ok := l.happened.all[o.GetUID()]
	l.happened.mu.Unlock()
	if ok && now.Sub(known.at) < eventsFor {
		return known.events
	}
	defer l.happened.asking.Add(-1)
	if l.happened.asking.Add(1) > eventsAtOnce {
		return known.events
	}
	known = recentEvents{at: now, events: l.askEvents(ctx, o)}
	l.happened.mu.Lock()
	defer l.happened.mu.Unlock()
	if len(l.happened.all) >= maxRemembered || l.happened.all == nil {
		l.happened.all = map[types.UID]recentEvents{}
	}
	l.happened.all[o.GetUID()] = known
	return known.events
}

func (l *look) askEvents(ctx context.Context, o *unstructured.Unstructured) (events []entities.Event) {
	clients, err := l.cluster.connect(ctx)
	if err != nil {
		return nil
	}
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault // where those of cluster-scoped objects are
	}
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
