package entities

// IgnoredDifference names fields of objects that are somebody else's (H2). Names may have * in them; the group of what comes with
// the core is empty, and an empty name or namespace stands for any.
type IgnoredDifference struct {
	Group        string   `json:"group,omitempty"`
	Kind         string   `json:"kind"`
	Name         string   `json:"name,omitempty"`
	Namespace    string   `json:"namespace,omitempty"`
	JSONPointers []string `json:"jsonPointers,omitempty"`
	// Managers are who writes the fields.
	Managers []string `json:"managers,omitempty"`
}

// Is tells whether an object is meant.
func (d IgnoredDifference) Is(kind AllowedKind, namespace, name string) bool {
	fits := func(pattern, text string) bool { return pattern == "" || matchesOne([]string{pattern}, text) }
	return AllowedKind{Group: d.Group, Kind: d.Kind}.matches(kind) && fits(d.Namespace, namespace) && fits(d.Name, name)
}

// By tells whether what a manager writes is meant.
func (d IgnoredDifference) By(manager string) bool { return matchesOne(d.Managers, manager) }
