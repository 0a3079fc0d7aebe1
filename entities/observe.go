package entities

// Watch is one observation that should be under way: instances of one runtime, either moving
// (looked at often) or steady (seldom). At most two exist per runtime (DESIGN section 3).
type Watch struct {
	Runtime string
	Moving  bool
	Looks   []Look // by channel
}

// Look is one instance of a watch.
type Look struct {
	Channel string
	Target  Target // zero when nothing was applied yet
	Known   string // digest of what is known; empty: whatever is seen is news
}

// Key tells watches of one service apart.
func (w Watch) Key() string {
	if w.Moving {
		return w.Runtime + "/moving"
	}
	return w.Runtime + "/steady"
}

// Watches says what should be under observation, sorted by key. An instance with an apply running
// is not looked at: the apply ends with a look of its own.
func (s *State) Watches() []Watch {
	byKey := map[string]*Watch{}
	if s.Spec == nil {
		return nil
	}
	for _, c := range s.Spec.Channels {
		rt, i := s.Spec.Runtimes[c.Runtime], s.Instances[c.Name]
		if i == nil || !rt.looksAt(i) || i.Progress.Running {
			continue
		}
		w := Watch{Runtime: c.Runtime, Moving: s.moving(i)}
		if byKey[w.Key()] == nil {
			byKey[w.Key()] = &w
		}
		l := Look{Channel: c.Name, Known: i.Known}
		if i.Target != nil {
			l.Target = *i.Target
		}
		if i.Look {
			l.Known = ""
		}
		byKey[w.Key()].Looks = append(byKey[w.Key()].Looks, l)
	}
	out := make([]Watch, 0, len(byKey))
	for _, key := range SortedKeys(byKey) {
		out = append(out, *byKey[key])
	}
	return out
}

// looksAt tells whether an instance can be looked at; by exit code only once it has a version to
// ask about (C7).
func (r RuntimeSpec) looksAt(i *Instance) bool {
	return r.Looks && (r.Mode != FetchExitCode || i.Target != nil)
}

// moving: something is expected to change soon, so that a short interval pays.
func (s *State) moving(i *Instance) bool {
	switch {
	case i.Look || i.Known == "":
		return true
	case i.Target == nil || i.Failure != "":
		return false
	case !i.Converged:
		return true
	}
	return i.Progress.Attempts > 0 || !i.Fresh && i.Progress.OK
}
