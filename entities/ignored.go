package entities

// IgnoredDifference names fields of objects that another party owns (H2). Names may contain "*". The core group is empty. An empty name or
// namespace matches any.
type IgnoredDifference struct {
	Group        string   `json:"group,omitempty"`
	Kind         string   `json:"kind"`
	Name         string   `json:"name,omitempty"`
	Namespace    string   `json:"namespace,omitempty"`
	JSONPointers []string `json:"jsonPointers,omitempty"`
	// Managers are the field managers that write the fields.
	Managers []string `json:"managers,omitempty"`
}

// Matches reports whether the rule applies to an object.
func (d IgnoredDifference) Matches(kind AllowedKind, namespace, name string) bool {
	fits := func(pattern, text string) bool { return pattern == "" || matchesOne([]string{pattern}, text) }
	return AllowedKind{Group: d.Group, Kind: d.Kind}.matches(kind) && fits(d.Namespace, namespace) && fits(d.Name, name)
}

// MatchesManager reports whether the rule applies to the fields of a manager.
func (d IgnoredDifference) MatchesManager(manager string) bool {
	return matchesOne(d.Managers, manager)
}
