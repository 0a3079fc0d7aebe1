package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
)

// The watches show only pods with our labels. This file reads what is known of the pods of an adopted workload, whose template has no
// marks yet (marks.go): their numbers from the status of the workload, and, while it is not ready, the pods by a request.

// unmarkedVersions reads the versions of a workload without marks from its status: its pods are not watched. The pods of an earlier
// template have an unknown version.
func unmarkedVersions(o *unstructured.Unstructured, names versionsByStamp) []entities.ObjectVersion {
	count := countsOf(o)
	all := tally{}
	if count.updated > 0 {
		all.add(names[templateStamp(o)], count.updated, min(count.updated, max(0, count.available-(count.all-count.updated))), 0)
	}
	if rest := count.all - count.updated; rest > 0 {
		all.add("", rest, min(rest, count.available), 0)
	}
	return all.versions(names[templateStamp(o)], count.desired)
}

// podCounts are numbers of pods: those of the current template are updated.
type podCounts struct{ desired, all, updated, available int }

// countsOf reads the counts of a workload from its status. A ReplicaSet does not replace the pods of an earlier template, and does not count
// them.
func countsOf(o *unstructured.Unstructured) podCounts {
	at := func(field string) int { return number(o, 0, "status", field) }
	if o.GetKind() == "DaemonSet" {
		return podCounts{at("desiredNumberScheduled"), at("currentNumberScheduled"), at("updatedNumberScheduled"), at("numberAvailable")}
	}
	count := podCounts{number(o, 1, "spec", "replicas"), at("replicas"), at("updatedReplicas"), at("availableReplicas")}
	if o.GetKind() == "ReplicaSet" {
		count.updated = count.all
	}
	return count
}

// addUnwatched adds the pods without marks that a rollout from an adopted template still has to replace: the watch does not show them.
func (t tally) addUnwatched(o *unstructured.Unstructured, names versionsByStamp) {
	stamp := o.GetAnnotations()[AnnotationUnmarked]
	if stamp == "" {
		return
	}
	count := countsOf(o)
	for _, v := range t {
		count.all -= v.Replicas
		count.available -= v.AvailableReplicas
	}
	if count.all > 0 {
		t.add(names[stamp], count.all, min(count.all, max(0, count.available)), 0)
	}
}

// unwatchedPods requests the pods of a workload, or a Job, whose template has no marks. They only explain why it is not ready, so an error
// is no pods.
func (ob *observation) unwatchedPods(ctx context.Context, o *unstructured.Unstructured) []*unstructured.Unstructured {
	selector, err := selectorIn(o)
	if err != nil {
		return nil
	}
	return ob.unwatched.podsOf(ob.now(), o.GetUID(), func() []*unstructured.Unstructured {
		creator := o
		if o.GetKind() == "Deployment" {
			if creator = newestOf(ob.listControlled(ctx, setKind(), o, selector)); creator == nil {
				return nil
			}
		}
		return ob.listControlled(ctx, podKind(), creator, selector)
	})
}

// listControlled requests the objects of a kind that a controller created for an object.
func (ob *observation) listControlled(ctx context.Context, kind schema.GroupVersionKind, by *unstructured.Unstructured, selector string) (made []*unstructured.Unstructured) {
	r, err := ob.cluster.resource(ctx, kind)
	if err != nil {
		return nil
	}
	clients, err := ob.cluster.connect(ctx)
	if err != nil {
		return nil
	}
	list, err := clients.resourceClient(r, by.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		if controller := metav1.GetControllerOfNoCopy(&list.Items[i]); controller != nil && controller.UID == by.GetUID() {
			made = append(made, slim(&list.Items[i]))
		}
	}
	return made
}

// selectorIn is the selector of a workload's pods.
func selectorIn(o *unstructured.Unstructured) (string, error) {
	text, err := json.Marshal(nestedMap(o.Object, "spec", "selector"))
	if err != nil {
		return "", err
	}
	wanted := &metav1.LabelSelector{}
	if err := json.Unmarshal(text, wanted); err != nil {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(wanted)
	if err != nil || selector.Empty() {
		return "", errors.Join(err, errors.New("no selector"))
	}
	return selector.String(), nil
}

// unwatchedTTL is the shortest time between two requests for the pods of one workload.
const unwatchedTTL = 5 * time.Second

// unwatched caches the requested pods of workloads for a few seconds. The zero value is ready.
type unwatched struct {
	mu  sync.Mutex
	all map[types.UID]recentPods
}

type recentPods struct {
	at   time.Time
	pods []*unstructured.Unstructured
}

func (u *unwatched) podsOf(now time.Time, workload types.UID, fetch func() []*unstructured.Unstructured) []*unstructured.Unstructured {
	u.mu.Lock()
	known, ok := u.all[workload]
	u.mu.Unlock()
	if ok && now.Sub(known.at) < unwatchedTTL {
		return known.pods
	}
	known = recentPods{now, fetch()}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil || len(u.all) >= maxRecent {
		u.all = map[types.UID]recentPods{}
	}
	u.all[workload] = known
	return known.pods
}
