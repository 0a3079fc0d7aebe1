package kubernetes

import (
	"sort"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/converge-engine/converge/runtimes"
)

// store holds what a view has read, by name and by owner. It is filled by a reflector of client-go,
// from one goroutine, and read from any.
type store struct {
	// changed is told the owner of what came, changed or went after the first list.
	changed func(runtimes.Owner)
	// listed is told that the store holds a whole list.
	listed func()

	mu      sync.RWMutex
	filled  bool
	objects map[types.NamespacedName]*unstructured.Unstructured
	owned   map[runtimes.Owner][]*unstructured.Unstructured // few each: what one instance has of one kind
}

var _ cache.ReflectorStore = (*store)(nil)

func newStore(changed func(runtimes.Owner), listed func()) *store {
	return &store{
		changed: changed, listed: listed,
		objects: map[types.NamespacedName]*unstructured.Unstructured{},
		owned:   map[runtimes.Owner][]*unstructured.Unstructured{},
	}
}

func nameOf(o *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil // the reflector passes on only what it was told to take
	}
	o = slim(o)
	s.mu.Lock()
	old := s.put(o)
	s.mu.Unlock()
	s.tell(old, o)
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(object any) error {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	s.mu.Lock()
	old := s.drop(nameOf(o))
	s.mu.Unlock()
	s.tell(old, nil)
	return nil
}

// Replace implements cache.ReflectorStore: it is a list as a whole, and what of it differs from
// what was known changed while nobody watched.
func (s *store) Replace(list []any, _ string) error {
	type change struct{ old, now *unstructured.Unstructured }
	var changes []change
	there := make(map[types.NamespacedName]bool, len(list))
	s.mu.Lock()
	first := !s.filled
	for _, object := range list {
		o, ok := object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		o = slim(o)
		there[nameOf(o)] = true
		changes = append(changes, change{s.put(o), o})
	}
	for name := range s.objects {
		if !there[name] {
			changes = append(changes, change{s.drop(name), nil})
		}
	}
	s.filled = true
	s.mu.Unlock()
	s.listed()
	if first {
		return nil // what was there when the watch began is no change
	}
	for _, c := range changes {
		s.tell(c.old, c.now)
	}
	return nil
}

// Resync implements cache.ReflectorStore. Nothing is told again by the clock.
func (s *store) Resync() error { return nil }

// put and drop return what was there before; the lock is held.
func (s *store) put(o *unstructured.Unstructured) (old *unstructured.Unstructured) {
	old = s.drop(nameOf(o))
	s.objects[nameOf(o)] = o
	if owner, ours := ownerOf(o.GetLabels()); ours {
		if before := s.owned[owner]; len(before) > 0 {
			share(o, before[len(before)-1])
		}
		s.owned[owner] = append(s.owned[owner], o)
	}
	return old
}

func (s *store) drop(name types.NamespacedName) (old *unstructured.Unstructured) {
	old = s.objects[name]
	if old == nil {
		return nil
	}
	delete(s.objects, name)
	owner, ours := ownerOf(old.GetLabels())
	if !ours {
		return old
	}
	var rest []*unstructured.Unstructured
	for _, o := range s.owned[owner] {
		if o != old {
			rest = append(rest, o)
		}
	}
	if s.owned[owner] = rest; rest == nil {
		delete(s.owned, owner)
	}
	return old
}

// tell hints at an object that came, changed or went: at both owners, if it passed from one to
// another.
func (s *store) tell(old, now *unstructured.Unstructured) {
	if old != nil && now != nil && old.GetResourceVersion() == now.GetResourceVersion() {
		return
	}
	var before runtimes.Owner
	if old != nil {
		if owner, ours := ownerOf(old.GetLabels()); ours {
			before = owner
			s.changed(owner)
		}
	}
	if now != nil {
		if owner, ours := ownerOf(now.GetLabels()); ours && owner != before {
			s.changed(owner)
		}
	}
}

func (s *store) get(name types.NamespacedName) *unstructured.Unstructured {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[name]
}

// of lists what an owner has, by namespace and name.
func (s *store) of(owner runtimes.Owner) []*unstructured.Unstructured {
	s.mu.RLock()
	owned := append([]*unstructured.Unstructured(nil), s.owned[owner]...)
	s.mu.RUnlock()
	sort.Slice(owned, func(a, b int) bool {
		if owned[a].GetNamespace() != owned[b].GetNamespace() {
			return owned[a].GetNamespace() < owned[b].GetNamespace()
		}
		return owned[a].GetName() < owned[b].GetName()
	})
	return owned
}

func (s *store) owners() []runtimes.Owner {
	s.mu.RLock()
	defer s.mu.RUnlock()
	owners := make([]runtimes.Owner, 0, len(s.owned))
	for owner := range s.owned {
		owners = append(owners, owner)
	}
	return owners
}
