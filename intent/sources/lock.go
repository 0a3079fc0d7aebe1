package sources

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/intent/charts"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Locking is the new lock of a configuration.
type Locking struct {
	Lock    charts.Lock
	Was     []byte   // content of the previous file; nil: there was none
	Changes []string // one line each
}

// MakeLock makes the lock for all charts of the services. It keeps existing entries, unless anew is set, and drops entries that are no
// longer used. Only this function resolves versions. Errors are reported at the reference to the chart.
func MakeLock(ctx context.Context, from *config.Reader, anew bool) (Locking, error) {
	m := &lockMaker{objectLoader: newLoader(from), done: map[charts.Ref]bool{}, anew: anew}
	old, err := m.lock()
	if err != nil {
		return m.made, fmt.Errorf("%s cannot be read: %w; delete it to lock all charts again", charts.LockFile, err)
	}
	m.made.Was = m.lockText
	for _, wanted := range m.wanted() {
		m.add(ctx, wanted, old)
	}
	m.keepCapabilities(old.Capabilities)
	for _, gone := range old.Charts {
		if !m.done[gone.Ref()] {
			m.made.Changes = append(m.made.Changes, fmt.Sprintf("%s: no longer used", gone.Ref()))
		}
	}
	return m.made, nil
}

// keepCapabilities keeps the captured capabilities of runtimes that the configuration still refers to.
func (m *lockMaker) keepCapabilities(all []charts.Capabilities) {
	for _, c := range all {
		if namesRuntime(m.Config, c.Runtime) {
			m.made.Lock.Capabilities = append(m.made.Lock.Capabilities, c)
		} else {
			m.made.Changes = append(m.made.Changes, fmt.Sprintf("capabilities of %s: no longer used", c.Runtime))
		}
	}
}

// namesRuntime reports whether a configuration declares a runtime, or may use it.
func namesRuntime(c *config.Config, name string) bool {
	for _, r := range c.Runtimes {
		if string(r.Spec.Name) == name {
			return true
		}
	}
	if c.Application == nil {
		return false
	}
	for _, channel := range c.Application.Spec.ReleaseChannels {
		for _, ref := range channel.Runtimes {
			if string(ref.Name) == name || len(ref.Selector) > 0 {
				return true
			}
		}
	}
	return false
}

// Capture writes the capabilities of clusters into the lock of a configuration, and does not change its charts. It keeps existing
// capabilities, unless anew is set. It calls ask for the others, which returns all of them or an error.
func Capture(from *config.Reader, runtimes []string, anew bool, ask func(runtimes []string) ([]charts.Capabilities, error)) (Locking, error) {
	m := &lockMaker{objectLoader: newLoader(from)}
	old, err := m.lock()
	if err != nil {
		return m.made, fmt.Errorf("%s cannot be used: %w; delete it to lock everything again", charts.LockFile, err)
	}
	m.made.Was, m.made.Lock.Charts = m.lockText, old.Charts
	m.keepCapabilities(old.Capabilities)
	runtimes = slices.DeleteFunc(slices.Clone(runtimes), func(name string) bool {
		_, captured := old.Of(name)
		return captured && !anew
	})
	if len(runtimes) == 0 {
		return m.made, nil
	}
	captured, err := ask(runtimes)
	if err != nil {
		return m.made, err
	}
	for _, c := range captured {
		if err := c.Check(); err != nil {
			return m.made, fmt.Errorf("the capabilities of the cluster cannot be locked: %w", err)
		}
		was, had := old.Of(c.Runtime)
		m.made.Lock.Capabilities = append(slices.DeleteFunc(m.made.Lock.Capabilities, func(o charts.Capabilities) bool { return o.Runtime == c.Runtime }), c)
		change := fmt.Sprintf("%s, %d APIs", c.KubeVersion, len(c.APIVersions()))
		if had {
			change = c.Difference(was)
		}
		if change != "" {
			m.made.Changes = append(m.made.Changes, fmt.Sprintf("capabilities of %s: %s", c.Runtime, change))
		}
	}
	return m.made, nil
}

type lockMaker struct {
	*objectLoader
	made Locking
	done map[charts.Ref]bool
	anew bool
}

// wantedChart is a chart to lock, and the first reference to it.
type wantedChart struct {
	ref charts.Ref
	by  func(strict.Fault)
}

// wanted returns the charts that services refer to, sorted by name.
func (m *lockMaker) wanted() (all []wantedChart) {
	for _, s := range m.Config.Services {
		look := func(at string, k *config.ServiceKubernetes) {
			if k != nil && k.Kustomize != "" && s.Has(at+".kustomize") {
				all = append(all, m.inKustomization(s, at+".kustomize", k.Kustomize)...)
			}
			if k == nil || k.Helm == nil {
				return
			}
			if named, ok := m.chartNamed(s, at+".helm", k.Helm); ok && named.Locked() {
				all = append(all, wantedChart{charts.RefOf(named.Chart, named.Repository, named.Version), func(fault strict.Fault) { m.wrong(s, at+".helm", fault) }})
			}
		}
		look("kubernetes", s.Spec.Kubernetes)
		for i, o := range s.Spec.PerReleaseChannel {
			look(strict.Index("perReleaseChannel", i)+".kubernetes", o.Kubernetes)
		}
	}
	slices.SortStableFunc(all, func(a, b wantedChart) int { return cmp.Compare(a.ref.String(), b.ref.String()) })
	return all
}

// inKustomization returns the charts of a kustomization and its bases.
func (m *lockMaker) inKustomization(s *config.Document[config.Service], at, name string) (all []wantedChart) {
	m.at(s, at, name, func(full string) []strict.Fault {
		found := &namedCharts{}
		g := &gatherer{fsys: m.FS, files: map[string][]byte{}, read: map[string]bool{}, locked: found}
		err := g.kustomization(full)
		for _, ref := range found.refs {
			all = append(all, wantedChart{ref, func(fault strict.Fault) { m.wrong(s, at, fault) }})
		}
		if err != nil {
			return []strict.Fault{refusal("kustomize", "the kustomization cannot be built: ", err)}
		}
		return nil
	})
	return all
}

// namedCharts implements lockedCharts: it records the requested charts and returns none.
type namedCharts struct{ refs []charts.Ref }

func (n *namedCharts) lockedChart(named config.ServiceHelm) (*Chart, error) {
	n.refs = append(n.refs, charts.RefOf(named.Chart, named.Repository, named.Version))
	return nil, nil //nolint:nilnil // it is left out
}

// add locks one chart.
func (m *lockMaker) add(ctx context.Context, wanted wantedChart, old charts.Lock) {
	if m.done[wanted.ref] {
		return
	}
	m.done[wanted.ref] = true
	was, locked := old.Find(wanted.ref)
	if locked && !m.anew {
		m.made.Lock.Charts = append(m.made.Lock.Charts, was)
		return
	}
	found, data, err := m.client().Resolve(ctx, wanted.ref)
	if err == nil {
		_, err = openAs(data, found)
	}
	if err != nil {
		wanted.by(strict.Fault{Code: "chart", Message: fmt.Sprintf("chart %s cannot be locked: %v", wanted.ref, err)})
		return
	}
	m.made.Lock.Charts = append(m.made.Lock.Charts, found)
	if change := changed(was, found, locked); change != "" {
		m.made.Changes = append(m.made.Changes, fmt.Sprintf("%s: %s", wanted.ref, change))
	}
}

// changed describes the change of a chart's entry; empty: no change.
func changed(was, is charts.Entry, locked bool) string {
	switch {
	case !locked:
		return fmt.Sprintf("%s, %s", is.Version, is.Digest)
	case was.Version != is.Version:
		return fmt.Sprintf("%s instead of %s, %s", is.Version, was.Version, is.Digest)
	case was.Digest != is.Digest:
		return fmt.Sprintf("the same version has another digest, %s instead of %s", is.Digest, was.Digest)
	case was != is:
		return "at another address"
	}
	return ""
}
