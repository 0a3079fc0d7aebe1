package charts

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Capabilities are the captured Kubernetes version and APIs of a runtime's cluster. Charts see them when they are compiled.
type Capabilities struct {
	Runtime     string `yaml:"runtime"`
	KubeVersion string `yaml:"kubeVersion"`
	APIs        []API  `yaml:"apis"`
}

// API is one version of a group, with its kinds.
type API struct {
	GroupVersion string   `yaml:"groupVersion"`
	Kinds        []string `yaml:"kinds,flow"`
}

// CapabilitiesOf sorts the discovery results of a cluster: APIs as GROUP/VERSION, each with its kinds.
func CapabilitiesOf(runtime, kubeVersion string, apis map[string][]string) Capabilities {
	c := Capabilities{Runtime: runtime, KubeVersion: kubeVersion}
	for groupVersion, kinds := range apis {
		c.APIs = append(c.APIs, API{GroupVersion: groupVersion, Kinds: kinds})
	}
	return sortedCapabilities([]Capabilities{c})[0]
}

// APIVersions returns the APIs in the form for templates: GROUP/VERSION and GROUP/VERSION/KIND.
func (c Capabilities) APIVersions() []string {
	var all []string
	for _, api := range c.APIs {
		all = append(all, api.GroupVersion)
		for _, kind := range api.Kinds {
			all = append(all, api.GroupVersion+"/"+kind)
		}
	}
	return all
}

// CapabilitiesOf returns the captured capabilities of a runtime.
func (l Lock) CapabilitiesOf(runtime string) (Capabilities, bool) {
	at := slices.IndexFunc(l.Capabilities, func(c Capabilities) bool { return c.Runtime == runtime })
	if at < 0 {
		return Capabilities{}, false
	}
	return l.Capabilities[at], true
}

// sortedCapabilities returns the capabilities in a stable order, independent of the server.
func sortedCapabilities(all []Capabilities) []Capabilities {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Capabilities) int { return strings.Compare(a.Runtime, b.Runtime) })
	for n := range all {
		all[n].APIs = slices.Clone(all[n].APIs)
		for k := range all[n].APIs {
			kinds := slices.Sorted(slices.Values(all[n].APIs[k].Kinds))
			all[n].APIs[k].Kinds = slices.Compact(kinds)
		}
		slices.SortFunc(all[n].APIs, func(a, b API) int { return strings.Compare(a.GroupVersion, b.GroupVersion) })
	}
	return all
}

// The two with large counts are compiled at their first use: every start of a program would wait for them.
var (
	runtimeRE      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`) })
	kubeVersionRE  = regexp.MustCompile(`^v?1\.[0-9]{1,3}(\.[0-9]{1,3})?([-+][0-9A-Za-z.+-]{1,40})?$`)
	groupVersionRE = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	})
	kindRE = regexp.MustCompile(`^[A-Za-z][-A-Za-z0-9]{0,62}$`)
)

// Check returns an error if captured capabilities are invalid.
func (c Capabilities) Check() error {
	switch {
	case !runtimeRE().MatchString(c.Runtime):
		return fmt.Errorf("capabilities: invalid runtime name %q", clip(c.Runtime))
	case !kubeVersionRE.MatchString(c.KubeVersion):
		return fmt.Errorf("capabilities of %s: invalid Kubernetes version %q", c.Runtime, clip(c.KubeVersion))
	case len(c.APIs) == 0:
		return fmt.Errorf("capabilities of %s: it has no APIs", c.Runtime)
	}
	seen := map[string]bool{}
	for _, api := range c.APIs {
		switch {
		case !groupVersionRE().MatchString(api.GroupVersion):
			return fmt.Errorf("capabilities of %s: invalid GROUP/VERSION %q", c.Runtime, clip(api.GroupVersion))
		case seen[api.GroupVersion]:
			return fmt.Errorf("capabilities of %s: %s is listed twice", c.Runtime, api.GroupVersion)
		}
		seen[api.GroupVersion] = true
		for _, kind := range api.Kinds {
			if !kindRE.MatchString(kind) {
				return fmt.Errorf("capabilities of %s: invalid kind %q of %s", c.Runtime, clip(kind), api.GroupVersion)
			}
		}
	}
	return nil
}

func checkCapabilities(all []Capabilities) error {
	var errs []error
	seen := map[string]bool{}
	for _, c := range all {
		err := c.Check()
		if err == nil && seen[c.Runtime] {
			err = fmt.Errorf("capabilities of %s: they are listed twice", c.Runtime)
		}
		seen[c.Runtime] = true
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// clip shortens content of a damaged file for an error of one line.
func clip(text string) string {
	const limit = 60
	if len(text) > limit {
		return strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

// Difference describes a change of capabilities in a line; empty: no change.
func (c Capabilities) Difference(old Capabilities) string {
	var parts []string
	if old.KubeVersion != c.KubeVersion {
		parts = append(parts, c.KubeVersion+" instead of "+old.KubeVersion)
	}
	before, now := old.APIVersions(), c.APIVersions()
	missing := func(from, of []string) (n int, first string) {
		for _, api := range from {
			if !slices.Contains(of, api) {
				if n++; first == "" {
					first = api
				}
			}
		}
		return n, first
	}
	if n, first := missing(now, before); n > 0 {
		parts = append(parts, fmt.Sprintf("%d APIs added (%s)", n, first))
	}
	if n, first := missing(before, now); n > 0 {
		parts = append(parts, fmt.Sprintf("%d APIs removed (%s)", n, first))
	}
	return strings.Join(parts, ", ")
}
